import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { asTillsyncError } from '../../../src/core/errors.ts';
import { isoUtc } from '../../../src/core/time.ts';
import { settle } from '../../support/fake-clock.ts';
import { Merchant } from './merchant.ts';
import { type Mishap, Mishaps } from './mishaps.ts';
import { Operator } from './operator.ts';
import { chanceFor, drawProfile, type Profile } from './profile.ts';
import { Shop, untilOpenMs } from './shop.ts';
import { SimulatedPos } from './simulated-pos.ts';
import { SimulatedStore } from './simulated-store.ts';
import { digestOf, faultsOf, nightFaults } from './soundness.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const GROWN_DAYS_MIN = 2;
/** Probability that the POS takes its last counts back when it is unknown whether a change has arrived. */
const RETURNED_SHARE = 0.5;
/** The nightly check runs only in the last 7 hours before opening, when the last sales of the day are booked. */
const NIGHT_MS = 7 * HOUR_MS;

export interface SimulationReport {
  profile: Profile;
  /** A sentence for each fault. */
  faults: string[];
  /** Digest of all calls and of the mirror; the same for the same seed. */
  digest: string;
  /** Number of mishaps by name. */
  mishaps: Record<string, number>;
  orders: number;
  calls: number;
  /** Number of stocks whose last POS count was compared. */
  words: number;
  /** Number of nights quiet enough to compare all values. */
  nights: number;
  handOvers: number;
  /** Number of calls for which real time ran out; a run with such calls may not be repeatable. */
  overruns: number;
  bytes: Record<string, number>;
  /** Memory that the last daemon held beyond a new one; null if the run was too short. */
  grownBytes: number | null;
}

/** Plays a store's days from one seed, with mishaps, and a calm end at which both sides must be equal. */
export async function simulate(seed: number, days: number): Promise<SimulationReport> {
  const traceLimit = Error.stackTraceLimit;
  // A stack trace for each aborted wait would cost more than the wait.
  Error.stackTraceLimit = 0;
  const store = new SimulatedStore(drawProfile(seed, days));
  try {
    return await run(store);
  } finally {
    await store.remove();
    Error.stackTraceLimit = traceLimit;
  }
}

async function run(store: SimulatedStore): Promise<SimulationReport> {
  const { profile, world, sandbox } = store;
  const { seed, orderEveryMs } = profile;
  const { control } = sandbox;
  const pos = new SimulatedPos(store, chanceFor(seed, 3));
  const shop = new Shop({ clock: world, random: chanceFor(seed, 4), control, orderEveryMs });
  const merchant = new Merchant({ clock: world, random: chanceFor(seed, 8), control });
  const mishaps = new Mishaps(store, chanceFor(seed, 5), pos);
  const returns = chanceFor(seed, 7);
  store.network.onLost = () => {
    if (returns.next() < RETURNED_SHARE) void pos.takeBack();
  };
  const operator = new Operator(store);
  const closing = new AbortController();
  const closed = new AbortController();
  const goingHome = new AbortController();
  await store.open();
  await world.advance(5 * MINUTE_MS);
  control.setWebhookBehaviour({
    drop: 0.05,
    duplicate: 0.1,
    reorder: 0.1,
    delay: 0.15,
    reorderMs: MINUTE_MS,
    delayMs: [200, 2 * MINUTE_MS],
  });
  const living = [
    ...[shop.trade(closing.signal), merchant.trade(closing.signal)],
    ...[pos.trade(closed.signal), operator.watch(goingHome.signal)],
  ];
  const nights: string[][] = [];
  const seen = await troubledDays(store, pos, mishaps, nights);
  closing.abort();
  control.setWebhookBehaviour({ drop: 0, duplicate: 0, reorder: 0, delay: 0 });
  await world.advance(HOUR_MS);
  closed.abort();
  const unread = await calmHours(store, pos, operator, shop);
  goingHome.abort();
  await world.advance(0);
  await Promise.all(living);
  const { daemon } = store;
  if (!daemon) throw new Error('The store is closed at the end.');
  const { lostRefreshes } = store.network;
  const excuses = { ...mishaps.excuses, lostRefreshes };
  const faults = [...nights.flat(), ...unread, ...faultsOf(store, daemon, pos, shop.history, excuses)];
  const report = {
    profile,
    faults,
    digest: digestOf(store, daemon),
    mishaps: seen,
    ...{
      orders: control.orders().length,
      calls: control.calls().length,
      words: pos.words,
      nights: nights.length,
    },
    handOvers: operator.handOvers,
    overruns: store.stillness.overruns,
    bytes: store.fileBytes(),
  };
  // In the first days a process still fills its caches, so its growth says nothing.
  return { ...report, grownBytes: profile.days < GROWN_DAYS_MIN ? null : await grownBytes(store) };
}

