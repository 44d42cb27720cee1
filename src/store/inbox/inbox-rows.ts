import type Database from 'better-sqlite3';
import type { ChangeKind } from '../../domain/change.ts';

/** One row as the POS inserted it, in the shape of a change before it is checked. */
export interface InboxChange {
  id: number;
  /** Unique among all rows there ever were. */
  key: string;
  kind: ChangeKind;
  reference: string | null;
  value: Record<string, unknown>;
}

export interface InboxAck {
  id: number;
  key: string;
  orderId: string;
}

export interface InboxBatch {
  changes: InboxChange[];
  acks: InboxAck[];
  /** Whether rows are left behind. */
  more: boolean;
}

type Row = Record<string, unknown> & { id: number; change_key: string; reference: unknown };

const WIRE_NAMES: Record<string, string> = {
  external_id: 'externalId',
  subsidiary_id: 'subsidiaryId',
  subsidiary_external_id: 'subsidiaryExternalId',
};
const OWN_COLUMNS = new Set(['id', 'change_key', 'inserted_at', 'reference']);
const ID_COLUMNS = new Set(['external_id', 'subsidiary_id', 'subsidiary_external_id']);

/** Statements on the three tables of the inbox. */
export class InboxRows {
  readonly #db: Database.Database;
  readonly #stock: Database.Statement<[number], Row>;
  readonly #product: Database.Statement<[number], Row>;
  readonly #acks: Database.Statement<[number], { id: number; change_key: string; order_id: unknown }>;
  readonly #dropStock: Database.Statement<[number, string]>;
  readonly #dropProduct: Database.Statement<[number, string]>;
  readonly #dropAck: Database.Statement<[number, string]>;

  constructor(db: Database.Database) {
    this.#db = db;
    this.#stock = db.prepare('SELECT * FROM stock_changes ORDER BY id LIMIT ?');
    this.#product = db.prepare('SELECT * FROM product_changes ORDER BY id LIMIT ?');
    this.#acks = db.prepare('SELECT id, change_key, order_id FROM order_acks ORDER BY id LIMIT ?');
    // By key as well: another row may have been inserted under the number of one that is gone.
    this.#dropStock = db.prepare('DELETE FROM stock_changes WHERE id = ? AND change_key = ?');
    this.#dropProduct = db.prepare('DELETE FROM product_changes WHERE id = ? AND change_key = ?');
    this.#dropAck = db.prepare('DELETE FROM order_acks WHERE id = ? AND change_key = ?');
  }

  /** One consistent view of the three tables. */
  read(limit: number): InboxBatch {
    return this.#db.transaction(() => {
      const stock = this.#stock.all(limit);
      const product = this.#product.all(limit);
      const acks = stock.length < limit ? this.#acks.all(limit) : [];
      return {
        changes: [
          ...stock.map((row) => changeOf('stock', row)),
          ...product.map((row) => changeOf('product', row)),
        ],
        acks: acks.map((row) => ({
          id: row.id,
          key: `ack:${row.change_key}`,
          orderId: String(row.order_id),
        })),
        more: stock.length === limit || product.length === limit || acks.length === limit,
      };
    })();
  }

  remove(batch: InboxBatch): void {
    if (batch.changes.length === 0 && batch.acks.length === 0) return;
    this.#db
      .transaction(() => {
        for (const { id, key, kind } of batch.changes) {
          const drop = kind === 'stock' ? this.#dropStock : this.#dropProduct;
          drop.run(id, key.slice(kind.length + 1));
        }
        for (const { id, key } of batch.acks) this.#dropAck.run(id, key.slice('ack:'.length));
      })
      .immediate();
  }
}

function changeOf(kind: ChangeKind, row: Row): InboxChange {
  const value: Record<string, unknown> = {};
  for (const [column, content] of Object.entries(row)) {
    if (content === null || OWN_COLUMNS.has(column)) continue;
    value[WIRE_NAMES[column] ?? column] = wireValue(column, content);
  }
  const reference = row.reference === null ? null : String(row.reference);
  return { id: row.id, key: `${kind}:${row.change_key}`, kind, reference, value };
}

function wireValue(column: string, content: unknown): unknown {
  if (ID_COLUMNS.has(column) && typeof content === 'number') return String(content);
  if (column === 'show' && (content === 0 || content === 1)) return content === 1;
  return content;
}
