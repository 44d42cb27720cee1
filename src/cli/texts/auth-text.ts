import type { TokenStatus } from '../../daemon/reading/readers.ts';
import { asTyped } from '../../domain/installation.ts';
import { formatDuration } from '../../domain/time/duration.ts';

/** The token pair as it may be told: everything but the tokens. Times in ISO 8601 UTC, on our clock. */
export interface AuthReport {
  state: TokenStatus['state'];
  /** Whether only a person with new tokens can go on. */
  needsNewTokens: boolean;
  savedAt: string | null;
  /** null: unknown. */
  accessExpiresAt: string | null;
  refreshExpiresAt: string | null;
  /** Rises with each rotation. */
  generation: number;
  /** Platform's wall clock minus ours. */
  clockSkewMs: number;
  lockedOut: { at: string; cause: 'refused' | 'reply-lost' } | null;
  /** When a refresh began that is under way, or whose answer was never saved. */
  openRefreshSince: string | null;
  /** One sentence for a person. */
  message: string;
}

export function authReport(status: TokenStatus, nowMs: number): AuthReport {
  const { lockedOut, accessExpiresInMs, refreshExpiresInMs } = status;
  return {
    state: status.state,
    needsNewTokens: status.state !== 'ok' || hasEnded(status.refreshExpiresInMs),
    savedAt: iso(status.savedAtMs),
    accessExpiresAt: iso(accessExpiresInMs === null ? null : nowMs + accessExpiresInMs),
    refreshExpiresAt: iso(refreshExpiresInMs === null ? null : nowMs + refreshExpiresInMs),
    generation: status.generation,
    clockSkewMs: status.clockSkewMs,
    lockedOut: lockedOut && { at: new Date(lockedOut.atMs).toISOString(), cause: lockedOut.cause },
    openRefreshSince: iso(status.openIntentAtMs),
    message: asTyped(sentence(status, nowMs)),
  };
}

/** A refresh under way is not stored either, for as long as its answer may take. */
const REFRESH_TAKES_MS = 60_000;
const NEW_PAIR = 'Get a new pair from the company panel and hand it over: {tillsync} auth set';

function sentence(status: TokenStatus, nowMs: number): string {
  if (status.state === 'none') {
    return 'No tokens are stored yet. Hand over a refresh token: {tillsync} init, or {tillsync} auth set';
  }
  if (status.lockedOut?.cause === 'reply-lost') {
    const why = 'its answer to an earlier refresh was lost before it could be saved';
    return `The platform refuses the refresh token: ${why}. ${NEW_PAIR}`;
  }
  if (status.state === 'locked-out') return `The platform refuses the refresh token. ${NEW_PAIR}`;
  const refresh = rest('the refresh token', status.refreshExpiresInMs);
  if (hasEnded(status.refreshExpiresInMs)) {
    return `${capital(refresh)}, so the platform takes it no more. ${NEW_PAIR}`;
  }
  const both = `${accessRest(status)}, ${refresh}`;
  const openMs = status.openIntentAtMs === null ? 0 : nowMs - status.openIntentAtMs;
  if (openMs < REFRESH_TAKES_MS) return `${capital(both)}.`;
  return (
    `A refresh began ${formatDuration(openMs)} ago and its answer was never stored, ` +
    `so the platform may refuse the refresh token at the next one: ${both}.`
  );
}

function accessRest({ hasAccessToken, accessExpiresInMs }: TokenStatus): string {
  if (!hasAccessToken) return 'an access token is fetched with the first call';
  const told = rest('the access token', accessExpiresInMs);
  return hasEnded(accessExpiresInMs) ? `${told} and is renewed with the next call` : told;
}

function rest(what: string, restMs: number | null): string {
  if (restMs === null) return `${what} has no known end`;
  return restMs > 0
    ? `${what} is good for ${formatDuration(restMs)}`
    : `${what} ended ${formatDuration(-restMs)} ago`;
}

function hasEnded(restMs: number | null): boolean {
  return restMs !== null && restMs <= 0;
}

function capital(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;
}

function iso(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}
