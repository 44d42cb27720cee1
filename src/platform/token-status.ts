import type { LockOut, TokenPair } from '../domain/platform/tokens.ts';

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
