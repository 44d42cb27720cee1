import { openServices, type Services } from '../../src/app/services.ts';
import { readConfig } from '../../src/config/config.ts';
import { configError } from '../../src/config/source.ts';
import type { FreshnessBoard } from '../../src/core/alarm.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Clock } from '../../src/core/time.ts';
import { feedBranches } from '../../src/daemon/feed-branches.ts';
import { Hub } from '../../src/link/hub.ts';
import { UP_ITEMS_MAX, type UpItem } from '../../src/link/link.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { PushFreshness, PushLoop } from '../../src/outbox/sending/push-loop.ts';
import type { StockChangeItem } from '../../src/platform/schemas.ts';
import { InProcessServer } from '../link/in-process.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { helloOf } from '../support/hello.ts';
import type { BenchOptions, BenchResult } from './bench-result.ts';
import { externalIdOf, skuOf } from './catalog-samples.ts';
import { inDirectory, percentile } from './mirror-samples.ts';

const BRANCHES = 500;
const INTERVAL_MS = 1_000;
/** Maximum number of calls of a measurement, after which it fails. No measurement here needs so many. */
const CALLS_MAX = 400;
/** Time that a branch waits before it hands up the rest of its changes, if the hub does not say how long. */
const AGAIN_AFTER_MS = 2_000;
const TRIES_MAX = 100;
const PER_CALL = 100;

/**
 * Measures branches' changes on their way to the platform, with the hub's real queue at the platform's rate, on a clock
 * that jumps.
 */
export async function measureQueue(options: BenchOptions): Promise<BenchResult[]> {
  return [...(await measureSoldOut(options)), ...(await measureFairness(options))];
}

/** Measures how long a branch's count of 0 waits while counts of all products of every branch wait. */
async function measureSoldOut({ quick, progress }: BenchOptions): Promise<BenchResult[]> {
  const products = quick ? 30 : 2_000;
  const waiting = (BRANCHES * products).toLocaleString('en');
  const tries = 10;
  progress(`sold out behind ${waiting} waiting changes of ${BRANCHES} branches`);
  return inDirectory(async (directory) => {
    const place = await openHubQueue(directory, () => products);
    try {
      const beganMs = performance.now();
      for (const branch of place.branches) {
        await place.handUp(
          branch,
          Array.from({ length: products }, (_, n) => ({ externalId: externalIdOf(n), qty: 5 })),
        );
      }
      const perSecond = (BRANCHES * products) / ((performance.now() - beganMs) / 1000);
      const waits: { calls: number; ms: number }[] = [];
      const random = seededRandom(5);
      let asked: { externalId: string; branch: string; atMs: number; atCall: number } | undefined;
      // A count of 0 is handed up during a call, so that this call cannot include it.
      await place.send(async (items, call) => {
        const { externalId, branch: name, atMs, atCall } = asked ?? {};
        if (
          items.some((item) => item.qty === 0 && item.externalId === externalId && branchOf(item) === name)
        ) {
          waits.push({ calls: call - (atCall ?? 0), ms: place.clock.monotonicMs() - (atMs ?? 0) });
          asked = undefined;
        }
        if (waits.length === tries) return 'enough';
        if (!asked && call % 3 === 0) {
          const branch = `B${1 + Math.floor(random.next() * BRANCHES)}`;
          // Takes one of the branch's last products, for which a count with another quantity waits at the end of the
          // queue.
          asked = {
            externalId: externalIdOf(products - 1 - waits.length),
            branch,
            atMs: place.clock.monotonicMs(),
            atCall: call,
          };
          await place.handUp(branch, [{ externalId: asked.externalId, qty: 0 }]);
        }
        return 'on';
      });
      const work = place.workMs;
      return [
        {
          name: `sold out behind ${waiting} waiting changes of ${BRANCHES} branches: in which call it went, at worst`,
          ratio: Math.max(...waits.map(({ calls }) => calls)),
          bound: '<= 2',
          detail: `calls after it was handed up: ${waits.map(({ calls }) => calls).join(' ')}; within ${(Math.max(...waits.map(({ ms }) => ms)) / INTERVAL_MS).toFixed(1)} intervals; the hub took in ${Math.round(perSecond)} changes a second`,
        },
        {
          name: `the hub's own work for a call behind ${waiting} waiting changes, p99 / interval`,
          ratio: percentile(work, 0.99) / INTERVAL_MS,
          bound: '<= 0.5',
          detail: `${work.length} calls, ms: p50 ${percentile(work, 0.5).toFixed(0)}, p99 ${percentile(work, 0.99).toFixed(0)}`,
        },
      ];
    } finally {
      await place.close();
    }
  });
}

