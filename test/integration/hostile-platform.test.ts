import { request } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import type { PlatformLimits } from '../../src/platform/platform.ts';
import { API_KEY } from '../support/api-key.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { hastyClock } from '../support/hasty-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

/** Limits as the platform's document states them. */
const TRUE_LIMITS: PlatformLimits = {
  endpointIntervalMs: 1_000,
  ordersIntervalMs: 120_000,
  windowMs: 300_000,
  requestsPerWindow: 1_000,
  ordersPerWindow: 100,
};
const SEED = Number(process.env.TILLSYNC_TEST_SEED ?? 17);

let place: Workplace;
let daemon: Daemon;
let clock: ReturnType<typeof hastyClock>;

async function open(products: number, haste = 30): Promise<void> {
  clock = hastyClock(haste);
  place = await openWorkplace(SEED, { clock, limits: TRUE_LIMITS, seed: { products } });
  const { config, refreshToken } = place;
  const guard = { ...config.guard, zeroItemsMax: 0, zeroShareMax: 0, priceFactorMax: 0 };
  daemon = await startDaemon({
    config: { ...config, guard, orders: { ...config.orders, poll: '*/2 * * * *' } },
    secrets: { refreshToken, webhookSecrets: [SECRET], localApiKey: API_KEY },
    clock,
    random: seededRandom(SEED),
    log: silentLog,
  });
  await until('the catalogue is swept', () => daemon.services.stores.read(({ lookup }) => lookup.isComplete));
}

afterEach(async () => {
  await daemon.stop();
  await place.close();
});

interface Shelf {
  sku: number;
  subsidiaryId: string;
  externalId: string;
  /** Whether the platform has a stock of the product in the branch. */
  isStocked: boolean;
}

const shelves = (): Shelf[] =>
  place.sandbox.control.products().flatMap(({ children }) =>
    children.flatMap(({ sku, stocks, integrations }) =>
      integrations.map(({ subsidiaryId, extId, productIdPosA, productCodePosB }) => ({
        sku,
        subsidiaryId,
        externalId: extId ?? productIdPosA ?? productCodePosB ?? '',
        isStocked: stocks.some((entry) => entry.subsidiaryId === subsidiaryId),
      })),
    ),
  );

