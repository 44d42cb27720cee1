import { backoffMs } from '../core/loop.ts';
import type { Random } from '../core/time.ts';
import { parseRetryAfter } from './transport.ts';

const RETRY_AFTER_MAX_MS = 600_000;

const RETRY_JITTER_SHARE = 0.1;

/**
 * Returns the wait after a 429. The header counts from the endpoint's interval up to ten minutes, since a proxy may
 * send anything. Without a header the interval doubles each time. Jitter only lengthens the wait.
 */
export function retryAfterMs(answer: {
  /** The header as it was sent; undefined when there was none. */
  header: string | undefined;
  /** The platform's wall clock at the time of the answer. */
  serverNowMs: number;
  intervalMs: number;
  /** Number of 429 answers in a row before this answer. */
  before: number;
  random: Random;
}): number {
  const { header, serverNowMs, intervalMs, before, random } = answer;
  const longestMs = Math.max(RETRY_AFTER_MAX_MS, intervalMs);
  const asked = parseRetryAfter(header, serverNowMs) ?? backoffMs(before, intervalMs, longestMs);
  const clamped = Math.min(Math.max(asked, intervalMs), longestMs);
  return Math.round(clamped * (1 + RETRY_JITTER_SHARE * random.next()));
}
