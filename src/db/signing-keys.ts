import type Database from 'better-sqlite3';
import { factOf, setFact } from './facts.ts';
import { storing } from './sqlite.ts';

/**
 * Secret halves of the keys that sign this machine's backups, each by the recipient of its recovery phrase. An earlier
 * phrase's key stays, because a new recipient counts only once the configuration file has it.
 */
export class SigningKeyRows {
  readonly #db: Database.Database;

  constructor({ db }: { db: Database.Database }) {
    this.#db = db;
  }

  keep({ recipient, secret }: SigningKey): void {
    storing(() => setFact(this.#db, factName(recipient), secret));
  }
}

/** Key that signs the backups for a recipient. */
export interface SigningKey {
  /** The age recipient of the same recovery phrase. */
  recipient: string;
  /** Seed of the Ed25519 key, in base64. */
  secret: string;
}

/** Returns the key that signs the backups for a recipient; undefined if its phrase was not made on this machine. */
export function signingKeyFor(db: Database.Database, recipient: string): SigningKey | undefined {
  const secret = factOf(db, factName(recipient));
  return secret === undefined ? undefined : { recipient, secret };
}

function factName(recipient: string): string {
  return `backup.key.${recipient}`;
}
