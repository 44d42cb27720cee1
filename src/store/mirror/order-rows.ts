import type Database from 'better-sqlite3';
import type { OrderItem, OrderSource } from '../../domain/order.ts';
import { bound, itemRow, modifierRow, ORDER_COLUMNS, sameRow, type Value } from './order-columns.ts';

/** What the mirror has of an order. */
export interface KnownRow {
  /** In the order of ORDER_COLUMNS. */
  values: Value[];
  seq: number;
  eventSource: OrderSource;
  pollDigest: string | null;
  payloadSource: OrderSource;
  payload: string;
}

export interface OrderWrite {
  orderId: string;
  values: Value[];
  seq: number;
  source: OrderSource;
  updatedAt: string;
  pollDigest: string | null;
  payload: string;
}

const FIELD_COLUMNS = ORDER_COLUMNS.map(([, column]) => column);
const OWN_COLUMNS = ['seq', 'event_source', 'poll_digest', 'payload_source', 'payload'];
const WRITTEN = [...FIELD_COLUMNS, ...OWN_COLUMNS, 'updated_at'];

/** Statements on `orders` and the rows below it. Transactions are the caller's. */
export class OrderRows {
  readonly #digest: Database.Statement<[string], [string | null, number | null]>;
  readonly #known: Database.Statement<[string], unknown[]>;
  readonly #insert: Database.Statement;
  readonly #update: Database.Statement;
  readonly #updatePayload: Database.Statement;
  readonly #updateDigest: Database.Statement;
  readonly #items: Database.Statement<[string], Value[]>;
  readonly #modifiers: Database.Statement<[string], Value[]>;
  readonly #insertItem: Database.Statement;
  readonly #insertModifier: Database.Statement;
  readonly #deleteItems: Database.Statement;
  readonly #deleteModifiers: Database.Statement;

  constructor(db: Database.Database) {
    this.#digest = db
      .prepare<[string], [string | null, number | null]>(
        'SELECT poll_digest, code FROM orders WHERE order_id = ?',
      )
      .raw();
    this.#known = db
      .prepare<[string], unknown[]>(
        `SELECT ${[...FIELD_COLUMNS, ...OWN_COLUMNS]} FROM orders WHERE order_id = ?`,
      )
      .raw();
    this.#insert = db.prepare(
      `INSERT INTO orders (${WRITTEN}, order_id) VALUES (${WRITTEN.map(() => '?')}, ?)`,
    );
    this.#update = db.prepare(
      `UPDATE orders SET ${WRITTEN.map((column) => `${column} = ?`)} WHERE order_id = ?`,
    );
    this.#updatePayload = db.prepare('UPDATE orders SET payload = ?, poll_digest = ? WHERE order_id = ?');
    this.#updateDigest = db.prepare('UPDATE orders SET poll_digest = ? WHERE order_id = ?');
    this.#items = db
      .prepare<[string], Value[]>('SELECT * FROM order_items WHERE order_id = ? ORDER BY line')
      .raw();
    this.#modifiers = db
      .prepare<[string], Value[]>(
        'SELECT * FROM order_item_modifiers WHERE order_id = ? ORDER BY line, modifier',
      )
      .raw();
    const marks = (count: number) => Array.from({ length: count }, () => '?');
    this.#insertItem = db.prepare(`INSERT INTO order_items VALUES (${marks(10)})`);
    this.#insertModifier = db.prepare(`INSERT INTO order_item_modifiers VALUES (${marks(11)})`);
    this.#deleteItems = db.prepare('DELETE FROM order_items WHERE order_id = ?');
    this.#deleteModifiers = db.prepare('DELETE FROM order_item_modifiers WHERE order_id = ?');
  }

  /** Digest of the poll's record last confirmed, and the code; undefined when the order is not known. */
  digestOf(orderId: string): { pollDigest: string | null; code: number | null } | undefined {
    const row = this.#digest.get(orderId);
    return row && { pollDigest: row[0], code: row[1] };
  }

  known(orderId: string): KnownRow | undefined {
    const row = this.#known.get(orderId);
    if (!row) return undefined;
    const [seq, eventSource, pollDigest, payloadSource, payload] = row.splice(FIELD_COLUMNS.length);
    return { values: row, seq, eventSource, pollDigest, payloadSource, payload } as KnownRow;
  }

  insert(order: OrderWrite): void {
    this.#insert.run(...written(order));
  }

  update(order: OrderWrite): void {
    this.#update.run(...written(order));
  }

  updatePayload(orderId: string, payload: string, pollDigest: string | null): void {
    this.#updatePayload.run(payload, pollDigest, orderId);
  }

  updateDigest(orderId: string, pollDigest: string | null): void {
    this.#updateDigest.run(pollDigest, orderId);
  }

  hasItems(orderId: string, items: readonly OrderItem[]): boolean {
    const rows = this.#items.all(orderId);
    if (rows.length !== items.length) return false;
    if (!items.every((item, i) => sameRow(rows[i] as Value[], itemRow(orderId, i + 1, item)))) return false;
    const modifiers = this.#modifiers.all(orderId);
    const sent = items.flatMap((item, i) =>
      item.modifiers.map((modifier, j) => modifierRow(orderId, i + 1, j + 1, modifier)),
    );
    return sent.length === modifiers.length && sent.every((row, i) => sameRow(row, modifiers[i] as Value[]));
  }

  insertItems(orderId: string, items: readonly OrderItem[]): void {
    for (let i = 0; i < items.length; i++) {
      const item = items[i] as OrderItem;
      this.#insertItem.run(...bound(itemRow(orderId, i + 1, item)));
      for (let j = 0; j < item.modifiers.length; j++) {
        const modifier = item.modifiers[j] as OrderItem['modifiers'][number];
        this.#insertModifier.run(...bound(modifierRow(orderId, i + 1, j + 1, modifier)));
      }
    }
  }

  replaceItems(orderId: string, items: readonly OrderItem[]): void {
    this.#deleteItems.run(orderId);
    this.#deleteModifiers.run(orderId);
    this.insertItems(orderId, items);
  }
}

function written(order: OrderWrite): unknown[] {
  const { values, seq, source, pollDigest, payload, updatedAt, orderId } = order;
  return bound([...values, seq, source, pollDigest, source, payload, updatedAt, orderId]);
}
