import type { PlatformLimits } from '../domain/platform/limits.ts';
import type { BlockHistory } from '../domain/platform/rate-ledger.ts';

/**
 * What follows from a 403.
 *
 * The document knows one reason for it: the anti-abuse cap was exceeded and the token is blocked for a while. So
 * everything stops at once. When our own count explains the block (other programs may share the token, so half
 * a cap is enough), it can end no sooner than a whole window; otherwise a short block finds out cheaply.
 * A 403 soon after a block shows that it was too short, so it doubles, up to an hour.
 *
 * Servers also answer 403 when a token may not use one endpoint. A blocked token is blocked everywhere, so the
 * two differ in what other endpoints answer: when another one answered 2xx after the block had ended and the
 * same endpoint gives 403 again, it is a matter of permission, and only that endpoint is held back.
 */
export type BlockVerdict =
  /** The block that is on already; the answer belongs to a call that was sent before it. */
  | { kind: 'known'; waitMs: number }
  | { kind: 'block'; waitMs: number }
  | { kind: 'forbidden'; waitMs: number };

const FIRST_MS = 60_000;
const LONGEST_MS = 3_600_000;
const FORBIDDEN_MS = 3_600_000;
/** A 403 within this time of a block's end means that it came again. */
const AGAIN_MS = 3_600_000;

export function judgeForbidden(
  history: BlockHistory,
  limits: PlatformLimits,
  endpoint: string,
): BlockVerdict {
  const { all, own } = history;
  if (all && all.endedMsAgo < 0) return { kind: 'known', waitMs: -all.endedMsAgo };
  const deniedBefore = own !== null && !own.endpointAnswered;
  const othersGoOn = all !== null && all.endpoint === endpoint && all.othersAnswered && !all.endpointAnswered;
  if (deniedBefore || othersGoOn) return { kind: 'forbidden', waitMs: FORBIDDEN_MS };
  const explained =
    history.requests >= limits.requestsPerWindow / 2 || history.orders >= limits.ordersPerWindow / 2;
  const firstMs = explained ? limits.windowMs : FIRST_MS;
  const again = all !== null && all.endedMsAgo < AGAIN_MS;
  const waitMs = again
    ? Math.min(Math.max(firstMs, all.durationMs * 2), Math.max(firstMs, LONGEST_MS))
    : firstMs;
  return { kind: 'block', waitMs };
}
