import type Database from 'better-sqlite3';
import { hasCode, type TillsyncError } from '../../core/errors.ts';
import { keptFiles, setAside } from '../../db/damaged-files.ts';
import { storing } from '../../db/sqlite.ts';
import type { ChangeKind, RestoredAck } from './change.ts';
import {
  hasRollbackJournal,
  INBOX_TABLES,
  type InboxTable,
  inodeAt,
  moveAway,
  type OpenInbox,
  openInboxFile,
  requireReadable,
  requireSchema,
  strangeSideFiles,
  unsound,
  type WallClock,
} from './inbox-file.ts';

/** A row of the inbox, as the inbox's process sends it to the daemon. */
export interface InboxRow {
  table: InboxTable;
  /** A 64-bit integer in decimal digits. */
  id: string;
  /** Key of the row, by which a row that was copied already is recognised. */
  key: string;
  /** The row's `change_key` in hex; if it is too long, `#` and the number of its bytes. */
  keyHex: string;
  /** The first value that is too long; null if there is none. The row is then sent without its too long values. */
  tooLong: { column: string; bytes: number; maxBytes: number } | null;
}

/** A row as the POS inserted it, in the shape of a change but not checked. */
export interface InboxChange extends InboxRow {
  kind: ChangeKind;
  reference: string | null;
  /** Time of the insert (ISO 8601 UTC, milliseconds); null if the row contains none. */
  handedAt: string | null;
  value: Record<string, unknown>;
}

export interface InboxAck extends InboxRow {
  orderId: string;
  /** Newest event of the order that the POS has booked; null means the newest one when the row was inserted. */
  seq: number | null;
  /** Numbers of the lines that the POS has not booked. */
  without: number[];
  /** Time of the insert (ISO 8601 UTC, milliseconds); null if the row contains none. */
  handedAt: string | null;
}

export interface InboxBatch {
  changes: InboxChange[];
  acks: InboxAck[];
  /** Rows by which a POS shows that it runs; `store` is '' if the row names none. */
  alive: (InboxRow & { store: string })[];
  /** Whether the inbox may have more rows. */
  more: boolean;
}

/** Number of waiting rows, counted up to `COUNTED_MAX` in each table, and insert time of the oldest. */
export interface InboxWaiting {
  rows: number;
  /** Insert time of the oldest row, by its own column; null if no row waits or the row has no time. */
  oldest: string | null;
}

/** The smallest 64-bit integer, so no row comes before it. */
export const FIRST_ID = '-9223372036854775808';
export const COUNTED_MAX = 100_000;
/** A table whose last id is higher has used up its ids. Ids that SQLite assigns one after the other never get there. */
const NUMBERS_MAX = 2n ** 62n;

/** Maximum number of bytes of an id (200 characters), a reference (1,000) and a text (100,000): four per character. */
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
    counted_at: ID_BYTES,
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
  order_acks: { order_id: ID_BYTES, seq: ID_BYTES, without: REFERENCE_BYTES },
  pos_alive: { store_external_id: ID_BYTES },
};
/** Maximum number of bytes of one batch, so that memory is limited and no row waits long behind others. */
const BATCH_BYTES = 1024 * 1024;
/**
 * Maximum number of bytes of too long rows per batch. Their deletion is slow, because SQLite visits all their pages.
 */
const REMOVED_BYTES = 64 * 1024 * 1024;

/** Names that the columns with ids have in a change. */
export const WIRE_NAMES: Readonly<Record<string, string>> = {
  external_id: 'externalId',
  subsidiary_id: 'subsidiaryId',
  subsidiary_external_id: 'subsidiaryExternalId',
};
const ID_COLUMNS = new Set(['external_id', 'subsidiary_id', 'subsidiary_external_id']);

type Lengths = Record<string, bigint | null> & { id: bigint; change_key: bigint };
type Values = Record<string, unknown>;

