import { type Clock, isoUtc } from '../../../src/core/time.ts';
import { PUBLISHED_LIMITS } from '../../../src/demo/sandbox-platform.ts';
import type { Heartbeat } from '../../../src/health/heartbeat.ts';
import type { FaultSpec } from '../../../src/sandbox/faults.ts';
import { isOver } from '../../../src/sandbox/orders.ts';
import { heartbeatTo, listener } from '../../support/watchers.ts';
import { chanceFor, drawProfile } from './profile.ts';
import { untilOpenMs } from './shop.ts';
import { SimulatedPos } from './simulated-pos.ts';
import { SimulatedStore } from './simulated-store.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const WATCH_EVERY_MS = 30 * SECOND_MS;
const LOOK_EVERY_MS = 2 * MINUTE_MS;

export interface CalmReport {
  /** Messages to a person, such as `raised orders.stale`, with the time and the last fault. */
  told: string[];
  /** Red states that reached an outside watcher, each with the last fault before it. */
  red: string[];
  /** Numbers of faults that healed by themselves, by name. */
  troubles: Record<string, number>;
  orders: number;
}

/** Faults that a platform has for some minutes on an ordinary day. */
const FAULTS: readonly FaultSpec[] = [
  { kind: 'status', status: 503, probability: 0.7 },
  { kind: 'html', probability: 0.5 },
  { kind: 'drop', when: 'before', probability: 0.5 },
  { kind: 'drop', when: 'after', probability: 0.3, endpoint: 'product.stock.batch' },
  { kind: 'hang', probability: 0.2 },
  { kind: 'rate-limit', times: 1 },
];

/**
 * Simulates days of a store with ordinary faults that heal within minutes and of which no person may be notified: the
 * connection and the platform fail for minutes, callbacks come late or never, the service restarts, the machine loses
 * power or is off at night, the POS is closed for a while.
 */
export async function calmDays(seed: number, days: number): Promise<CalmReport> {
  const store = new SimulatedStore({
    ...drawProfile(seed, days),
    ...{
      lookEveryMs: LOOK_EVERY_MS,
      limits: PUBLISHED_LIMITS,
      keptDays: 7,
      pageSize: 100,
      calendar: 'America/Santiago',
    },
    platform: {
      ...drawProfile(seed, days).platform,
      latencyMs: [1, 400],
      accessTokenLifetimeMs: HOUR_MS,
      refreshTokenLifetimeMs: 30 * DAY_MS,
    },
  });
  const { sandbox, world, network } = store;
  const random = chanceFor(seed, 21);
  const pos = new SimulatedPos(store, chanceFor(seed, 22));
  const report: CalmReport = { told: [], red: [], troubles: {}, orders: 0 };
  const closing = new AbortController();
  const till = { isOpen: true };
  const trouble = { last: 'nothing' };
  const isOffAtNight = random.next() < 0.5;
  try {
    await store.open();
    await world.advance(5 * MINUTE_MS);
    sandbox.control.setWebhookBehaviour({
      drop: 0.005,
      duplicate: 0.05,
      reorder: 0.05,
      delay: 0.1,
      reorderMs: MINUTE_MS,
      delayMs: [200, MINUTE_MS],
    });
    const living = [
      trade(store, world, chanceFor(seed, 23), closing.signal),
      every(world, MINUTE_MS, closing.signal, () => (till.isOpen ? pos.visit({ readShare: 1 }) : undefined)),
      watch(store, report, trouble, closing.signal),
    ];
    const endMs = world.monotonicMs() + days * DAY_MS;
    const during = async (name: string, lengthMs: number, begin: () => unknown, end: () => unknown) => {
      report.troubles[name] = (report.troubles[name] ?? 0) + 1;
      trouble.last = `${name} of ${Math.round(lengthMs / SECOND_MS)} s at ${isoUtc(world.nowMs())}`;
      await begin();
      await world.advance(lengthMs);
      await end();
    };
    const minutes = (from: number, to: number) => (from + (to - from) * random.next()) * MINUTE_MS;
    const reopen = () => store.open();
    while (world.monotonicMs() < endMs) {
      await world.advance(minutes(60, 300));
      const openInMs = untilOpenMs(world.nowMs());
      if (isOffAtNight && openInMs > 2 * HOUR_MS) {
        await during(
          'switched off for the night',
          openInMs - HOUR_MS,
          () => store.stop(),
          () => reopen(),
        );
        continue;
      }
      const chance = random.next();
      const fault = FAULTS[Math.floor(random.next() * FAULTS.length)];
      if (chance < 0.3) {
        await during(
          'line cut',
          minutes(0.2, 6),
          () => (network.isDown = true),
          () => (network.isDown = false),
        );
      } else if (chance < 0.6 && fault) {
        let id = 0;
        await during(
          `platform: ${fault.kind}`,
          minutes(0.2, 5),
          () => (id = sandbox.control.setFault(fault)),
          () => sandbox.control.clearFaults(id),
        );
      } else if (chance < 0.7) {
        await during('restart', minutes(0.1, 1), () => store.stop(), reopen);
      } else if (chance < 0.76) {
        await during('power cut', minutes(1, 20), () => store.reboot(), reopen);
      } else if (chance < 0.9) {
        await during(
          'POS closed',
          minutes(1, 8),
          () => (till.isOpen = false),
          () => (till.isOpen = true),
        );
      } else {
        await during(
          'clock corrected',
          0,
          () => (store.clock.wrongByMs = 4_000 * (random.next() - 0.5)),
          () => {},
        );
      }
    }
    closing.abort();
    await world.advance(0);
    await Promise.all(living);
    report.orders = sandbox.control.orders().length;
    return report;
  } finally {
    closing.abort();
    await store.remove();
  }
}

