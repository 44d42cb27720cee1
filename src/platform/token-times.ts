import { decodeJwt } from 'jose';
import type { NewTokenPair, TokenPair } from '../domain/platform/tokens.ts';
import { parseDurationMs } from '../domain/time/duration.ts';

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