interface Statements {
  /** Length of each value in bytes, which SQLite finds without reading the value. */
  lengths: Database.Statement<[bigint, number], Lengths>;
  value: (column: string) => Database.Statement<[bigint], unknown>;
  row: Database.Statement<[bigint], Values>;
  drop: Database.Statement<[bigint, string]>;
  dropLongKey: Database.Statement<[bigint, bigint]>;
  /** Whether a row with this id and this key (as in `InboxRow.keyHex`) exists. */
  isThere: Database.Statement<[bigint, string], number>;
  count: Database.Statement<[], number>;
  oldest: Database.Statement<[], string | null>;
}

/** Statements on the tables of the inbox. */
export class InboxRows {
  readonly #db: Database.Database;
  readonly #beforeEach: () => void;
  readonly #inode: number;
  readonly #tables: Record<InboxTable, Statements>;

  /** `beforeEach` runs in every transaction before the tables are read. */
  constructor(db: Database.Database, inode: number, beforeEach: () => void) {
    this.#db = db;
    this.#inode = inode;
    this.#beforeEach = beforeEach;
    this.#tables = {
      stock_changes: statementsOn(db, 'stock_changes'),
      product_changes: statementsOn(db, 'product_changes'),
      order_acks: statementsOn(db, 'order_acks'),
      pos_alive: statementsOn(db, 'pos_alive'),
    };
  }

  /**
   * Reads the oldest rows, starting at the ids in `from`, in one transaction: at most `limit` per table and about a
   * megabyte in total. Returns acknowledgements only if no stock count remains unread.
   */
  read(limit: number, from: Partial<Record<InboxTable, string>> = {}): InboxBatch {
    return this.#db.transaction(() => {
      this.#beforeEach();
      const room = { bytes: BATCH_BYTES, removed: REMOVED_BYTES, isFirst: true };
      const stock = this.#page('stock_changes', limit, room, from);
      const product = this.#page('product_changes', limit, room, from);
      const acks = stock.more ? { rows: [], more: true } : this.#page('order_acks', limit, room, from);
      const alive = this.#page('pos_alive', limit, room, {});
      return {
        changes: [
          ...stock.rows.map(({ row, values }) => changeOf('stock', row, values)),
          ...product.rows.map(({ row, values }) => changeOf('product', row, values)),
        ],
        acks: acks.rows.map(({ row, values }) => ackOf(row, values)),
        alive: alive.rows.map(({ row, values }) => ({
          ...row,
          store: String(values.store_external_id ?? '').trim(),
        })),
        more: stock.more || product.more || acks.more || alive.more,
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
        const left = rows.find(({ table, id, keyHex }) =>
          this.#tables[table].isThere.get(BigInt(id), keyHex),
        );
        // If copied rows stayed, they would be submitted again and again, an older value after a newer one.
        if (left) throw unsound(this.#db.name, `Rows of ${left.table} that were taken in cannot be removed`);
        this.#restartNumbers();
      })
      .immediate();
  }

  /** Restarts the ids of an empty table that has used up SQLite's highest id, after which every insert fails. */
  restartNumbers(): void {
    if (!this.#areNumbersUsedUp()) return;
    this.#db.transaction(() => this.#restartNumbers()).immediate();
  }

  #restartNumbers(): void {
    if (!this.#areNumbersUsedUp()) return;
    for (const table of INBOX_TABLES) {
      const sql = `UPDATE sqlite_sequence SET seq = 0 WHERE name = ? AND seq > ? AND NOT EXISTS (SELECT 1 FROM ${table})`;
      this.#db.prepare(sql).run(table, NUMBERS_MAX);
    }
  }

  #areNumbersUsedUp(): boolean {
    const sql = 'SELECT EXISTS (SELECT 1 FROM sqlite_sequence WHERE seq > ?)';
    return this.#db.prepare<[bigint], number>(sql).pluck().get(NUMBERS_MAX) === 1;
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
      return { row: { ...key, key: `${PREFIX[table]}:${keyText(own, keyHex)}`, keyHex }, values };
    }
    const values: Values = {};
    for (const [column, maxBytes] of Object.entries(COLUMNS[table])) {
      const bytes = lengths[column] ?? null;
      values[column] = bytes !== null && bytes <= maxBytes ? value(column).get(id) : null;
    }
    if (lengths.change_key > ID_BYTES) {
      const place = `long-key-${this.#inode}-${id}-${lengths.change_key}`;
      return {
        row: { ...key, key: `${PREFIX[table]}:${place}`, keyHex: `#${lengths.change_key}` },
        values,
      };
    }
    const own = value('change_key').get(id);
    const keyHex = String(value('hex(change_key)').get(id));
    return { row: { ...key, key: `${PREFIX[table]}:${keyText(own, keyHex)}`, keyHex }, values };
  }
}

