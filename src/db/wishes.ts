import type Database from 'better-sqlite3';
import type { JWK } from 'jose';
import { sqlOf, storing } from './sqlite.ts';

/** What a command asks the running daemon to do, and what came of it. */
export interface Wish<Asked> {
  /** Wall clock of whoever asks; names the wish. */
  askedAtMs: number;
  asked: Asked;
  /** Of whoever asks: no other reads the result, of which bytes stay in the file, and which may name a customer. */
  key: JWK;
  /** JSON, as a JWE; null until the daemon has done it. */
  result: string | null;
  /** Why it could not be done; null: it was, or is not yet. */
  fault: string | null;
}

/** The newest wish of each name in state.db, shared between the processes of one company. Methods throw `storage-…`. */
export class WishRows {
  readonly #db: Database.Database;

  constructor({ db }: { db: Database.Database }) {
    this.#db = db;
  }

  read<Asked>(name: string): Wish<Asked> | undefined {
    const sql = 'SELECT wish FROM wishes WHERE name = ?';
    const text = storing(() => sqlOf(this.#db).value<string>(sql, name));
    return text === undefined ? undefined : (JSON.parse(text) as Wish<Asked>);
  }

  write<Asked>(name: string, wish: Wish<Asked>): void {
    const sql = 'INSERT OR REPLACE INTO wishes (name, wish) VALUES (?, ?)';
    storing(() => sqlOf(this.#db).run(sql, name, JSON.stringify(wish)));
  }
}
