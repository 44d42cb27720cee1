import {
  closeSync,
  constants,
  existsSync,
  linkSync,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
} from 'node:fs';
import { dirname } from 'node:path';
import Database from 'better-sqlite3';
import { TillsyncError } from '../../core/errors.ts';
import { freeName, giveToGroup, groupId, setDirectoryMode, stampOf } from '../../core/files.ts';
import type { Clock } from '../../core/time.ts';
import { SIDE_FILES } from '../../db/damaged-files.ts';
import { createWithMode, makeOpenDirectory, openDatabase, storing, syncPath } from '../../db/sqlite.ts';

export const INBOX_TABLES = ['stock_changes', 'product_changes', 'order_acks', 'pos_alive'] as const;
export type InboxTable = (typeof INBOX_TABLES)[number];

const SCHEMA_VERSION = 1;
const SCHEMA = new URL('./inbox-schema.sql', import.meta.url);
/** Maximum number of schema rows that are read. An inbox to which a POS added its own tables has far fewer. */
const SCHEMA_ROWS_MAX = 200;
const SCHEMA_BYTES_MAX = 1024 * 1024;
/** Names reserved for SQLite. With `PRAGMA writable_schema`, a POS can give such a name to an object of its own. */
const OF_SQLITE = /^sqlite_/i;
const SQLITE_TABLE = /^sqlite_(sequence|stat[1-4])$/i;
/** Objects that are not evaluated unless a statement names them. tillsync names only its own four tables. */
const HARMLESS = /^CREATE (TABLE|VIEW|(UNIQUE )?INDEX)\b/i;

interface SchemaRow {
  type: string;
  name: string;
  sql: string | null;
}

/**
 * Creates the tables in a new file. Throws `storage-newer` for a file of a newer tillsync, and `storage-corrupt` for
 * another database.
 */
function bringToSchema(db: Database.Database, path: string): void {
  const version = () => Number(db.pragma('user_version', { simple: true }));
  if (version() === SCHEMA_VERSION) return;
  db.transaction(() => {
    if (version() === SCHEMA_VERSION) return;
    if (version() > SCHEMA_VERSION) throw newer(path);
    const tables = db.prepare<[], number>('SELECT count(*) FROM sqlite_schema').pluck().get() ?? 0;
    if (tables > 0) throw unsound(path, 'It is a database, but no inbox');
    db.exec(readFileSync(SCHEMA, 'utf8'));
    db.pragma(`user_version = ${SCHEMA_VERSION}`);
  }).immediate();
}

/**
 * Throws `storage-corrupt` if the definition of one of the four tables is not exactly tillsync's, or if the
 * file has an object of a POS, such as a trigger, that would run inside tillsync when rows are read or deleted.
 * Evaluates nothing of the file itself.
 */
export function requireSchema(db: Database.Database, path: string): void {
  const version = Number(db.pragma('user_version', { simple: true }));
  if (version > SCHEMA_VERSION) throw newer(path);
  const size = db
    .prepare<[], { rows: number; bytes: number }>(
      'SELECT count(*) AS rows, coalesce(sum(octet_length(name) + coalesce(octet_length(sql), 0)), 0) AS bytes FROM sqlite_schema',
    )
    .get();
  if (!size || size.rows > SCHEMA_ROWS_MAX || size.bytes > SCHEMA_BYTES_MAX) {
    throw unsound(path, 'Its schema is too large');
  }
  const rows = db.prepare<[], SchemaRow>('SELECT type, name, sql FROM sqlite_schema').all();
  const known = knownTables();
  for (const table of INBOX_TABLES) {
    const row = rows.find(({ type, name }) => type === 'table' && name === table);
    if (!row) throw unsound(path, `It has no table ${table}`);
    if (row.sql !== known[table]) {
      throw unsound(path, `Its table ${table} is not as tillsync made it`);
    }
  }
  const ownIndexes = new Set(INBOX_TABLES.flatMap((table) => indexesOf(db, table)));
  for (const row of rows) {
    if (isHarmless(row) && !ownIndexes.has(row.name)) continue;
    throw unsound(path, `It has a ${row.type} ${row.name.slice(0, 60)}, which tillsync did not make`);
  }
}

function isHarmless({ type, name, sql }: SchemaRow): boolean {
  // The index of a UNIQUE constraint has no text.
  if (sql === null) return type === 'index';
  if (OF_SQLITE.test(name) && !(type === 'table' && SQLITE_TABLE.test(name))) return false;
  return HARMLESS.test(sql);
}

/**
 * Returns indexes that a POS made on this table. Indexes on other tables do no harm, because tillsync never writes
 * there.
 */
function indexesOf(db: Database.Database, table: InboxTable): string[] {
  const sql = "SELECT name FROM pragma_index_list(?) WHERE origin = 'c'";
  return db.prepare<[string], string>(sql).pluck().all(table);
}

