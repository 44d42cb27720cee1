import { decodeJwt } from 'jose';
import { TillsyncError } from '../core/errors.ts';
import { parseDurationMs } from '../core/time.ts';

/** The token pair as state.db keeps it. Never logged, never part of an error. */
export interface TokenPair {
  refreshToken: string;
  accessToken: string | null;
  /** Rises with each stored pair; the fencing number of saves. */
  generation: number;
  /** Wall clock, when this pair was stored. */
  savedAtMs: number;
  /** Wall clock of the platform at which the access token ends; null: unknown. */
  accessExpiresAtMs: number | null;
  accessIssuedAtMs: number | null;
  refreshExpiresAtMs: number | null;
  /** Platform's wall clock minus ours when last seen. */
  clockSkewMs: number;
  /** Why no refresh is tried any more; null while all is well. */
  lockedOut: LockOut | null;
}

export interface LockOut {
  atMs: number;
  /**
   * - `refused`: the platform refused the refresh token
   * - `reply-lost`: a refresh was sent earlier and its answer never saved, then the platform refused
   */
  cause: 'refused' | 'reply-lost';
}

/** Where the pair lives. Each method is one short durable transaction and may throw `storage-busy`. */
export interface TokenStore {
  read(): TokenPair | null;
  /** Notes durably that the token of `generation` is about to be used up. Also proves that the disk takes writes. */
  writeIntent(generation: number): void;
  /** The intent left behind by a refresh that never came to its end; null when there is none. */
  readIntent(): { generation: number; startedAtMs: number } | null;
  /** Drops the intent of `generation`: its request never left, so the token is unused. */
  clearIntent(generation: number): void;
  /** Whether a person handed in this refresh token before; only a fingerprint of it is kept. */
  wasHandedIn(refreshToken: string): boolean;
  /**
   * Stores a new pair if the store still holds `expectedGeneration` (0: nothing; null: whatever it holds, a
   * person's word), drops the intent and ends a lock-out. False: another process was first, nothing is changed.
   * `offered`: the refresh token that a person handed in and that was exchanged for this pair.
   */
  save(pair: NewTokenPair, expectedGeneration: number | null, offered?: string): boolean;
  /** Id of the company whose tokens were taken here first; null: no token has told. */
  company(): string | null;
  setCompany(companyId: string): void;
  markLockedOut(generation: number, lockOut: LockOut): void;
  /** Takes the refresh lease; undefined while another process has it. */
  acquireLease(holdMs: number): number | undefined;
  releaseLease(fence: number): void;
}

export type NewTokenPair = Omit<TokenPair, 'generation' | 'savedAtMs' | 'lockedOut'>;

/** An access token that is said to end sooner than this after its issue was read against a wrong clock. */
const IMPLAUSIBLE_REST_MS = 5_000;
const FUTURE_MAX_MS = 10 * 365 * 86_400_000;

export interface IssuedPair {
  accessToken: string;
  refreshToken: string;
  /** Lifetime text such as `1h`. */
  expiresIn: string | null;
  /** Our wall clock at the answer. */
  nowMs: number;
  /** The platform's wall clock minus ours. */
  clockSkewMs: number;
}

/**
 * A pair just issued by the platform, dated on its clock. Its life counts from its receipt, since the platform may have
 * several servers whose clocks differ: the JWT's own lifetime, or else the answer's `expiresIn`, or else what the JWT
 * says of its end.
 */
export function datedPair(issued: IssuedPair): NewTokenPair {
  const serverNowMs = issued.nowMs + issued.clockSkewMs;
  const { issuedAtMs, expiresAtMs } = jwtTimes(issued.accessToken);
  const lifetimeMs =
    issuedAtMs !== null && expiresAtMs !== null && expiresAtMs > issuedAtMs
      ? expiresAtMs - issuedAtMs
      : (parseDurationMs(issued.expiresIn ?? '') ?? null);
  const believable = expiresAtMs !== null && expiresAtMs - serverNowMs >= IMPLAUSIBLE_REST_MS;
  return {
    refreshToken: issued.refreshToken,
    accessToken: issued.accessToken,
    accessIssuedAtMs: serverNowMs,
    accessExpiresAtMs: lifetimeMs !== null ? serverNowMs + lifetimeMs : believable ? expiresAtMs : null,
    refreshExpiresAtMs: jwtTimes(issued.refreshToken).expiresAtMs,
    clockSkewMs: issued.clockSkewMs,
  };
}

