import { TillsyncError } from '../core/errors.ts';
import { backoffMs } from '../core/loop.ts';
import { formatDuration, type Random } from '../core/time.ts';
import { parseRetryAfter } from './answers.ts';
import type { Endpoint, PlatformLimits } from './platform.ts';

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

export interface BlockRecord {
  /** Endpoint whose 403 started the block. */
  endpoint: Endpoint;
  durationMs: number;
  /** Milliseconds since the block ended; negative while it lasts. */
  endedMsAgo: number;
  message: string;
  /**
   * Whether another endpoint (`othersAnswered`) or `endpoint` itself (`endpointAnswered`) answered 2xx after the block.
   */
  othersAnswered: boolean;
  endpointAnswered: boolean;
}

export interface BlockHistory {
  /** Number of calls of all endpoints, and of `order.all`, in the current window. */
  requests: number;
  orders: number;
  /** Last block of all endpoints, and last block of this endpoint alone; null if there was none. */
  all: BlockRecord | null;
  own: BlockRecord | null;
}

const FIRST_MS = 60_000;
const LONGEST_MS = 3_600_000;
const FORBIDDEN_MS = 3_600_000;
/** A 403 within this time after the end of a block counts as a continuation of the block. */
const AGAIN_MS = 3_600_000;

/**
 * Decides what a 403 means.
 *
 * The document has one reason: the anti-abuse limit was exceeded, and the token is blocked for a while. So all calls
 * stop at once. The block lasts one window if tillsync's own calls can explain the 403 (half of a limit is enough,
 * because other programs may use the token), else a minute. If a 403 follows within an hour after the block, the next
 * block lasts twice as long, up to an hour.
 *
 * Servers also answer 403 if a token has no permission for one endpoint. A blocked token is refused everywhere. So if
 * another endpoint answered 2xx after the block, and the same endpoint answers 403 again, only that one is blocked.
 *
 * Method and path of `webhook.get` are a guess, and a gateway may answer 403 to any path that it does not know. So its
 * 403 blocks only itself. If the token is blocked, the next call of another endpoint shows it.
 *
 * `known` means that the call was sent before the present block, so its answer says nothing new.
 */
export function judgeForbidden(
  { requests, orders, all, own }: BlockHistory,
  limits: PlatformLimits,
  endpoint: Endpoint,
): { kind: 'known' | 'block' | 'forbidden'; waitMs: number } {
  if (all && all.endedMsAgo < 0) return { kind: 'known', waitMs: -all.endedMsAgo };
  const deniedBefore = own !== null && !own.endpointAnswered;
  const othersGoOn = all !== null && all.endpoint === endpoint && all.othersAnswered && !all.endpointAnswered;
  if (endpoint === 'webhook.get' || deniedBefore || othersGoOn) {
    return { kind: 'forbidden', waitMs: FORBIDDEN_MS };
  }
  const isExplained = requests >= limits.requestsPerWindow / 2 || orders >= limits.ordersPerWindow / 2;
  const firstMs = isExplained ? limits.windowMs : FIRST_MS;
  if (all === null || all.endedMsAgo >= AGAIN_MS) return { kind: 'block', waitMs: firstMs };
  const longestMs = Math.max(firstMs, LONGEST_MS);
  return { kind: 'block', waitMs: Math.min(Math.max(firstMs, all.durationMs * 2), longestMs) };
}

export function blockedError(endpoint: Endpoint, waitMs: number, message: string): TillsyncError {
  return new TillsyncError(
    'blocked',
    `The platform blocked the token (403 to ${endpoint}: ${message}); all calls rest for ${formatDuration(waitMs)}.`,
    {
      httpStatus: 403,
      retryAfterMs: waitMs,
      hint: 'tillsync goes on by itself; look for another program that uses the same token.',
    },
  );
}

export function forbiddenError(endpoint: Endpoint, waitMs: number, message: string): TillsyncError {
  return new TillsyncError(
    'forbidden',
    `The platform does not allow ${endpoint} with this token (403: ${message}). Other calls continue.`,
    {
      httpStatus: 403,
      retryAfterMs: waitMs,
      hint:
        endpoint === 'webhook.get'
          ? 'Method and path of this read are not documented. If the platform has others, set platform.quirks.webhook_read_method and platform.quirks.webhook_read_path.'
          : "Ask the platform's support to allow it for this company; it is tried again within the hour.",
    },
  );
}
