/** Tests src/api/long-polls.ts, src/api/schemas.ts and src/app/services.ts. */

import { EventEmitter } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { Agent, type Dispatcher, request } from 'undici';
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import type { AccessOptions } from '../../src/api/access.ts';
import { ChangeSignal, type LocalApiOptions } from '../../src/api/api.ts';
import { changeAnswer, changesAnswer, outboxPage } from '../../src/api/change-schemas.ts';
import { localApi } from '../../src/api/local-api.ts';
import { LongPolls } from '../../src/api/long-polls.ts';
import {
  boardAnswer,
  feedPage,
  foundOrders,
  orderAnswer,
  productPage,
  toBookPage,
  trendsAnswer,
} from '../../src/api/schemas.ts';
import { createLocalServer } from '../../src/api/server.ts';
import { statusAnswer } from '../../src/api/status-schemas.ts';
import { openMirror } from '../../src/app/mirror.ts';
import { silentLog } from '../../src/core/log.ts';
import { keyDigest, type Right } from '../../src/db/api-keys.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { readOrder } from '../../src/orders/merging/order-reader.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { continueFeedAfter } from '../../src/orders/reading/mirror-file.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { PosLife } from '../../src/outbox/intake/pos-signs.ts';
import { OutboxService } from '../../src/outbox/sending/outbox.ts';
import { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import { describeTokens } from '../../src/platform/tokens.ts';
import { API_KEY, sendingKey } from '../support/api-key.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { NO_RECEIVERS } from '../support/no-receivers.ts';
import { sampleNotification } from '../support/order-samples.ts';

type LocalServer = ReturnType<typeof createLocalServer>;

const clock = new FakeClock();
const branch = { subsidiaryId: 'sub-1', externalId: null };
let directory: string;
let mirror: Mirror;
let stores: MirrorStores;
let services: LocalApiOptions['services'];
let server: LocalServer;
let dispatcher: Dispatcher;
let url: string;

beforeEach(async () => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-local-'));
  mirror = openMirror({ path: freshMirror(directory), clock });
  stores = new MirrorStores({ mirror, branches: [branch], clock });
  const guards = { ...GUARDS_OFF, zeroItemsMax: 100 };
  const outbox = new OutboxService({ stores, guards, holdBack: false });
  const limits = {
    endpointIntervalMs: 1,
    ordersIntervalMs: 1,
    windowMs: 1,
    requestsPerWindow: 1,
    ordersPerWindow: 1,
  };
  services = {
    config: {
      limits,
      platform: { baseUrl: 'http://platform.test' },
      orders: { poll: '*/2 * * * *', timezone: 'America/Santiago' },
      storage: { directory, group: '' },
      shop: { name: 'Corner shop', currency: 'CLP' },
      hub: { nats: '' },
      branches: [{ externalId: 'B1', subsidiaryId: 'sub-1' }],
      stock: { holdBackUnbooked: false },
      link: { hub: '' },
    },
    mirror,
    stores,
    outbox,
    posLife: new PosLife(mirror, clock),
    state: { ledger: { waits: () => [] } },
    platform: { tokens: { describe: () => describeTokens(null, null, 0) } },
  } as unknown as LocalApiOptions['services'];
  server = serverWith({ apiKey: API_KEY });
  dispatcher = new Agent().compose(sendingKey);
  url = (await server.listen()).url;
});

function serverWith(access: AccessOptions): LocalServer {
  const rest = { services, changes: new ChangeSignal(), version: '1.2.3', clock, log: silentLog };
  const plugins = [localApi({ receivers: NO_RECEIVERS, ...rest, ...access })];
  return createLocalServer({ host: '127.0.0.1', port: 0, clock, log: silentLog, plugins });
}

afterEach(async () => {
  await server.close();
  await dispatcher.destroy();
  await mirror.close();
  rmSync(directory, { recursive: true, force: true });
});

async function call(place: string, body?: unknown) {
  const answer = await request(`${url}/v1${place}`, {
    dispatcher,
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'content-type': 'application/json' },
    body: body === undefined ? null : JSON.stringify(body),
  });
  return { status: answer.statusCode, body: (await answer.body.json()) as Record<string, unknown> };
}

