import { statSync } from 'node:fs';
import type Database from 'better-sqlite3';
import { hasCode } from '../domain/errors.ts';
import { storing } from './sqlite.ts';

/** Size of the write-ahead log; 0 when there is none. */
export function walBytes(path: string): number {
  return statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
}

/**
 * Moves what the log has into the database, where it is synced. A process that died in a commit, or a sync that
 * failed, leaves a commit in the log that is not on the disk but is read as if it were; the same order announced
 * again would change nothing and be confirmed without ever having been kept, and a token pair be used that a power
 * cut takes away. Throws when the disk fails.
 */
export function settleWal(db: Database.Database): void {
  if (walBytes(db.name) === 0) return;
  try {
    storing(() => db.pragma('wal_checkpoint(PASSIVE)'));
  } catch (error) {
    // The log is synced before the database grows, so a disk without room has kept it.
    if (!hasCode(error, 'storage-full', 'storage-busy')) throw error;
  }
}
