import { statSync } from 'node:fs';
import type Database from 'better-sqlite3';
import { hasCode, TillsyncError } from '../core/errors.ts';
import { migrate, type Role } from './migrate.ts';
import { openDatabase, settleWal, storing, toStorageError } from './sqlite.ts';

const MODE = 0o600;
const AUTOCHECKPOINT_PAGES = 16;
/** Size of the log that has room for all small saves between two checkpoints. */
const WARM_LOG_BYTES = 48 * 4096;
const PADDING_BYTES = 64 * 4096;

interface StateFile {
  db: Database.Database;
  close(): void;
}

/**
 * Opens state.db so that a token save succeeds on a full disk: the write-ahead log is never shortened, and the file has
 * free pages. Throws `storage-corrupt` or `storage-newer`. It never replaces a damaged file by an empty one, because
 * tokens and the calls of the rate budget would be lost.
 */
export function openStateFile(path: string, busyTimeoutMs: number, role?: Role): StateFile {
  let opened: Database.Database | undefined;
  try {
    const db = openDatabase({
      path,
      mode: MODE,
      busyTimeoutMs,
      pragmas: { journal_mode: 'wal', wal_autocheckpoint: AUTOCHECKPOINT_PAGES, foreign_keys: 1 },
    });
    opened = db;
    settleWal(db);
    const verdict = storing(() => db.pragma('quick_check(1)', { simple: true }));
    if (verdict !== 'ok')
      throw new TillsyncError('storage-corrupt', `${path} is damaged: ${String(verdict)}.`);
    migrate(db, {
      directory: new URL('./state/migrations/', import.meta.url),
      roles: {
        hub: new URL('./state/hub/', import.meta.url),
        branch: new URL('./state/branch/', import.meta.url),
      },
      role,
      name: 'state.db',
      keepCopyAt: `${path}.before-upgrade`,
    });
    reserveRoom(db);
    // The last connection to close deletes the log, unless that connection is read-only.
    const keeper = openDatabase({ path, mode: MODE, readonly: true, busyTimeoutMs });
    storing(() => keeper.pragma('schema_version'));
    return {
      db,
      close() {
        db.close();
        keeper.close();
      },
    };
  } catch (error) {
    opened?.close();
    const fault = toStorageError(error, path);
    if (fault.code !== 'storage-corrupt') throw fault;
    // What is lost, and so the remedy, differs between a store, a hub and a branch. `doctor` knows it.
    throw new TillsyncError(fault.code, fault.message, {
      cause: fault,
      hint: 'To see what to do, run: {tillsync} doctor',
    });
  }
}

/** Fills a table and empties it, so that the file has free pages and the log is long. */
function reserveRoom(db: Database.Database): void {
  try {
    const log = statSync(`${db.name}-wal`, { throwIfNoEntry: false });
    const free = storing(() => Number(db.pragma('freelist_count', { simple: true })));
    if (log && log.size >= WARM_LOG_BYTES && free * 4096 >= PADDING_BYTES / 2) return;
    storing(() => {
      db.prepare('INSERT INTO padding VALUES (randomblob(?))').run(PADDING_BYTES);
      db.exec('DELETE FROM padding');
    });
  } catch (error) {
    // A full disk has no room to reserve, and a locked file may just be getting its free pages from another process.
    if (!hasCode(error, 'storage-full', 'storage-busy')) throw error;
  }
}
