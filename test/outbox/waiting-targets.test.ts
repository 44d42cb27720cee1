import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { isoUtc } from '../../src/core/time.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import type { SubmittedChange } from '../../src/outbox/intake/change.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { WAITING_MAX } from '../../src/outbox/sending/call-plan.ts';
import { OutboxService } from '../../src/outbox/sending/outbox.ts';
import { ProductReads } from '../../src/outbox/sending/product-reads.ts';
import type { PushLoop } from '../../src/outbox/sending/push-loop.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import { observation, sampleNotification } from '../orders/open-test-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { BRANCHES, product, pushLoop } from './outbox-fixture.ts';
import { fillLine } from './waiting-line.ts';

const COFFEE = product('p1', 'Coffee', [{ sku: '1', stocks: { s1: ['C', 50], s2: ['C', 50] } }]);
const TEA = product('p2', 'Tea', [{ sku: '2', stocks: { s1: ['T', 50] } }]);

let directory: string;
let clock: FakeClock;
let mirror: Mirror;
let stores: MirrorStores;
let outbox: OutboxService;
let senders: Record<'stock' | 'product', PushLoop>;

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-targets-'));
  clock = new FakeClock();
  mirror = openMirror({ path: freshMirror(directory), clock });
  stores = new MirrorStores({ mirror, branches: BRANCHES, clock });
  outbox = new OutboxService({ stores, guards: GUARDS_OFF, holdBack: false });
  polledMs = clock.nowMs();
  const sender = (kind: 'stock' | 'product') => pushLoop(kind, stores, clock, {}, () => polledMs);
  senders = { stock: sender('stock'), product: sender('product') };
});
afterEach(async () => {
  await mirror.close();
  rmSync(directory, { recursive: true, force: true });
});

let polledMs: number | null;
const stock = (externalId: string, qty: number, more: object = {}): SubmittedChange => ({
  kind: 'stock',
  change: { externalId, qty, ...more },
});
const page = (...records: (typeof COFFEE)[]) =>
  stores.write(({ catalog }) => catalog.applyPage(BRANCHES[0]!, records, catalog.readMark()));

async function sweep(...records: (typeof COFFEE)[]): Promise<void> {
  for (const branch of BRANCHES) {
    const startedAtMs = clock.nowMs();
    await clock.advance(10);
    await stores.write(({ catalog }) => {
      const mark = catalog.readMark();
      catalog.applyPage(branch, records, mark);
      const seen = new Set(records.map(({ id }) => id));
      catalog.completeSweep({ branch, mark, startedAtMs, pages: 1, seen });
    });
  }
}

/** Sends the queued changes; returns the quantities that the platform has in the end. */
async function send(sent = new Map<string, number>()): Promise<Map<string, number>> {
  for (;;) {
    const { callId, items } = await senders.stock.claim(100);
    if (callId === null) return sent;
    for (const { body } of items) {
      if ('qty' in body) sent.set(`${body.externalId}@${body.subsidiaryId ?? ''}`, body.qty);
    }
    await senders.stock.settle(
      callId,
      items.map(({ changeId }) => ({ changeId, state: 'done' as const })),
    );
  }
}

