import { hash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { sqlOf, storing } from './sqlite.ts';

/** Rights that a named key of the local API can have. */
export const RIGHTS = ['orders', 'ack', 'stock', 'prices', 'screen', 'decide'] as const;
export type Right = (typeof RIGHTS)[number];

export interface ApiKey {
  name: string;
  may: readonly Right[];
  /** ISO 8601 UTC. */
  madeAt: string;
  withdrawnAt: string | null;
}

/**
 * Returns the digest of an API key, which is stored instead of the key. All digests have the same length, so comparing
 * two of them reveals nothing about the keys.
 */
export function keyDigest(key: string, encoding: 'utf8' | 'latin1'): Buffer {
  return hash('sha256', Buffer.from(key, encoding), 'buffer');
}

const COLUMNS = 'name, may, made_at AS madeAt, withdrawn_at AS withdrawnAt';
type ApiKeyRow = Omit<ApiKey, 'may'> & { may: string };

/**
 * Named keys of the local API, stored in state.db. A change applies from the next request on, and to event streams and
 * held GETs within a second. Methods throw `storage-…`.
 */
export class ApiKeyRows {
  readonly #db: Database.Database;

  constructor({ db }: { db: Database.Database }) {
    this.#db = db;
  }

  find(digest: Buffer): ApiKey | undefined {
    const sql = `SELECT ${COLUMNS} FROM api_keys WHERE digest = ?`;
    const row = storing(() => sqlOf(this.#db).row<ApiKeyRow>(sql, digest));
    return row && read(row);
  }

  /** Returns all keys by name, the valid ones before the withdrawn ones. */
  list(): ApiKey[] {
    const sql = `SELECT ${COLUMNS} FROM api_keys ORDER BY withdrawn_at IS NOT NULL, name, made_at`;
    return storing(() => sqlOf(this.#db).rows<ApiKeyRow>(sql)).map(read);
  }

  /** Stores a key. Returns false if a valid key has this name. */
  add(key: { name: string; may: readonly Right[]; digest: Buffer; at: string }): boolean {
    const sql = 'INSERT OR IGNORE INTO api_keys (digest, name, may, made_at) VALUES (?, ?, ?, ?)';
    const { digest, name, may, at } = key;
    return storing(() => sqlOf(this.#db).run(sql, digest, name, JSON.stringify(may), at)).changes > 0;
  }

  /** Withdraws a key; returns false if no valid key has this name. */
  withdraw(name: string, at: string): boolean {
    const sql = 'UPDATE api_keys SET withdrawn_at = ? WHERE name = ? AND withdrawn_at IS NULL';
    return storing(() => sqlOf(this.#db).run(sql, at, name)).changes > 0;
  }
}

function read({ may, ...row }: ApiKeyRow): ApiKey {
  return { ...row, may: JSON.parse(may) as Right[] };
}
