import { copyFileSync, existsSync, mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type Database from 'better-sqlite3';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { openStateFile } from '../../src/db/state-file.ts';

let made: string | undefined;
let putFault: (db: Database.Database) => void = () => {};

/**
 * Puts a new mirror into `directory` unless there is one, and returns its path. The mirror is copied, because copying
 * and opening one takes half the CPU time of making one.
 */
export function freshMirror(directory: string): string {
  const file = path.join(directory, 'mirror.db');
  if (existsSync(file)) return file;
  mkdirSync(directory, { recursive: true });
  if (made === undefined || !existsSync(made)) {
    made = path.join(mkdtempSync(path.join(tmpdir(), 'tillsync-fresh-')), 'mirror.db');
    const db = openConnection({ path: made, readonly: false, group: undefined });
    putFault(db);
    db.close();
  }
  copyFileSync(made, file);
  return file;
}

let madeState: string | undefined;

/**
 * Puts a new state.db into `directory` unless there is one, and returns its path. Copies the write-ahead log too, which
 * remains after state.db is closed and contains what the first start wrote.
 */
export function freshState(directory: string): string {
  const file = path.join(directory, 'state.db');
  if (existsSync(file)) return file;
  if (madeState === undefined || !existsSync(madeState)) {
    madeState = path.join(mkdtempSync(path.join(tmpdir(), 'tillsync-fresh-')), 'state.db');
    openStateFile(madeState, 100).close();
  }
  for (const end of ['-wal', '']) copyFileSync(madeState + end, file + end);
  return file;
}

/**
 * Discards the prepared mirror, so that the next one is made from SQL again, with the fault that `put` puts into its
 * schema.
 */
export function forgetFreshMirror(put: typeof putFault = () => {}): void {
  made = undefined;
  putFault = put;
}
