import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openMirror } from '../../src/app/mirror.ts';
import type { Branch } from '../../src/catalog/product.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { readSentOrder } from '../../src/orders/merging/order-reader.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { OutboxService } from '../../src/outbox/sending/outbox.ts';
import { PushFreshness, PushLoop, type PushLoopOptions } from '../../src/outbox/sending/push-loop.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';
import { seededRandom } from '../support/fake-clock.ts';
import type { BenchOptions, BenchResult } from './bench-result.ts';

export const expectedSeconds = { quick: 20, full: 150 };

const BRANCHES: readonly Branch[] = [1, 2, 3, 4].map((n) => ({
  subsidiaryId: `sub-${n}`,
  externalId: `B${n}`,
}));
const SPELLINGS = compileSpellings({});
const PAGE = 1_000;
const ROUNDS = 15;

const extId = (n: number) => `POS-${n}`;

/** Makes products with one sku, in stock in each of the four branches. */
function products(from: number, to: number): ProductRecord[] {
  return Array.from({ length: to - from }, (_, i) => {
    const n = from + i;
    const of = BRANCHES.map(({ subsidiaryId }) => ({ subsidiaryId: subsidiaryId ?? '' }));
    const child = {
      sku: `${n}`,
      barcode: null,
      price: 1990,
      withDiscount: false,
      discount: 0,
      show: true,
      stocks: of.map((each) => ({ ...each, qty: 100, show: true })),
      integrations: of.map((each) => ({
        ...each,
        productIdPosA: null,
        productCodePosB: null,
        extId: extId(n),
      })),
    };
    const record = { id: `p${n}`, name: `Producto ${n}`, category: 'x', show: true, children: [child] };
    return { ...record, raw: JSON.stringify(record) };
  });
}

/**
 * Returns the processor time of one of `count` operations, in ms: the minimum of several rounds, because other programs
 * only add time.
 */
async function leastMs(count: number, act: (round: number) => Promise<void> | void): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage();
    await act(round);
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, (user + system) / 1_000 / count);
  }
  return least;
}

/**
 * Measures the processor time of the stock ledger in a large company, through the product's own intake, merge
 * and sender.
 */
export async function run({ quick, progress }: BenchOptions): Promise<BenchResult[]> {
  const [count, held] = quick ? [10_000, 200] : [100_000, 500];
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-ledger-'));
  const mirror = openMirror({ path: path.join(directory, 'mirror.db'), clock: systemClock });
  try {
    const stores = new MirrorStores({ mirror, branches: BRANCHES, clock: systemClock });
    progress(`${count} products in ${BRANCHES.length} branches`);
    for (const branch of BRANCHES) {
      const startedAtMs = systemClock.nowMs();
      for (let from = 0; from < count; from += PAGE) {
        const records = products(from, from + PAGE);
        await stores.write(({ catalog }) => catalog.applyPage(branch, records, catalog.readMark()));
      }
      const seen = new Set(Array.from({ length: count }, (_, n) => `p${n}`));
      await stores.write(({ catalog }) =>
        catalog.completeSweep({ branch, mark: catalog.readMark(), startedAtMs, pages: count / PAGE, seen }),
      );
    }
    const outbox = new OutboxService({ stores, guards: GUARDS_OFF, holdBack: true });
    const sender = new PushLoop({
      kind: 'stock' as const,
      stores,
      clock: systemClock,
      hasBranches: true,
      lingerMs: 0,
      lastPollOkMs: () => systemClock.nowMs(),
      rules: { holdBack: true, skipUnchanged: true, trustMs: 600_000, platformDeducts: true },
      platform: {} as PushLoopOptions['platform'],
      freshness: new PushFreshness({ ok() {}, report() {} }),
      status: () => 'elsewhere',
      random: seededRandom(1),
      log: silentLog,
      beat() {},
    });
    const random = seededRandom(29);
    const stockOf = (n: number) => ({ externalId: extId(n), subsidiaryId: `sub-${1 + (n % 4)}` });
    let orders = 0;
    const newOrder = async () => {
      orders += 1;
      const items = [0, 1, 2].map(() => {
        const externalId = extId(4 * Math.floor((random.next() * count) / 4));
        return { product: { externalId, name: 'Producto' }, amount: 1 };
      });
      const sent = {
        internalOrderId: `order-${orders}`,
        code: orders,
        status: 'picker-pending',
        items,
        createdAt: new Date().toISOString(),
        store: { externalId: 'B1' },
      };
      const raw = JSON.stringify(sent);
      const reading = readSentOrder(sent, raw, SPELLINGS);
      if ('unreadable' in reading) throw new Error(reading.unreadable);
      const observedAtMs = systemClock.nowMs();
      await mirror.save([{ kind: 'order', observation: { source: 'webhook', observedAtMs, raw, reading } }]);
      await outbox.catchUp();
    };
    const handOver = (n: number, qty: number) =>
      outbox.submit([{ kind: 'stock', change: { ...stockOf(n), qty } }], 'http');
    const send = async () => {
      const { callId, items } = await sender.claim(100);
      if (callId === null) return false;
      await sender.settle(
        callId,
        items.map(({ changeId }) => ({ changeId, state: 'done' as const })),
      );
      return true;
    };
    progress(`${held} orders that nobody booked`);
    for (let n = 0; n < held; n++) await newOrder();
    progress('changes alone');
    const perRound = 40;
    const sentMs: number[] = [];
    const changeMs = await leastMs(perRound, async (round) => {
      for (let i = 0; i < perRound; i++) await handOver(4 * (round * perRound + i) + 1, 7);
    });
    while (true) {
      const before = process.cpuUsage();
      if (!(await send())) break;
      const { user, system } = process.cpuUsage(before);
      sentMs.push((user + system) / 1_000);
    }
    progress('the view of one stock');
    const looks = 2_000;
    const viewMs = await leastMs(looks, () => {
      for (let i = 0; i < looks; i++) {
        const place = { sku: `${4 * (i % (ROUNDS * perRound)) + 1}`, subsidiaryId: 'sub-2' };
        if (!stores.read(({ ledger }) => ledger.ofStock(place))) throw new Error(`No count of ${place.sku}`);
      }
    });
    progress('new orders');
    const orderMs = await leastMs(perRound, async () => {
      for (let i = 0; i < perRound; i++) await newOrder();
    });
    const size = `${count} products × ${BRANCHES.length} branches, ${held} held orders, ms of processor`;
    const microseconds = (ms: number) => `${Math.round(ms * 1_000)} µs`;
    return [
      {
        name: `a change of a stock alone, handed over: ${size}`,
        ratio: changeMs,
        bound: '<= 0.5',
        detail: `${microseconds(changeMs)}, the least of ${ROUNDS} rounds of ${perRound}`,
      },
      {
        name: `a call of 100 changes, taken from the queue and settled, ms of processor`,
        ratio: Math.min(...sentMs),
        bound: '',
        detail: `the least of ${sentMs.length} calls`,
      },
      {
        name: `the view of one stock: ${size}`,
        ratio: viewMs,
        bound: '<= 0.02',
        detail: `${microseconds(viewMs)}, the least of ${ROUNDS} rounds of ${looks}`,
      },
      {
        name: `a new order of three lines, merged and taken into the ledger: ${size}`,
        ratio: orderMs,
        bound: '<= 1.0',
        detail: `${microseconds(orderMs)}, the least of ${ROUNDS} rounds of ${perRound}`,
      },
    ];
  } finally {
    await mirror.close();
    rmSync(directory, { recursive: true, force: true });
  }
}
