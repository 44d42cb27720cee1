import { cronSchedule } from '../config/schedule.ts';
import { ChangeSignal } from '../local/change-signal.ts';
import { GapWatch } from '../sync/gap-watch.ts';
import { OrderLoop } from '../sync/order-loop.ts';
import { WebhookWatch } from '../sync/webhook-watch.ts';
import { CallbackStanding } from './callbacks/callback-standing.ts';
import { RefusedCallbacks } from './callbacks/refused-callbacks.ts';
import type { Parts, PartsOptions } from './parts.ts';

const STALE_AFTER_MS = 600_000;

export type IncomingOrders = ReturnType<typeof incomingOrders>;

/** What joins polls and callbacks: the loop of polls, and what watches both. `mayCall`: tokens are at hand. */
export function incomingOrders(
  { config, clock, random, log }: PartsOptions,
  parts: Parts,
  mayCall: () => boolean,
) {
  const { mirror, orderPoll } = parts;
  const { freshnessBoard: freshness, alarms } = mirror;
  const watch = new WebhookWatch({ enabled: config.webhook.enabled, freshness, alarms, log });
  const standing = new CallbackStanding({ mirror, clock, log });
  const refused = new RefusedCallbacks({ alarms, bodyLimitBytes: config.webhook.bodyLimitBytes, clock });
  const changes = new ChangeSignal();
  const gaps = new GapWatch({ codesBetween: (min, max) => mirror.codesBetween(min, max) });
  let current: OrderLoop | undefined;
  const loop = (beat: () => void) => {
    current = new OrderLoop({
      poll: orderPoll,
      schedule: cronSchedule(config.orders.poll, config.orders.timezone),
      watch: {
        polled(createdIds) {
          watch.polled(createdIds);
          standing.settle();
          refused.settle();
          changes.notify();
        },
      },
      newGaps: (report) => gaps.newGaps(report.codes),
      mayCall,
      alarms,
      clock,
      random,
      log,
      wideEveryMs: config.orders.wideEveryMs,
      staleAfterMs: Math.max(STALE_AFTER_MS, config.limits.ordersIntervalMs * 3),
      beat,
    });
    return current;
  };
  return { watch, standing, refused, loop, changes, wake: () => current?.wake() };
}
