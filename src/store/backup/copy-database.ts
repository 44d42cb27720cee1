import type Database from 'better-sqlite3';
import { createWithMode, openDatabase, storing, syncPath } from '../sqlite.ts';

const BUSY_TIMEOUT_MS = 100;

/**
 * A whole copy as of one moment in one plain file of mode 0600, on the disk when this returns. Whoever writes the
 * database is not held up: the copy is one read. `to` must not exist. Throws `storage-…`; `storage-busy` comes of
 * a rollback journal alone and may be tried again.
 */
export function copyDatabase(from: string, to: string): void {
  createWithMode(to, 0o600);
  const db = openDatabase({ path: from, mode: 0o600, readonly: true, busyTimeoutMs: BUSY_TIMEOUT_MS });
  try {
    // Page by page (SQLite's backup) it begins anew whenever another process commits between two steps.
    storing(() => db.prepare('VACUUM INTO ?').run(to));
    storing(() => syncPath(to));
  } finally {
    db.close();
  }
}

/** Opens a database that nobody else has open, and lets `look` read it. Throws `storage-…`. */
export function lookInto<T>(path: string, look: (db: Database.Database) => T): T {
  const db = openDatabase({ path, mode: 0o600, readonly: true, busyTimeoutMs: BUSY_TIMEOUT_MS });
  try {
    return storing(() => look(db));
  } finally {
    db.close();
  }
}