/** A pair that a person handed in: of unknown age, so only what its own times say. */
export function handedInPair(handedIn: { refreshToken: string; accessToken?: string | null }): NewTokenPair {
  const times = jwtTimes(handedIn.accessToken ?? '');
  return {
    refreshToken: handedIn.refreshToken,
    accessToken: handedIn.accessToken ?? null,
    accessIssuedAtMs: times.issuedAtMs,
    accessExpiresAtMs: times.expiresAtMs,
    refreshExpiresAtMs: jwtTimes(handedIn.refreshToken).expiresAtMs,
    clockSkewMs: 0,
  };
}

/** Milliseconds the access token is still good for; Infinity when nobody knows its end. */
export function accessRestMs(pair: TokenPair, serverNowMs: number): number {
  if (pair.accessToken === null) return 0;
  return pair.accessExpiresAtMs === null ? Number.POSITIVE_INFINITY : pair.accessExpiresAtMs - serverNowMs;
}

/** How long the access token lives from its issue; Infinity when that is not known. */
export function accessLifeMs({ accessIssuedAtMs, accessExpiresAtMs }: TokenPair): number {
  if (accessIssuedAtMs === null || accessExpiresAtMs === null) return Number.POSITIVE_INFINITY;
  return Math.max(0, accessExpiresAtMs - accessIssuedAtMs);
}

/** Whether `share` of the access token's life is over; never, when its life is not known. */
export function isDue(pair: TokenPair, serverNowMs: number, share: number): boolean {
  const { accessExpiresAtMs, accessIssuedAtMs } = pair;
  if (accessExpiresAtMs === null || accessIssuedAtMs === null) return false;
  return serverNowMs >= accessIssuedAtMs + (accessExpiresAtMs - accessIssuedAtMs) * share;
}

/** `iat` and `exp` of a JWT in milliseconds; null where there are none or the text is no JWT. */
function jwtTimes(token: string): { issuedAtMs: number | null; expiresAtMs: number | null } {
  try {
    const { iat, exp } = decodeJwt(token);
    return { issuedAtMs: asMs(iat), expiresAtMs: asMs(exp) };
  } catch {
    return { issuedAtMs: null, expiresAtMs: null };
  }
}

function asMs(seconds: unknown): number | null {
  if (typeof seconds !== 'number' || !Number.isFinite(seconds) || seconds <= 0) return null;
  const ms = Math.round(seconds * 1000);
  // Some issuers write milliseconds where the standard says seconds.
  return ms > FUTURE_MAX_MS * 100 ? Math.round(seconds) : ms;
}

/** Where a token may name its company; the document shows no claims. The id may lie in a record of its own. */
const CLAIMS = ['websiteId', 'companyId', 'company_id', 'company', 'website', 'tenantId', 'tenant'] as const;
const RECORD_IDS = ['_id', 'id'] as const;

/** The company that a token speaks for, by its claims; undefined where it shows none. */
export function companyOf(token: string | null | undefined): string | undefined {
  if (!token) return undefined;
  try {
    const claims = decodeJwt(token);
    for (const name of CLAIMS) {
      const id = idOf(claims[name]);
      if (id !== undefined) return id;
    }
  } catch {
    // Not a JWT: nothing is known.
  }
  return undefined;
}

/** Which company tokens are certainly of, where that is not the one this store belongs to. */
export function otherCompanyOf(
  store: Pick<TokenStore, 'company'>,
  ...tokens: (string | null | undefined)[]
): { own: string; offered: string } | undefined {
  const own = store.company();
  const offered = tokens.map(companyOf).find((id) => id !== undefined);
  return own === null || offered === undefined || offered === own ? undefined : { own, offered };
}

/** Throws `usage` for tokens of another company. */
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

function idOf(value: unknown): string | undefined {
  if (typeof value === 'number' && Number.isFinite(value)) return String(value);
  if (typeof value === 'string') return value.trim() === '' ? undefined : value.trim();
  if (typeof value !== 'object' || value === null) return undefined;
  const record = value as Record<string, unknown>;
  for (const name of RECORD_IDS) {
    const id = record[name];
    if (typeof id === 'string' || typeof id === 'number') return idOf(id);
  }
  return undefined;
}

/** The state of the tokens without any secret, for `status` and `auth status`. */
export interface TokenStatus {
  /** `none`: no token was ever handed in. */
  state: 'none' | 'ok' | 'locked-out';
  generation: number;
  /** Wall clock. */
  savedAtMs: number | null;
  /** False: only a refresh token is stored, and an access token comes with the first call. */
  hasAccessToken: boolean;
  /** Milliseconds from now, on the platform's clock; negative: over; null: unknown or no access token. */
  accessExpiresInMs: number | null;
  refreshExpiresInMs: number | null;
  clockSkewMs: number;
  lockedOut: LockOut | null;
  /** When a refresh began whose answer was never saved (or is under way). */
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
    openIntentAtMs,
  };
}
