import {
  closeSync,
  existsSync,
  fchmodSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
} from 'node:fs';
import { dirname } from 'node:path';
import Database from 'better-sqlite3';
import { type ErrorCode, hasCode, TillsyncError, TRIED_AGAIN } from '../core/errors.ts';
import { giveOpenToGroup } from '../core/files.ts';
import { fold, searchFor } from '../core/folding.ts';

interface DatabaseOptions {
  path: string;
  /** Mode of a new database, independent of the umask. SQLite gives -wal and -shm the same mode. */
  mode: number;
  /** True to open an existing database for reads only. `mode` and the pragma `journal_mode` are then ignored. */
  readonly?: boolean;
  /**
   * Longest time that a statement may block the thread to wait for another process's lock, in milliseconds; at most
   * 100.
   */
  busyTimeoutMs: number;
  /** Pragmas to set, in this order, after `synchronous = FULL`. Each is read back. */
  pragmas?: Record<string, string | number>;
}

const BUSY_TIMEOUT_MAX_MS = 100;

/**
 * Opens a SQLite database whose commits are durable. Throws `storage-…`: `storage-corrupt` also for an empty or missing
 * file beside a write-ahead log with content, because such a database has lost its content and is not new.
 */
export function openDatabase(options: DatabaseOptions): Database.Database {
  if (options.busyTimeoutMs > BUSY_TIMEOUT_MAX_MS) {
    throw new TillsyncError(
      'internal',
      `A busy timeout of ${options.busyTimeoutMs} ms freezes the event loop.`,
    );
  }
  let db: Database.Database | undefined;
  try {
    refuseEmptied(options.path);
    // Checked here, because the SQLite driver reports a missing directory without an error code.
    if (options.readonly) statSync(dirname(options.path));
    else createWithMode(options.path, options.mode);
    db = new Database(options.path, {
      readonly: options.readonly ?? false,
      fileMustExist: true,
      timeout: options.busyTimeoutMs,
    });
    // Setting this pragma reads the schema. Connections that are read-only do not need it.
    if (!options.readonly) setPragma(db, 'synchronous', 'FULL');
    for (const [name, value] of Object.entries(options.pragmas ?? {})) {
      if (options.readonly && name === 'journal_mode') continue;
      setPragma(db, name, value);
    }
    addSearch(db);
    return db;
  } catch (error) {
    db?.close();
    throw toStorageError(error, options.path);
  }
}

/**
 * Adds the SQL functions of all searches: `fold(text)`, and `finds(typed, text, phones)`, 1 where the text, or one of
 * the phone numbers, one a line, has what a person typed. Views may not use them, because a POS reads with its own
 * SQLite.
 */
function addSearch(db: Database.Database): void {
  let last: { typed: string; isFound: ReturnType<typeof searchFor> } | undefined;
  const finds = (typed: string, text: string | null, phones: string | null) => {
    if (last?.typed !== typed) last = { typed, isFound: searchFor(typed) };
    return Number(last.isFound(text ?? '', phones ?? ''));
  };
  db.function('finds', { deterministic: true }, finds);
  db.function('fold', { deterministic: true }, (text: string | null) =>
    text === null ? null : fold(String(text)),
  );
}

/**
 * Runs a transaction without a sync of the disk and without a checkpoint, which would sync it too. A power cut may take
 * it back, but whole, and never after a synced transaction that follows it.
 */
export function unsynced<T>(db: Database.Database, transaction: () => T): T {
  const checkpointPages = Number(db.pragma('wal_autocheckpoint', { simple: true }));
  db.pragma('synchronous = NORMAL');
  db.pragma('wal_autocheckpoint = 0');
  try {
    return transaction();
  } finally {
    setPragma(db, 'synchronous', 'FULL');
    setPragma(db, 'wal_autocheckpoint', checkpointPages);
  }
}

/** Runs a database action. Errors of SQLite become `storage-…` errors. */
export function storing<T>(action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw toStorageError(error);
  }
}

/**
 * Creates an empty file with exactly `mode` and the group `gid`, durably; returns false if the file exists already.
 * Throws `config-invalid` if this user may not give the file to that group.
 */
