/** Tests src/api/order-routes.ts and src/api/outbox-routes.ts. */

import { request } from 'undici';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { changeAnswer, outboxPage } from '../../src/api/change-schemas.ts';
import { ackAnswer, errorAnswer, feedPage, orderAnswer, productPage } from '../../src/api/schemas.ts';
import { statusAnswer } from '../../src/api/status-schemas.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { type ApiRig, type ApiRigOptions, openApi } from './api-rig.ts';
import { sampleChange } from './api-samples.ts';

let rig: ApiRig;
afterEach(() => rig?.close());
const open = async (options?: ApiRigOptions) => {
  rig = await openApi(options);
  return rig;
};

describe('the change feed', () => {
  it('gives events in order with their orders as they are now, page by page', async () => {
    const { call, addEvent } = await open();
    for (const status of ['pending', 'ready']) for (const id of ['a', 'b']) addEvent(id, status);
    const first = await call('/v1/orders?limit=3');
    expect(first.status).toBe(200);
    expect(feedPage.parse(first.body)).toEqual(first.body);
    expect(first.body.events.map((each: { seq: number }) => each.seq)).toEqual([1, 2, 3]);
    expect(first.body.events[0]).toMatchObject({ status: 'pending', order: { status: 'ready', seq: 3 } });
    expect(first.body).toMatchObject({ next: 3, newest: 4 });
    const rest = await call(`/v1/orders?after=${first.body.next}`);
    expect(rest.body).toMatchObject({ events: [{ seq: 4 }], next: 4, newest: 4, trimmedTo: 2 });
    expect((await call('/v1/orders?after=4')).body).toEqual({ events: [], next: 4, newest: 4, trimmedTo: 2 });
    expect((await call('/v1/orders?after=newest')).body).toEqual({
      events: [],
      next: 4,
      newest: 4,
      trimmedTo: 2,
    });
  });

  it('keeps an event whose order is gone', async () => {
    const { call, addEvent, orders } = await open();
    addEvent('a', 'pending');
    orders.delete('a');
    expect((await call('/v1/orders')).body.events).toMatchObject([{ seq: 1, orderId: 'a', order: null }]);
  });

  it('tells a reader that is ahead of a mirror made anew', async () => {
    const { call } = await open();
    const answer = await call('/v1/orders?after=7');
    expect(answer.status).toBe(400);
    expect(errorAnswer.parse(answer.body).error).toMatchObject({ code: 'feed-restarted' });
    expect(answer.body.error.hint).toContain('after=0');
  });

  it.each(['after=-1', 'after=x', 'limit=0', 'limit=501', 'since=3', 'limit=1.5'])(
    'refuses %s by name',
    async (query) => {
      const { call } = await open();
      const answer = await call(`/v1/orders?${query}`);
      expect(answer.status).toBe(400);
      expect(answer.body.error.message).toContain(query.split('=')[0]);
    },
  );

  it('gives one order with what was received, digit by digit', async () => {
    const { call, addEvent } = await open();
    addEvent('a/ b', 'pending');
    const answer = await call(`/v1/orders/${encodeURIComponent('a/ b')}`);
    expect(orderAnswer.parse(answer.body)).toEqual(answer.body);
    expect(answer.body.order.orderId).toBe('a/ b');
    expect(answer.text).toContain('"n":1.50');
    const missing = await call('/v1/orders/zzz');
    expect([missing.status, missing.body.error.code]).toEqual([404, 'not-found']);
  });

  it('gives and acknowledges an order by the longest id there may be', async () => {
    const { call, post, addEvent } = await open();
    const orderId = '☕'.repeat(512);
    addEvent(orderId, 'pending');
    const answer = await call(`/v1/orders/${encodeURIComponent(orderId)}`);
    expect([answer.status, answer.body.order.orderId]).toEqual([200, orderId]);
    expect((await post('/v1/orders/ack', [orderId])).status).toBe(200);
  });

  it('says by its status that the disk cannot answer now', async () => {
    const { call, state } = await open();
    state.failure = new TillsyncError('storage-failed', 'The disk fails.', { hint: 'Look at it.' });
    const failed = await call('/v1/orders');
    expect([failed.status, failed.body.error]).toEqual([
      500,
      { code: 'storage-failed', message: 'The disk fails.', hint: 'Look at it.' },
    ]);
    state.failure = new TillsyncError('aborted', 'The mirror is closed.');
    const closing = await call('/v1/orders');
    expect([closing.status, closing.headers['retry-after']]).toEqual([503, '1']);
  });
});

