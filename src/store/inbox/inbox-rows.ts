import type Database from 'better-sqlite3';
import type { ChangeKind } from '../../domain/change/change.ts';

/** One row as the POS inserted it, in the shape of a change before it is checked. */
export interface InboxChange {
  id: bigint;
  /** Unique among all rows there ever were. */
  key: string;
  keyHex: string;
  kind: ChangeKind;
  reference: string | null;
  value: Record<string, unknown>;
}

export interface InboxAck {
  id: bigint;
  key: string;
  /** The bytes of the row's own key. */
  keyHex: string;
  orderId: string;
}

export interface InboxBatch {
  changes: InboxChange[];
  acks: InboxAck[];
  /** Whether rows are left behind. */
  more: boolean;
}

type Key = { id: bigint; change_key: unknown; key_hex: string };
type Row = Record<string, unknown> & Key & { reference: unknown };

const WIRE_NAMES: Record<string, string> = {
  external_id: 'externalId',
  subsidiary_id: 'subsidiaryId',
  subsidiary_external_id: 'subsidiaryExternalId',
};
const OWN_COLUMNS = new Set(['id', 'change_key', 'key_hex', 'inserted_at', 'reference']);
const ID_COLUMNS = new Set(['external_id', 'subsidiary_id', 'subsidiary_external_id']);

/** Statements on the three tables of the inbox. */
export class InboxRows {
  readonly #db: Database.Database;
  readonly #stock: Database.Statement<[number], Row>;
  readonly #product: Database.Statement<[number], Row>;
  readonly #acks: Database.Statement<[number], Key & { order_id: unknown }>;
  readonly #dropStock: Database.Statement<[bigint, string]>;
  readonly #dropProduct: Database.Statement<[bigint, string]>;
  readonly #dropAck: Database.Statement<[bigint, string]>;

  constructor(db: Database.Database) {
    this.#db = db;
    // An id may be a whole number of 64 bits, and a key the bytes of a GUID: neither may lose anything on its way.
    const all = <T>(table: string) =>
      db
        .prepare<[number], T>(`SELECT *, hex(change_key) AS key_hex FROM ${table} ORDER BY id LIMIT ?`)
        .safeIntegers();
    this.#stock = all('stock_changes');
    this.#product = all('product_changes');
    this.#acks = all('order_acks');
    // By key as well: another row may have been inserted under the number of one that is gone.
    const drop = (table: string) =>
      db.prepare<[bigint, string]>(`DELETE FROM ${table} WHERE id = ? AND hex(change_key) = ?`);
    this.#dropStock = drop('stock_changes');
    this.#dropProduct = drop('product_changes');
    this.#dropAck = drop('order_acks');
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
          key: `ack:${keyText(row)}`,
          keyHex: row.key_hex,
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
        for (const { id, keyHex, kind } of batch.changes) {
          const drop = kind === 'stock' ? this.#dropStock : this.#dropProduct;
          drop.run(id, keyHex);
        }
        for (const { id, keyHex } of batch.acks) this.#dropAck.run(id, keyHex);
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
  return { id: row.id, key: `${kind}:${keyText(row)}`, keyHex: row.key_hex, kind, reference, value };
}

/** The key as it is told and noted: a text as it is, other bytes in hexadecimal digits. */
function keyText({ change_key: key, key_hex: hex }: Key): string {
  return typeof key === 'string' && !key.includes('\uFFFD') ? key : `x'${hex}'`;
}

function wireValue(column: string, content: unknown): unknown {
  if (ID_COLUMNS.has(column) && typeof content === 'bigint') return String(content);
  if (column === 'show' && (content === 0n || content === 1n)) return content === 1n;
  // No other number is above what JavaScript keeps exactly: the inbox refuses it.
  return typeof content === 'bigint' ? Number(content) : content;
}
