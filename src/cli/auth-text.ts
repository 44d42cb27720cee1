import { formatDuration } from '../domain/duration.ts';
import type { TokenPair } from '../domain/tokens.ts';

/** What may be told of the token pair: everything but the tokens. Times in ISO 8601 UTC. */
export interface AuthReport {
  state: 'none' | 'ok' | 'locked-out';
  savedAt: string | null;
  /** On the platform's clock; null: unknown. */
  accessExpiresAt: string | null;
  refreshExpiresAt: string | null;
  /** Rises with each rotation. */
  generation: number | null;
  clockSkewMs: number | null;
  lockedOut: { at: string; cause: 'refused' | 'reply-lost' } | null;
  /** One sentence for a person. */
  message: string;
}

export function authReport(pair: TokenPair | null, nowMs: number): AuthReport {
  if (pair === null) {
    const message = 'No tokens are stored yet. Hand over a refresh token: tillsync auth set < FILE';
    const nothing = { savedAt: null, accessExpiresAt: null, refreshExpiresAt: null, generation: null };
    return { state: 'none', ...nothing, clockSkewMs: null, lockedOut: null, message };
  }
  const { lockedOut } = pair;
  return {
    state: lockedOut === null ? 'ok' : 'locked-out',
    savedAt: iso(pair.savedAtMs),
    accessExpiresAt: iso(pair.accessExpiresAtMs),
    refreshExpiresAt: iso(pair.refreshExpiresAtMs),
    generation: pair.generation,
    clockSkewMs: pair.clockSkewMs,
    lockedOut: lockedOut && { at: new Date(lockedOut.atMs).toISOString(), cause: lockedOut.cause },
    message: sentence(pair, nowMs),
  };
}

function sentence(pair: TokenPair, nowMs: number): string {
  if (pair.lockedOut?.cause === 'reply-lost') {
    return (
      'The platform refuses the refresh token: its answer to an earlier refresh was lost before it could be saved. ' +
      'Get a new pair from the company panel and hand it over: tillsync auth set < FILE'
    );
  }
  if (pair.lockedOut !== null) {
    return (
      'The platform refuses the refresh token. ' +
      'Get a new pair from the company panel and hand it over: tillsync auth set < FILE'
    );
  }
  const platformNowMs = nowMs + pair.clockSkewMs;
  const access = rest(
    'the access token',
    pair.accessToken === null ? null : pair.accessExpiresAtMs,
    platformNowMs,
  );
  const refresh = rest('the refresh token', pair.refreshExpiresAtMs, platformNowMs);
  return `All is well: ${access}, ${refresh}.`;
}

function rest(what: string, expiresAtMs: number | null, nowMs: number): string {
  if (expiresAtMs === null) return `${what} has no known end`;
  const restMs = expiresAtMs - nowMs;
  return restMs > 0
    ? `${what} is good for ${formatDuration(restMs)}`
    : `${what} ended ${formatDuration(-restMs)} ago`;
}

function iso(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}