/** Reads the mirror's file as another process would. */
function rows(sql: string): unknown[] {
  const db = new Database(path.join(directory, 'mirror.db'), { readonly: true });
  try {
    return db.prepare(sql).all();
  } finally {
    db.close();
  }
}

async function keepOrder(number: number, fields: Record<string, unknown> = {}): Promise<string> {
  const raw = sampleNotification(number, fields);
  const reading = readOrder(raw, compileSpellings({}));
  if ('unreadable' in reading) throw new Error(reading.unreadable);
  const observation = {
    source: 'webhook',
    observedAtMs: clock.nowMs(),
    raw: JSON.stringify(raw),
    reading,
  } as const;
  await mirror.save([{ kind: 'order', observation }]);
  return reading.orderId;
}

async function keepProducts(count: number): Promise<void> {
  const records = Array.from({ length: count }, (_, i) => ({
    id: `p${i}`,
    name: `Agua ${i}`,
    category: null,
    show: true,
    raw: `{"id":"p${i}"}`,
    children: [
      {
        sku: `${i}`,
        barcode: null,
        price: 10.5,
        withDiscount: false,
        discount: null,
        show: true,
        stocks: [{ subsidiaryId: 'sub-1', qty: 3, show: true }],
        integrations: [{ subsidiaryId: 'sub-1', productIdPosA: null, productCodePosB: null, extId: `E${i}` }],
      },
    ],
  }));
  await stores.write(({ catalog }) => catalog.applyPage(branch, records, catalog.readMark()));
}

it('notes of a change and of a decision by which connection they came', async () => {
  const { body } = await call('/stock', [{ sku: '1', subsidiaryId: 'sub-1', qty: 3 }]);
  const [{ changeId }] = body.results as [{ changeId: number }];
  expect((await call(`/outbox/${changeId}`)).body).toMatchObject({
    change: { origin: 'http 127.0.0.1, with the key' },
  });
  expect((await call(`/outbox/${changeId}/discard`, {})).status).toBe(200);
  expect(rows('SELECT who, action, subject FROM _audit')).toEqual([
    { who: 'http 127.0.0.1, with the key', action: 'outbox.discard', subject: `change ${changeId}` },
  ]);
  // What the sender calls its file does not look like what tillsync says of the connection.
  const fileQuery = new URLSearchParams({ file: 'out/with the key' });
  const named = await call(`/stock?${fileQuery}`, [{ sku: '1', subsidiaryId: 'sub-1', qty: 4 }]);
  const [second] = named.body.results as [{ changeId: number }];
  expect((await call(`/outbox/${second.changeId}`)).body).toMatchObject({
    change: { origin: 'http 127.0.0.1, with the key, file with the key' },
  });
});

it('serves the orders of the mirror, as documented', async () => {
  const orderId = await keepOrder(7);
  const feed = await call('/orders');
  expect(feedPage.parse(feed.body)).toEqual(feed.body);
  expect(feed.body).toMatchObject({ events: [{ orderId, order: { orderId, code: 7 } }], next: 1, newest: 1 });
  const order = await call(`/orders/${orderId}`);
  expect(orderAnswer.parse(order.body)).toEqual(order.body);
  expect(order.body.payload).toEqual(sampleNotification(7));
});

it('has what is to be booked until it is acknowledged, by either id of the store', async () => {
  const ids: string[] = [];
  for (const number of [7, 8, 9]) ids.push(await keepOrder(number, { status: 'ready' }));
  const page = await call('/orders/to-book?limit=2');
  expect(toBookPage.parse(page.body)).toEqual(page.body);
  expect(page.body).toMatchObject({ orders: [{ orderId: ids[0], acknowledgedAt: null }, {}], next: 2 });
  expect((await call('/orders/to-book?after=2')).body).toMatchObject({ orders: [{ code: 9 }], next: null });
  await call('/orders/ack', [{ orderId: ids[0], seq: 1 }]);
  const codes = async (store: string) => {
    const { orders } = toBookPage.parse((await call(`/orders/to-book?store=${store}`)).body);
    return orders.map(({ code }) => code);
  };
  expect(await Promise.all(['B1', 'sub-1'].map(codes))).toEqual([
    [8, 9],
    [8, 9],
  ]);
  const wrong = await call('/orders/to-book?store=B9');
  expect(wrong.status).toBe(400);
  expect(wrong.body).toMatchObject({ error: { code: 'usage', hint: 'Configured are: sub-1 (B1).' } });
});

