import { systemClock } from '../../src/core/system-clock.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { until } from '../support/workplace.ts';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import { type HubPlace, openHubPlace } from './hub-place.ts';
import { inDirectory, percentile } from './mirror-samples.ts';

const BRANCHES = 500;
/** Branches of a quick run, where opening 500 would take most of the time. */
const QUICK_BRANCHES = 100;
/** Returns the goals. With more than 500 branches, each branch gets fewer orders. */
const goalsOf = (branches: number) =>
  branches > BRANCHES
    ? { perSecond: 20, p99S: 1, memoryMb: 900, idlePercent: 3 }
    : { perSecond: 50, p99S: 0.5, memoryMb: 350, idlePercent: 3 };
/** Time after which the work of a start is over. */
const CALM_MS = 20_000;
/** Share of events that are new orders; the others are changes of open orders. */
const NEW_SHARE = 0.3;
const AWAY = 50;
const DOWN_MS = 5_000;
/** Time within which two polls have brought the orders of lost callbacks. */
const POLLS_WITHIN_MS = 250_000;
const PAUSE_MS = 3_000;
const FOLLOW_MAX_MS = 180_000;

/** Measures the hub's daemon and nats-server, with the branches that follow them. */
export function measureLive(options: BenchOptions): Promise<BenchResult[]> {
  return inDirectory(async (directory) => {
    const { quick, branches = quick ? QUICK_BRANCHES : BRANCHES, progress } = options;
    const place = await openHubPlace(directory, branches, progress);
    const results: BenchResult[] = [];
    try {
      results.push(await measureIdle(place, options));
      results.push(...(await measureEvents(place, options)));
      results.push(await measureRestart(place, options));
      results.push(...(await measureReturn(place, options)));
      results.push(...(await measureCommands(place, options)));
      return results;
    } catch (error) {
      // The results so far are shown before the error, because these measurements took minutes.
      for (const { name, ratio, detail } of results)
        progress(`${name}: ${ratio?.toFixed(3) ?? '-'} (${detail})`);
      throw error;
    } finally {
      await place.close();
    }
  });
}

/**
 * Events of one order with one status that only one end has reported so far: the platform (`sent`) or the branch
 * (`there`). Wall clock in ms.
 */
interface Steps {
  sent: { branch: string; sentMs: number; answeredMs: number }[];
  there: { branch: string; atMs: number }[];
}

/** Measures a hub while nobody orders or counts anything. */
async function measureIdle(place: HubPlace, { quick, progress }: BenchOptions): Promise<BenchResult> {
  const seconds = quick ? 10 : 120;
  progress(`nothing happens for ${seconds} s`);
  await systemClock.sleep(CALM_MS);
  const percent = await place.busyPercent(seconds * 1000);
  const { hub, server } = place.memory();
  const { length: count } = place.branches;
  return {
    name: `the hub's thread while ${count} branches only say that they are there, percent of a processor`,
    ratio: percent,
    bound: `<= ${goalsOf(count).idlePercent}`,
    detail: `over ${seconds} s; all branches with TLS; hub ${Math.round(hub)} MiB, nats-server ${Math.round(server)} MiB then`,
  };
}

