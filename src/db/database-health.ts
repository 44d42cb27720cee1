import { readdirSync, statSync } from 'node:fs';
import { appliedMigrations } from './migrate.ts';
import { openDatabase, storing } from './sqlite.ts';

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
      const applied = appliedMigrations(db).store;
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
