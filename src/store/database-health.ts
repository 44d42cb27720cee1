import { readdirSync, statSync } from 'node:fs';
import { openDatabase, storing } from './sqlite.ts';

const MIGRATIONS = {
  mirror: new URL('./mirror/migrations/', import.meta.url),
  state: new URL('./state/migrations/', import.meta.url),
};
const BUSY_TIMEOUT_MS = 100;
/** What is read through in about a second; it cannot be stopped on the way. */
const CHECKED_MAX_BYTES = 256 * 1024 ** 2;

export interface DatabaseHealth {
  bytes: number;
  /** Schema steps that the file has, and that this program knows. */
  schema: { applied: number; known: number };
  /** What SQLite found wrong first; null: nothing. */
  damage: string | null;
  /** False for a file too large to be read through in a moment; `damage` then says nothing. */
  readThrough: boolean;
}

/** Looks at a database without changing it. Throws `storage-…`. */
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