export function unsound(path: string, why: string): TillsyncError {
  return new TillsyncError('storage-corrupt', `The inbox ${path} cannot be used. ${why}.`);
}

function newer(path: string): TillsyncError {
  return new TillsyncError('storage-newer', `${path} was made by a newer tillsync; it was left untouched.`, {
    hint: 'Install the newer tillsync again, or move the file away.',
  });
}

let tables: Record<InboxTable, string> | undefined;

/** Returns the definition of each table, in the text that SQLite stores. */
function knownTables(): Record<InboxTable, string> {
  if (tables) return tables;
  const db = new Database(':memory:');
  try {
    db.exec(readFileSync(SCHEMA, 'utf8'));
    const textOf = db.prepare<[string], string>('SELECT sql FROM sqlite_schema WHERE name = ?').pluck();
    const text = (table: InboxTable) => textOf.get(table) ?? '';
    tables = {
      stock_changes: text('stock_changes'),
      product_changes: text('product_changes'),
      order_acks: text('order_acks'),
      pos_alive: text('pos_alive'),
    };
    return tables;
  } finally {
    db.close();
  }
}

const INBOX_MODE = 0o660;
const DIRECTORY_MODE = 0o2770;
const BUSY_TIMEOUT_MS = 50;
const READ_AT_ONCE_BYTES = 1024 * 1024;
/** Largest file that is read, in bytes. A POS does not insert so much even in weeks. */
const FILE_BYTES_MAX = 2 * 1024 ** 3;
/** Size up to which a file is checked when it is opened. In a larger file, damage shows only when its rows are read. */
const CHECKED_BYTES_MAX = 16 * 1024 ** 2;

/** Clock for the time in file names. */
export type WallClock = Pick<Clock, 'nowMs'>;

export interface OpenInbox {
  db: Database.Database;
  /** Inode of the open file, which shows whether the path still leads to it. */
  inode: number;
}

/**
 * Opens the inbox, and creates its directory, file and tables if they are missing. Uses a rollback journal, so that the
 * next opener rolls back a dead POS's transaction and a deleted file is noticed. Throws `storage-corrupt` for a damaged
 * file, and `storage-newer` for a file of a newer tillsync.
 */
export function openInboxFile({ path, group }: { path: string; group?: string | undefined }): OpenInbox {
  const gid = group === undefined ? undefined : groupId(group);
  const inode = storing(() => {
    prepareDirectory(dirname(path), gid);
    requirePlainFile(path);
    removeEmpty(path);
    if (!isThere(path)) createInbox(path, gid);
    return inodeAt(path);
  });
  const db = openSound(path);
  if (!hasRollbackJournal(db)) {
    takeLogBack(db);
    db.close();
    return { db: openSound(path), inode };
  }
  return { db, inode };
}

/**
 * Removes an empty file. A POS that opens the inbox before tillsync creates it leaves such a file, often one that
 * tillsync may not write. An empty file with a journal stays, because SQLite must roll it back.
 */
function removeEmpty(path: string): void {
  const there = lstatSync(path, { throwIfNoEntry: false });
  if (there?.size === 0 && !SIDE_FILES.some((suffix) => isThere(path + suffix))) rmSync(path);
}

/** Creates the file under another name first, so that a POS never opens it without its tables. */
function createInbox(path: string, gid: number | undefined): void {
  const made = `${path}.new-${process.pid}`;
  rmSync(made, { force: true });
  createWithMode(made, INBOX_MODE, gid);
  const db = openWritable(made);
  try {
    bringToSchema(db, path);
  } finally {
    db.close();
  }
  try {
    // A link, unlike a rename, never replaces a file that another program has just created.
    linkSync(made, path);
  } catch (error) {
    if (!isThere(path)) throw error;
  } finally {
    rmSync(made, { force: true });
  }
  syncPath(dirname(path));
}

function openWritable(path: string): Database.Database {
  return openDatabase({
    path,
    mode: INBOX_MODE,
    busyTimeoutMs: BUSY_TIMEOUT_MS,
    pragmas: {
      trusted_schema: 0,
      // Switched off, because a POS's own table that references rows of the inbox would prevent their deletion.
      foreign_keys: 0,
      // Overwrites deleted rows, which may contain a customer's name.
      secure_delete: 1,
      // Syncs the deletion of the journal. Otherwise a power cut could bring back rows that were copied and deleted,
      // and they would be copied twice.
      synchronous: 'EXTRA',
    },
  });
}

