import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { ORDER_STATUSES, type OrderReading, type OrderSource } from '../../src/orders/merging/order.ts';
import { readOrderText } from '../../src/orders/merging/order-reader.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { getReceived, listReceived } from '../../src/orders/reading/order-queries.ts';
import { replayOrder } from '../../src/orders/receiving/replay.ts';
import {
  heldNotifications,
  OBSERVED_MS,
  observation,
  openTestMirror,
  sampleNotification,
} from './open-test-mirror.ts';

const ID = String(sampleNotification(1).internalOrderId);
const plain = compileSpellings();
const withNote = compileSpellings({ customerEmail: ['clientMail'], addressDetails: ['doorNote'] });
const at = (minute: number) => OBSERVED_MS + minute * 60_000;

function keep(mirror: Mirror, source: OrderSource, minute: number, sent: Record<string, unknown>) {
  return mirror.save([
    { kind: 'order', observation: observation(source, sent, { observedAtMs: at(minute) }) },
  ]);
}

const received = (mirror: Mirror) =>
  mirror.read((db) => listReceived(db, {}, { limit: 99, quarantinedOnly: false }));
const replayed = (mirror: Mirror, spellings = plain) =>
  mirror.write((db) => replayOrder(db, ID, { spellings }));
const found = (source: OrderSource, minute: number, sent: Record<string, unknown>) => {
  const raw = JSON.stringify(sent);
  const reading = readOrderText(raw, plain) as OrderReading;
  return { source, raw, reading, receivedAt: new Date(at(minute)).toISOString() };
};

describe('what was received', () => {
  it('is kept once: the newest with its order, the others beside it', async () => {
    const { mirror } = openTestMirror();
    await keep(mirror, 'webhook', 0, sampleNotification(1));
    expect(received(mirror).map(({ id, state }) => [id, state])).toEqual([['o1', 'newest']]);
    await keep(mirror, 'webhook', 1, sampleNotification(1, { status: 'ready' }));
    const again = sampleNotification(1, { status: 'ready', sentBy: 'retry' });
    for (const minute of [2, 3]) await keep(mirror, 'webhook', minute, again);
    await keep(mirror, 'poll', 4, sampleNotification(1, { status: 'dispatched', polled: true }));
    for (const minute of [5, 6]) {
      await keep(mirror, 'webhook', minute, sampleNotification(1, { status: 'dispatched' }));
    }
    await keep(mirror, 'webhook', 7, sampleNotification(1, { status: 'pending' }));
    const list = received(mirror);
    expect(list.map(({ id, source, status, state }) => [id, source, status, state])).toEqual([
      ['h1', 'webhook', 'pending', 'held'],
      ['p4', 'webhook', null, 'earlier'],
      ['o3', 'poll', 'dispatched', 'newest'],
      ['p3', 'webhook', null, 'earlier'],
      ['p2', 'webhook', 'ready', 'earlier'],
      ['p1', 'webhook', 'pending', 'earlier'],
    ]);
    expect(list.map(({ receivedAt }) => receivedAt)).toEqual(
      [7, 5, 4, 2, 1, 0].map((minute) => new Date(at(minute)).toISOString()),
    );
    expect(mirror.read((db) => getReceived(db, 'p3'))?.payload).toBe(JSON.stringify(again));
    for (const id of ['p9', 'x1', 'o2', 'p']) {
      expect(
        mirror.read((db) => getReceived(db, id)),
        id,
      ).toBeUndefined();
    }
  });
});

