import type Database from 'better-sqlite3';
import type { ChangeKind } from '../../domain/change/change.ts';
import { INBOX_TABLES, type InboxTable } from './inbox-schema.ts';

/** One row as it is told from one process to the other. */
export interface InboxRow {
  table: InboxTable;
  /** Digits of a whole number of 64 bits. */
  id: string;
  /** Unique among all rows there ever were. */
  key: string;
  /** The bytes of the row's own key as hexadecimal digits; `#` and their number where they are too many. */
  keyHex: string;
  /** The first value that has more bytes than are taken; the row then has none of the long ones. */
  tooLong: { column: string; bytes: number; maxBytes: number } | null;
}

/** One row as the POS inserted it, in the shape of a change before it is checked. */
export interface InboxChange extends InboxRow {
  kind: ChangeKind;
  reference: string | null;
  value: Record<string, unknown>;
}

export interface InboxAck extends InboxRow {
  orderId: string;
}

export interface InboxBatch {
  changes: InboxChange[];
  acks: InboxAck[];
  /** Whether rows are left behind. */
  more: boolean;
}

/** What waits: `rows` is counted no further than `COUNTED_MAX`. */
export interface InboxWaiting {
  rows: number;
  /** When the oldest row was inserted, as the row itself says; null: nothing waits, or it does not say. */
  oldest: string | null;
}

/** The least whole number of 64 bits: every row has this number or a higher one. */
export const FIRST_ID = '-9223372036854775808';
export const COUNTED_MAX = 100_000;

/** Bytes of an id of 200 characters, of a reference of 1,000 and of a text of 100,000: more is taken by nobody. */
const ID_BYTES = 800;
const REFERENCE_BYTES = 4_000;
const TEXT_BYTES = 400_000;
const COLUMNS: Record<InboxTable, Record<string, number>> = {
  stock_changes: {
    external_id: ID_BYTES,
    sku: ID_BYTES,
    qty: ID_BYTES,
    show: ID_BYTES,
    subsidiary_id: ID_BYTES,
    subsidiary_external_id: ID_BYTES,
    reference: REFERENCE_BYTES,
  },
  product_changes: {
    external_id: ID_BYTES,
    sku: ID_BYTES,
    price: ID_BYTES,
    name: TEXT_BYTES,
    description: TEXT_BYTES,
    show: ID_BYTES,
    reference: REFERENCE_BYTES,
  },
  order_acks: { order_id: ID_BYTES },
};
/** What one batch gives at most, so that no row waits long behind others, and no memory fills. */
const BATCH_BYTES = 1024 * 1024;
/** What one batch removes at most: SQLite walks through every page of a long value. */
const REMOVED_BYTES = 64 * 1024 * 1024;

/** What the columns of ids are called in a change. */
export const WIRE_NAMES: Readonly<Record<string, string>> = {
  external_id: 'externalId',
  subsidiary_id: 'subsidiaryId',
  subsidiary_external_id: 'subsidiaryExternalId',
};
const ID_COLUMNS = new Set(['external_id', 'subsidiary_id', 'subsidiary_external_id']);

type Lengths = Record<string, bigint | null> & { id: bigint; change_key: bigint };
type Values = Record<string, unknown>;

interface Statements {
  /** Bytes of each value, which SQLite tells without reading the value. */
  lengths: Database.Statement<[bigint, number], Lengths>;
  value: (column: string) => Database.Statement<[bigint], unknown>;
  row: Database.Statement<[bigint], Values>;
  drop: Database.Statement<[bigint, string]>;
  dropLongKey: Database.Statement<[bigint, bigint]>;
  count: Database.Statement<[], number>;
  oldest: Database.Statement<[], string | null>;
}

/** Statements on the three tables of the inbox. */
export class InboxRows {
  readonly #db: Database.Database;
  readonly #beforeEach: () => void;
  readonly #inode: number;
  readonly #tables: Record<InboxTable, Statements>;