/** Measures how long a few counts of each other branch wait behind a branch that counted everything just before. */
async function measureFairness({ progress }: BenchOptions): Promise<BenchResult[]> {
  const [large, small] = [10_000, 5];
  progress(`${large} changes of one branch before ${small} of each other one`);
  return inDirectory(async (directory) => {
    const place = await openHubQueue(directory, (branch) => (branch === 0 ? large : small));
    try {
      const total = large + (BRANCHES - 1) * small;
      for (const [i, branch] of place.branches.entries()) {
        const count = i === 0 ? large : small;
        await place.handUp(
          branch,
          Array.from({ length: count }, (_, n) => ({ externalId: externalIdOf(n), qty: 5 })),
        );
      }
      const beganMs = place.clock.monotonicMs();
      const worst = { calls: 0, ms: 0 };
      let [sent, calls] = [0, 0];
      await place.send(async (items, call) => {
        sent += items.length;
        calls = call;
        if (items.some((item) => branchOf(item) !== 'B1')) {
          Object.assign(worst, { calls: call, ms: place.clock.monotonicMs() - beganMs });
        }
        return sent >= total ? 'enough' : 'on';
      });
      const firstCome = Math.ceil(total / PER_CALL);
      return [
        {
          name: `${small} changes of each of ${BRANCHES - 1} branches beside ${large} of one: worst wait in calls / first come, first served`,
          ratio: worst.calls / firstCome,
          bound: '<= 0.25',
          detail: `call ${worst.calls} of ${calls}, ${(worst.ms / 1000).toFixed(0)} s; first come, first served: call ${firstCome}`,
        },
        {
          name: `the same: calls / the fewest possible`,
          ratio: calls / firstCome,
          bound: '<= 1',
          detail: `${calls} calls for ${sent} changes`,
        },
      ];
    } finally {
      await place.close();
    }
  });
}

const branchOf = ({ subsidiaryId = '' }: StockChangeItem) => subsidiaryId.replace('sub-', 'B');

/** The hub's answer to a branch. */
interface Answered {
  refused?: { message: string };
  upTo?: number;
  comeBackMs?: number;
}

interface HubQueue {
  clock: Clock;
  branches: string[];
  /**
   * Hands changes up like the branch's tillsync, which waits when the hub asks for it. Throws unless the hub accepts
   * all.
   */
  handUp(branch: string, changes: readonly { externalId: string; qty: number }[]): Promise<void>;
  /** Sends like the daemon until `onCall` returns 'enough'. Calls are counted from 1. */
  send(onCall: (items: readonly StockChangeItem[], call: number) => Promise<'on' | 'enough'>): Promise<void>;
  /** Real time between a call's answer and the next call, for each call so far. */
  workMs: number[];
  close(): Promise<void>;
}