describe('a replay', () => {
  it('brings what has a name now, also from earlier payloads, with one event of the time it came', async () => {
    const { mirror } = openTestMirror();
    await keep(mirror, 'webhook', 0, {
      ...sampleNotification(1),
      clientMail: 'old@x',
      doorNote: 'ring twice',
    });
    await keep(mirror, 'webhook', 1, {
      ...sampleNotification(1, { status: 'ready', address: undefined }),
      clientMail: 'new@x',
    });
    const preview = mirror.read((db) => replayOrder(db, ID, { spellings: withNote, dryRun: true }));
    expect(preview).toMatchObject({
      outcome: 'changed',
      payloads: 2,
      fields: [
        { field: 'addressDetails', before: 'depto 12', after: 'ring twice' },
        { field: 'customerEmail', before: 'ana@example.com', after: 'new@x' },
      ],
    });
    expect(mirror.orders.newestSeq()).toBe(2);
    expect(await replayed(mirror, withNote)).toEqual(preview);
    expect(mirror.orders.eventsAfter(2, 9)).toMatchObject([
      { seq: 3, status: 'ready', previousStatus: 'ready', observedAt: new Date(at(1)).toISOString() },
    ]);
    expect(mirror.orders.get(ID)).toMatchObject({ customerEmail: 'new@x', addressDetails: 'ring twice' });
    const before = received(mirror);
    expect(await replayed(mirror, withNote)).toMatchObject({ outcome: 'unchanged', fields: [] });
    expect(mirror.orders.newestSeq()).toBe(3);
    expect(received(mirror)).toEqual(before);
  });

  it('keeps what a poll brought, when a later poll of the same order says less', async () => {
    const { mirror } = openTestMirror();
    await keep(mirror, 'webhook', 0, sampleNotification(1));
    const edited = { internalOrderId: ID, status: 'pending', amountToPay: 7, items: [] };
    await keep(mirror, 'poll', 1, edited);
    for (const minute of [2, 3]) await keep(mirror, 'poll', minute, { _id: ID, status: 'pending', minute });
    expect(received(mirror).map(({ id, source, state }) => [id, source, state])).toEqual([
      ['o2', 'poll', 'newest'],
      ['p2', 'poll', 'earlier'],
      ['p1', 'webhook', 'earlier'],
    ]);
    expect(await replayed(mirror)).toMatchObject({ outcome: 'unchanged', fields: [] });
    expect(mirror.orders.get(ID)?.amountToPay).toBe(7);
  });

  it('leaves alone what by these rules is another order, or none', async () => {
    const { mirror } = openTestMirror();
    await keep(mirror, 'webhook', 0, sampleNotification(1));
    const spellings = compileSpellings({ orderId: ['websiteId'] });
    expect(await replayed(mirror, spellings)).toMatchObject({ outcome: 'unchanged', unreadable: 1 });
    expect(mirror.orders.newestSeq()).toBe(1);
  });

  it('puts a found payload where it belongs in time: older values never win, and it is kept', async () => {
    const { mirror } = openTestMirror();
    await keep(
      mirror,
      'webhook',
      5,
      sampleNotification(1, { status: 'ready', amount: 2, couponDiscount: undefined }),
    );
    const older = found('webhook', 1, sampleNotification(1, { amount: 1, couponDiscount: 77 }));
    const result = await mirror.write((db) => replayOrder(db, ID, { spellings: plain, found: [older] }));
    expect(result).toMatchObject({ outcome: 'changed', fields: [{ field: 'couponDiscount', after: 77 }] });
    expect(mirror.orders.get(ID)).toMatchObject({ status: 'ready', amount: 2, couponDiscount: 77 });
    expect(received(mirror).map(({ id }) => id)).toEqual(['o2', 'p1']);
    expect(await replayed(mirror)).toMatchObject({ outcome: 'unchanged', payloads: 2 });
  });

  it('creates an order from a found payload, and holds a webhook that would take one back', async () => {
    const { mirror } = openTestMirror();
    const first = found('webhook', 1, sampleNotification(1, { status: 'ready' }));
    const options = { spellings: plain, found: [first] };
    expect(await mirror.write((db) => replayOrder(db, ID, options))).toMatchObject({
      outcome: 'created',
    });
    const back = found('webhook', 2, sampleNotification(1, { status: 'pending', amount: 3 }));
    const report = await mirror.write((db) => replayOrder(db, ID, { spellings: plain, found: [back] }));
    expect(report).toMatchObject({ outcome: 'unchanged', held: 1 });
    expect(mirror.orders.get(ID)).toMatchObject({ status: 'ready', amount: 12990 });
    expect(heldNotifications(mirror)).toMatchObject([{ status: 'pending', resolvedAt: null }]);
    await replayed(mirror);
    expect(heldNotifications(mirror)).toMatchObject([{ resolvedAt: null }]);
  });

  const sighting = fc.record({
    source: fc.constantFrom<OrderSource>('webhook', 'poll'),
    status: fc.constantFrom(...ORDER_STATUSES),
    amount: fc.integer({ min: 1, max: 3 }),
    items: fc.constantFrom(undefined, []),
    noise: fc.integer({ min: 1, max: 3 }),
  });

  it('by the rules that held changes nothing, whatever came; by others it never takes an order back', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(sighting, { minLength: 1, maxLength: 12 }), async (sightings) => {
        const { mirror } = openTestMirror();
        for (const [minute, { source, noise, ...changes }] of sightings.entries()) {
          await keep(mirror, source, minute, sampleNotification(1, { ...changes, noise }));
        }
        const seq = mirror.orders.newestSeq();
        const order = mirror.orders.get(ID);
        expect(await replayed(mirror)).toMatchObject({ outcome: 'unchanged', unreadable: 0 });
        expect(mirror.orders.newestSeq()).toBe(seq);
        const other = compileSpellings({ couponDiscount: ['noise'] });
        await replayed(mirror, other);
        expect(mirror.orders.get(ID)).toMatchObject({ status: order?.status, amount: order?.amount });
        expect(await replayed(mirror, other)).toMatchObject({ outcome: 'unchanged' });
        await mirror.close();
      }),
      { numRuns: Number(process.env.TILLSYNC_RUNS ?? 6) },
    );
  });
});