describe('acknowledgements', () => {
  it('are taken as ids or as rows', async () => {
    const { post, addEvent, state } = await open();
    addEvent('a', 'pending');
    const answer = await post('/v1/orders/ack', ['a', 'b']);
    expect(answer.body).toEqual({
      results: [
        { index: 0, orderId: 'a', state: 'new' },
        { index: 1, orderId: 'b', state: 'unheard' },
      ],
      rejected: 0,
    });
    expect((await post('/v1/orders/ack', [{ orderId: 'c' }])).status).toBe(200);
    expect(state.acked).toEqual(['a', 'b', 'c']);
  });

  it.each([[[]], [{ orderId: 'a' }], [Array.from({ length: 10_001 }, () => 'x')], ['not json']])(
    'refuse %j whole',
    async (body) => {
      const { post, state } = await open();
      expect((await post('/v1/orders/ack', body)).status).toBe(400);
      expect(state.acked).toEqual([]);
    },
  );
});

it('answers for each acknowledgement: a bad one takes nothing from its neighbours', async () => {
  const { post, addEvent, state } = await open();
  addEvent('a', 'pending');
  const { status, body } = await post('/v1/orders/ack', ['a', '', 5, { orderId: 'b' }, { order: 'c' }]);
  expect(status).toBe(207);
  expect(ackAnswer.parse(body)).toEqual({
    results: [
      { index: 0, orderId: 'a', state: 'new' },
      { index: 1, state: 'rejected', message: expect.stringContaining('order id') },
      { index: 2, state: 'rejected', message: expect.any(String) },
      { index: 3, orderId: 'b', state: 'unheard' },
      { index: 4, state: 'rejected', message: expect.any(String) },
    ],
    rejected: 3,
  });
  expect(state.acked).toEqual(['a', 'b']);
});

it('gives a page of large orders in parts, and none of them twice', { tags: ['bulk'] }, async () => {
  const { call, addEvent, orders } = await open();
  for (let i = 0; i < 30; i++) {
    addEvent(`o${i}`, 'pending');
    const order = orders.get(`o${i}`);
    if (order) orders.set(`o${i}`, { ...order, name: 'x'.repeat(1_000_000) });
  }
  const seen: number[] = [];
  for (let after = 0, pages = 0; after < 30 && pages < 10; pages++) {
    const { text, body } = await call(`/v1/orders?after=${after}&limit=500`);
    expect(text.length).toBeLessThan(10_000_000);
    expect(body.newest).toBe(30);
    seen.push(...feedPage.parse(body).events.map(({ seq }) => seq));
    after = body.next;
  }
  expect(seen).toEqual(Array.from({ length: 30 }, (_, i) => i + 1));
});

it.each([
  ['GET', '/v1/orders?after='],
  ['GET', '/v1/orders?after=0x10'],
  ['GET', '/v1/orders?after=1e1'],
  ['GET', '/v1/orders?after=%201'],
  ['GET', '/v1/orders?wait=31'],
  ['GET', '/v1/orders/to-book?after=-1'],
  ['GET', '/v1/outbox?before=0x9'],
  ['GET', '/v1/orders/%zz'],
])('refuses %s %s in the one shape of errors', async (method, path) => {
  const { call, addEvent } = await open();
  addEvent('a', 'pending');
  const answer = await call(path, { method });
  expect(answer.status).toBe(400);
  expect(errorAnswer.parse(answer.body)).toEqual(answer.body);
});

it('refuses a Last-Event-ID that is no number, and a stream of one store', async () => {
  const { call, addEvent } = await open();
  addEvent('a', 'pending');
  const headers = { accept: 'text/event-stream', 'last-event-id': 'x7' };
  for (const path of ['/v1/stream', '/v1/orders'])
    expect((await call(path, { headers })).body.error).toMatchObject({ code: 'usage' });
  const accept = { accept: 'text/event-stream' };
  expect((await call('/v1/orders?wait=3', { headers: accept })).status).toBe(400);
  expect((await call('/v1/orders?store=B1', { headers: accept })).status).toBe(400);
});

it.each([
  ['DELETE', '/v1/orders', 'GET'],
  ['HEAD', '/v1/orders', 'GET'],
  ['DELETE', '/v1/orders/abc', 'GET, HEAD'],
  ['GET', '/v1/outbox/1/discard', 'POST'],
  ['PUT', '/v1/stock', 'POST'],
  ['POST', '/v1/stream', 'GET'],
])('says of %s %s what it takes', async (method, path, allow) => {
  const { call } = await open();
  const answer = await call(path, { method });
  expect([answer.status, answer.headers.allow]).toEqual([405, allow]);
  if (method !== 'HEAD') expect(errorAnswer.parse(answer.body)).toEqual(answer.body);
  expect((await call(`${path}/nothing/here`, { method })).status).toBe(404);
});