describe('a change that was handed over before the catalogue was known', () => {
  it('joins a newer one for the same stock before either is sent', async () => {
    await outbox.submit([stock('C', 5, { subsidiaryId: 's2' }), stock('T', 6)], 'http');
    await page(COFFEE, TEA);
    expect(await send()).toEqual(new Map());
    await outbox.submit([stock('C', 0, { subsidiaryId: 's2' })], 'http');
    await sweep(COFFEE, TEA);
    const [claim] = [await senders.stock.claim(100)];
    expect(claim.items.map(({ body }) => body)).toEqual([
      { externalId: 'C', subsidiaryId: 's2', qty: 0 },
      { externalId: 'T', qty: 6 },
    ]);
  });

  it('never arrives after a newer one that was sent meanwhile', async () => {
    await outbox.submit([stock('C', 5, { subsidiaryId: 's2' })], 'http');
    await page(COFFEE, TEA);
    await outbox.submit([stock('C', 3, { subsidiaryId: 's2' })], 'http');
    const sent = await send();
    expect(sent).toEqual(new Map([['C@s2', 3]]));
    await sweep(COFFEE, TEA);
    expect(await send(sent)).toEqual(new Map([['C@s2', 3]]));
    expect(outbox.get(1)).toMatchObject({ state: 'superseded', supersededBy: 2 });
  });

  it('still brings the fields that no newer one has', async () => {
    await outbox.submit(
      [{ kind: 'product', change: { externalId: 'C', name: 'Espresso', price: 900 } }],
      'http',
    );
    await page(COFFEE);
    await outbox.submit([{ kind: 'product', change: { sku: '1', price: 950 } }], 'http');
    const first = await senders.product.claim(100);
    expect(first.items.map(({ body }) => body)).toEqual([{ sku: 1, price: 950 }]);
    await senders.product.settle(first.callId ?? 0, [{ changeId: 2, state: 'done' }]);
    await sweep(COFFEE);
    const second = await senders.product.claim(100);
    expect(second.items.map(({ body }) => body)).toEqual([{ sku: 1, name: 'Espresso' }]);
  });

  it('finds its target though there are thousands of them', async () => {
    const many = Array.from({ length: 1_200 }, (_, i) => stock(`N${i}`, 1));
    await outbox.submitMany([...many, stock('C', 5, { subsidiaryId: 's1' })], 'http');
    await sweep(COFFEE);
    const { items } = await senders.stock.claim(100);
    expect(items).toHaveLength(100);
    // The stock's branch takes turns with changes that name no branch.
    expect(outbox.get(1_201)).toMatchObject({ target: 'sku:1@s1', state: 'sending' });
  });
});

describe('a count that must not leave by its own words, from before the catalogue was known', () => {
  const holdBack = true;
  const named = [stock('C', 3, { subsidiaryExternalId: 'B9' })];

  it('is rejected once it is known that nobody can tell its branch', async () => {
    const sender = pushLoop('stock', stores, clock, { holdBack });
    const [count] = await new OutboxService({ stores, guards: GUARDS_OFF, holdBack }).submit(named, 'inbox');
    expect(count).toMatchObject({ state: 'pending' });
    await sender.claim(100);
    await sweep(COFFEE);
    await sender.claim(100);
    expect(outbox.get(count!.changeId)).toMatchObject({ state: 'rejected' });
    expect(sender.outlook().waiting).toBe(0);
  });

  it('is asked for where no branch is configured', async () => {
    stores = new MirrorStores({ mirror, branches: [], clock });
    await new OutboxService({ stores, guards: GUARDS_OFF, holdBack: false }).submit(named, 'inbox');
    const sender = pushLoop('stock', stores, clock, { holdBack }, undefined, { hasBranches: false });
    await sender.claim(100);
    expect(stores.read(({ admin }) => admin.countUnresolved('needs-read'))).toBe(1);
  });
});