  /** `beforeEach` is called in every transaction before anything of the tables is looked at. */
  constructor(db: Database.Database, inode: number, beforeEach: () => void) {
    this.#db = db;
    this.#inode = inode;
    this.#beforeEach = beforeEach;
    this.#tables = {
      stock_changes: statementsOn(db, 'stock_changes'),
      product_changes: statementsOn(db, 'product_changes'),
      order_acks: statementsOn(db, 'order_acks'),
    };
  }

  /**
   * One consistent view of the three tables: the oldest rows from these numbers on, at most `limit` of each table and
   * about a megabyte together. Acknowledgements are given only when no count is left behind.
   */
  read(limit: number, from: Partial<Record<InboxTable, string>> = {}): InboxBatch {
    return this.#db.transaction(() => {
      this.#beforeEach();
      const room = { bytes: BATCH_BYTES, removed: REMOVED_BYTES, isFirst: true };
      const stock = this.#page('stock_changes', limit, room, from);
      const product = this.#page('product_changes', limit, room, from);
      const acks = stock.more ? { rows: [], more: true } : this.#page('order_acks', limit, room, from);
      return {
        changes: [
          ...stock.rows.map(({ row, values }) => changeOf('stock', row, values)),
          ...product.rows.map(({ row, values }) => changeOf('product', row, values)),
        ],
        acks: acks.rows.map(({ row, values }) => ({ ...row, orderId: String(values.order_id) })),
        more: stock.more || product.more || acks.more,
      };
    })();
  }

  waiting(): InboxWaiting {
    return this.#db.transaction(() => {
      this.#beforeEach();
      const all = INBOX_TABLES.map((table) => this.#tables[table]);
      const oldest = all.map((table) => table.oldest.get() ?? null).filter((each) => each !== null);
      return {
        rows: all.reduce((sum, { count }) => sum + Number(count.get() ?? 0), 0),
        oldest: oldest.sort()[0] ?? null,
      };
    })();
  }

  remove(rows: readonly InboxRow[]): void {
    if (rows.length === 0) return;
    this.#db
      .transaction(() => {
        this.#beforeEach();
        for (const { table, id, keyHex } of rows) {
          const { drop, dropLongKey } = this.#tables[table];
          if (keyHex.startsWith('#')) dropLongKey.run(BigInt(id), BigInt(keyHex.slice(1)));
          else drop.run(BigInt(id), keyHex);
        }
      })
      .immediate();
  }

  #page(
    table: InboxTable,
    limit: number,
    room: { bytes: number; removed: number; isFirst: boolean },
    from: Partial<Record<InboxTable, string>>,
  ): { rows: { row: InboxRow; values: Values }[]; more: boolean } {
    const found = this.#tables[table].lengths.all(BigInt(from[table] ?? FIRST_ID), limit);
    const rows: { row: InboxRow; values: Values }[] = [];
    for (const lengths of found) {
      const { id: _, ...sizes } = lengths;
      const bytes = Object.values(sizes).reduce<number>((sum, each) => sum + Number(each ?? 0), 0);
      const short = this.#tooLong(table, lengths) === null;
      if (short) room.bytes -= bytes;
      else room.removed -= bytes;
      if (!room.isFirst && (room.bytes < 0 || room.removed < 0)) return { rows, more: true };
      room.isFirst = false;
      rows.push(this.#row(table, lengths));
    }
    return { rows, more: found.length === limit };
  }

  #tooLong(table: InboxTable, lengths: Lengths): InboxRow['tooLong'] {
    const limits = { ...COLUMNS[table], change_key: ID_BYTES };
    for (const [column, maxBytes] of Object.entries(limits)) {
      const bytes = Number(lengths[column] ?? 0);
      if (bytes > maxBytes) return { column, bytes, maxBytes };
    }
    return null;
  }

  #row(table: InboxTable, lengths: Lengths): { row: InboxRow; values: Values } {
    const { row, value } = this.#tables[table];
    const { id } = lengths;
    const tooLong = this.#tooLong(table, lengths);
    const key = { table, id: String(id), tooLong };
    if (tooLong === null) {
      const { change_key: own, key_hex: keyHex, ...values } = row.get(id) as Values & { key_hex: string };
      return { row: { ...key, key: `${prefixOf(table)}:${keyText(own, keyHex)}`, keyHex }, values };
    }
    const values: Values = {};
    for (const [column, maxBytes] of Object.entries(COLUMNS[table])) {
      const bytes = lengths[column] ?? null;
      values[column] = bytes !== null && bytes <= maxBytes ? value(column).get(id) : null;
    }
    if (lengths.change_key > ID_BYTES) {
      const place = `long-key-${this.#inode}-${id}-${lengths.change_key}`;
      return {
        row: { ...key, key: `${prefixOf(table)}:${place}`, keyHex: `#${lengths.change_key}` },
        values,
      };
    }
    const own = value('change_key').get(id);
    const keyHex = String(value('hex(change_key)').get(id));
    return { row: { ...key, key: `${prefixOf(table)}:${keyText(own, keyHex)}`, keyHex }, values };
  }
}