/** Measures order events in the whole company, at a large company's rate. */
async function measureEvents(place: HubPlace, { quick, progress }: BenchOptions): Promise<BenchResult[]> {
  const seconds = quick ? 10 : 600;
  const { length: count } = place.branches;
  const { perSecond, p99S, memoryMb } = goalsOf(count);
  progress(`${perSecond} order events a second for ${seconds} s`);
  const underWay = new Map<string, Steps>();
  const tookMs: number[] = [];
  const wholeMs: number[] = [];
  let [steps, taken, strays] = [0, 0, 0];
  const branchOf = new Map<string, string>();
  const note = (orderId: string, status: string, add: (of: Steps) => void) => {
    const key = `${orderId} ${status}`;
    const of = underWay.get(key) ?? { sent: [], there: [] };
    underWay.set(key, of);
    add(of);
    while (of.sent.length > 0 && of.there.length > 0) {
      const [from, to] = [of.sent.shift(), of.there.shift()];
      if (!from || !to) throw new Error('unreachable');
      if (from.branch !== to.branch) strays += 1;
      tookMs.push(Math.max(0, to.atMs - from.answeredMs));
      wholeMs.push(to.atMs - from.sentMs);
    }
  };
  place.onSent = ({ orderId, status }, { sentMs, answeredMs }) => {
    taken += 1;
    const branch = branchOf.get(orderId) ?? '';
    note(orderId, status, ({ sent }) => sent.push({ branch, sentMs, answeredMs }));
  };
  place.onCommitted = (committed) => {
    for (const [branch, orderId, status, atMs] of committed) {
      note(orderId, status, ({ there }) => there.push({ branch, atMs }));
    }
  };
  const memory: { hub: number; server: number }[] = [];
  const random = seededRandom(43);
  const open: string[] = [];
  const beganMs = performance.now();
  let sampledMs = beganMs;
  while (performance.now() - beganMs < seconds * 1000) {
    const dueSteps = ((performance.now() - beganMs) / 1000) * perSecond;
    for (; steps < dueSteps; steps++) {
      const at = Math.floor(random.next() * open.length);
      const orderId = open[at];
      if (orderId !== undefined && random.next() >= NEW_SHARE) {
        if (place.sandbox.control.advanceOrder(orderId)) continue;
        open.splice(at, 1);
      }
      const branch = 1 + Math.floor(random.next() * count);
      const order = place.sandbox.control.createOrder({ subsidiaryId: `sub-${branch}` });
      branchOf.set(order.internalOrderId, `B${branch}`);
      open.push(order.internalOrderId);
    }
    if (performance.now() - sampledMs >= 1_000) {
      memory.push(place.memory());
      sampledMs = performance.now();
    }
    await systemClock.sleep(5);
  }
  // An event that changes nothing at the hub is sent to no branch, so the number of events to wait for is unknown. The
  // wait ends when nothing more arrives for a while.
  let before = -1;
  let movedMs = performance.now();
  await until(
    'the branches have all of it',
    async () => {
      const now = taken + tookMs.length;
      if (now !== before) movedMs = performance.now();
      // An order whose callback the sandbox stopped retrying arrives with the next poll, and is never counted as sent.
      const isQuiet = performance.now() - movedMs > POLLS_WITHIN_MS;
      if (now === before && (taken === steps || isQuiet)) return true;
      before = now;
      await systemClock.sleep(PAUSE_MS);
      return false;
    },
    POLLS_WITHIN_MS + 180_000,
  );
  const sums = memory.map(({ hub, server }) => hub + server);
  const highest = memory[sums.indexOf(Math.max(...sums))] ?? { hub: Number.NaN, server: Number.NaN };
  const { lost, doubled, foreign } = compareMirrors(place, place.branches);
  const p99Ms = percentile(tookMs, 0.99);
  const inMb = (mib: number) => mib * 1.048_576;
  const megabytes = (mib: number) => `${Math.round(inMb(mib))} MB`;
  return [
    {
      name: `${perSecond} order events a second to ${count} branches: callback answered to branch's mirror on the disk, p99 in s`,
      ratio: tookMs.length === 0 ? null : p99Ms / 1000,
      bound: `<= ${p99S}`,
      detail: `${tookMs.length} of ${steps} in ${seconds} s; ms: p50 ${percentile(tookMs, 0.5)}, p99 ${p99Ms}, most ${Math.max(...tookMs)}, since a step back in an order's life waits for the next poll; from sending the callback p50 ${percentile(wholeMs, 0.5)}, p99 ${percentile(wholeMs, 0.99)}`,
    },
    {
      name: 'steps of orders lost, doubled or at another branch',
      ratio: lost + doubled + foreign + strays,
      bound: '<= 0',
      detail: `${lost} lost, ${doubled} doubled, ${foreign} foreign of ${steps}, by the mirrors of hub and branches`,
    },
    {
      name: 'resident memory of the hub and nats-server together, MB',
      ratio: inMb(Math.max(...sums)),
      bound: `<= ${memoryMb}`,
      detail: `at most ${megabytes(highest.hub)} and ${megabytes(highest.server)}; median ${megabytes(median(sums))} together`,
    },
  ];
}

