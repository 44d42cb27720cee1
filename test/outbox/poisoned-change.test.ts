import { describe, expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { PushFreshness, PushLoop } from '../../src/outbox/sending/push-loop.ts';
import { type MirrorStores, Stores } from '../../src/outbox/sending/repositories.ts';
import { readProduct } from '../../src/platform/schemas.ts';
import type { Transport, TransportAnswer } from '../../src/platform/transport.ts';
import { DEFAULT_BRANCHES } from '../../src/sandbox/catalog.ts';
import { rig, sandboxTransport } from '../platform/rig.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { tempMirror } from './outbox-fixture.ts';

type TransportRequest = Parameters<Transport['send']>[0];

const MINUTE_MS = 60_000;
const POISON = 666;

const isPoisoned = (request: TransportRequest) => String(request.body).includes(`"qty":${POISON}`);
const says = (status: number, body: string): TransportAnswer => ({
  status,
  headers: {},
  bytes: Buffer.from(body),
});

/**
 * Makes a sender of stocks on a mirror with the sandbox's catalogue. `meets` may return the answer of a proxy, so that
 * a call never reaches the platform.
 */
async function seller(meets: (request: TransportRequest) => TransportAnswer | undefined = () => undefined) {
  const { clock, sandbox, client } = await rig({ seed: { products: 240 } });
  const direct = sandboxTransport(sandbox, clock);
  const platform = client({
    transport: { ...direct, send: async (request) => meets(request) ?? direct.send(request) },
  });
  const db = tempMirror();
  const stores = new Stores(db, { branches: DEFAULT_BRANCHES, clock, guards: GUARDS_OFF });
  const records = sandbox.control.products().flatMap((product) => readProduct(product)?.record ?? []);
  for (const branch of DEFAULT_BRANCHES) {
    const mark = stores.catalog.readMark();
    stores.catalog.applyPage(branch, records, mark);
    const seen = new Set(records.map(({ id }) => id));
    stores.catalog.completeSweep({ branch, mark, startedAtMs: clock.nowMs(), pages: 1, seen });
  }
  const loop = new PushLoop({
    kind: 'stock',
    platform,
    clock,
    random: seededRandom(1),
    log: silentLog,
    beat() {},
    stores: {
      read: (action) => action(stores),
      write: async (action) => action(stores),
      writeDerived: async (action) => action(stores),
    } as MirrorStores,
    rules: { holdBack: false, skipUnchanged: false },
    hasBranches: true,
    lastPollOkMs: () => null,
    status: () => 'sends',
    freshness: new PushFreshness({ ok() {}, report() {} }),
    lingerMs: 250,
    lookEveryMs: MINUTE_MS,
  });
  const ending = new AbortController();
  const running = loop.run(ending.signal);
  onTestFinished(async () => {
    ending.abort();
    await clock.advance(MINUTE_MS);
    await running;
  });
  const skus = db
    .prepare<[], string>(
      "SELECT DISTINCT sku FROM integrations JOIN stocks USING (sku, subsidiary_id) WHERE subsidiary_id = 'sub-1'",
    )
    .pluck()
    .all();
  const count = (...changes: [sku: string | undefined, qty: number][]) => {
    const items = changes.map(([sku, qty]) => ({
      kind: 'stock' as const,
      change: { sku: String(sku), subsidiaryId: 'sub-1', qty },
    }));
    stores.intake.accept(items, { source: 'http', guards: GUARDS_OFF });
    loop.wake();
  };
  /** Returns the quantities of the changes in a state. */
  const counts = (state: string) =>
    db
      .prepare<[string], number>("SELECT json_extract(body, '$.qty') FROM outbox WHERE state = ?")
      .pluck()
      .all(state);
  const stockOf = (sku: string | undefined) => sandbox.control.stockOf(Number(sku), 'sub-1');
  return { clock, sandbox, skus, count, counts, stockOf };
}

describe('a change with which no call succeeds', () => {
  const keepsNothingBack = async (how: { status: number; bad: number[]; body: string }) => {
    const answer = says(how.status, how.body);
    const { clock, sandbox, skus, count, counts, stockOf } = await seller((request) =>
      isPoisoned(request) ? answer : undefined,
    );
    count(...skus.slice(0, 150).map((sku, i): [string, number] => [sku, how.bad.includes(i) ? POISON : 7]));
    await clock.advance(10_000);
    count([skus[150], 0]);
    await clock.advance(2 * MINUTE_MS);
    expect(stockOf(skus[150])).toBe(0);
    const others = skus.slice(0, 150).filter((_, i) => !how.bad.includes(i));
    expect(others.filter((sku) => stockOf(sku) !== 7)).toEqual([]);
    for (let qty = 11; qty <= 18; qty++) {
      count([skus[151], qty]);
      await clock.advance(15_000);
      expect(stockOf(skus[151])).toBe(qty);
      await clock.advance(10 * MINUTE_MS);
    }
    expect(counts('rejected')).toEqual(how.bad.map(() => POISON));
    expect(counts('pending')).toEqual([]);
    expect(sandbox.control.violations()).toEqual([]);
  };
  const TITLE = 'keeps nothing else from arriving, and is rejected at last ($status, $bad)';
  it.each([{ status: 400, bad: [0, 1, 2, 99], body: '{"message":"Bad Request"}' }])(TITLE, keepsNothingBack);
  it.each([
    { status: 500, bad: [40], body: 'Internal Server Error' },
    { status: 500, bad: [0, 1, 2, 149], body: '{"message":"Internal Server Error"}' },
    { status: 400, bad: [0, 1, 2], body: '{"message":"Bad Request"}' },
    { status: 406, bad: [40], body: '<html>A firewall does not like it.</html>' },
  ])(TITLE, { tags: ['bulk'] }, keepsNothingBack);

  it('is not looked for in an outage: all stay, however long, and the platform is asked seldom', async () => {
    const { clock, skus, count, counts, sandbox } = await seller();
    const { control } = sandbox;
    control.setFault({ kind: 'status', endpoint: 'product.stock.batch' });
    control.setFault({ kind: 'status', endpoint: 'product.stock.put' });
    const calls = () =>
      control.calls('product.stock.batch').length + control.calls('product.stock.put').length;
    count(...skus.slice(0, 20).map((sku): [string, number] => [sku, 7]));
    for (let i = 1; i <= 6; i++) {
      count([skus[20], i], [skus[20 + i], 0]);
      await clock.advance(15 * MINUTE_MS);
    }
    expect(calls()).toBeLessThan(75);
    expect([counts('pending').length, counts('rejected').length]).toEqual([27, 0]);
    control.clearFaults();
    await clock.advance(10 * MINUTE_MS);
    expect([counts('done').length, counts('rejected').length]).toEqual([27, 0]);
    expect(control.violations()).toEqual([]);
  });
});

it('a lone change waits while a proxy says that the platform is not there, and arrives', async () => {
  let isAway = true;
  const { clock, skus, count, counts, stockOf } = await seller((request) =>
    isAway && request.method === 'PUT' ? says(404, 'default backend - 404') : undefined,
  );
  count([skus[0], 0]);
  await clock.advance(MINUTE_MS);
  expect(counts('pending')).toEqual([0]);
  isAway = false;
  await clock.advance(MINUTE_MS);
  expect(counts('done')).toEqual([0]);
  expect(stockOf(skus[0])).toBe(0);
});
