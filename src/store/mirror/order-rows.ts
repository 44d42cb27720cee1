import type Database from 'better-sqlite3';
import type { OrderItem, OrderSource } from '../../domain/order/order.ts';
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
  updatedAt: string;
  /** When the payload came, where that was after the newest event. */
  payloadAt: string | null;
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
const READ = [...WRITTEN, 'payload_at'];
/** Where the rows of items and modifiers have what counts them, from 1. */
const [LINE_AT, MODIFIER_AT] = [1, 2];

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
    this.#known = db.prepare<[string], unknown[]>(`SELECT ${READ} FROM orders WHERE order_id = ?`).raw();
    this.#insert = db.prepare(
      `INSERT INTO orders (${WRITTEN}, order_id) VALUES (${WRITTEN.map(() => '?')}, ?)`,
    );
    this.#update = db.prepare(
      `UPDATE orders SET ${WRITTEN.map((column) => `${column} = ?`)}, payload_at = NULL WHERE order_id = ?`,
    );
    this.#updatePayload = db.prepare(
      'UPDATE orders SET payload = ?, payload_at = ?, poll_digest = ? WHERE order_id = ?',
    );
    this.#updateDigest = db.prepare('UPDATE orders SET poll_digest = ? WHERE order_id = ?');
    // In no order: ORDER BY makes so small a query three times as long, even where there is nothing to sort.
    this.#items = db.prepare<[string], Value[]>('SELECT * FROM order_items WHERE order_id = ?').raw();
    this.#modifiers = db
      .prepare<[string], Value[]>('SELECT * FROM order_item_modifiers WHERE order_id = ?')
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
    const own = row.splice(FIELD_COLUMNS.length);
    const [seq, eventSource, pollDigest, payloadSource, payload, updatedAt, payloadAt] = own;
    return {
      values: row,
      ...{ seq, eventSource, pollDigest, payloadSource, payload, updatedAt, payloadAt },
    } as KnownRow;
  }

  insert(order: OrderWrite): void {
    this.#insert.run(...written(order));
  }

  update(order: OrderWrite): void {
    this.#update.run(...written(order));
  }

  updatePayload(orderId: string, payload: string, receivedAt: string, pollDigest: string | null): void {
    this.#updatePayload.run(payload, receivedAt, pollDigest, orderId);
  }

  updateDigest(orderId: string, pollDigest: string | null): void {
    this.#updateDigest.run(pollDigest, orderId);
  }

  /** Whether the mirror has just these items of the order. */
  hasItems(orderId: string, items: readonly OrderItem[]): boolean {
    const rows = this.#items.all(orderId);
    if (rows.length !== items.length) return false;
    for (const row of rows) {
      const line = row[LINE_AT] as number;
      const item = items[line - 1];
      if (!item || !sameRow(row, itemRow(orderId, line, item))) return false;
    }
    const modifiers = this.#modifiers.all(orderId);
    if (modifiers.length !== items.reduce((sum, item) => sum + item.modifiers.length, 0)) return false;
    for (const row of modifiers) {
      const [line, number] = [row[LINE_AT] as number, row[MODIFIER_AT] as number];
      const modifier = items[line - 1]?.modifiers[number - 1];
      if (!modifier || !sameRow(row, modifierRow(orderId, line, number, modifier))) return false;
    }
    return true;
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