function openSound(path: string): Database.Database {
  const inode = inodeAt(path);
  const db = openWritable(path);
  try {
    storing(() => {
      bringToSchema(db, path);
      requireSound(db, path);
    });
    if (inodeAt(path) !== inode) {
      throw new TillsyncError('storage-busy', `The inbox ${path} was replaced while it was opened.`);
    }
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

/** Opens the inbox only for reading. Throws `not-found`, and what `openInboxFile` throws. */
export function openInboxForReading(path: string): Database.Database {
  const file = lstatSync(path, { throwIfNoEntry: false });
  if (!file) throw new TillsyncError('not-found', `There is no ${path}.`);
  requirePlainFile(path);
  const [strange] = strangeSideFiles(path);
  if (strange) throw unsound(path, `${strange.path} is ${strange.what} and no plain file`);
  const db = openDatabase({
    path,
    mode: INBOX_MODE,
    readonly: true,
    busyTimeoutMs: BUSY_TIMEOUT_MS,
    pragmas: { trusted_schema: 0 },
  });
  try {
    storing(() => requireSchema(db, path));
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

/**
 * Returns the first damage that SQLite finds, or null. If the file is too large for a quick check, `readThrough` is
 * false and `damage` is null.
 */
export function damageOf(
  db: Database.Database,
  path: string,
): { damage: string | null; readThrough: boolean } {
  const readThrough = statSync(path).size <= CHECKED_BYTES_MAX;
  const verdict = readThrough ? db.pragma('quick_check(1)', { simple: true }) : 'ok';
  return { damage: verdict === 'ok' ? null : String(verdict), readThrough };
}

/** Whether the file uses a rollback journal; false if a POS has switched on a write-ahead log. */
export function hasRollbackJournal(db: Database.Database): boolean {
  return storing(() => db.pragma('journal_mode', { simple: true })) !== 'wal';
}

/**
 * Switches the write-ahead log off, which works only while no POS has the file open. Afterwards the connection must
 * be replaced, because it does not read pages again that it has read before.
 */
function takeLogBack(db: Database.Database): void {
  try {
    db.pragma('journal_mode = delete');
  } catch {
    // The next check tries again.
  }
}

/**
 * Throws `storage-failed` if the disk cannot read the file, because SQLite would report damage instead. A path that
 * is no plain file, or a file that is too large, is not read.
 */
export function requireReadable(path: string): void {
  const there = lstatSync(path, { throwIfNoEntry: false });
  if (!there?.isFile() || there.size > FILE_BYTES_MAX) return;
  storing(() => {
    const file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const bytes = Buffer.allocUnsafe(READ_AT_ONCE_BYTES);
      while (readSync(file, bytes) > 0);
    } finally {
      closeSync(file);
    }
  });
}

/**
 * Returns SQLite's side files that are no plain files, such as a pipe, on which SQLite would wait for ever. They
 * contain no data of the POS.
 */
export function strangeSideFiles(path: string): { path: string; what: string }[] {
  return SIDE_FILES.flatMap((suffix) => {
    const there = lstatSync(path + suffix, { throwIfNoEntry: false });
    return !there || there.isFile() ? [] : [{ path: path + suffix, what: nameOf(there) }];
  });
}

/** Renames a file. Returns the new path. */
export function moveAway(path: string, clock: WallClock): string {
  const moved = freeName(`${path}.moved-${stampOf(clock.nowMs())}`);
  return storing(() => {
    renameSync(path, moved);
    return moved;
  });
}

/** Returns the inode of the plain file at the path; 0 if there is none. */
export function inodeAt(path: string): number {
  const there = lstatSync(path, { throwIfNoEntry: false });
  return there?.isFile() ? there.ino : 0;
}

function requirePlainFile(path: string): void {
  const there = lstatSync(path, { throwIfNoEntry: false });
  // Any user who may write the directory could put a link to another user's file there.
  if (there && !there.isFile()) throw unsound(path, `It is ${nameOf(there)} and no plain file`);
  if (there && there.size > FILE_BYTES_MAX) {
    throw unsound(path, `Its size is said to be ${there.size} bytes, more than ${FILE_BYTES_MAX}`);
  }
}

function requireSound(db: Database.Database, path: string): void {
  // The schema is checked first, because a check of the pages evaluates the schema.
  requireSchema(db, path);
  const { damage } = damageOf(db, path);
  if (damage !== null) throw unsound(path, `SQLite says: ${damage}`);
}

function nameOf(there: Stats): string {
  if (there.isSymbolicLink()) return 'a link';
  if (there.isDirectory()) return 'a directory';
  if (there.isFIFO()) return 'a pipe';
  return there.isSocket() ? 'a socket' : 'a device';
}

function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

function prepareDirectory(directory: string, gid: number | undefined): void {
  const isNew = !existsSync(directory);
  if (isNew) makeOpenDirectory(directory, DIRECTORY_MODE & 0o777);
  if (gid !== undefined) giveToGroup(gid, directory);
  if (!isNew) return;
  try {
    setDirectoryMode(directory, DIRECTORY_MODE);
  } catch {
    // A hardened service may not set the set-group-id bit. Below a directory with that bit, this is not needed, because
    // a new directory inherits the bit and the group.
  }
}
