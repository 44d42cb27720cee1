import type Database from 'better-sqlite3';
import type { JWK } from 'jose';
import { sqlOf, storing } from './sqlite.ts';

/** A command's request to the running daemon, and its result. */
export interface DaemonRequest<Asked> {
  /** The requester's wall clock, which names the request. */
  askedAtMs: number;
  asked: Asked;
  /**
   * The requester's key. Nobody else can read the result, which may name a customer and whose bytes stay in the file.
   */
  key: JWK;
  /** JSON as a JWE; null until the daemon is done. */
  result: string | null;
  /** Why it failed; null if it succeeded or is not done. */
  fault: string | null;
}

/** The newest request of each name in state.db, shared by all processes of a company. Methods throw `storage-…`. */
export class RequestRows {
  readonly #db: Database.Database;

  constructor({ db }: { db: Database.Database }) {
    this.#db = db;
  }

  read<Asked>(name: string): DaemonRequest<Asked> | undefined {
    const sql = 'SELECT wish FROM wishes WHERE name = ?';
    const text = storing(() => sqlOf(this.#db).value<string>(sql, name));
    return text === undefined ? undefined : (JSON.parse(text) as DaemonRequest<Asked>);
  }

  write<Asked>(name: string, request: DaemonRequest<Asked>): void {
    const sql = 'INSERT OR REPLACE INTO wishes (name, wish) VALUES (?, ?)';
    storing(() => sqlOf(this.#db).run(sql, name, JSON.stringify(request)));
  }
}