it('has the board of one branch, by either of its ids', async () => {
  await keepOrder(7, { status: 'ready' });
  await keepOrder(8, { status: 'ready', store: { externalId: 'B2' } });
  await keepOrder(9, { status: 'dispatched', store: { externalId: 'B2' } });
  const codes = async (query: string) => {
    const { orders } = boardAnswer.parse((await call(`/board${query}`)).body);
    return orders.map(({ code }) => code).sort();
  };
  expect(await codes('')).toEqual([7, 8, 9]);
  expect(await Promise.all(['?store=B1', '?store=sub-1'].map(codes))).toEqual([[7], [7]]);
  expect((await call('/board?store=B9')).status).toBe(400);
});

it('refuses a query parameter that a route does not know, by name, at each route', async () => {
  const { paths } = (await call('/openapi.json')).body as { paths: Record<string, object> };
  const routes = Object.entries({ ...paths, '/openapi.json': { get: {} } }).flatMap(([place, methods]) =>
    Object.keys(methods).map((method) => [place.replace(/\{\w+\}/, '1'), method] as const),
  );
  expect(routes.length).toBeGreaterThan(15);
  for (const [place, method] of routes) {
    const { status, body } = await call(`${place}?bogus=1`, method === 'post' ? [] : undefined);
    expect([place, status], JSON.stringify(body)).toEqual([place, 400]);
    expect(body).toMatchObject({ error: { code: 'usage', message: expect.stringContaining('"bogus"') } });
  }
});

it('gives a key with the right `screen` alone no way to reach a customer', async () => {
  const key = (name: string, may: readonly Right[]) => ({
    ...{ name, may, madeAt: '2026-01-01T00:00:00.000Z', withdrawnAt: null },
    digest: keyDigest(name, 'utf8'),
  });
  const keys = [key('kitchen', ['screen']), key('desk', ['orders', 'screen'])];
  const namedKeys = { find: (digest: Buffer) => keys.find((each) => each.digest.equals(digest)) };
  const guarded = serverWith({ apiKey: 'main', namedKeys });
  onTestFinished(() => guarded.close());
  const at = (await guarded.listen()).url;
  const user = { firstName: 'Ana', lastName: 'Soto', email: 'ana@example.com', phoneNumber: '+56911112222' };
  const orderId = await keepOrder(7, { status: 'ready', user });
  const { address } = sampleNotification(7) as unknown as { address: { address: string } };
  const read = async (name: string, place: string, accept = 'application/json') => {
    const headers = { 'x-api-key': name, accept };
    const { statusCode, body } = await request(`${at}/v1${place}`, { dispatcher, headers });
    expect([place, statusCode]).toEqual([place, 200]);
    if (accept === 'application/json') return body.text();
    let text = '';
    for await (const part of body.setEncoding('utf8')) {
      text += part;
      if (text.includes('event: order')) break;
    }
    return text;
  };
  const places = [
    '/board',
    '/orders',
    '/orders?store=B1',
    '/orders/to-book',
    `/orders/${orderId}`,
    '/orders/search?q=Soto',
  ];
  const readAll = async (name: string) => [
    ...(await Promise.all(places.map((place) => read(name, place)))),
    ...(await Promise.all(['/stream', '/orders'].map((place) => read(name, place, 'text/event-stream')))),
  ];
  const secrets = ['11112222', 'ana@example.com', address.address];
  const leaks = (text: string) => secrets.filter((each) => text.includes(each));
  for (const text of await readAll('kitchen')) {
    expect(text).toContain('"customerFirstName":"Ana"');
    expect(leaks(text)).toEqual([]);
  }
  expect((await readAll('desk')).map(leaks)).toContainEqual(secrets);
  // A search would tell whose number it is.
  for (const wish of secrets) {
    const found = await Promise.all(
      ['kitchen', 'desk'].map((name) => read(name, `/orders/search?q=${encodeURIComponent(wish)}`)),
    );
    expect(found.map((text) => text.includes(orderId))).toEqual([false, true]);
  }
});

