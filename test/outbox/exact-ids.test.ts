import fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseLossless } from '../../src/core/values.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { readOrderText } from '../../src/orders/merging/order-reader.ts';
import { mergeOrder } from '../../src/orders/merging/order-rows.ts';
import { readChangeFile } from '../../src/outbox/intake/change-file.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { readProduct } from '../../src/platform/schemas.ts';
import { eventReceiver, hook } from '../hooks/event-receiver.ts';
import { settle } from '../support/fake-clock.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { runsOf } from '../support/seed.ts';
import { storeRig } from '../support/store-rig.ts';
import { outgoing, SEND_ALL, tempMirror } from './outbox-fixture.ts';
import { pos, tempInbox } from './temp-inbox.ts';

const SPELLINGS = compileSpellings();
const BRANCH = [{ subsidiaryId: '0001', externalId: 'Ñ-01' }];

/** Ids that lose something wherever a way takes a text for a number, a word or another spelling. */
const tricky = fc.constantFrom(
  ...['0042', '42', '42.0', '+42', '-0', '1e5', '1E5', '0x10', '0b1', '.5', '1_000', '1,5', '1.990', '1 000'],
  ...[
    '9007199254740993',
    '12345678901234567890',
    '00000000000000000000',
    'NaN',
    'Infinity',
    'null',
    'true',
    'undefined',
  ],
  ...[
    'abc-7',
    'ABC-7',
    'Abc-7',
    'ñ',
    'n\u0303',
    'É',
    'ß',
    'İ',
    'a  b',
    "O'Brien",
    '"x"',
    'a""b',
    'a,b',
    'a;b',
    'a\tb',
  ],
  ...[
    'a\nb',
    'a\r\nb',
    '\\',
    '%',
    '%41',
    '__proto__',
    'constructor',
    '[]',
    '{}',
    '=1+1',
    '😀',
    '\u200b7',
    '2026-11-28',
  ],
);
const id = fc
  .oneof(
    tricky,
    fc.string({ unit: 'grapheme', minLength: 1, maxLength: 20 }),
    fc.bigInt({ min: 0n, max: 10n ** 25n }).map(String),
  )
  .filter((text) => text.trim() === text && text !== '' && text.isWellFormed() && !/[\0\uFFFD]/.test(text));

const encode = (text: string) => [new TextEncoder().encode(text)];
/** A whole number may come without quotes; one with zeros in front is no JSON number. */
const jsonOf = (text: string, isBare: boolean) =>
  isBare && /^(0|[1-9]\d*)$/.test(text) ? text : JSON.stringify(text);