it('holds a page until there is an event, until its time is over, or until it closes, two of five for one caller', async () => {
  const { call, addEvent, signal, clock, state, server } = await open({ streamsMax: 5 });
  addEvent('a', 'pending');
  expect((await call('/v1/orders?after=0&wait=30')).body.events).toHaveLength(1);
  const held = call('/v1/orders?after=1&wait=30');
  await vi.waitFor(() => expect(state.listeners).toBe(1));
  addEvent('b', 'pending');
  signal.notify();
  expect((await held).body).toMatchObject({ events: [{ orderId: 'b' }], next: 2, newest: 2 });
  const empty = call('/v1/orders?after=2&wait=2');
  await vi.waitFor(() => expect(state.listeners).toBe(1));
  await vi.waitFor(async () => {
    await clock.advance(1_000);
    expect(state.listeners).toBe(0);
  });
  expect((await empty).body).toMatchObject({ events: [], next: 2 });
  const both = [call('/v1/orders?after=2&wait=30'), call('/v1/orders?after=newest&wait=30')];
  await vi.waitFor(() => expect(state.listeners).toBe(2));
  const third = await call('/v1/orders?after=2&wait=1');
  expect([third.status, third.headers['retry-after']]).toEqual([429, '1']);
  const closed = server.close();
  for (const each of both) expect((await each).body).toMatchObject({ events: [] });
  await closed;
});

it('says by a code of its own that the feed began anew, and what to do about other refusals', async () => {
  const { call, post } = await open();
  expect((await call('/v1/orders?after=9')).body.error).toMatchObject({ code: 'feed-restarted' });
  const typed = await post('/v1/orders/ack', 'x', { 'content-type': 'text/plain' });
  expect([typed.status, typed.body.error.hint]).toEqual([415, expect.stringContaining('application/json')]);
  const large = await post('/v1/orders/ack', JSON.stringify(['x'.repeat(3_000_000)]));
  expect([large.status, large.body.error.hint]).toEqual([413, expect.stringContaining('parts')]);
});

it('documents pages and streams apart, and what is refused', async () => {
  const { call, url, dispatcher } = await open();
  const { paths } = (await call('/v1/openapi.json')).body;
  const types = (path: string) => Object.keys(paths[path].get.responses['200'].content);
  expect(types('/orders')).toEqual(['application/json']);
  expect(types('/stream')).toEqual(['text/event-stream']);
  const stream = await request(`${url}/v1/stream`, { dispatcher });
  expect([stream.statusCode, stream.headers['content-type']]).toEqual([
    200,
    'text/event-stream; charset=utf-8',
  ]);
  stream.body.on('error', () => {}).destroy();
  for (const path of Object.values(paths) as Record<string, { responses: object }>[]) {
    for (const { responses } of Object.values(path)) {
      expect(Object.keys(responses)).toEqual(expect.arrayContaining(['400', '401', '403', '503']));
    }
  }
});

describe('products', () => {
  it('are searched and paged', async () => {
    const { call, state } = await open();
    state.products = ['p1', 'p2', 'p3'].map((productId) => ({
      productId,
      name: 'Agua',
      category: null,
      show: true,
      vanishedAt: null,
      updatedAt: 't',
      skus: [
        {
          sku: '1',
          barcode: null,
          price: 10.5,
          withDiscount: null,
          discount: 0,
          show: null,
          stocks: [{ subsidiaryId: 's', qty: 3, show: true }],
          integrations: [{ subsidiaryId: 's', productIdPosA: null, productCodePosB: null, extId: 'E' }],
        },
      ],
    }));
    const page = await call('/v1/products?q=agua&branch=s&externalId=E&sku=1&limit=2');
    expect(productPage.parse(page.body)).toEqual(page.body);
    expect(page.body.next).toBe('p2');
    expect(state.filters[0]).toEqual({
      text: 'agua',
      subsidiaryId: 's',
      externalId: 'E',
      sku: '1',
      limit: 3,
    });
    const last = await call('/v1/products?limit=2&after=p2');
    expect(last.body).toMatchObject({ products: [{ productId: 'p3' }], next: null });
  });
});

