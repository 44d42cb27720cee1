import { asTillsyncError } from '../domain/errors.ts';
import type { Random } from '../domain/time/clock.ts';

const BASE_MS = 5_000;
const CAP_MS = 300_000;

/**
 * The one retry policy: how long a loop rests after its `failures`-th failure in a row (1 = first). Doubles from
 * five seconds to five minutes with full jitter on the upper half; what the platform or the budget asked for
 * counts when it is longer. The rate budget still has the last word on when a call may leave.
 */
export function retryDelayMs(failures: number, error: unknown, random: Random): number {
  const exponential = Math.min(CAP_MS, BASE_MS * 2 ** Math.max(0, failures - 1));
  const jittered = exponential * (0.5 + random.next() / 2);
  const asked = asTillsyncError(error).retryAfterMs ?? 0;
  return Math.max(jittered, asked);
}