it('gives the events of one store, and of an order of it that moves away', async () => {
  await keepOrder(1, { status: 'ready' });
  await keepOrder(2, { store: { externalId: 'B2' } });
  const moved = await keepOrder(3, { status: 'ready' });
  await call('/orders/ack', [moved]);
  await keepOrder(3, { status: 'routed', store: { externalId: 'B2' } });
  await keepOrder(1, { status: 'routed', store: { externalId: 'B2' } });
  const page = async (query: string) => feedPage.parse((await call(`/orders?${query}`)).body);
  const seqs = ({ events }: { events: { seq: number }[] }) => events.map(({ seq }) => seq);
  expect(seqs(await page('store=B1'))).toEqual([3, 4]);
  const first = await page('store=sub-1&limit=1');
  expect([seqs(first), first.next]).toEqual([[3], 3]);
  expect((await page('store=B1&after=4')).next).toBe(5);
  expect((await call('/orders?store=B9')).status).toBe(400);
});

it.each([
  ['all stores', ''],
  ['one store', '&store=B1'],
])('holds a request for %s after a jump of the feed, and serves others meanwhile', async (_whose, store) => {
  await keepOrder(1);
  await mirror.write((db) => continueFeedAfter(db, 1_000_000));
  const nowMs = clock.monotonicMs();
  // A request that never rests would keep this test from ending.
  let looks = 0;
  const time = vi.spyOn(clock, 'monotonicMs').mockImplementation(() => {
    looks += 1;
    if (looks > 1_000) throw new Error('the request looks without a rest');
    return nowMs;
  });
  onTestFinished(() => time.mockRestore());
  const held = call(`/orders?after=1&wait=30${store}`);
  await vi.waitFor(() => expect(clock.sleeping).toBe(1));
  expect((await call('/status')).status).toBe(200);
  await keepOrder(2);
  await clock.advance(1_000);
  expect((await held).body).toMatchObject({ events: [{ seq: 1_000_001 }], next: 1_000_001 });
});

it('serves others between the parts of a long search for events of one store', async () => {
  const polls = new LongPolls({ clock, changes: new ChangeSignal() });
  const response = new EventEmitter() as ServerResponse;
  let served = 0;
  setImmediate(() => {
    served += 1;
  });
  const parts: number[] = [];
  await polls.until({ response, waitMs: 1_000 }, async () => {
    parts.push(served);
    return { isEmpty: parts.length < 3, isBehind: true, text: '' };
  });
  expect(parts).toEqual([0, 1, 1]);
});

it('finds the products of the mirror, as documented', async () => {
  await keepProducts(3);
  const page = await call('/products?q=agua&branch=sub-1&limit=2');
  expect(productPage.parse(page.body)).toEqual(page.body);
  expect(page.body).toMatchObject({ products: [{ productId: 'p0' }, { productId: 'p1' }], next: 'p1' });
  expect((await call('/products?externalId=E2')).body).toMatchObject({ products: [{ productId: 'p2' }] });
  expect((await call('/products?branch=sub-2')).body).toEqual({ products: [], next: null });
});

