import type { Random } from '../domain/time/clock.ts';

const LONGEST_MS = 600_000;
const JITTER_SHARE = 0.1;

export interface RetryAfter {
  /** The header as sent; undefined when there was none. */
  header: string | undefined;
  /** The platform's wall clock when it answered. */
  serverNowMs: number;
  intervalMs: number;
  /** How many 429 in a row came before this one. */
  before: number;
  random: Random;
}

/**
 * How long to leave an endpoint alone after a 429. The header is believed between the endpoint's interval and
 * ten minutes, since a proxy may invent anything; without one the interval doubles each time. Jitter only adds.
 */
export function retryAfterMs({ header, serverNowMs, intervalMs, before, random }: RetryAfter): number {
  const asked = parse(header, serverNowMs) ?? intervalMs * 2 ** Math.min(before, 16);
  const longestMs = Math.max(LONGEST_MS, intervalMs);
  const clamped = Math.min(Math.max(asked, intervalMs), longestMs);
  return Math.round(clamped * (1 + JITTER_SHARE * random.next()));
}

function parse(header: string | undefined, serverNowMs: number): number | undefined {
  const text = header?.trim() ?? '';
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  const dateMs = /[a-z]/i.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(dateMs) ? undefined : dateMs - serverNowMs;
}