function statementsOn(db: Database.Database, table: InboxTable): Statements {
  const columns = Object.keys(COLUMNS[table]);
  const lengths = [...columns, 'change_key'].map((column) => `octet_length(${column}) AS ${column}`);
  const values = new Map<string, Database.Statement<[bigint], unknown>>();
  return {
    // An id may be a 64-bit integer, and a key may be the bytes of a GUID. Neither may be rounded or decoded.
    lengths: db
      .prepare<[bigint, number], Lengths>(
        `SELECT id, ${lengths.join(', ')} FROM ${table} WHERE id >= ? ORDER BY id LIMIT +?`,
      )
      .safeIntegers(),
    row: db
      .prepare<[bigint], Values>(
        `SELECT ${columns.join(', ')}, change_key, hex(change_key) AS key_hex,
           CASE WHEN typeof(inserted_at) = 'text' AND inserted_at GLOB '????-??-??T??:??:??.???Z' THEN inserted_at END AS handed_at
         FROM ${table} WHERE id = ?`,
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
    // Compares the key too, because a new row may have the id of a deleted row.
    drop: db.prepare<[bigint, string]>(`DELETE FROM ${table} WHERE id = ? AND hex(change_key) = ?`),
    dropLongKey: db.prepare<[bigint, bigint]>(
      `DELETE FROM ${table} WHERE id = ? AND octet_length(change_key) = ?`,
    ),
    isThere: db
      .prepare<[bigint, string], number>(
        `SELECT 1 FROM ${table} WHERE id = ? AND ? IN ('#' || octet_length(change_key), hex(change_key))`,
      )
      .pluck(),
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

const PREFIX = { stock_changes: 'stock', product_changes: 'product', order_acks: 'ack', pos_alive: 'alive' };

function changeOf(
  kind: ChangeKind,
  row: InboxRow,
  { reference, handed_at: handedAt, ...values }: Values,
): InboxChange {
  const value: Record<string, unknown> = {};
  for (const [column, content] of Object.entries(values)) {
    if (content === null) continue;
    value[WIRE_NAMES[column] ?? column] = wireValue(column, content);
  }
  const said = reference === null || reference === undefined ? null : String(reference);
  return { ...row, kind, reference: said, handedAt: typeof handedAt === 'string' ? handedAt : null, value };
}

function ackOf(row: InboxRow, { order_id: orderId, seq, without, handed_at: handedAt }: Values): InboxAck {
  const handed = typeof handedAt === 'string' ? handedAt : null;
  return {
    ...row,
    orderId: String(orderId),
    seq: typeof seq === 'bigint' ? Number(seq) : null,
    without: without === null ? [] : (String(without).match(/\d+/g) ?? []).map(Number),
    handedAt: handed,
  };
}

/** Returns the key as it is shown and stored: valid text unchanged, other bytes in hex. */
function keyText(key: unknown, hex: string): string {
  return typeof key === 'string' && !key.includes('\uFFFD') ? key : `x'${hex}'`;
}

function wireValue(column: string, content: unknown): unknown {
  if (ID_COLUMNS.has(column) && typeof content === 'bigint') return String(content);
  if (column === 'show' && (content === 0n || content === 1n)) return content === 1n;
  // Bytes are never a valid value, so the check needs only their number.
  if (content instanceof Uint8Array) return { bytes: content.byteLength };
  // CHECK constraints of the inbox refuse integers that are too large for JavaScript.
  return typeof content === 'bigint' ? Number(content) : content;
}

interface InboxOptions {
  /** `inbox/inbox.db` in the storage directory. */
  path: string;
  /** Unix group, by name or number, that may insert rows. If left out, the storage directory decides. */
  group?: string | undefined;
  clock: WallClock;
  /** Called when the file is damaged, deleted or replaced, with a sentence for a person. */
  onTrouble: (trouble: InboxTrouble) => void;
}

/**
 * - `damaged`: the file was unusable; it was moved to `keptAt`, and a new file replaces it
 * - `deleted`: somebody removed the file; a new file replaces it
 * - `replaced`: somebody put another file there, which is used from now on
 * - `obstructed`: something that is no file was at the path of SQLite's journal or log; it was moved to `keptAt`
 */
export interface InboxTrouble {
  kind: 'damaged' | 'deleted' | 'replaced' | 'obstructed';
  keptAt: string | null;
  message: string;
}

/** Interval of attempts to reset a journal mode that a POS has set. Each attempt may wait for the POS. */
const JOURNAL_EVERY_MS = 30_000;
/** Interval of opening the file again to check it. An open connection sees no damage in pages it has read. */
const READ_THROUGH_EVERY_MS = 5 * 60_000;

/**
 * The database into which a POS inserts rows by SQL. Another Unix user may write it, so it may be locked, damaged,
 * deleted or replaced at any time. Opening it may hang, crash or exhaust memory, so only a separate process opens it
 * (inbox-child.ts). Methods throw `storage-busy` if a POS holds its lock for 50 ms.
 */
export class Inbox {
  readonly #options: InboxOptions;
  #open: (OpenInbox & { rows: InboxRows }) | undefined;
  /** Inode of the file that was open last; undefined if that file was renamed as damaged. */
  #lastInode: number | undefined;
  #journalTriedMs = 0;
  #openedMs = 0;

  constructor(options: InboxOptions) {
    this.#options = options;
  }

  /** Creates the file if it is missing, so that a POS can insert rows. */
  prepare(): void {
    this.#use(() => undefined);
  }

  /**
   * Reads the oldest rows, starting at the ids in `from`, at most `limit` per table. Returns acknowledgements only if
   * no stock count remains unread, because a count must not be copied after an acknowledgement that was inserted later.
   */
  read(limit = 1000, from: Partial<Record<InboxTable, string>> = {}): InboxBatch {
    return this.#use((rows) => rows.read(limit, from));
  }

  waiting(): InboxWaiting {
    return this.#use((rows) => rows.waiting());
  }

  /** Deletes copied rows. Rows that no longer exist are ignored. */
  remove(taken: readonly InboxRow[]): void {
    this.#use((rows) => rows.remove(taken));
  }

  /** Inserts acknowledgements as a POS does. Rows with an existing key are ignored. */
  insertAcks(acks: readonly RestoredAck[]): void {
    this.#use((_rows, db) => {
      const insert = db.prepare(
        'INSERT OR IGNORE INTO order_acks (order_id, change_key, seq, without) VALUES (?, ?, ?, ?)',
      );
      db.transaction(() => {
        requireSchema(db, this.#options.path);
        for (const { orderId, key, seq, without = [] } of acks)
          insert.run(orderId, key, seq ?? null, without.length === 0 ? null : without.join(','));
      }).immediate();
    });
  }

  /** Whether another program's lock blocks writers. With a write-ahead log, a reader's lock does not. */
  locksMatter(): boolean {
    return this.#use((_rows, db) => hasRollbackJournal(db));
  }

  /** Returns damaged files beside the inbox that nobody has removed yet. */
  keptFiles(): string[] {
    return keptFiles(this.#options.path);
  }

  close(): void {
    this.#open?.db.close();
    this.#open = undefined;
  }

  #use<T>(action: (rows: InboxRows, db: OpenInbox['db']) => T): T {
    try {
      return this.#run(action);
    } catch (error) {
      // The open file was deleted or moved between the check and the write.
      if (hasCode(error, 'storage-readonly') && this.#open && !this.#isThere(this.#open)) {
        return this.#run(action);
      }
      if (!hasCode(error, 'storage-corrupt')) throw error;
      return this.#lookAgain(action);
    }
  }

  /** Opens the file again before reporting damage, because a disk error may pass and leave the file sound. */
  #lookAgain<T>(action: (rows: InboxRows, db: OpenInbox['db']) => T): T {
    this.close();
    requireReadable(this.#options.path);
    try {
      return this.#run(action);
    } catch (error) {
      if (!hasCode(error, 'storage-corrupt')) throw error;
      this.close();
      requireReadable(this.#options.path);
      this.#lastInode = undefined;
      const keptAt = setAside(this.#options.path, this.#options.clock);
      this.#options.onTrouble({
        kind: 'damaged',
        keptAt,
        message: `${damageIn(error, this.#options.path)} It is kept as ${keptAt}; a new inbox is in its place. Changes that were not taken in yet are in the old file.`,
      });
      return this.#run(action);
    }
  }

  #run<T>(action: (rows: InboxRows, db: OpenInbox['db']) => T): T {
    this.#clearTheWay();
    const { rows, db } = this.#current();
    return storing(() => action(rows, db));
  }

  #clearTheWay(): void {
    const { path, clock, onTrouble } = this.#options;
    const strange = strangeSideFiles(path);
    if (strange.length === 0) return;
    this.close();
    for (const each of strange) {
      const keptAt = moveAway(each.path, clock);
      onTrouble({
        kind: 'obstructed',
        keptAt,
        message: `${each.path} was ${each.what} and no plain file, so the inbox could not be used. It was moved to ${keptAt}; the inbox is used again.`,
      });
    }
  }

  #current(): OpenInbox & { rows: InboxRows } {
    const isUsable = this.#open && this.#isThere(this.#open) && !this.#isReadThroughDue();
    if (this.#open && isUsable && !this.#logIsDue(this.#open)) return this.#open;
    const { path } = this.#options;
    const inode = inodeAt(path);
    const lastInode = this.#lastInode;
    this.close();
    const opened = openInboxFile(this.#options);
    try {
      // A POS may change tables at any time. SQLite increases `schema_version` with each change.
      const version = opened.db.prepare<[], number>('PRAGMA schema_version').pluck();
      let known: number | undefined;
      const requireSame = () => {
        const now = version.get();
        if (now !== known) requireSchema(opened.db, path);
        known = now;
      };
      this.#open = {
        ...opened,
        rows: storing(() => new InboxRows(opened.db, opened.inode, requireSame)),
      };
      this.#openedMs = this.#options.clock.nowMs();
      restartNumbers(this.#open.rows);
    } catch (error) {
      opened.db.close();
      throw error;
    }
    this.#lastInode = opened.inode;
    if (lastInode !== undefined && lastInode !== inode)
      this.#tellOfNewFile(inode === 0 ? 'deleted' : 'replaced');
    return this.#open;
  }

  #isReadThroughDue(): boolean {
    return Math.abs(this.#options.clock.nowMs() - this.#openedMs) >= READ_THROUGH_EVERY_MS;
  }

  /** Whether the file must be opened again, because a POS has switched on a write-ahead log. */
  #logIsDue({ db }: OpenInbox): boolean {
    const nowMs = this.#options.clock.nowMs();
    if (Math.abs(nowMs - this.#journalTriedMs) < JOURNAL_EVERY_MS) return false;
    this.#journalTriedMs = nowMs;
    return !hasRollbackJournal(db);
  }

  #isThere(open: OpenInbox): boolean {
    return inodeAt(this.#options.path) === open.inode;
  }

  #tellOfNewFile(kind: 'deleted' | 'replaced'): void {
    const { path, onTrouble } = this.#options;
    const what =
      kind === 'deleted' ? 'was deleted; a new one is in its place' : 'was replaced; the new one is used';
    onTrouble({
      kind,
      keptAt: null,
      message: `The inbox ${path} ${what}. Changes that were not taken in yet went with the old file.`,
    });
  }
}

/** Restarts used-up ids. If a POS's lock prevents it, the next opening tries again, a few minutes later. */
function restartNumbers(rows: InboxRows): void {
  try {
    storing(() => rows.restartNumbers());
  } catch (error) {
    if (!hasCode(error, 'storage-busy')) throw error;
  }
}

/** Describes the damage without the general message of a SQLite error, which says that the file was left as it is. */
function damageIn(error: TillsyncError, path: string): string {
  const { cause } = error;
  if (!(cause instanceof Error && 'code' in cause)) return error.message;
  return `The inbox ${path} cannot be used. SQLite says: ${String(cause.code)}.`;
}