it('has on the disk what it answers as taken, target by target', async () => {
  await keepProducts(3);
  await call('/stock', [{ externalId: 'E0', qty: 9 }]);
  const answer = await call('/stock', [
    { sku: 0, qty: 8 },
    { externalId: 'E1', qty: -1e300 },
    { externalId: 'E2', sku: 1, qty: 1 },
  ]);
  expect(answer.status).toBe(207);
  expect(changesAnswer.parse(answer.body)).toEqual(answer.body);
  expect(answer.body).toMatchObject({
    pending: 1,
    rejected: 2,
    results: [{}, { code: 'bad-value' }, { state: 'rejected' }],
  });
  expect(rows("SELECT target, body FROM outbox WHERE state = 'pending'")).toEqual([
    { target: 'sku:0@sub-1', body: '{"externalId":"E0","qty":8}' },
  ]);
  await call('/products', [{ externalId: 'E1', price: 12 }]);
  const list = await call('/outbox');
  expect(outboxPage.parse(list.body)).toEqual(list.body);
  const [newest] = list.body.changes as { changeId: number }[];
  const one = await call(`/outbox/${newest?.changeId}`);
  expect(changeAnswer.parse(one.body)).toEqual(one.body);
  await call(`/outbox/${newest?.changeId}/discard`, {});
  expect(await call(`/outbox/${newest?.changeId}`)).toMatchObject({
    body: { change: { state: 'superseded' } },
  });
  expect((await call('/outbox/999/retry', {})).status).toBe(404);
});

it('keeps the reference of an item, as JSON and as CSV, and finds what became of it by that', async () => {
  await keepProducts(3);
  const json = await call('/stock', [
    { externalId: 'E0', qty: 9, reference: 'till-7/88' },
    { externalId: 'E1', qty: 9 },
    { externalId: 'E2', qty: 9, reference: 'x'.repeat(1_001) },
  ]);
  expect(json.body).toMatchObject({ pending: 2, rejected: 1, results: [{}, {}, { column: 'reference' }] });
  const csv = await request(`${url}/v1/products`, {
    ...{ dispatcher, method: 'POST', headers: { 'content-type': 'text/csv' } },
    body: 'sku,price,reference\n1,12,till-7/88\n2,13,\n',
  });
  expect(await csv.body.json()).toMatchObject({ pending: 2, rejected: 0 });
  const { body } = await call('/outbox?reference=till-7%2F88');
  expect(outboxPage.parse(body).changes.map(({ target, body: sent }) => [target, sent])).toEqual([
    ['sku:1', { sku: 1, price: 12 }],
    ['sku:0@sub-1', { externalId: 'E0', qty: 9 }],
  ]);
  expect((await call('/outbox?reference=')).status).toBe(400);
});

it('answers for every change under the number it can be followed by', async () => {
  await keepProducts(1);
  const answers = [];
  for (const qty of [9, 8]) answers.push(await call('/stock', [{ externalId: 'E0', qty }]));
  for (const { changeId } of answers.flatMap(({ body }) => body.results as { changeId: number }[])) {
    const { body: found } = await call(`/outbox/${changeId}`);
    const last = (found.became ?? found.change) as { body: object };
    expect(last.body).toEqual({ externalId: 'E0', qty: 8 });
  }
});

it('refuses two items of one article by name, or adds them up', async () => {
  await keepProducts(3);
  const twice = [
    { externalId: 'E0', qty: 4 },
    { externalId: 'E1', qty: 1 },
    { sku: '0', subsidiaryId: 'sub-1', qty: 3 },
  ];
  const { status, body } = await call('/stock', twice);
  expect(changesAnswer.parse(body)).toEqual(body);
  expect({ status, body }).toMatchObject({
    status: 207,
    body: {
      rejected: 2,
      pending: 1,
      results: [{ index: 0, code: 'same-article', rows: [0, 2] }, { state: 'pending' }, { index: 2 }],
    },
  });
  expect((body.results as { message: string }[])[0]?.message).toContain('use rows=sum');
  const sum = await call('/stock?rows=sum', twice);
  expect(sum).toMatchObject({ status: 200, body: { total: 3, pending: 3, rejected: 0 } });
  const [first, , third] = sum.body.results as { index: number; changeId: number }[];
  expect(third).toEqual({ ...first, index: 2 });
  expect(
    rows("SELECT json_extract(body, '$.qty') AS qty FROM outbox WHERE state = 'pending' ORDER BY target"),
  ).toEqual([{ qty: 7 }, { qty: 1 }]);
  const prices = await call('/products', [
    { sku: '1', price: 5 },
    { externalId: 'E1', price: 6 },
  ]);
  expect(prices).toMatchObject({ status: 207, body: { rejected: 2, results: [{ column: 'price' }, {}] } });
  expect((await call('/products?rows=sum', [{ sku: '1', price: 5 }])).status).toBe(400);
});