/** Opens the hub's mirror with a swept catalogue: the first `productsOf` products of each branch. */
async function openHubQueue(directory: string, productsOf: (branch: number) => number): Promise<HubQueue> {
  const clock = leapingClock();
  const services = await openHub(directory, clock);
  const { mirror, stores, state } = services;
  const branches = feedBranches(services.config, state.hub);
  await fillCatalogue(services, clock, productsOf);
  const hub = new Hub({
    ...{
      link: new InProcessServer().hub(),
      branches: () => branches,
      mirror,
      stores,
      rows: state.hub,
      guards: GUARDS_OFF,
    },
    ...{
      holdBack: false,
      onQueued: () => {},
      ordersStaleAfterMs: () => 600_000,
      areOrdersStale: () => false,
      clock,
      log: silentLog,
    },
  });
  await hub.begin();
  const lastU = new Map<string, number>();
  const ask = async (branch: string, question: 'hello' | 'changes', body: object) => {
    const answer = await hub.answer(
      branch,
      question,
      Buffer.from(JSON.stringify({ instance: branch, line: branch, ...body })),
    );
    return JSON.parse(answer ?? '{}') as Answered;
  };
  for (const { name } of branches) {
    state.hub.invite(name, name, clock.nowMs() + INTERVAL_MS);
    state.hub.join(name, name, clock.nowMs());
    const { refused } = await ask(name, 'hello', helloOf({ instance: name, line: name }));
    if (refused) throw new Error(`${name}: ${refused.message}`);
  }
  const workMs: number[] = [];
  return {
    clock,
    branches: branches.map(({ name }) => name),
    async handUp(branch, changes) {
      const first = lastU.get(branch) ?? 0;
      let [taken, tries] = [0, 0];
      while (taken < changes.length) {
        const items = changes.slice(taken, taken + UP_ITEMS_MAX).map((value, i): UpItem => {
          const u = first + taken + 1 + i;
          return { u, kind: 'stock', changeId: u, reference: null, value };
        });
        const {
          upTo = first + taken,
          comeBackMs = AGAIN_AFTER_MS,
          refused,
        } = await ask(branch, 'changes', {
          items,
        });
        taken = upTo - first;
        lastU.set(branch, upTo);
        if (taken < changes.length && (refused || upTo < (items.at(-1)?.u ?? 0))) {
          tries += 1;
          if (tries > TRIES_MAX) throw new Error(`The hub takes no more of ${branch}: ${refused?.message}`);
          await clock.sleep(comeBackMs);
        }
      }
    },
    send: (onCall) => sendAll(services, clock, workMs, onCall),
    workMs,
    close: () => services.close(),
  };
}

function openHub(directory: string, clock: Clock): Promise<Services> {
  const branches = Array.from(
    { length: BRANCHES },
    (_, i) => `[[branches]]\nsubsidiary_id = "sub-${i + 1}"\nexternal_id = "B${i + 1}"\n`,
  );
  const text = `[platform]
base_url = "http://platform.test"
[storage]
directory = ${JSON.stringify(directory)}
[hub]
nats = "nats://127.0.0.1:4222"
${branches.join('')}`;
  const read = readConfig({ file: 'hub.toml', env: {}, text });
  if ('faults' in read) throw configError(read.faults);
  return openServices({
    ...{
      config: read.config,
      secrets: { webhookSecrets: [] },
      clock,
      random: seededRandom(3),
      log: silentLog,
    },
    transport: { send: () => Promise.reject(new Error('nobody is called')), close: async () => {} },
  });
}

const RECORDS_AT_ONCE = 20;

