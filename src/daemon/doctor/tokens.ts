import type { Verdict } from '../../domain/health/verdict.ts';
import { formatDuration } from '../../domain/time/duration.ts';
import type { TokenStatus } from '../../platform/token-status.ts';
import { type Check, type Outcome, warned, well } from './check.ts';
import { outcomeOfFindings } from './from-findings.ts';

/** A refresh under way is not stored yet either. */
const REFRESH_TAKES_MS = 60_000;

const WHY = {
  refused: 'It refused the refresh token.',
  'reply-lost':
    'Its answer to a refresh was lost before it could be saved, and the old pair was worth nothing then.',
};

export interface TokensCheckOptions {
  tokens: TokenStatus;
  verdict: Verdict;
  nowMs: number;
}

/** The token pair and its days left, without a refresh: that would rotate it. */
export function tokensCheck({ tokens, verdict, nowMs }: TokensCheckOptions): Check {
  return { id: 'tokens', run: () => tokensOutcome(tokens, verdict, nowMs) };
}

function tokensOutcome(tokens: TokenStatus, verdict: Verdict, nowMs: number): Outcome {
  const { refreshExpiresInMs, accessExpiresInMs, openIntentAtMs, generation, state, lockedOut } = tokens;
  const facts = {
    state,
    refreshExpiresInMs,
    accessExpiresInMs,
    generation,
    lockedOutBy: lockedOut?.cause ?? null,
  };
  const codes = ['auth.none', 'auth.locked-out', 'auth', 'auth.expiring'] as const;
  const found = outcomeOfFindings(verdict, codes, facts, ['auth.locked-out']);
  if (found)
    return {
      ...found,
      message: [found.message, lockedOut && WHY[lockedOut.cause]].filter(Boolean).join(' '),
    };
  const left = `${rest('refresh', refreshExpiresInMs)}; ${rest('access', accessExpiresInMs)}.`;
  const openMs = openIntentAtMs === null ? 0 : nowMs - openIntentAtMs;
  if (openMs > REFRESH_TAKES_MS) {
    const message = `A refresh began ${formatDuration(openMs)} ago and its answer was never stored, so the next one may be refused. ${left}`;
    return warned(
      message,
      'Try it with: {tillsync} auth refresh; if it is refused, {tillsync} auth set',
      facts,
    );
  }
  return well(left, facts);
}

function rest(what: 'refresh' | 'access', restMs: number | null): string {
  const token = what === 'refresh' ? 'The refresh token' : 'the access token';
  if (restMs === null) return `${token} has no known end`;
  return restMs > 0 ? `${token} is good for ${formatDuration(restMs)}` : `${token} is due to be renewed`;
}
