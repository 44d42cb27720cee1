import {
  chmodSync,
  closeSync,
  constants,
  existsSync,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  statSync,
} from 'node:fs';
import { dirname } from 'node:path';
import type Database from 'better-sqlite3';
import { TillsyncError } from '../../domain/errors.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import { makeDirectory } from '../make-directory.ts';
import { createWithMode, openDatabase, storing, syncPath } from '../sqlite.ts';
import { giveToGroup, groupId } from '../unix-group.ts';

const INBOX_MODE = 0o660;
const DIRECTORY_MODE = 0o2770;
const BUSY_TIMEOUT_MS = 50;
const READ_AT_ONCE_BYTES = 1024 * 1024;
const SCHEMA_VERSION = 1;
const SCHEMA = new URL('./schema.sql', import.meta.url);

export interface OpenInbox {
  db: Database.Database;
  /** Tells whether the path still leads to the open file. */
  inode: number;
}

/**
 * Opens the inbox, making directory, file and tables where they are missing. Keeps a rollback journal: a POS that
 * dies is rolled back by whoever opens next, and a file deleted under an open handle is noticed. Throws
 * `storage-corrupt` when the file is no sound inbox, `storage-newer` when a newer tillsync made it.
 */
export function openInboxFile({ path, group }: { path: string; group?: string | undefined }): OpenInbox {
  const gid = group === undefined ? undefined : groupId(group);
  storing(() => {
    prepareDirectory(dirname(path), gid);
    const there = lstatSync(path, { throwIfNoEntry: false });
    // Whoever may write the directory could lead tillsync to a file that is none of theirs.
    if (there && !there.isFile()) throw unsound(path, 'It is no plain file');
    if (createWithMode(path, INBOX_MODE) && gid !== undefined) giveToGroup(gid, path);
  });
  const db = openDatabase({
    path,
    mode: INBOX_MODE,
    busyTimeoutMs: BUSY_TIMEOUT_MS,
    // A commit is the deletion of its journal. Unless that is synced, a power cut brings rows back that were
    // taken in and forgotten, and they would be taken in twice.
    pragmas: { journal_mode: 'delete', synchronous: 'EXTRA' },
  });
  try {
    storing(() => {
      bringToSchema(db, path);
      refuseUnsound(db, path);
    });
    return { db, inode: statSync(path).ino };
  } catch (error) {
    db.close();
    throw error;
  }
}

/**
 * Throws `storage-failed` where the disk does not give the file's bytes: SQLite calls that damaged too. One that is
 * no plain file is not read.
 */
export function requireReadable(path: string): void {
  if (!lstatSync(path, { throwIfNoEntry: false })?.isFile()) return;
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

/** Moves a file that cannot be used out of the way, with its journal. Returns where it is kept now. */
export function setAside(path: string, clock: Clock): string {
  const stamp = isoUtc(clock.nowMs()).replace(/[-:]/g, '').replace(/\..*/, 'Z');
  let kept = `${path}.damaged-${stamp}`;
  for (let n = 2; existsSync(kept); n++) kept = `${path}.damaged-${stamp}-${n}`;
  return storing(() => {
    if (existsSync(path)) renameSync(path, kept);
    for (const suffix of ['-journal', '-wal', '-shm']) {
      if (existsSync(path + suffix)) renameSync(path + suffix, kept + suffix);
    }
    syncPath(dirname(path));
    return kept;
  });
}

/** The number of the file that the path leads to; 0 when there is none. */
export function inodeAt(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.ino ?? 0;
}

function prepareDirectory(directory: string, gid: number | undefined): void {
  const isNew = !existsSync(directory);
  if (isNew) {
    const umask = process.umask(0);
    try {
      makeDirectory(directory, DIRECTORY_MODE & 0o777);
    } finally {
      process.umask(umask);
    }
  }
  if (gid !== undefined) giveToGroup(gid, directory);
  if (!isNew || (statSync(directory).mode & 0o7777) === DIRECTORY_MODE) return;
  try {
    chmodSync(directory, DIRECTORY_MODE);
  } catch {
    // A hardened service may not set the group bit itself. Below a directory that has it, it is there already.
  }
}

function bringToSchema(db: Database.Database, path: string): void {
  const version = () => Number(db.pragma('user_version', { simple: true }));
  if (version() === SCHEMA_VERSION) return;
  db.transaction(() => {
    if (version() === SCHEMA_VERSION) return;
    if (version() > SCHEMA_VERSION) {
      throw new TillsyncError(
        'storage-newer',
        `${path} was made by a newer tillsync; it was left untouched.`,
        {
          hint: 'Install the newer tillsync again, or move the file away.',
        },
      );
    }
    const tables = db.prepare<[], number>('SELECT count(*) FROM sqlite_master').pluck().get() ?? 0;
    if (tables > 0) throw unsound(path, 'It is a database, but no inbox');
    db.exec(readFileSync(SCHEMA, 'utf8'));
    db.pragma(`user_version = ${SCHEMA_VERSION}`);
  }).immediate();
}

function refuseUnsound(db: Database.Database, path: string): void {
  const verdict = db.pragma('quick_check(1)', { simple: true });
  if (verdict !== 'ok') throw unsound(path, `SQLite says: ${String(verdict)}`);
  for (const table of ['stock_changes', 'product_changes', 'order_acks']) {
    const found = db.prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?").get(table);
    if (!found) throw unsound(path, `It has no table ${table}`);
  }
}

function unsound(path: string, why: string): TillsyncError {
  return new TillsyncError('storage-corrupt', `The inbox ${path} cannot be used. ${why}.`);
}