/**
 * Kills nats-server, so that all connections break at once, and measures how long the branches need to follow again.
 */
async function measureRestart(place: HubPlace, { progress }: BenchOptions): Promise<BenchResult> {
  progress(`nats-server is killed and starts again after ${DOWN_MS / 1000} s`);
  const { length: count } = place.branches;
  const followingMs = new Map<string, number>();
  place.onCommitted = (committed) => {
    for (const [branch, , , atMs] of committed) if (!followingMs.has(branch)) followingMs.set(branch, atMs);
  };
  await place.killServer();
  await systemClock.sleep(DOWN_MS);
  for (let i = 0; i < count; i++) {
    place.sandbox.control.createOrder({ subsidiaryId: `sub-${i + 1}` });
  }
  await place.startServer();
  const listensMs = Date.now();
  await until('all follow again', () => followingMs.size === count, FOLLOW_MAX_MS).catch(() => {});
  const tookS = [...followingMs.values()].map((atMs) => Math.max(0, atMs - listensMs) / 1000);
  return {
    name: `nats-server killed: s from its start until ${count} branches have what came meanwhile`,
    ratio: followingMs.size === count ? Math.max(...tookS) : FOLLOW_MAX_MS / 1000,
    bound: '<= 30',
    detail: `${followingMs.size} branches in at most ${FOLLOW_MAX_MS / 1000} s; p50 ${percentile(tookS, 0.5).toFixed(1)} s, last ${Math.max(...tookS).toFixed(1)} s`,
  };
}

/** Measures branches that were disconnected while orders came for them. */
async function measureReturn(place: HubPlace, { quick, progress }: BenchOptions): Promise<BenchResult[]> {
  const events = quick ? 10_000 : 100_000;
  progress(`${events} events for ${AWAY} branches that are away`);
  const away = place.branches.slice(0, AWAY);
  await place.stop(away);
  const beganMs = performance.now();
  const posted = await postOrders(place, away, events);
  const acceptedS = (performance.now() - beganMs) / 1000;
  await until('all of it is published', () => place.unpublished() === 0, 600_000);
  const publishedS = (performance.now() - beganMs) / 1000;
  // A crashed server resends messages whose acknowledgement it lost, so a set counts each event only once.
  const came = new Set<string>();
  place.onCommitted = (committed) => {
    for (const [, orderId, status] of committed) if (posted.has(orderId)) came.add(`${orderId} ${status}`);
  };
  progress(`${AWAY} branches come back`);
  const backMs = performance.now();
  await place.start(away);
  const startedS = (performance.now() - backMs) / 1000;
  await until('they have caught up', () => came.size >= events, 600_000).catch(() => {});
  const tookS = (performance.now() - backMs) / 1000;
  const { lost, doubled, foreign } = compareMirrors(place, away);
  return [
    {
      name: `${AWAY} branches back after ${events.toLocaleString('en')} events: events a second until all have caught up`,
      ratio: came.size / tookS,
      bound: '>= 1000',
      detail: `${came.size} in ${tookS.toFixed(1)} s, of which ${startedS.toFixed(1)} s to start them one after the other; the hub took the callbacks in ${acceptedS.toFixed(0)} s and had all on the server after ${publishedS.toFixed(0)} s`,
    },
    {
      name: 'the same: lost, doubled or at another branch',
      ratio: lost + doubled + foreign,
      bound: '<= 0',
      detail: `${lost} lost, ${doubled} doubled, ${foreign} foreign`,
    },
  ];
}