it('discards rejected changes together, those of one origin or all, while others read and write', async () => {
  await keepProducts(2);
  const contradicts = (qty: number) => ({ externalId: 'E0', sku: String(5_000 + qty), qty });
  const hand = (query: string, items: object[]) => call(`/stock${query}`, items);
  expect(
    (
      await hand(
        '?file=a.csv',
        Array.from({ length: 1_700 }, (_, i) => contradicts(i)),
      )
    ).body,
  ).toMatchObject({
    rejected: 1_700,
  });
  await hand('?file=a.csv.old', [contradicts(2_001), contradicts(2_002)]);
  await hand('', [contradicts(2_003)]);
  const waiting = await hand('', [{ externalId: 'OTHER', qty: 3 }]);
  expect(waiting.body).toMatchObject({ pending: 1 });
  const left = () => rows("SELECT change_id FROM outbox WHERE state = 'rejected'").length;
  const seen = new Set<number>();
  let isOver = false;
  const answer = call('/outbox/discard', { state: 'rejected', origin: 'file a.csv' }).finally(() => {
    isOver = true;
  });
  while (!isOver) {
    seen.add(left());
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(await answer).toMatchObject({ status: 200, body: { discarded: 1_700 } });
  expect(seen.size).toBeGreaterThan(3);
  expect(left()).toBe(3);
  expect((await call('/outbox/discard', { state: 'rejected' })).body).toEqual({ discarded: 3 });
  expect(rows('SELECT action, subject, detail FROM _audit')).toEqual([
    { action: 'outbox.discard', subject: 'all rejected of file a.csv', detail: '1700 changes' },
    { action: 'outbox.discard', subject: 'all rejected', detail: '3 changes' },
  ]);
  expect(rows("SELECT DISTINCT message FROM outbox WHERE state = 'superseded'")).toEqual([
    { message: 'Discarded by a person.' },
  ]);
  expect(rows("SELECT count(*) AS n FROM outbox WHERE state = 'pending'")).toEqual([{ n: 1 }]);
  expect((await call('/outbox/discard', { state: 'pending' })).status).toBe(400);
  expect((await call('/outbox/discard', {})).status).toBe(400);
});

it('holds what takes too much to zero as a whole, however many parts it is taken in', async () => {
  await keepProducts(1_200);
  const items = Array.from({ length: 1_200 }, (_, i) => ({ externalId: `E${i}`, qty: i % 10 === 0 ? 0 : 5 }));
  const { body } = await call('/stock', items);
  expect(body).toMatchObject({ total: 1_200, held: 120, pending: 1_080, rejected: 0 });
  expect(rows("SELECT count(*) AS n FROM outbox WHERE held_guard = 'zero-items'")).toEqual([{ n: 120 }]);
  const few = await call('/stock', items.slice(0, 1_000));
  expect(few.body).toMatchObject({ held: 0, pending: 1_000 });
});

it('records what the POS has booked', async () => {
  const orderId = await keepOrder(7);
  expect((await call('/orders/ack', [orderId, 'later'])).body.results).toEqual([
    { index: 0, orderId, state: 'new' },
    { index: 1, orderId: 'later', state: 'unheard' },
  ]);
  expect(rows('SELECT order_id FROM order_acks ORDER BY 1')).toHaveLength(2);
});

it('records which lines the POS has not booked, and refuses one that the order has not', async () => {
  const [first, second, third] = [await keepOrder(7), await keepOrder(8), await keepOrder(9)];
  const { status, body } = await call('/orders/ack', [
    { orderId: first, without: [1] },
    { orderId: second, without: [900] },
    { orderId: third, without: ['1'] },
    { orderId: third, without: [] },
  ]);
  expect(status).toBe(207);
  expect(body.results).toMatchObject([
    { state: 'new' },
    { state: 'rejected', message: expect.stringContaining('has no line 900') },
    { state: 'rejected', message: expect.stringContaining('"without"') },
    { state: 'new' },
  ]);
  expect(rows('SELECT order_id, without FROM order_acks ORDER BY 2')).toEqual([
    { order_id: third, without: null },
    { order_id: first, without: '[1]' },
  ]);
  const toBook = await call('/orders/to-book');
  expect((toBook.body.orders as { orderId: string }[]).map(({ orderId }) => orderId)).not.toContain(third);
});

it('refuses an order number in place of an orderId, and says the orderId; an id of the same text wins', async () => {
  const orderId = await keepOrder(32);
  const ack = async (...ids: unknown[]) => {
    const { status, body } = await call('/orders/ack', ids);
    return { status, results: body.results as { state: string; message?: string }[] };
  };
  const numbers = await ack('32', '#32', { orderId: '0032', seq: 1 }, '33');
  expect(numbers.status).toBe(207);
  expect(numbers.results.map(({ state }) => state)).toEqual(['rejected', 'rejected', 'rejected', 'unheard']);
  expect(numbers.results[0]?.message).toBe(
    `32 is an order number, not an orderId. Order 32 has the orderId ${orderId}: acknowledge that.`,
  );
  expect(rows('SELECT order_id FROM order_acks')).toEqual([{ order_id: '33' }]);
  await keepOrder(40, { internalOrderId: '32' });
  expect((await ack('32')).results).toMatchObject([{ orderId: '32', state: 'new' }]);
});

it('tells the status, as documented', async () => {
  await keepOrder(7);
  await keepProducts(2);
  const status = await call('/status');
  expect(statusAnswer.parse(status.body)).toEqual(status.body);
  expect(status.body).toMatchObject({
    versions: { tillsync: '1.2.3' },
    counts: { orders: 1, openOrders: 1, events: 1, products: 2 },
    tokens: { state: 'none' },
  });
});

it('asks where the feed is before it reads the board, so that nothing falls between', async () => {
  const orderId = await keepOrder(7);
  const [seq, read] = [vi.spyOn(mirror.orders, 'newestSeq'), vi.spyOn(mirror, 'read')];
  const { body } = await call('/board');
  expect(boardAnswer.parse(body)).toEqual(body);
  expect(body).toMatchObject({ newest: 1, orders: [{ orderId, seq: 1 }] });
  expect(seq.mock.invocationCallOrder[0]).toBeLessThan(read.mock.invocationCallOrder[0] ?? 0);
});

it('searches orders by text and by a day of the calendar of the store', async () => {
  const orderId = await keepOrder(7);
  const { createdAt } = mirror.orders.get(orderId) ?? {};
  const found = await call('/orders/search?q=%237');
  expect(foundOrders.parse(found.body)).toEqual(found.body);
  expect(found.body).toMatchObject({ orders: [{ orderId }], hasMore: false });
  const onDay = async (daysLater: number) => {
    const day = new Date(Date.parse(createdAt ?? '') + daysLater * 86_400_000).toISOString().slice(0, 10);
    return foundOrders.parse((await call(`/orders/search?day=${day}`)).body).orders.length;
  };
  expect([await onDay(-2), await onDay(0), await onDay(2)]).toEqual([0, 1, 0]);
  const wrong = await call('/orders/search?day=2026-02-30');
  expect(wrong.status).toBe(400);
  expect(wrong.body).toMatchObject({ error: { message: expect.stringContaining('day') } });
});

it('works the trends out once for all who look, and anew after a while', async () => {
  const read = vi.spyOn(mirror, 'read');
  const { body } = await call('/trends');
  expect(trendsAnswer.parse(body)).toEqual(body);
  expect(body.hours).toHaveLength(24);
  await clock.advance(14_999);
  expect((await call('/trends')).body).toEqual(body);
  expect(read).toHaveBeenCalledOnce();
  await clock.advance(1);
  expect((await call('/trends')).body.at).not.toBe(body.at);
  expect(read).toHaveBeenCalledTimes(2);
});
