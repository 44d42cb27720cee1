import { createHash } from 'node:crypto';
import type Database from 'better-sqlite3';
import type { Clock } from '../core/time.ts';
import type { Leases } from '../db/lease.ts';
import { storing } from '../db/sqlite.ts';
import type { LockOut, NewTokenPair, TokenPair, TokenStore } from './tokens.ts';

const LEASE = 'token.refresh';

interface Row {
  generation: number;
  refresh_token: string;
  access_token: string | null;
  saved_at_ms: number;
  access_expires_at_ms: number | null;
  access_issued_at_ms: number | null;
  refresh_expires_at_ms: number | null;
  clock_skew_ms: number;
  locked_out_at_ms: number | null;
  locked_out_cause: LockOut['cause'] | null;
  intent_generation: number | null;
  intent_at_ms: number | null;
}

interface TokenRowsOptions {
  db: Database.Database;
  clock: Clock;
  leases: Leases;
  onSecret?: ((value: string) => void) | undefined;
}

/** The token pair as one row: a save is one page, all or nothing. */
export class TokenRows implements TokenStore {
  readonly #db: Database.Database;
  readonly #clock: Clock;
  readonly #leases: Leases;
  readonly #onSecret: (value: string) => void;
  readonly #select: Database.Statement<[], Row>;
  readonly #upsert: Database.Statement<[Record<string, unknown>]>;
  readonly #writeIntent: Database.Statement<[number, number, number]>;
  readonly #clearIntent: Database.Statement<[number]>;
  readonly #lockOut: Database.Statement<[number, string, number]>;
  readonly #note: Database.Statement<[string]>;
  readonly #noted: Database.Statement<[string], number>;
  readonly #company: Database.Statement<[], string>;
  readonly #setCompany: Database.Statement<[string]>;

  #toldGeneration = 0;

  constructor(options: TokenRowsOptions) {
    const { db } = options;
    this.#db = db;
    this.#clock = options.clock;
    this.#leases = options.leases;
    this.#onSecret = options.onSecret ?? (() => {});
    this.#select = db.prepare('SELECT * FROM tokens');
    this.#upsert = db.prepare(
      `INSERT OR REPLACE INTO tokens (one, generation, refresh_token, access_token, saved_at_ms,
         access_expires_at_ms, access_issued_at_ms, refresh_expires_at_ms, clock_skew_ms)
       VALUES (1, :generation, :refreshToken, :accessToken, :savedAtMs,
         :accessExpiresAtMs, :accessIssuedAtMs, :refreshExpiresAtMs, :clockSkewMs)`,
    );
    this.#writeIntent = db.prepare(
      'UPDATE tokens SET intent_generation = ?, intent_at_ms = ? WHERE generation = ?',
    );
    this.#clearIntent = db.prepare(
      'UPDATE tokens SET intent_generation = NULL, intent_at_ms = NULL WHERE intent_generation = ?',
    );
    this.#lockOut = db.prepare(
      'UPDATE tokens SET locked_out_at_ms = ?, locked_out_cause = ? WHERE generation = ?',
    );
    this.#note = db.prepare('INSERT OR IGNORE INTO handed_in VALUES (?)');
    this.#company = db.prepare<[], string>('SELECT company_id FROM company').pluck();
    this.#setCompany = db.prepare('INSERT OR REPLACE INTO company VALUES (1, ?)');
    this.#noted = db.prepare<[string], number>('SELECT 1 FROM handed_in WHERE fingerprint = ?').pluck();
  }

  read(): TokenPair | null {
    const row = storing(() => this.#select.get());
    if (!row) return null;
    if (row.generation !== this.#toldGeneration) {
      this.#tell(row.refresh_token, row.access_token);
      this.#toldGeneration = row.generation;
    }
    return {
      refreshToken: row.refresh_token,
      accessToken: row.access_token,
      generation: row.generation,
      savedAtMs: row.saved_at_ms,
      accessExpiresAtMs: row.access_expires_at_ms,
      accessIssuedAtMs: row.access_issued_at_ms,
      refreshExpiresAtMs: row.refresh_expires_at_ms,
      clockSkewMs: row.clock_skew_ms,
      lockedOut:
        row.locked_out_at_ms === null
          ? null
          : { atMs: row.locked_out_at_ms, cause: row.locked_out_cause ?? 'refused' },
    };
  }

  writeIntent(generation: number): void {
    storing(() => this.#writeIntent.run(generation, this.#clock.nowMs(), generation));
  }

  clearIntent(generation: number): void {
    storing(() => this.#clearIntent.run(generation));
  }

  readIntent(): { generation: number; startedAtMs: number } | null {
    const row = storing(() => this.#select.get());
    if (!row || row.intent_generation === null) return null;
    return { generation: row.intent_generation, startedAtMs: row.intent_at_ms ?? 0 };
  }

  save(pair: NewTokenPair, expectedGeneration: number | null, offered?: string): boolean {
    this.#tell(pair.refreshToken, pair.accessToken);
    const saving = this.#db.transaction(() => {
      const row = this.#select.get();
      const held = row?.generation ?? 0;
      if (expectedGeneration !== null && expectedGeneration !== held) return false;
      // Only a rotation follows on a good pair of a known generation; all else came from a person.
      const handedIn = expectedGeneration === null || !row || row.locked_out_at_ms !== null;
      if (handedIn) this.#note.run(fingerprintOf(offered ?? pair.refreshToken));
      this.#upsert.run({ ...pair, generation: held + 1, savedAtMs: this.#clock.nowMs() });
      return true;
    });
    return storing(() => saving.immediate());
  }

  #tell(...secrets: (string | null)[]): void {
    for (const secret of secrets) if (secret !== null) this.#onSecret(secret);
  }

  wasHandedIn(refreshToken: string): boolean {
    return storing(() => this.#noted.get(fingerprintOf(refreshToken))) === 1;
  }

  company(): string | null {
    return storing(() => this.#company.get()) ?? null;
  }

  setCompany(companyId: string): void {
    storing(() => this.#setCompany.run(companyId));
  }

  markLockedOut(generation: number, lockOut: LockOut): void {
    storing(() => this.#lockOut.run(lockOut.atMs, lockOut.cause, generation));
  }

  acquireLease(holdMs: number): number | undefined {
    return this.#leases.acquire(LEASE, holdMs);
  }

  releaseLease(fence: number): void {
    this.#leases.release(LEASE, fence);
  }
}

function fingerprintOf(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}