async function troubledDays(
  store: SimulatedStore,
  pos: SimulatedPos,
  mishaps: Mishaps,
  nights: string[][],
): Promise<Record<string, number>> {
  const { world, profile } = store;
  const random = chanceFor(profile.seed, 6);
  const seen: Record<string, number> = {};
  const endMs = world.monotonicMs() + profile.days * DAY_MS;
  let lookedMs = 0;
  while (world.monotonicMs() < endMs) {
    await world.advance(random.next() * HOUR_MS);
    const openInMs = untilOpenMs(world.nowMs());
    if (openInMs > HOUR_MS && openInMs < NIGHT_MS && world.nowMs() - lookedMs > DAY_MS / 2) {
      const faults = await nightLook(store, pos);
      if (faults) lookedMs = world.nowMs();
      if (faults) nights.push(faults.map((fault) => `night of ${isoUtc(lookedMs)}: ${fault}`));
    }
    if (random.next() > profile.mishapShare) continue;
    const drawn = [mishaps.draw(), ...(random.next() < 0.35 ? [mishaps.draw()] : [])];
    const begun: Mishap[] = [];
    for (const mishap of drawn) {
      // A store that is down cannot go down.
      if (!store.daemon && ['stop', 'crash', 'reboot', 'holiday'].includes(mishap.name)) continue;
      seen[mishap.name] = (seen[mishap.name] ?? 0) + 1;
      begun.push(mishap);
      await mishap.begin();
      await world.advance(mishap.lengthMs / drawn.length);
    }
    for (const mishap of begun) await mishap.end();
  }
  return seen;
}

/** Lets the POS process the evening's orders, waits until stocks are corrected, and returns the night's faults. */
async function nightLook(store: SimulatedStore, pos: SimulatedPos): Promise<string[] | undefined> {
  for (let times = 0; times < 2; times++) {
    void pos.visit();
    await store.world.advance(15 * MINUTE_MS);
  }
  return nightFaults(store, pos);
}

/**
 * Plays hours without mishaps, long enough for pauses to end and people to act. Returns the errors of the last sweep.
 */
async function calmHours(
  store: SimulatedStore,
  pos: SimulatedPos,
  operator: Operator,
  shop: Shop,
): Promise<string[]> {
  const { world } = store;
  for (let quarters = 0; quarters < 8; quarters++) {
    await world.advance(15 * MINUTE_MS);
    if (quarters === 4) shop.lastOrder();
    await operator.look();
    void pos.visit();
  }
  await world.advance(15 * MINUTE_MS);
  void pos.visit({ readShare: 1 });
  await world.advance(15 * MINUTE_MS);
  const unread = await sweep(store);
  await world.advance(5 * MINUTE_MS);
  return unread;
}

/** Returns the leaked bytes: memory that the daemon's stop frees, less what a new daemon uses after an hour. */
async function grownBytes(store: SimulatedStore): Promise<number> {
  const old = await usedBytes();
  await store.stop();
  const none = await usedBytes();
  await store.open();
  await store.world.advance(HOUR_MS);
  return old - none - ((await usedBytes()) - none);
}

/** Returns the memory in use. Collects garbage repeatedly, as a buffer's memory is freed some turns after its owner. */
async function usedBytes(): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  for (let times = 0; times < 3; times++) {
    collect();
    await settle();
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Sweeps as a person would, because only a sweep shows which orders the platform subtracted. Returns the errors. */
async function sweep({ daemon, world }: SimulatedStore): Promise<string[]> {
  if (!daemon) return [];
  const { catalogSweep, branches } = daemon.services;
  let faults: string[] | undefined;
  const sweeping = (async () => {
    for (const branch of branches) await catalogSweep.sweep(branch);
  })().then(
    () => {
      faults = [];
    },
    (error: unknown) => {
      faults = [`the catalogue could not be read at the end: ${asTillsyncError(error).message}`];
    },
  );
  while (!faults) await world.advance(1_000);
  await sweeping;
  return faults;
}