async function fillCatalogue(
  { stores, branches }: Services,
  clock: Clock,
  productsOf: (branch: number) => number,
): Promise<void> {
  const most = Math.max(...branches.map((_, i) => productsOf(i)));
  const [first] = branches;
  if (!first) throw new Error('unreachable');
  for (let from = 0; from < most; from += RECORDS_AT_ONCE) {
    const records = Array.from({ length: Math.min(RECORDS_AT_ONCE, most - from) }, (_, i) => {
      const n = from + i;
      const there = branches.filter((_, branch) => n < productsOf(branch));
      const stocks = there.map(({ subsidiaryId }) => ({
        subsidiaryId: subsidiaryId ?? '',
        qty: 1_000,
        show: true,
      }));
      const integrations = there.map(({ subsidiaryId }) => ({
        subsidiaryId: subsidiaryId ?? '',
        productIdPosA: null,
        productCodePosB: null,
        extId: externalIdOf(n),
      }));
      const child = {
        sku: skuOf(n),
        barcode: '',
        price: 1990,
        withDiscount: false,
        discount: 0,
        show: true,
      };
      const record = { id: `product-${n}`, name: `Producto ${n}`, category: 'Bebidas', show: true };
      return { ...record, children: [{ ...child, stocks, integrations }], raw: JSON.stringify(record) };
    });
    await stores.write(({ catalog }) => catalog.applyPage(first, records, catalog.readMark()));
  }
  const seen = new Set(Array.from({ length: productsOf(0) }, (_, n) => `product-${n}`));
  for (const [i, branch] of branches.entries()) {
    await stores.write(({ catalog }) =>
      catalog.completeSweep({
        branch,
        mark: catalog.readMark(),
        startedAtMs: clock.nowMs(),
        pages: 1,
        seen: i === 0 ? seen : new Set<string>(),
      }),
    );
  }
}

async function sendAll(
  { stores }: Services,
  clock: Clock,
  workMs: number[],
  onCall: (items: readonly StockChangeItem[], call: number) => Promise<'on' | 'enough'>,
): Promise<void> {
  const over = new AbortController();
  const lastMs = { 'product.stock.batch': -INTERVAL_MS, 'product.stock.put': -INTERVAL_MS };
  let calls = 0;
  let answeredMs = performance.now();
  let failure: unknown;
  const take = async (endpoint: keyof typeof lastMs, items: readonly StockChangeItem[]) => {
    workMs.push(performance.now() - answeredMs);
    lastMs[endpoint] = clock.monotonicMs();
    calls += 1;
    try {
      if (calls > CALLS_MAX) throw new Error(`After ${calls} calls it had not arrived.`);
      if ((await onCall(items, calls)) === 'enough') over.abort();
    } catch (error) {
      failure = error;
      over.abort();
    }
    answeredMs = performance.now();
  };
  const unasked = () => Promise.reject(new Error('nobody asks this'));
  const loop = new PushLoop({
    kind: 'stock',
    stores,
    clock,
    random: seededRandom(4),
    log: silentLog,
    platform: {
      delayMs: async (endpoint) =>
        Math.max(0, (lastMs[endpoint as keyof typeof lastMs] ?? 0) + INTERVAL_MS - clock.monotonicMs()),
      async productStockBatch(items, call) {
        call?.onSend?.();
        await take('product.stock.batch', items);
        return { updated: items.length, total: items.length, errors: [] };
      },
      async productStockPut(item, call) {
        call?.onSend?.();
        await take('product.stock.put', [item]);
        return 'applied';
      },
      productPut: unasked,
      productBatch: unasked,
      productGet: unasked,
    },
    rules: { holdBack: false, skipUnchanged: true, trustMs: 3_600_000, platformDeducts: true },
    hasBranches: true,
    lastPollOkMs: () => clock.nowMs(),
    status: () => 'sends',
    freshness: new PushFreshness(NO_BOARD),
    lingerMs: 0,
    beat: () => {},
  });
  await loop.run(over.signal);
  if (failure !== undefined) throw failure;
}

const NO_BOARD: FreshnessBoard = { ok: () => {}, report: () => {} };

/** Makes a clock for a single loop, which jumps to the end of each sleep. */
function leapingClock(): Clock {
  let passedMs = 0;
  const startMs = Date.now();
  return {
    bootId: 'leaping',
    nowMs: () => Math.floor(startMs + passedMs),
    monotonicMs: () => passedMs,
    async sleep(ms, signal) {
      if (!signal?.aborted) passedMs += Math.max(0, ms);
      await new Promise<void>((resolve) => setImmediate(resolve));
    },
  };
}