const STATUSES = ['pending', 'picker-pending', 'inProcess', 'ready'];
const SENDERS = 16;

/** Posts orders like the platform, as fast as the hub accepts them. Returns the ids of the orders. */
async function postOrders(
  place: HubPlace,
  branches: readonly string[],
  events: number,
): Promise<ReadonlySet<string>> {
  const orders = events / STATUSES.length;
  const createdAt = new Date().toISOString();
  const ids = new Set<string>();
  let next = 0;
  const send = async () => {
    while (next < orders) {
      const number = next++;
      for (const status of STATUSES) {
        const store = { externalId: branches[number % branches.length] };
        const order = sampleNotification(1_000_000 + number, { store, status, createdAt });
        ids.add(String(order.internalOrderId));
        const post = async () => {
          const answer = await fetch(place.callbackUrl, {
            method: 'POST',
            headers: { 'content-type': 'application/json', 'x-webhook-secret': place.secret },
            body: JSON.stringify(order),
          });
          await answer.arrayBuffer();
          return answer.status;
        };
        const code = await post().catch(brokeOff);
        if (code >= 300) throw new Error(`The hub answered a callback with ${code}.`);
      }
    }
  };
  await Promise.all(Array.from({ length: SENDERS }, send));
  return ids;
}

/** Throws an error with the cause, because fetch itself reports only that it failed. */
function brokeOff(error: Error): never {
  const { cause = error } = error;
  const { code, message } = cause as NodeJS.ErrnoException;
  throw new Error(`The hub answered no callback (${[code, message].filter(Boolean).join(', ')}).`, { cause });
}

/** Measures the commands that read all branches. */
async function measureCommands(place: HubPlace, { progress }: BenchOptions): Promise<BenchResult[]> {
  progress('the commands that look at all branches');
  const bareMs = await place.command('--version');
  const results: BenchResult[] = [];
  for (const words of [
    ['branch', 'list', '--json'],
    ['status', '--json'],
  ]) {
    const ms = await place.command(...words);
    results.push({
      name: `tillsync ${words.join(' ')} with ${place.branches.length} branches / --version`,
      ratio: ms / bareMs,
      bound: '',
      detail: `${Math.round(ms)} and ${Math.round(bareMs)} ms`,
    });
  }
  return results;
}

interface Differences {
  lost: number;
  doubled: number;
  foreign: number;
}

/** Compares the events of orders in these branches' mirrors with the hub's events for the branches. */
function compareMirrors(place: HubPlace, branches: readonly string[]): Differences {
  const found: Differences = { lost: 0, doubled: 0, foreign: 0 };
  const wanted = new Map<string, Map<string, number>>(branches.map((branch) => [branch, new Map()]));
  const atHub = `SELECT o.store_external_id AS branch, e.order_id || ' ' || e.status AS step, count(*) AS times
    FROM order_events e JOIN orders o USING (order_id) GROUP BY 1, 2`;
  for (const { branch, step, times } of place.hubRows<{ branch: string; step: string; times: number }>(
    atHub,
  )) {
    wanted.get(branch)?.set(step, times);
  }
  for (const branch of branches) {
    const own = wanted.get(branch) ?? new Map<string, number>();
    const there = "SELECT order_id || ' ' || status AS step, count(*) AS times FROM order_events GROUP BY 1";
    for (const { step, times } of place.branchRows<{ step: string; times: number }>(branch, there)) {
      const hubTimes = own.get(step);
      if (hubTimes === undefined) found.foreign += times;
      else found.doubled += Math.max(0, times - hubTimes);
      own.set(step, (hubTimes ?? 0) - times);
    }
    for (const left of own.values()) found.lost += Math.max(0, left);
  }
  return found;
}
