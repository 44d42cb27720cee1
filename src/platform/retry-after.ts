import { backoffMs } from '../core/loop.ts';
import type { Random } from '../core/time.ts';
import { parseRetryAfter } from './transport.ts';

const RETRY_AFTER_MAX_MS = 600_000;

const RETRY_JITTER_SHARE = 0.1;

/**
 * Returns the milliseconds to wait after a 429. The header is limited to the range from the endpoint's interval to ten
 * minutes, because a proxy may send any value. Without a header, the wait is the interval, doubled by each successive
 * 429. Jitter only lengthens the wait.
 */
export function retryAfterMs(answer: {
  /** Text of the header; undefined if there was none. */
  header: string | undefined;
  /** The platform's wall clock when it answered. */
  serverNowMs: number;
  intervalMs: number;
  /** Number of successive 429 answers before this one. */
  before: number;
  random: Random;
}): number {
  const { header, serverNowMs, intervalMs, before, random } = answer;
  const longestMs = Math.max(RETRY_AFTER_MAX_MS, intervalMs);
  const asked = parseRetryAfter(header, serverNowMs) ?? backoffMs(before, intervalMs, longestMs);
  const clamped = Math.min(Math.max(asked, intervalMs), longestMs);
  return Math.round(clamped * (1 + RETRY_JITTER_SHARE * random.next()));
}
