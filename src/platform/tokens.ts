import { createHash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { decodeJwt, type JWTPayload } from 'jose';
import { TillsyncError } from '../core/errors.ts';
import { type Clock, isoUtc, parseDurationMs } from '../core/time.ts';
import type { Leases } from '../db/lease.ts';
import { preparedOnUse, storing } from '../db/sqlite.ts';

/** The token pair as stored in state.db. It is never in a log or an error. */
export interface TokenPair extends NewTokenPair {
  /** Number of the pair, which rises with each stored pair. It is the fencing number of saves. */
  generation: number;
  /** Time at which the pair was stored, by the wall clock. */
  savedAtMs: number;
  /** When and why the platform refused the pair; null if it did not. A refresh is then tried at long intervals only. */
  lockedOut: LockOut | null;
}

export interface NewTokenPair {
  refreshToken: string;
  accessToken: string | null;
  /** End of the access token, by the platform's wall clock; null if unknown. */
  accessExpiresAtMs: number | null;
  accessIssuedAtMs: number | null;
  refreshExpiresAtMs: number | null;
  /** Milliseconds by which the platform's wall clock was ahead of this machine's at the last answer. */
  clockSkewMs: number;
}

export interface LockOut {
  /** Time of the first refusal, by the wall clock. */
  atMs: number;
  /** Number of refusals in a row, and the time of the last one by the wall clock. */
  refusals: number;
  refusedAtMs: number;
  /**
   * - `refused`: the platform refused the refresh token
   * - `reply-lost`: the answer of an earlier refresh was never saved, and the platform then refused the token
   */
  cause: 'refused' | 'reply-lost';
}

/** Pauses after the first, the second and each further refusal of a refresh token. */
const TRY_AGAIN_AFTER_MS = [60_000, 600_000, 3_600_000] as const;
/** Lifetime of a refresh token (document, "Limits"), used if the token itself names no end. */
const REFRESH_LIFE_MS = 30 * 86_400_000;

/**
 * Returns when a refused refresh token is tried again, by this machine's wall clock; null if it is over and is not tried
 * again. A refusal may be the mistake of a moment, so it does not lock a shop out for good. The pauses are so long that
 * the platform cannot take the tries for an attack.
 */
function triesAgainAtMs(pair: TokenPair, serverNowMs: number): number | null {
  const { lockedOut, savedAtMs, refreshExpiresAtMs } = pair;
  const endMs = refreshExpiresAtMs ?? savedAtMs + REFRESH_LIFE_MS;
  if (!lockedOut || serverNowMs >= endMs) return null;
  const pauseMs = TRY_AGAIN_AFTER_MS[lockedOut.refusals - 1] ?? TRY_AGAIN_AFTER_MS[2];
  return lockedOut.refusedAtMs + pauseMs;
}

/** Returns whether a refused refresh token is to be tried now. */
export function isTryDue(pair: TokenPair, nowMs: number, serverNowMs: number): boolean {
  const atMs = triesAgainAtMs(pair, serverNowMs);
  // The wall clock may have been set back since the last refusal.
  return atMs !== null && (nowMs >= atMs || nowMs < (pair.lockedOut?.refusedAtMs ?? 0));
}

/** Shortest plausible time to the `exp` of a new access token. If `exp` is nearer, a wrong clock dated the token. */
const IMPLAUSIBLE_REST_MS = 5_000;
const FUTURE_MAX_MS = 10 * 365 * 86_400_000;

/**
 * Returns a newly issued pair with its times. The access token's life starts at its receipt, because servers of the
 * platform may have different clocks. Its length comes from the JWT's `iat` and `exp`, else `expiresIn`, else `exp`.
 */
export function datedPair(issued: {
  accessToken: string;
  refreshToken: string;
  /** Lifetime text such as `1h`. */
  expiresIn: string | null;
  /** Time at which the answer came, by this machine's wall clock. */
  nowMs: number;
  /** Milliseconds by which the platform's wall clock is ahead of this machine's. */
  clockSkewMs: number;
}): NewTokenPair {
  const { accessToken, refreshToken, expiresIn, clockSkewMs } = issued;
  const serverNowMs = issued.nowMs + clockSkewMs;
  const { issuedAtMs, expiresAtMs } = jwtTimes(accessToken);
  const lifetimeMs =
    issuedAtMs !== null && expiresAtMs !== null && expiresAtMs > issuedAtMs
      ? expiresAtMs - issuedAtMs
      : (parseDurationMs(expiresIn ?? '') ?? null);
  const isBelievable = expiresAtMs !== null && expiresAtMs - serverNowMs >= IMPLAUSIBLE_REST_MS;
  return {
    refreshToken,
    accessToken,
    accessIssuedAtMs: serverNowMs,
    accessExpiresAtMs: lifetimeMs !== null ? serverNowMs + lifetimeMs : isBelievable ? expiresAtMs : null,
    refreshExpiresAtMs: jwtTimes(refreshToken).expiresAtMs,
    clockSkewMs,
  };
}

/** Tokens that a person got from the platform. */
export interface HandedInTokens {
  refreshToken: string;
  accessToken?: string | null;
}

/** Returns a pair from a person with its times. Its age is unknown, so only the times in the tokens are used. */
export function handedInPair({ refreshToken, accessToken = null }: HandedInTokens): NewTokenPair {
  const times = jwtTimes(accessToken);
  return {
    refreshToken,
    accessToken,
    accessIssuedAtMs: times.issuedAtMs,
    accessExpiresAtMs: times.expiresAtMs,
    refreshExpiresAtMs: jwtTimes(refreshToken).expiresAtMs,
    clockSkewMs: 0,
  };
}

/** Returns the milliseconds until the access token ends; Infinity if its end is unknown. */
export function accessRestMs({ accessToken, accessExpiresAtMs }: TokenPair, serverNowMs: number): number {
  if (accessToken === null) return 0;
  return accessExpiresAtMs === null ? Number.POSITIVE_INFINITY : accessExpiresAtMs - serverNowMs;
}

/** Returns the lifetime of the access token in milliseconds; Infinity if it is unknown. */
export function accessLifeMs({ accessIssuedAtMs, accessExpiresAtMs }: TokenPair): number {
  if (accessIssuedAtMs === null || accessExpiresAtMs === null) return Number.POSITIVE_INFINITY;
  return Math.max(0, accessExpiresAtMs - accessIssuedAtMs);
}

/** Returns when this share of the access token's life is over; Infinity if its life is unknown. */
export function dueAtMs(pair: TokenPair, share: number): number {
  return (pair.accessIssuedAtMs ?? 0) + accessLifeMs(pair) * share;
}

/** Whether this share of the access token's life is over; false if its life is unknown. */
export function isDue(pair: TokenPair, serverNowMs: number, share: number): boolean {
  return serverNowMs >= dueAtMs(pair, share);
}

function claimsOf(token: string | null | undefined): JWTPayload {
  try {
    return decodeJwt(token ?? '');
  } catch {
    // The text is not a JWT, so it has no claims.
    return {};
  }
}

/** Returns `iat` and `exp` of a JWT in milliseconds; null for a missing one or if the text is no JWT. */
function jwtTimes(token: string | null): { issuedAtMs: number | null; expiresAtMs: number | null } {
  const { iat, exp } = claimsOf(token);
  return { issuedAtMs: asMs(iat), expiresAtMs: asMs(exp) };
}

function asMs(seconds: unknown): number | null {
  if (typeof seconds !== 'number' || !Number.isFinite(seconds) || seconds <= 0) return null;
  const ms = Math.round(seconds * 1000);
  // Some issuers write milliseconds, but RFC 7519 requires seconds.
  return ms > FUTURE_MAX_MS * 100 ? Math.round(seconds) : ms;
}

/** Claims that may contain a token's company, guessed because the document shows none. The id may be in an object. */
const CLAIMS = ['websiteId', 'companyId', 'company_id', 'company', 'website', 'tenantId', 'tenant'];

/** Returns the company in the claims of a token; undefined if there is none. */
export function companyOf(token: string | null | undefined): string | undefined {
  const claims = claimsOf(token);
  return CLAIMS.map((name) => idOf(claims[name])).find((id) => id !== undefined);
}

function idOf(value: unknown): string | undefined {
  if (typeof value === 'object' && value !== null) {
    const { _id, id } = value as Record<string, unknown>;
    return scalarId(_id) ?? scalarId(id);
  }
  return scalarId(value);
}

function scalarId(value: unknown): string | undefined {
  if (typeof value === 'number' && Number.isFinite(value)) return String(value);
  return (typeof value === 'string' && value.trim()) || undefined;
}

/** Returns both companies if a token certainly belongs to another company than the stored one. */
export function otherCompanyOf(
  store: Pick<TokenStore, 'company'>,
  ...tokens: (string | null | undefined)[]
): { own: string; offered: string } | undefined {
  const own = store.company();
  const offered = tokens.map(companyOf).find((id) => id !== undefined);
  return own === null || offered === undefined || offered === own ? undefined : { own, offered };
}

/** Throws `usage` if a token belongs to another company. */
export function refuseOtherCompany(
  store: Pick<TokenStore, 'company'>,
  ...tokens: (string | null | undefined)[]
): void {
  const other = otherCompanyOf(store, ...tokens);
  if (!other) return;
  throw new TillsyncError(
    'usage',
    `These tokens are of company ${other.offered}, and this store is of company ${other.own}. Nothing was changed.`,
    {
      hint:
        'For another company of this machine, name its configuration with --config FILE. ' +
        'To move this store to the other company: {tillsync} auth set --other-company',
    },
  );
}

/** State of the tokens, without any secret. */
export interface TokenStatus {
  /** `none` means that nobody has handed in tokens. */
  state: 'none' | 'ok' | 'locked-out';
  generation: number;
  /** Time at which the pair was stored, by the wall clock. */
  savedAtMs: number | null;
  /** False if only a refresh token is stored. The first call then gets an access token. */
  hasAccessToken: boolean;
  /** Milliseconds until the end, by the platform's clock; negative after the end, and null if unknown. */
  accessExpiresInMs: number | null;
  refreshExpiresInMs: number | null;
  clockSkewMs: number;
  lockedOut: LockOut | null;
  /** When the refused refresh token is tried again, by the wall clock; null if it is not, or was not refused. */
  triesAgainAtMs: number | null;
  /** Start of a refresh whose answer was not saved: it still runs, or the answer was lost. null if there is none. */
  openIntentAtMs: number | null;
}

export function describeTokens(
  pair: TokenPair | null,
  openIntentAtMs: number | null,
  serverNowMs: number,
): TokenStatus {
  const restMs = (endMs: number | null | undefined) => (endMs == null ? null : endMs - serverNowMs);
  return {
    state: pair === null ? 'none' : pair.lockedOut ? 'locked-out' : 'ok',
    generation: pair?.generation ?? 0,
    savedAtMs: pair?.savedAtMs ?? null,
    hasAccessToken: (pair?.accessToken ?? null) !== null,
    accessExpiresInMs: restMs(pair?.accessExpiresAtMs),
    refreshExpiresInMs: restMs(pair?.refreshExpiresAtMs),
    clockSkewMs: pair?.clockSkewMs ?? 0,
    lockedOut: pair?.lockedOut ?? null,
    triesAgainAtMs: pair && triesAgainAtMs(pair, serverNowMs),
    openIntentAtMs,
  };
}

const HINT = 'Get a new token pair from the company panel or the support, then run: {tillsync} auth set';
/** Says how long `triesAgainAtMs` waits. */
const TRIES_AGAIN = 'tillsync tries it again after 1, 10 and 60 minutes, then every hour until it expires.';

/** Returns the error for a call during a lock-out. */
export function lockedOutError({ atMs, cause }: Pick<LockOut, 'atMs' | 'cause'>): TillsyncError {
  const why =
    cause === 'reply-lost'
      ? 'an answer with new tokens was lost on its way, and the platform takes the old refresh token no more'
      : 'the platform refused the refresh token as invalid, expired or revoked';
  const since = isoUtc(atMs).slice(0, 16).replace('T', ' ');
  return new TillsyncError('auth-required', `Since ${since} UTC the platform asks for new tokens: ${why}.`, {
    hint: `${TRIES_AGAIN} ${HINT}`,
    httpStatus: 401,
  });
}

export function noTokensError(): TillsyncError {
  return new TillsyncError('auth-required', 'No tokens have been handed in yet.', { hint: HINT });
}

const LEASE = 'token.refresh';

interface TokenRow extends Omit<TokenPair, 'lockedOut'> {
  lockedOutAtMs: number | null;
  lockedOutCause: LockOut['cause'] | null;
  refusals: number;
  refusedAtMs: number | null;
}

function statements(db: Database.Database) {
  return preparedOnUse({
    pair: () =>
      db.prepare<[], TokenRow>(
        `SELECT generation, refresh_token AS refreshToken, access_token AS accessToken, saved_at_ms AS savedAtMs,
         access_expires_at_ms AS accessExpiresAtMs, access_issued_at_ms AS accessIssuedAtMs,
         refresh_expires_at_ms AS refreshExpiresAtMs, clock_skew_ms AS clockSkewMs,
         locked_out_at_ms AS lockedOutAtMs, locked_out_cause AS lockedOutCause,
         refusals, refused_at_ms AS refusedAtMs
       FROM tokens`,
      ),
    putPair: () =>
      db.prepare<[Record<string, unknown>]>(
        `INSERT OR REPLACE INTO tokens (one, generation, refresh_token, access_token, saved_at_ms,
         access_expires_at_ms, access_issued_at_ms, refresh_expires_at_ms, clock_skew_ms)
       VALUES (1, :generation, :refreshToken, :accessToken, :savedAtMs,
         :accessExpiresAtMs, :accessIssuedAtMs, :refreshExpiresAtMs, :clockSkewMs)`,
      ),
    intent: () =>
      db.prepare<[], { generation: number; startedAtMs: number }>(
        `SELECT intent_generation AS generation, coalesce(intent_at_ms, 0) AS startedAtMs FROM tokens
       WHERE intent_generation IS NOT NULL`,
      ),
    putIntent: () =>
      db.prepare<[number, number, number]>(
        'UPDATE tokens SET intent_generation = ?, intent_at_ms = ? WHERE generation = ?',
      ),
    clearIntent: () =>
      db.prepare<[number]>(
        'UPDATE tokens SET intent_generation = NULL, intent_at_ms = NULL WHERE intent_generation = ?',
      ),
    lockOut: () =>
      db.prepare<[LockOut & { generation: number }]>(
        `UPDATE tokens SET locked_out_at_ms = :atMs, locked_out_cause = :cause, refusals = :refusals,
         refused_at_ms = :refusedAtMs WHERE generation = :generation`,
      ),
    noteHandedIn: () => db.prepare<[string]>('INSERT OR IGNORE INTO handed_in VALUES (?)'),
    handedIn: () => db.prepare<[string], number>('SELECT 1 FROM handed_in WHERE fingerprint = ?').pluck(),
    company: () => db.prepare<[], string>("SELECT value FROM facts WHERE name = 'company'").pluck(),
    putCompany: () => db.prepare<[string]>("INSERT OR REPLACE INTO facts VALUES ('company', ?)"),
  });
}

interface TokenRowsOptions {
  db: Database.Database;
  clock: Clock;
  leases: Leases;
  onSecret?: ((value: string) => void) | undefined;
}

export type TokenStore = Pick<TokenRows, keyof TokenRows>;

/**
 * Stores the token pair as one row of state.db, so that a save changes one page. Each method is one short durable
 * transaction and may throw `storage-busy`.
 */
export class TokenRows {
  readonly #o: TokenRowsOptions;
  readonly #sql: ReturnType<typeof statements>;
  #toldGeneration = 0;

  constructor(options: TokenRowsOptions) {
    this.#o = options;
    this.#sql = statements(options.db);
  }

  read(): TokenPair | null {
    const row = storing(() => this.#sql.pair.get());
    if (!row) return null;
    const { lockedOutAtMs, lockedOutCause, refusals, refusedAtMs, ...pair } = row;
    if (pair.generation !== this.#toldGeneration) {
      this.#tellSecrets(pair);
      this.#toldGeneration = pair.generation;
    }
    if (lockedOutAtMs === null) return { ...pair, lockedOut: null };
    const cause = lockedOutCause ?? 'refused';
    const lockedOut = { atMs: lockedOutAtMs, cause, refusals, refusedAtMs: refusedAtMs ?? lockedOutAtMs };
    return { ...pair, lockedOut };
  }

  /**
   * Records durably that the token of `generation` is about to be used. This also proves that the disk accepts writes.
   */
  writeIntent(generation: number): void {
    storing(() => this.#sql.putIntent.run(generation, this.#o.clock.nowMs(), generation));
  }

  /** Returns the intent of a refresh that did not end; null if there is none. */
  readIntent(): { generation: number; startedAtMs: number } | null {
    return storing(() => this.#sql.intent.get()) ?? null;
  }

  /** Deletes the intent of `generation`, because the token is unused: not sent, or answered with 401, 403 or 429. */
  clearIntent(generation: number): void {
    storing(() => this.#sql.clearIntent.run(generation));
  }

  /**
   * Stores a new pair if the stored generation is `expectedGeneration` (0: no pair; null: any, because a person
   * decided). Deletes the intent and ends a lock-out. Returns false if another process was first. `offered` is the
   * refresh token from a person that is in the pair or was exchanged for it; left out for a rotation.
   */
  save(pair: NewTokenPair, expectedGeneration: number | null, offered?: string): boolean {
    this.#tellSecrets(pair);
    const saving = this.#o.db.transaction(() => {
      const row = this.#sql.pair.get();
      const generation = row?.generation ?? 0;
      if (expectedGeneration !== null && expectedGeneration !== generation) return false;
      if (offered !== undefined) this.#sql.noteHandedIn.run(fingerprintOf(offered));
      this.#sql.putPair.run({ ...pair, generation: generation + 1, savedAtMs: this.#o.clock.nowMs() });
      return true;
    });
    return storing(() => saving.immediate());
  }

  /** Whether a person ever handed in this refresh token. Only its fingerprint is stored. */
  wasHandedIn(refreshToken: string): boolean {
    return storing(() => this.#sql.handedIn.get(fingerprintOf(refreshToken))) === 1;
  }

  /** Returns the id of the company to which this store belongs; null if no token has named one. */
  company(): string | null {
    return storing(() => this.#sql.company.get()) ?? null;
  }

  setCompany(companyId: string): void {
    storing(() => this.#sql.putCompany.run(companyId));
  }

  markLockedOut(generation: number, lockOut: LockOut): void {
    storing(() => this.#sql.lockOut.run({ ...lockOut, generation }));
  }

  /** Acquires the refresh lease. Returns undefined while another process has it. */
  acquireLease(holdMs: number): number | undefined {
    return this.#o.leases.acquire(LEASE, holdMs);
  }

  releaseLease(fence: number): void {
    this.#o.leases.release(LEASE, fence);
  }

  #tellSecrets({ refreshToken, accessToken }: NewTokenPair): void {
    this.#o.onSecret?.(refreshToken);
    if (accessToken !== null) this.#o.onSecret?.(accessToken);
  }
}

function fingerprintOf(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}