export function createWithMode(path: string, mode: number, gid?: number): boolean {
  let file: number;
  try {
    file = openSync(path, 'wx', mode);
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
  try {
    if (gid !== undefined) giveOpenToGroup(gid, file, path);
    fchmodSync(file, mode);
    fsyncSync(file);
  } catch (error) {
    // Removed again, because an existing file would not get its group at the next try.
    rmSync(path, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
  syncPath(dirname(path));
  return true;
}

/** Syncs a file, or a directory's entries, to the disk. */
export function syncPath(path: string): void {
  const handle = openSync(path, 'r');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

/**
 * Returns an error of SQLite or of the file system as a TillsyncError. The new code depends only on the error's own
 * code.
 */
export function toStorageError(error: unknown, path?: string): TillsyncError {
  if (error instanceof TillsyncError) return error;
  const code = codeOf(error);
  // A row that breaks a constraint is a fault of the program, not of the file.
  if (code?.startsWith('SQLITE_CONSTRAINT')) {
    return new TillsyncError('internal', `A row breaks a rule of the database (${code}).`, { cause: error });
  }
  if (code === undefined) {
    const message = error instanceof Error ? error.message : String(error);
    return new TillsyncError('internal', message, { cause: error });
  }
  const kind = kindOf(code);
  const where = path === undefined ? '' : ` (${path})`;
  return new TillsyncError(kind, `${SENTENCES[kind]}${where}: ${code}.`, {
    cause: error,
    hint: HINTS[kind],
  });
}

type StorageCode = Extract<ErrorCode, `storage-${string}`>;

const SENTENCES: Record<StorageCode, string> = {
  'storage-busy': 'The database is locked by another process',
  'storage-full': 'The disk is full; what was kept before is still there',
  'storage-readonly': 'The database cannot be written',
  'storage-corrupt': 'The database file is damaged or cannot be read; it was left as it is',
  'storage-newer': 'The database was written by a newer tillsync',
  'storage-failed': 'The disk or the database failed',
};

const HINTS: Record<StorageCode, string> = {
  'storage-busy': TRIED_AGAIN,
  'storage-full': 'Free some space; tillsync goes on by itself.',
  'storage-readonly': 'Check that the file and its directory belong to the user tillsync runs as.',
  'storage-corrupt':
    'A failing disk looks the same, so see to the disk first. If it stays, move the file away with its -wal and -shm and restore a backup, or let tillsync build a new one.',
  'storage-newer':
    'Install the newer tillsync again, or give this one its files back: {tillsync} restore --before-upgrade',
  'storage-failed': 'Check the disk, the directory and its permissions.',
};

function kindOf(code: string): StorageCode {
  if (code.startsWith('SQLITE_BUSY')) return 'storage-busy';
  if (code === 'SQLITE_FULL' || code === 'ENOSPC' || code === 'EDQUOT') return 'storage-full';
  if (code.startsWith('SQLITE_READONLY') || code === 'EROFS' || code === 'EACCES' || code === 'EPERM') {
    return 'storage-readonly';
  }
  if (code.startsWith('SQLITE_CORRUPT') || code === 'SQLITE_NOTADB') return 'storage-corrupt';
  return 'storage-failed';
}

function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  return typeof error.code === 'string' && /^(SQLITE_|E[A-Z0-9]+$)/.test(error.code) ? error.code : undefined;
}

/**
 * Throws `storage-corrupt` for an empty or missing file with a log beside it, because SQLite would make a new database
 * and delete the log.
 */
function refuseEmptied(path: string): void {
  // The log is checked first. A new database gets its first page before its log, so a log proves that the file had
  // content.
  const log = statSync(`${path}-wal`, { throwIfNoEntry: false });
  const file = statSync(path, { throwIfNoEntry: false });
  if (log && log.size > 0 && (!file || file.size === 0)) {
    throw new TillsyncError(
      'storage-corrupt',
      `${path} is empty or gone while its log ${path}-wal has content.`,
      {
        hint: 'Restore the file from a backup, or move both away to begin anew.',
      },
    );
  }
}

const SYNCHRONOUS: Record<string, number> = { OFF: 0, NORMAL: 1, FULL: 2, EXTRA: 3 };

function setPragma(db: Database.Database, name: string, value: string | number): void {
  if (!/^[a-z_]+$/.test(name) || !/^-?\w+$/.test(String(value))) {
    throw new TillsyncError('internal', `Pragma ${name} = ${value} is not a plain word.`);
  }
  db.pragma(`${name} = ${value}`);
  const found = db.pragma(name, { simple: true });
  const text = String(value);
  const wanted =
    name === 'synchronous' ? String(SYNCHRONOUS[text.toUpperCase()] ?? text) : text.toLowerCase();
  if (String(found).toLowerCase() !== wanted) {
    throw new TillsyncError('storage-failed', `SQLite kept ${name} at ${String(found)} instead of ${text}.`, {
      hint: 'The file system may not support what tillsync needs; use a local disk.',
    });
  }
}

/** Returns the size of the write-ahead log in bytes; 0 if there is none. */
export function walBytes(path: string): number {
  return statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
}

/**
 * Moves the content of the log into the database and syncs it. After a crash during a commit, or a failed sync, the log
 * may contain a commit that is readable but not on the disk. An order sent again would then be confirmed without being
 * stored, and a token pair could be lost by a power cut. Throws if the disk fails.
 */
export function settleWal(db: Database.Database): void {
  if (walBytes(db.name) === 0) return;
  try {
    storing(() => db.pragma('wal_checkpoint(PASSIVE)'));
  } catch (error) {
    // SQLite syncs the log before it writes to the database, so no commit is lost if the disk is full.
    if (!hasCode(error, 'storage-full', 'storage-busy')) throw error;
  }
}

const MIGRATIONS = {
  mirror: new URL('./mirror/migrations/', import.meta.url),
  state: new URL('./state/migrations/', import.meta.url),
};
const BUSY_TIMEOUT_MS = 100;
/** Largest file that is checked. The check takes about a second for this size and cannot be stopped. */
const CHECKED_MAX_BYTES = 256 * 1024 ** 2;

export interface DatabaseHealth {
  bytes: number;
  /** Number of migrations that the file has, and that this program knows. */
  schema: { applied: number; known: number };
  /** First damage that SQLite found; null if there is none. */
  damage: string | null;
  /** False if the file is too large for a quick check. `damage` is then null without a check. */
  readThrough: boolean;
}

/** Checks a database without changing it. Throws `storage-…`. */
export function databaseHealth(path: string, kind: 'mirror' | 'state'): DatabaseHealth {
  const db = openDatabase({ path, mode: 0o600, readonly: true, busyTimeoutMs: BUSY_TIMEOUT_MS });
  try {
    return storing(() => {
      const { size: bytes } = statSync(path);
      const readThrough = bytes <= CHECKED_MAX_BYTES;
      const found = readThrough ? db.pragma('quick_check(1)', { simple: true }) : 'ok';
      const applied = Number(db.pragma('user_version', { simple: true }));
      const schema = { applied, known: stepsIn(MIGRATIONS[kind]) };
      return { bytes, schema, damage: found === 'ok' ? null : String(found), readThrough };
    });
  } finally {
    db.close();
  }
}

function stepsIn(directory: URL): number {
  return readdirSync(directory).filter((name) => name.endsWith('.sql')).length;
}

/** Value of a column of the catalogue. */
export type SqlValue = string | number | bigint | null;

/**
 * Returns a value in the form in which it is stored. Whole numbers become integers, because readers would otherwise see
 * `1500.0`.
 */
export function asSent(value: string | number | boolean | null): SqlValue {
  if (typeof value === 'boolean') return value ? 1n : 0n;
  return typeof value === 'number' && Number.isSafeInteger(value) ? BigInt(value) : value;
}

export function asBit(value: boolean | null): number | null {
  return value === null ? null : Number(value);
}

export function fromBit(value: number | null): boolean | null {
  return value === null ? null : value !== 0;
}

/** Whether `stored`, as read from the database, is the value that `asSent` stores for `value`. */
export function isStored(stored: string | number | null, value: string | number | boolean | null): boolean {
  return stored === (typeof value === 'boolean' ? Number(value) : value);
}

/**
 * Makes a directory and missing parents, durably, so that a power cut cannot remove it with its content. Node's
 * recursive mkdir never ends on file systems such as procfs, so each directory is tried once. Throws the system's
 * error.
 */
export function makeDirectory(path: string, mode: number): void {
  if (existsSync(path)) return;
  const parent = dirname(path);
  if (parent !== path) makeDirectory(parent, 0o755);
  mkdirSync(path, { mode });
  syncEntry(parent);
}

/**
 * Makes a directory with exactly this mode, by clearing the umask meanwhile. Worker threads cannot call it, because
 * they cannot set the umask.
 */
export function makeOpenDirectory(path: string, mode: number): void {
  const mask = process.umask(0);
  try {
    makeDirectory(path, mode);
  } finally {
    process.umask(mask);
  }
}

function syncEntry(parent: string): void {
  try {
    syncPath(parent);
  } catch (error) {
    // This user may write the directory but not open it, so it cannot be synced here. The system syncs it some seconds
    // later.
    if (!(error instanceof Error && 'code' in error && error.code === 'EACCES')) throw error;
  }
}

/**
 * Copies a database, as of one moment, into a single file with mode 0600; durable on return. Writers are not delayed,
 * because the copy only reads. `to` must not exist. Throws `storage-…`. `storage-busy` occurs only with a rollback
 * journal, and the copy can then be retried.
 */
export function copyDatabase(from: string, to: string): void {
  createWithMode(to, 0o600);
  const db = openDatabase({ path: from, mode: 0o600, readonly: true, busyTimeoutMs: BUSY_TIMEOUT_MS });
  try {
    // Not copied by SQLite's backup, which starts again whenever another process commits between two of its steps.
    storing(() => db.prepare('VACUUM INTO ?').run(to));
    storing(() => syncPath(to));
  } finally {
    db.close();
  }
}

/** Opens a database for reads only, runs `look` on it and closes it. Throws `storage-…`. */
export function lookInto<T>(path: string, look: (db: Database.Database) => T): T {
  const db = openDatabase({ path, mode: 0o600, readonly: true, busyTimeoutMs: BUSY_TIMEOUT_MS });
  try {
    return storing(() => look(db));
  } finally {
    db.close();
  }
}

type Value = unknown;
type Kind = 'rows' | 'values';

const known = new WeakMap<Database.Database, Sql>();

/** Returns the statements of a connection. They are cached, so SQL texts can stand where they are used. */
export function sqlOf(db: Database.Database): Sql {
  let sql = known.get(db);
  if (sql === undefined) {
    sql = new Sql(db);
    known.set(db, sql);
  }
  return sql;
}

/**
 * Prepares each SQL text at its first use, and keeps the statement as long as the connection. `values` returns only the
 * first column. Parameters are as in better-sqlite3. Write `LIMIT +?`: SQLite plans a statement with `LIMIT ?` again at
 * each run, which takes longer than reading a few rows (23 µs instead of 10).
 */
export class Sql {
  readonly #db: Database.Database;
  readonly #statements: Record<Kind, Map<string, Database.Statement<Value[]>>> = {
    rows: new Map(),
    values: new Map(),
  };

  constructor(db: Database.Database) {
    this.#db = db;
  }

  row<T>(text: string, ...params: Value[]): T | undefined {
    return this.#statement('rows', text).get(...params) as T | undefined;
  }

  rows<T>(text: string, ...params: Value[]): T[] {
    return this.#statement('rows', text).all(...params) as T[];
  }

  value<T = number>(text: string, ...params: Value[]): T | undefined {
    return this.#statement('values', text).get(...params) as T | undefined;
  }

  values<T>(text: string, ...params: Value[]): T[] {
    return this.#statement('values', text).all(...params) as T[];
  }

  run(text: string, ...params: Value[]): Database.RunResult {
    return this.#statement('rows', text).run(...params);
  }

  /**
   * Runs `action` in a transaction. Inside another transaction, `action` becomes part of that one, so after an error
   * the caller must undo all of it. A savepoint could undo `action` alone, but it copies each page before its first
   * change, which doubles the time of an insert.
   */
  transaction<T>(action: () => T): T {
    return this.#db.inTransaction ? action() : this.#db.transaction(action).immediate();
  }

  #statement(kind: Kind, text: string): Database.Statement<Value[]> {
    const statements = this.#statements[kind];
    let statement = statements.get(text);
    if (!statement) {
      statement = this.#db.prepare<Value[]>(text);
      if (kind === 'values') statement.pluck();
      statements.set(text, statement);
    }
    return statement;
  }
}

/** Prepares each statement at its first use, because most commands and starts use few of them. */
export function preparedOnUse<T extends Record<string, () => unknown>>(
  makers: T,
): { readonly [Name in keyof T]: ReturnType<T[Name]> } {
  const statements = {};
  for (const [name, prepare] of Object.entries(makers)) {
    const get = () => {
      const value = prepare();
      Object.defineProperty(statements, name, { value });
      return value;
    };
    Object.defineProperty(statements, name, { configurable: true, get });
  }
  return statements as { [Name in keyof T]: ReturnType<T[Name]> };
}

/** Returns the bytes in use, without free pages, which are reused before the file grows. */
export function usedBytes(db: Database.Database): number {
  const sql = `SELECT (page_count - freelist_count) * page_size AS used
    FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`;
  return sqlOf(db).value(sql) ?? 0;
}