function statementsOn(db: Database.Database, table: InboxTable): Statements {
  const columns = Object.keys(COLUMNS[table]);
  const lengths = [...columns, 'change_key'].map((column) => `octet_length(${column}) AS ${column}`);
  const values = new Map<string, Database.Statement<[bigint], unknown>>();
  return {
    // An id may be a whole number of 64 bits, and a key the bytes of a GUID: neither may lose anything on its way.
    lengths: db
      .prepare<[bigint, number], Lengths>(
        `SELECT id, ${lengths.join(', ')} FROM ${table} WHERE id >= ? ORDER BY id LIMIT ?`,
      )
      .safeIntegers(),
    row: db
      .prepare<[bigint], Values>(
        `SELECT ${columns.join(', ')}, change_key, hex(change_key) AS key_hex FROM ${table} WHERE id = ?`,
      )
      .safeIntegers(),
    value(column) {
      const known = values.get(column);
      if (known) return known;
      const made = db
        .prepare<[bigint], unknown>(`SELECT ${column} FROM ${table} WHERE id = ?`)
        .pluck()
        .safeIntegers();
      values.set(column, made);
      return made;
    },
    // By key as well: another row may have been inserted under the number of one that is gone.
    drop: db.prepare<[bigint, string]>(`DELETE FROM ${table} WHERE id = ? AND hex(change_key) = ?`),
    dropLongKey: db.prepare<[bigint, bigint]>(
      `DELETE FROM ${table} WHERE id = ? AND octet_length(change_key) = ?`,
    ),
    count: db
      .prepare<[], number>(`SELECT count(*) FROM (SELECT 1 FROM ${table} LIMIT ${COUNTED_MAX})`)
      .pluck(),
    oldest: db
      .prepare<[], string | null>(
        `SELECT CASE WHEN octet_length(inserted_at) <= ${ID_BYTES} THEN CAST(inserted_at AS TEXT) END FROM ${table} ORDER BY id LIMIT 1`,
      )
      .pluck(),
  };
}

function prefixOf(table: InboxTable): 'stock' | 'product' | 'ack' {
  if (table === 'order_acks') return 'ack';
  return table === 'stock_changes' ? 'stock' : 'product';
}

function changeOf(kind: ChangeKind, row: InboxRow, { reference, ...values }: Values): InboxChange {
  const value: Record<string, unknown> = {};
  for (const [column, content] of Object.entries(values)) {
    if (content === null) continue;
    value[WIRE_NAMES[column] ?? column] = wireValue(column, content);
  }
  const said = reference === null || reference === undefined ? null : String(reference);
  return { ...row, kind, reference: said, value };
}

/** The key as it is told and noted: a text as it is, other bytes in hexadecimal digits. */
function keyText(key: unknown, hex: string): string {
  return typeof key === 'string' && !key.includes('\uFFFD') ? key : `x'${hex}'`;
}

function wireValue(column: string, content: unknown): unknown {
  if (ID_COLUMNS.has(column) && typeof content === 'bigint') return String(content);
  if (column === 'show' && (content === 0n || content === 1n)) return content === 1n;
  // Bytes are no value of any column; whoever checks it needs to see that much.
  if (content instanceof Uint8Array) return { bytes: content.byteLength };
  // No other number is above what JavaScript keeps exactly: the inbox refuses it.
  return typeof content === 'bigint' ? Number(content) : content;
}
