import type Database from 'better-sqlite3';
import type { JWK } from 'jose';
import { sqlOf, storing } from './sqlite.ts';

/** A request of a command to the running daemon, with the result. */
export interface DaemonRequest<Asked> {
  /** Time of the request by the wall clock, which also identifies the request. */
  askedAtMs: number;
  asked: Asked;
  /**
   * Public key of the requester, with which the result is encrypted. The result may contain customer data, and its
   * bytes may remain in the file after the request is replaced.
   */
  key: JWK;
  /** Result as JSON, encrypted as a JWE; null until the daemon has finished. */
  result: string | null;
  /** Why the request failed; null if it succeeded or is not finished. */
  fault: string | null;
}

/**
 * Requests of commands to the daemon, stored in state.db. Only the newest request of each name is stored. Methods throw
 * `storage-…`.
 */
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
