import { closeSync, openSync, readSync, statSync, writeSync } from 'node:fs';
import type Database from 'better-sqlite3';
import { asTillsyncError, hasCode } from '../core/errors.ts';
import { lookInto, walBytes } from './sqlite.ts';

/** The first page of a mirror: SQLite's header, and the root of the list of tables. */

const PAGE_SIZE_AT = 16;
/** Bytes of the header that every mirror has alike, by their offset (sqlite.org/fileformat2.html, 1.3). */
const FIXED: readonly [number, Buffer][] = [
  [0, Buffer.from('SQLite format 3\0')],
  // Pages of 8192 bytes.
  [PAGE_SIZE_AT, Buffer.from([0x20, 0x00])],
  // A write-ahead log, and no reserved bytes in a page.
  [18, Buffer.from([2, 2, 0, 64, 32, 32])],
  // Schema format 4.
  [44, Buffer.from([0, 0, 0, 4])],
  // UTF-8.
  [56, Buffer.from([0, 0, 0, 1])],
];
const HEADER_BYTES = 100;
/** Offset of a number that says of which change the size in the header is. If it says another, SQLite asks the file. */
const SIZE_VALID_FOR_AT = 92;
const PAGE_BYTES = 8192;

/** Returns what is wrong with the head of a mirror; undefined if it is sound, missing or empty. Throws `storage-busy`. */
export function headDamage(path: string): string | undefined {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size === 0) return undefined;
  try {
    return lookInto(path, (db) => {
      const verdict = db.pragma("integrity_check('sqlite_schema')", { simple: true });
      if (verdict !== 'ok') return String(verdict);
      if (lacksTables(db) && size > PAGE_BYTES) return 'tables are missing';
      // With a log, SQLite takes the head from there. The start refuses a database of another program by itself.
      return walBytes(path) === 0 && isOurs(tablesOf(db)) ? strangeByte(path, true) : undefined;
    });
  } catch (error) {
    const { message } = asTillsyncError(error);
    if (hasCode(error, 'storage-corrupt')) return message;
    // SQLite has only a general error for a format of a later time.
    if (hasCode(error, 'storage-failed') && walBytes(path) === 0 && strangeByte(path, false) !== undefined) {
      return message;
    }
    if (hasCode(error, 'storage-busy')) throw error;
    // The start itself says what else is wrong.
    return undefined;
  }
}

/** Whether the list of tables is lost, or the part of it that says which tables are there. */
export function lacksTables(db: Database.Database): boolean {
  const all = tablesOf(db);
  return all.length === 0 || (isOurs(all) && !all.includes('_schema_migrations'));
}

function tablesOf(db: Database.Database): string[] {
  return db.prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table'").pluck().all();
}

/** Whether a database with these tables is a mirror of this tillsync or a newer one. */
function isOurs(tables: readonly string[]): boolean {
  return ['_schema_migrations', '_orders', '_outbox', '_products'].some((name) => tables.includes(name));
}

/** Returns which byte of the header is not a mirror's. `isRead`: SQLite reads the list of tables. */
function strangeByte(path: string, isRead: boolean): string | undefined {
  const head = Buffer.alloc(HEADER_BYTES);
  const file = openSync(path, 'r');
  try {
    readSync(file, head, 0, HEADER_BYTES, 0);
  } finally {
    closeSync(file);
  }
  // A mirror that was restored and not opened since has no write-ahead log (1) yet.
  if (head[18] === 1 && head[19] === 1) head.fill(2, 18, 20);
  const strange = FIXED.find(
    ([at, bytes]) =>
      // SQLite reads nothing where this is wrong.
      !(isRead && at === PAGE_SIZE_AT) && !bytes.equals(head.subarray(at, at + bytes.length)),
  );
  return strange && `the header is not that of a mirror at byte ${strange[0]}`;
}

/** Writes those bytes of the header that every mirror has alike. */
export function mendHead(path: string): void {
  const file = openSync(path, 'r+');
  try {
    for (const [at, bytes] of FIXED) writeSync(file, bytes, 0, bytes.length, at);
    writeSync(file, Buffer.alloc(4), 0, 4, SIZE_VALID_FOR_AT);
  } finally {
    closeSync(file);
  }
}