describe('changes of products that the mirror does not know', () => {
  const unresolved = (readsCatalog = true) =>
    new ProductReads({
      stores,
      clock,
      onQueued() {},
      platform: { productGet: () => Promise.reject(new Error('not asked')) },
      wantCatalog: readsCatalog ? () => {} : undefined,
    });
  const states = (...ids: number[]) => ids.map((changeId) => outbox.get(changeId)?.state);

  it('are not asked for when the mirror has learned of them meanwhile', async () => {
    await sweep(COFFEE);
    await outbox.submit([stock('T', 6), stock('X', 7)], 'http');
    const changes = unresolved();
    expect(await changes.next(new Set())).toEqual({ changeId: 1, query: { externalId: 'T' } });
    await page(TEA);
    expect(await changes.next(new Set())).toEqual({ changeId: 2, query: { externalId: 'X' } });
    expect(outbox.get(1)).toMatchObject({ target: 'sku:2@s1', state: 'pending' });
    await changes.resolved(2, null, { push: 0, orderSeq: 0 });
    expect(states(1, 2)).toEqual(['pending', 'rejected']);
    expect(changes.count()).toBe(0);
    expect(await changes.next(new Set())).toBeUndefined();
  });

  it('are judged by a young reading of the catalogue, and wait for a new one otherwise', async () => {
    await sweep(COFFEE);
    await outbox.submit([stock('X1', 1), stock('C', 2, { subsidiaryId: 's1' })], 'http');
    const changes = unresolved();
    expect(await changes.judgeByCatalog()).toBe(true);
    expect(outbox.get(1)).toMatchObject({
      state: 'rejected',
      message: 'No configured branch lists a product with externalId X1.',
    });
    await clock.advance(3_600_000);
    await outbox.submit([stock('X2', 1), stock('T', 4)], 'http');
    expect(await changes.judgeByCatalog()).toBe(false);
    expect(states(3, 4)).toEqual(['pending', 'pending']);
    await sweep(COFFEE, TEA);
    expect(await changes.judgeByCatalog()).toBe(true);
    expect(states(3, 4)).toEqual(['rejected', 'pending']);
    expect(outbox.get(4)?.target).toBe('sku:2@s1');
  });

  it('are not judged by a reading of a clock that was ahead', async () => {
    const aheadMs = 60 * 86_400_000;
    clock.jumpWall(aheadMs);
    await sweep(COFFEE);
    clock.jumpWall(-aheadMs);
    await outbox.submit([stock('T', 4)], 'http');
    const changes = unresolved();
    expect(await changes.judgeByCatalog()).toBe(false);
    expect(states(1)).toEqual(['pending']);
    await sweep(COFFEE, TEA);
    expect(await changes.judgeByCatalog()).toBe(true);
    expect(outbox.get(1)?.target).toBe('sku:2@s1');
  });

  it('are asked for once the catalogue is whole, where they were handed over before', async () => {
    await outbox.submit([stock('X1', 1)], 'http');
    const changes = unresolved();
    expect(changes.count()).toBe(0);
    const sender = pushLoop('stock', stores, clock, { holdBack: true });
    expect(sender.outlook().waiting).toBe(0);
    await sweep(COFFEE);
    expect(sender.outlook().waiting).toBe(1);
    expect(await sender.claim(100)).toMatchObject({ callId: null, items: [] });
    expect(sender.outlook().waiting).toBe(0);
    expect(changes.count()).toBe(1);
    expect(await changes.next(new Set())).toEqual({ changeId: 1, query: { externalId: 'X1' } });
    await changes.resolved(1, null, { push: 0, orderSeq: 0 });
    expect(states(1)).toEqual(['rejected']);
  });

  it('are judged by what there is where nobody reads the catalogue', async () => {
    await sweep(COFFEE);
    await clock.advance(3_600_000);
    await outbox.submit([stock('X2', 1)], 'http');
    expect(await unresolved(false).judgeByCatalog()).toBe(true);
    expect(states(1)).toEqual(['rejected']);
  });
});

describe('a count under way while its order is booked', () => {
  it('is corrected as soon as the call is settled', async () => {
    const holding = new OutboxService({ stores, guards: GUARDS_OFF, holdBack: true });
    const sender = pushLoop('stock', stores, clock, { holdBack: true }, () => polledMs);
    await sweep(COFFEE);
    const { reading } = observation('webhook', {
      ...sampleNotification(1, { store: { externalId: BRANCHES[0]?.externalId } }),
      items: [{ product: { externalId: 'C', name: 'Coffee' }, amount: 3 }],
    });
    await mirror.save([
      {
        kind: 'order',
        observation: { source: 'webhook', observedAtMs: clock.nowMs(), raw: '{}', reading },
      },
    ]);
    await holding.submit([stock('C', 20, { subsidiaryId: 's1' })], 'http');
    const { callId, items } = await sender.claim(100);
    expect(items.map(({ body }) => body)).toMatchObject([{ qty: 17 }]);
    await holding.acknowledge([reading.orderId], 'http');
    // The acknowledgement takes effect once the inbox has no older rows.
    await stores.write(({ intake }) => intake.inboxWasEmpty(isoUtc(clock.nowMs())));
    await sender.settle(
      callId ?? 0,
      items.map(({ changeId }) => ({ changeId, state: 'done' as const })),
    );
    expect(sender.outlook().waiting).toBe(1);
    expect((await sender.claim(100)).items).toMatchObject([{ body: { qty: 20 } }]);
  });
});

