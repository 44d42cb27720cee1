import type { Config } from '../../config/config-type.ts';
import { cronSchedule } from '../../config/schedule.ts';

const STALE_AFTER_MS = 600_000;

export interface OrdersStaleOptions {
  config: Pick<Config, 'orders' | 'limits'>;
  /** When orders were last polled; null: never. */
  lastPollOkMs: number | null;
}

/** How long after its last good poll orders count as missing: when the next one was due, and then some. */
export function ordersStaleAfterMs({ config, lastPollOkMs }: OrdersStaleOptions): number {
  const { poll, timezone } = config.orders;
  const patienceMs = Math.max(STALE_AFTER_MS, config.limits.ordersIntervalMs * 3);
  if (lastPollOkMs === null) return patienceMs;
  return cronSchedule(poll, timezone).nextAfter(lastPollOkMs) - lastPollOkMs + patienceMs;
}