const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`;

it('loses no digit, blank, case or sign of an id from the platform to the mirror and back', () => {
  const db = tempMirror();
  db.pragma('synchronous = OFF');
  fc.assert(
    fc.property(id, id, id, fc.boolean(), (orderId, externalId, sku, isBare) => {
      db.exec(
        'DELETE FROM _orders; DELETE FROM order_items; DELETE FROM _outbox; DELETE FROM _branch_products',
      );
      db.exec('DELETE FROM integrations; DELETE FROM _stocks; DELETE FROM _skus; DELETE FROM _products');
      const json = (text: string) => jsonOf(text, isBare);
      const sent = `{"internalOrderId": ${json(orderId)}, "status": "ready", "store": {"externalId": ${json(externalId)}},
        "items": [{"amount": 1, "product": {"externalId": ${json(externalId)}}}]}`;
      const reading = readOrderText(sent, SPELLINGS);
      if ('unreadable' in reading) throw new Error(reading.unreadable);
      mergeOrder(db, { source: 'webhook', observedAtMs: 0, raw: sent, reading }, SPELLINGS, null);
      const told =
        'SELECT order_id, store_external_id, product_external_id FROM orders JOIN order_items USING (order_id)';
      expect(db.prepare(told).raw().all()).toEqual([[orderId, externalId, externalId]]);

      const listed =
        parseLossless(`{"id": ${json(orderId)}, "name": "Tea", "children": [{"sku": ${json(sku)}, "price": 1,
        "stocks": [{"subsidiaryId": "0001", "qty": 5}], "integrations": [
          {"subsidiaryId": "0001", "productIdPosA": ${json(sku)}, "extId": ${json(externalId)}}]}]}`);
      const out = outgoing(db, BRANCH);
      const record = readProduct(listed)?.record;
      if (!record) throw new Error('No product.');
      out.sweep([record]);
      const mirrored =
        'SELECT s.product_id, sku, product_id_pos_a, ext_id FROM skus s JOIN integrations USING (sku)';
      expect(db.prepare(mirrored).raw().all()).toEqual([[orderId, sku, sku, externalId]]);

      out.accept('stock', [{ externalId, qty: 3, subsidiaryExternalId: 'Ñ-01' }]);
      const { items } = out.dispatcher.claim('stock', 9, SEND_ALL);
      expect(items.map(({ body }) => body)).toEqual([{ externalId, subsidiaryId: '0001', qty: 3 }]);
      expect(out.reservations.acknowledge([orderId], 'http')).toMatchObject([{ orderId, state: 'new' }]);
      expect(db.prepare('SELECT order_id FROM order_acks').pluck().all()).toEqual([orderId]);
      db.exec('DELETE FROM _order_acks; DELETE FROM _stock_counts');
    }),
    { numRuns: runsOf(400) },
  );
});

it('reads the same id in a file of CSV, JSON and NDJSON', async () => {
  await fc.assert(
    fc.asyncProperty(id, id, async (externalId, branch) => {
      const change = { externalId, qty: 3, subsidiaryExternalId: branch };
      const files = {
        csv: `externalId,qty,subsidiaryExternalId\n${quoted(externalId)},3,${quoted(branch)}\n`,
        json: JSON.stringify([change]),
        ndjson: `${JSON.stringify(change)}\n`,
      } as const;
      for (const [format, text] of Object.entries(files)) {
        const read = [];
        const options = { format: format as keyof typeof files };
        for await (const batch of readChangeFile(encode(text), 'stock', options)) read.push(...batch);
        // A spreadsheet writes 1e5 for 100000, so a CSV file with it is refused by name.
        const isDoubtful =
          format === 'csv' && [externalId, branch].some((each) => /^\d+(\.\d+)?e[+-]?\d+$/i.test(each));
        expect([format, read]).toMatchObject([format, [isDoubtful ? { fault: {} } : { change }]]);
      }
    }),
    { numRuns: runsOf(200) },
  );
});

it('takes the same ids by SQL, of counts and of acknowledgements', () => {
  const { path, inbox } = tempInbox();
  const db = pos(path);
  const out = outgoing();
  fc.assert(
    fc.property(id, id, id, (externalId, branch, orderId) => {
      const insert = 'INSERT INTO stock_changes (external_id, qty, subsidiary_external_id) VALUES (?, 3, ?)';
      db.prepare(insert).run(externalId, branch);
      db.prepare('INSERT INTO order_acks (order_id) VALUES (?)').run(orderId);
      const batch = inbox.read();
      const { acks } = out.inbox.ingest(batch, GUARDS_OFF);
      inbox.remove([...batch.changes, ...batch.acks]);
      const [taken] = out.queries.list({ limit: 1 });
      expect(taken?.body).toEqual({ externalId, qty: 3, subsidiaryExternalId: branch });
      expect(acks.map((each) => each.orderId)).toEqual([orderId]);
    }),
    { numRuns: runsOf(100) },
  );
});

it('takes no blank around the store of a sign of life for a part of its name', () => {
  const { path, inbox } = tempInbox();
  const insert = pos(path).prepare('INSERT INTO pos_alive (store_external_id) VALUES (?)');
  for (const store of ['B1   ', ' B1', 7n, null]) insert.run(store);
  expect(inbox.read().alive.map(({ store }) => store)).toEqual(['B1', 'B1', '7', '']);
});

/** An event of an order, as the feed, the stream and hooks have it. */
interface IdsTold {
  event?: string;
  orderId: string;
  order: { orderId: string; storeExternalId: string; items: { productExternalId: string }[] };
}

it('tells the same ids over HTTP: in the feed, among the orders to book, in the stream and to hooks', async () => {
  const receiver = await eventReceiver();
  const events = ['order', 'order.prepare', 'change.rejected'] as const;
  const rig = storeRig({
    config: (config) => ({ ...config, hooks: [hook('pos', { url: receiver.url, events: [...events] })] }),
  });
  const daemon = await rig.daemon();
  await rig.clock.advance(60_000);
  const get = async (path: string) => (await fetch(`${daemon.localUrl}/v1${path}`)).json();
  const known = new Set<string>();
  const order = fc.record({ orderId: id, externalId: id, store: id, isBare: fc.boolean() });
  // Two items of one request that mean one article are refused by name.
  const areAlike = (a: { orderId: string; externalId: string }, b: typeof a) =>
    a.orderId === b.orderId || a.externalId === b.externalId;
  await fc.assert(
    fc.asyncProperty(
      fc.uniqueArray(order, { minLength: 15, maxLength: 20, comparator: areAlike }),
      async (all) => {
        const orders = all.filter(({ orderId }) => !known.has(orderId));
        const { newest } = (await get('/orders?after=newest')) as { newest: number };
        receiver.received.length = 0;
        for (const { orderId, externalId, store, isBare } of orders) {
          known.add(orderId);
          const sample = sampleNotification(1, {
            ...{ internalOrderId: '@order', status: 'payment-approved', store: { externalId: '@store' } },
            createdAt: new Date(rig.clock.nowMs()).toISOString(),
            items: [{ amount: 1, product: { externalId: '@item' } }],
          });
          const ids: Record<string, string> = { order: orderId, store, item: externalId };
          const text = JSON.stringify(sample).replaceAll(/"@(order|store|item)"/g, (_, name) =>
            jsonOf(ids[name] ?? '', isBare),
          );
          expect(await rig.announce(daemon, text)).toBe(200);
        }
        const body = JSON.stringify(
          orders.map(({ orderId, externalId }) => ({ externalId, qty: 1, reference: orderId })),
        );
        if (orders.length > 0) {
          const headers = { 'content-type': 'application/json' };
          await fetch(`${daemon.localUrl}/v1/stock`, { method: 'POST', headers, body });
        }
        const told = orders.map(({ orderId, externalId, store }) => [orderId, orderId, store, externalId]);
        const idsOf = ({ orderId, order: of }: IdsTold) => [
          orderId,
          of.orderId,
          of.storeExternalId,
          of.items[0]?.productExternalId,
        ];

        const feed = (await get(`/orders?after=${newest}`)) as { events: IdsTold[] };
        expect(feed.events.map(idsOf)).toEqual(told);
        const toBook = (await get(`/orders/to-book?after=${newest}`)) as { orders: IdsTold['order'][] };
        const booked = toBook.orders.map((of) => idsOf({ orderId: of.orderId, order: of }));
        expect(booked).toEqual(told);
        const stream = await streamed(`${daemon.localUrl}/v1/stream?after=${newest}`, orders.length);
        expect(stream.map(idsOf)).toEqual(told);

        for (let i = 0; i < 200 && receiver.received.length < orders.length * 3; i++) {
          await rig.clock.advance(2_000);
          await settle(50);
        }
        const bodies = receiver.received.map(({ body }) => JSON.parse(body));
        const sent = (event?: string) => bodies.filter((each) => each.event === event);
        expect(sent().map(idsOf)).toEqual(told);
        expect(sent('order.prepare').map(idsOf)).toEqual(told);
        const changes = sent('change.rejected').map(({ change }) => [
          change.reference,
          change.body.externalId,
        ]);
        expect(changes).toEqual(orders.map(({ orderId, externalId }) => [orderId, externalId]));
      },
    ),
    // A run takes a second or more, as the clock goes on until all changes are rejected.
    { numRuns: Math.min(4, runsOf(4)), endOnFailure: true },
  );
});

/** Reads so many events of a stream. */
async function streamed(url: string, count: number): Promise<IdsTold[]> {
  const leaving = new AbortController();
  const { body } = await fetch(url, { signal: leaving.signal });
  const events: IdsTold[] = [];
  let text = '';
  const decoder = new TextDecoder();
  const reader = body?.getReader();
  while (events.length < count) {
    const { value } = (await reader?.read()) ?? {};
    text += decoder.decode(value, { stream: true });
    const whole = text.split('\n\n');
    text = whole.pop() ?? '';
    for (const each of whole) {
      const [, data] = /^data: (.*)$/m.exec(each) ?? [];
      if (data !== undefined) events.push(JSON.parse(data) as IdsTold);
    }
  }
  leaving.abort();
  return events;
}