async function handOver(path: '/v1/stock' | '/v1/products', items: object[]) {
  const answer = await request(`${daemon.localUrl}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(items),
  });
  const body = (await answer.body.json()) as { results: { state: string; changeId?: number }[] };
  return { status: answer.statusCode, results: body.results };
}

const idle = (deadlineMs = 60_000) =>
  until(
    'nothing waits any more',
    () => {
      const { pending, sending } = daemon.services.outbox.counts();
      return pending + sending === 0;
    },
    deadlineMs,
  );

const refused = () =>
  daemon.services.outbox
    .list({ state: 'rejected', limit: 1_000 })
    .map(({ body, message }) => {
      const named = body as { externalId?: string; sku?: number; subsidiaryId?: string };
      return [named.sku ?? named.externalId, named.subsidiaryId ?? null, message] as const;
    })
    .sort();

describe('thousands of changes', () => {
  it(
    `end with the platform equal to what the POS said, each bad item by name (seed ${SEED})`,
    async () => {
      await open(500);
      const { control } = place.sandbox;
      const random = seededRandom(SEED);
      const all = shelves();
      const good = all.filter(({ isStocked }) => isStocked);
      const unstocked = all.filter(({ isStocked }) => !isStocked).slice(0, 8);
      const poison = good[100];
      if (!poison) throw new Error('There are too few products.');
      expect(good.length).toBeGreaterThan(1_200);
      const stock = 'product.stock.batch';
      const faults = [
        { kind: 'status', when: 'before' },
        { kind: 'status', when: 'after', status: 503 },
        { kind: 'drop', when: 'before' },
        { kind: 'drop', when: 'after' },
        { kind: 'cut-body' },
        { kind: 'html' },
        { kind: 'truncated-json' },
        { kind: 'not-success' },
        { kind: 'miscount' },
        { kind: 'wrong-content-type' },
        { kind: 'rate-limit', retryAfter: null },
      ] as const;
      for (const [i, fault] of faults.entries()) {
        control.setFault({ ...fault, endpoint: stock, times: 1, skip: 2 * i + 1 });
      }
      control.setFault({ kind: 'status', endpoint: 'product.batch', times: 2, skip: 1 });
      control.setFault({ kind: 'batch-refused', endpoint: 'product.batch', poison: [poison.sku] });

      const wanted = new Map<string, number>();
      const prices = new Map<number, number>();
      for (let round = 0; round < 4; round++) {
        const items: object[] = good.map(({ sku, subsidiaryId, externalId }) => {
          const qty = random.next() < 0.2 ? 0 : Math.floor(random.next() * 1_000);
          wanted.set(`${sku}@${subsidiaryId}`, qty);
          return { externalId, subsidiaryId, qty };
        });
        for (const { externalId, subsidiaryId } of unstocked)
          items.push({ externalId, subsidiaryId, qty: 3 });
        items.push({ externalId: 'nobody-knows-1', qty: 1 }, { externalId: 'nobody-knows-2', qty: 1 });
        items.push({ externalId: 'A-1001-1', qty: -1e300 }, { qty: 4 }, 'rubbish' as never);
        const { status, results } = await handOver('/v1/stock', items);
        expect(status).toBe(207);
        expect(results.filter(({ state }) => state === 'rejected')).toHaveLength(3);
        expect(results.slice(-3).map(({ state }) => state)).toEqual(['rejected', 'rejected', 'rejected']);
        const priced = [...new Set(good.map(({ sku }) => sku))].map((sku) => {
          const price = 100 + Math.floor(random.next() * 9_000);
          prices.set(sku, price);
          return { sku, price };
        });
        await handOver('/v1/products', [...priced, { sku: 999_999, price: 5 }]);
        await clock.sleep(3_000);
      }
      await idle();

      const different = [...wanted].filter(([key, qty]) => {
        const [sku, subsidiaryId = ''] = key.split('@');
        return control.stockOf(Number(sku), subsidiaryId) !== qty;
      });
      expect(different).toEqual([]);
      const priceOf = new Map(
        control.products().flatMap(({ children }) => children.map(({ sku, price }) => [sku, price] as const)),
      );
      expect([...prices].filter(([sku, price]) => sku !== poison.sku && priceOf.get(sku) !== price)).toEqual(
        [],
      );

      const bad = [
        ...unstocked.map(({ externalId, subsidiaryId }) => [
          externalId,
          subsidiaryId,
          'externalId has no subsidiary with associated stock',
        ]),
        ['nobody-knows-1', null, 'The platform knows no product with externalId nobody-knows-1.'],
        ['nobody-knows-2', null, 'The platform knows no product with externalId nobody-knows-2.'],
        [999_999, null, 'The platform knows no product with sku 999999.'],
        [poison.sku, null, expect.stringContaining('Bad Request')],
      ];
      const named = refused().map(([name, branch, message]) => [
        name,
        all.some(({ externalId, isStocked }) => externalId === name && !isStocked)
          ? (branch ?? 'sub-3')
          : null,
        message,
      ]);
      expect(named).toHaveLength(bad.length);
      expect(named).toEqual(expect.arrayContaining(bad));
      expect(control.faults().filter(({ kind }) => kind !== 'batch-refused')).toEqual([]);
      expect(control.violations()).toEqual([]);
      expect(control.deadRefreshUses()).toEqual([]);
      const alarms = daemon.services.mirror.health.raised().map(({ key }) => key);
      expect(alarms).toContain('outbox.rejected');
      const fresh = daemon.services.mirror.health
        .freshness()
        .find(({ subject }) => subject === 'outbox.push');
      expect(fresh?.state).toBe('ok');
    },
    limitMs(120_000),
  );

  it(
    'wait out a long outage, go out sold out first, and make no storm',
    async () => {
      await open(400, 60);
      const { control } = place.sandbox;
      const good = shelves().filter(({ isStocked }) => isStocked);
      const stockCalls = () => [
        ...control.calls('product.stock.batch'),
        ...control.calls('product.stock.put'),
      ];
      control.setFault({ kind: 'status', endpoint: 'product.stock.batch' });
      control.setFault({ kind: 'status', endpoint: 'product.stock.put' });
      const items = good.map(({ externalId, subsidiaryId }, i) => ({
        externalId,
        subsidiaryId,
        qty: i % 10 === 9 ? 0 : 7,
      }));
      const startMs = clock.monotonicMs();
      while (clock.monotonicMs() - startMs < 1_200_000) {
        await handOver('/v1/stock', items.slice(0, 900));
        await clock.sleep(60_000);
      }
      await handOver('/v1/stock', items);
      const duringOutage = stockCalls().length;
      expect(duringOutage).toBeGreaterThan(3);
      // Polls of orders succeed meanwhile, so a pause lasts about a tenth of the outage so far. Each try makes two
      // calls.
      expect(duringOutage).toBeLessThan(90);
      const fresh = () =>
        daemon.services.mirror.health.freshness().find(({ subject }) => subject === 'outbox.push');
      expect(fresh()?.state).toBe('failing');
      expect(daemon.services.outbox.counts().pending).toBeGreaterThan(900);

      control.clearFaults();
      const zeros = items.filter(({ qty }) => qty === 0).length;
      await until(
        'the sold-out ones are there',
        () => {
          const there = good.filter(
            ({ sku, subsidiaryId }, i) => i % 10 === 9 && control.stockOf(sku, subsidiaryId) === 0,
          );
          return there.length === zeros;
        },
        30_000,
      );
      const callsForZeros = stockCalls().length - duringOutage;
      // The first call after an outage is sent in three parts.
      expect(callsForZeros).toBeLessThanOrEqual(Math.ceil(zeros / 100) + 1 + 2);
      await idle();
      expect(stockCalls().length - duringOutage).toBeLessThanOrEqual(Math.ceil(items.length / 100) + 2 + 2);
      const different = good.filter(
        ({ sku, subsidiaryId }, i) => control.stockOf(sku, subsidiaryId) !== (i % 10 === 9 ? 0 : 7),
      );
      expect(different).toEqual([]);
      expect(control.violations()).toEqual([]);
      expect(fresh()?.state).toBe('ok');
    },
    limitMs(120_000),
  );

  it(
    'of products that nobody knows are rejected within minutes, at the price of one sweep',
    async () => {
      await open(300, 60);
      const { control } = place.sandbox;
      const unknown = Array.from({ length: 3_000 }, (_, i) => ({ externalId: `web-has-not-${i}`, qty: 1 }));
      const [first] = shelves().filter(({ isStocked }) => isStocked);
      if (!first) throw new Error('There are no products.');
      await clock.sleep(20 * 60_000);
      const listed = control.calls('product.list').length;
      const startMs = clock.monotonicMs();
      const { sku, subsidiaryId, externalId } = first;
      await handOver('/v1/stock', [...unknown, { externalId, subsidiaryId, qty: 77 }]);
      await until('the good one is there', () => control.stockOf(sku, subsidiaryId) === 77);
      await idle();
      expect(clock.monotonicMs() - startMs).toBeLessThan(limitMs(5 * 60_000));
      expect(daemon.services.outbox.counts().rejected).toBe(3_000);
      expect(control.calls('product.get').length).toBeLessThan(100);
      expect(control.calls('product.list').length - listed).toBeLessThan(20);
      await handOver('/v1/stock', unknown);
      await idle();
      expect(daemon.services.outbox.counts().rejected).toBe(3_000);
      expect(control.violations()).toEqual([]);
    },
    limitMs(120_000),
  );
});