async function every(clock: Clock, ms: number, signal: AbortSignal, act: () => unknown): Promise<void> {
  while (!signal.aborted) {
    await clock.sleep(ms, signal);
    if (!signal.aborted) await act();
  }
}

/** Customers order, and the shop processes each order to its end. */
async function trade(
  { sandbox: { control } }: SimulatedStore,
  clock: Clock,
  random: { next(): number },
  signal: AbortSignal,
): Promise<void> {
  const open: string[] = [];
  // Thirty to eighty orders a day.
  const busy = 0.2 + 0.3 * random.next();
  while (!signal.aborted) {
    await clock.sleep(untilOpenMs(clock.nowMs()), signal);
    await clock.sleep((2 + 8 * random.next()) * MINUTE_MS, signal);
    if (signal.aborted) return;
    if (open.length < 8 && random.next() < busy) open.push(control.createOrder().internalOrderId);
    for (const orderId of [...open]) {
      if (random.next() < 0.4) control.advanceOrder(orderId);
      if (isOver(control.order(orderId)?.status ?? '')) open.splice(open.indexOf(orderId), 1);
    }
  }
}

/** Records the messages to a receiver of alarms, and the heartbeats to an outside watcher. */
async function watch(
  store: SimulatedStore,
  report: CalmReport,
  trouble: { last: string },
  signal: AbortSignal,
): Promise<void> {
  const circumstances = () => `at ${isoUtc(store.world.nowMs())} after ${trouble.last}`;
  let life: object | undefined;
  let ears: { listen: () => Promise<void>; heartbeat: Heartbeat } | undefined;
  let wasRed = false;
  await every(store.world, WATCH_EVERY_MS, signal, async () => {
    const { daemon, clock } = store;
    if (!daemon) return;
    if (daemon !== life) {
      const listen = listener(
        daemon.services,
        clock,
        (news, key) => void report.told.push(`${news} ${key} ${circumstances()}`),
      );
      [life, ears] = [
        daemon,
        { listen, heartbeat: heartbeatTo('http://watcher.test/', daemon.services, clock) },
      ];
    }
    if (!ears) return;
    await ears.listen();
    const pulse = ears.heartbeat.redCodes();
    if (pulse.length > 0 && !wasRed) report.red.push(`${pulse.join(' ')} ${circumstances()}`);
    wasRed = pulse.length > 0;
  });
}