describe('a count that says what the mirror has', () => {
  it('is sent all the same while orders may have come of which the mirror has not heard', async () => {
    await sweep(COFFEE);
    await clock.advance(1_000);
    await outbox.submit([stock('C', 50, { subsidiaryId: 's1' })], 'inbox');
    expect(await send()).toEqual(new Map());
    polledMs = clock.nowMs() - 86_400_000;
    await outbox.submit([stock('C', 50, { subsidiaryId: 's2' })], 'inbox');
    expect(await send()).toEqual(new Map([['C@s2', 50]]));
    polledMs = null;
    await outbox.submit([stock('C', 50, { subsidiaryId: 's1' })], 'inbox');
    expect(await send()).toEqual(new Map([['C@s1', 50]]));
  });
});

it('many changes go into a full line part by part, as those before them leave', async () => {
  await sweep(COFFEE);
  await stores.write(({ db }) => fillLine(db, 's1', WAITING_MAX - 500));
  const many = Array.from({ length: 1_200 }, (_, i) => stock(`N${i}`, 1, { subsidiaryId: 's1' }));
  await stores.write(({ db }) => db.prepare('DELETE FROM _sweeps').run());
  await expect(outbox.submitMany(many, 'cli')).rejects.toMatchObject({ code: 'rate-limited' });
  const made: number[] = [];
  const accepted = await outbox.submitMany(many, 'cli', {
    makeRoom: async (_full, taken) => {
      made.push(taken.length);
      const ids = taken.map(({ changeId }) => changeId).join();
      await stores.write(({ db }) =>
        db.exec(`UPDATE _outbox SET state = 'done', settled_at = created_at WHERE change_id IN (${ids})`),
      );
    },
  });
  expect(accepted).toHaveLength(1_200);
  expect(made).toEqual([500, 500]);
});

it('a count handed over while a long inventory waits for room stays, and orders of that time count', async () => {
  await sweep(COFFEE);
  await stores.write(({ db }) => fillLine(db, 's1', WAITING_MAX - 600));
  await stores.write(({ db }) => db.prepare('DELETE FROM _sweeps').run());
  const inventory = Array.from({ length: 1_100 }, (_, i) => stock(`N${i}`, 10, { subsidiaryId: 's1' }));
  const again = [stock('N0', 12, { subsidiaryId: 's1' }), stock('N1', 12, { subsidiaryId: 's1' })];
  let waits = 0;
  await outbox.submitMany([...inventory, ...again], 'cli', {
    makeRoom: async (_full, taken) => {
      const ids = taken.map(({ changeId }) => changeId).join();
      await stores.write(({ db }) =>
        db.exec(`UPDATE _outbox SET state = 'done', settled_at = created_at WHERE change_id IN (${ids})`),
      );
      waits += 1;
      if (waits > 1) return;
      const { reading } = observation('webhook', sampleNotification(1));
      const order = { source: 'webhook', observedAtMs: clock.nowMs(), raw: '{}', reading } as const;
      await mirror.save([{ kind: 'order', observation: order }]);
      const counted = ['N0', 'N1050', 'N1051'].map((id) => stock(id, 4, { subsidiaryId: 's1' }));
      const [first, sent] = await outbox.submit(counted, 'http');
      await stores.write(({ db }) =>
        db.exec(
          `UPDATE _outbox SET state = 'done', settled_at = created_at WHERE change_id IN (${first!.changeId}, ${sent!.changeId})`,
        ),
      );
    },
  });
  expect(waits).toBe(2);
  const waiting = stores.read(({ db }) =>
    db
      .prepare<[], { id: string; qty: number; asOfSeq: number }>(
        `SELECT body ->> 'externalId' AS id, body ->> 'qty' AS qty, as_of_seq AS asOfSeq FROM _outbox
         WHERE state = 'pending' AND body ->> 'externalId' IN ('N0', 'N1', 'N1049', 'N1050', 'N1051') ORDER BY 1`,
      )
      .all(),
  );
  // The inventory's own earlier line of N1 does not outlast its later one.
  expect(waiting).toEqual([
    { id: 'N1', qty: 12, asOfSeq: 0 },
    { id: 'N1049', qty: 10, asOfSeq: 0 },
    { id: 'N1051', qty: 4, asOfSeq: 1 },
  ]);
});