describe('the outbox', () => {
  it('is listed and paged', async () => {
    const { call, state } = await open();
    state.changes = [5, 4, 3].map((id) => sampleChange(id));
    const page = await call('/v1/outbox?state=held&kind=stock&limit=2');
    expect(outboxPage.parse(page.body)).toEqual(page.body);
    expect(page.body.before).toBe(4);
    expect(state.filters[0]).toMatchObject({ state: 'held', kind: 'stock', limit: 3 });
    expect((await call('/v1/outbox?before=4')).body).toMatchObject({
      changes: [{ changeId: 3 }],
      before: null,
    });
    // There are exactly as many changes as requested, and no further page.
    expect((await call('/v1/outbox?limit=3')).body).toMatchObject({ changes: [{}, {}, {}], before: null });
    expect((await call('/v1/outbox?state=waiting')).status).toBe(200);
    expect((await call('/v1/outbox?state=open')).status).toBe(400);
  });

  it('tells what took the place of a change', async () => {
    const { call, state } = await open();
    state.changes = [sampleChange(2), { ...sampleChange(1, 'superseded'), supersededBy: 2 }];
    const answer = await call('/v1/outbox/1');
    expect(changeAnswer.parse(answer.body)).toEqual(answer.body);
    expect(answer.body).toMatchObject({ change: { changeId: 1 }, became: { changeId: 2 } });
    expect((await call('/v1/outbox/2')).body.became).toBeNull();
    expect((await call('/v1/outbox/9')).status).toBe(404);
  });

  it('takes decisions and passes on why one is refused', async () => {
    const { call, post, state } = await open();
    state.changes = [sampleChange(1, 'rejected'), sampleChange(2)];
    expect((await call('/v1/outbox/1/retry', { method: 'POST' })).body).toMatchObject({
      change: { changeId: 1 },
    });
    await call('/v1/outbox/2/discard', { method: 'POST' });
    await post('/v1/outbox/2/release', {});
    expect((await post('/v1/outbox/release', { guard: 'zero-items' })).body).toEqual({ released: 3 });
    await post('/v1/outbox/release', { guard: null });
    expect(state.decisions).toEqual([
      'retry 1',
      'discard 2',
      'release {"changeId":2}',
      'release {"guard":"zero-items"}',
      'release {"guard":null}',
    ]);
    const refused = await call('/v1/outbox/2/retry', { method: 'POST' });
    expect([refused.status, refused.body.change.changeId]).toEqual([409, 2]);
    expect([refused.status, refused.body.error.message]).toEqual([409, 'Only a rejected one is retried.']);
    expect((await post('/v1/outbox/release', {})).status).toBe(400);
    expect((await call('/v1/outbox/1/discard')).status).toBe(405);
  });
});

describe('the status', () => {
  it('tells all without a secret, and the rest when the tokens cannot be looked up', async () => {
    const { call, state } = await open();
    const answer = await call('/v1/status');
    expect(statusAnswer.parse(answer.body)).toEqual(answer.body);
    expect(answer.body).toMatchObject({
      tokens: { state: 'ok', lockedOutBy: null },
      counts: { products: 3 },
    });
    state.tokensFail = new TillsyncError('storage-corrupt', 'state.db is broken.');
    expect((await call('/v1/status')).body).toMatchObject({
      tokens: null,
      tokensFault: 'state.db is broken.',
      freshness: [{ subject: 'auth' }],
    });
  });
});

describe('the OpenAPI document', () => {
  it('describes every route that is served, and none besides', async () => {
    const { call } = await open();
    const { body } = await call('/v1/openapi.json');
    expect(body.openapi).toBe('3.1.0');
    expect(Object.keys(body.paths).sort()).toEqual([
      '/alarms/test',
      '/board',
      '/hooks/{hook}/test',
      '/orders',
      '/orders/ack',
      '/orders/search',
      '/orders/to-book',
      '/orders/{orderId}',
      '/orders/{orderId}/explain',
      '/outbox',
      '/outbox/discard',
      '/outbox/release',
      '/outbox/{changeId}',
      '/outbox/{changeId}/discard',
      '/outbox/{changeId}/release',
      '/outbox/{changeId}/retry',
      '/products',
      '/status',
      '/stock',
      '/stock/{sku}/explain',
      '/stream',
      '/trends',
    ]);
    for (const [path, methods] of Object.entries(body.paths as Record<string, Record<string, object>>)) {
      // The stream of this route does not end by itself.
      if (path === '/stream') continue;
      for (const method of Object.keys(methods)) {
        const there = await call(`/v1${path.replace(/\{\w+\}/, '1')}`, { method: method.toUpperCase() });
        expect(there.body.error?.message ?? '', `${method} ${path}`).not.toMatch(/^There is nothing at/);
      }
    }
    const ids = Object.values(body.paths).flatMap((each) =>
      Object.values(each as object).map((op) => op.operationId),
    );
    expect(new Set(ids).size).toBe(ids.length);
    const query = body.paths['/orders'].get.parameters;
    expect(query).toContainEqual(expect.objectContaining({ name: 'limit', in: 'query', required: false }));
    const { schema } = body.paths['/stock'].post.requestBody.content['application/json'];
    expect(schema).toEqual({ $ref: '#/components/schemas/StockItems' });
    expect(body.components.schemas.StockItem.required).toEqual(['qty']);
  });
});
