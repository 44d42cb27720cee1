/** Tests src/platform/client.ts, src/platform/answers.ts and src/platform/refusals.ts. */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { expect, onTestFinished, test } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { PlatformClient } from '../../src/platform/client.ts';
import { ENDPOINTS, type Endpoint } from '../../src/platform/platform.ts';
import { createHttpTransport } from '../../src/platform/transport.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';
import { documentLimits, tempState } from './temp-state.ts';

const LIST = { subsidiaryId: 'sub-1', page: 1, limit: 1, order: 'asc', orderBy: 'CreatedDate' } as const;
const WEBHOOK = { callbackUrl: 'https://shop.test/webhook', active: true, hasSecret: true };

/** Each endpoint: what the platform is asked, the call, and `data` of a good answer. */
const CALLS: Record<
  Endpoint,
  { line: string; call: (platform: PlatformClient) => Promise<unknown>; data: unknown }
> = {
  'token.refresh': {
    line: 'POST /token/refresh',
    call: ({ tokens }) => tokens.refresh(),
    data: { token: 'access-2', refreshToken: 'refresh-2', expiresIn: '1h' },
  },
  'order.all': {
    line: 'GET /order/all',
    call: (platform) => platform.orderAll({ startDate: '2026-01-14', endDate: '2026-01-16' }),
    data: [],
  },
  'product.put': {
    line: 'PUT /product',
    call: (platform) => platform.productPut({ sku: 1, price: 2 }),
    data: {},
  },
  'product.stock.put': {
    line: 'PUT /product/stock',
    call: (platform) => platform.productStockPut({ externalId: 'a', qty: 1 }),
    data: {},
  },
  'product.batch': {
    line: 'PUT /product/batch',
    call: (platform) => platform.productBatch([{ sku: 1, price: 2 }]),
    data: { updated: 1, total: 1, errors: [] },
  },
  'product.stock.batch': {
    line: 'PUT /product/stock/batch',
    call: (platform) => platform.productStockBatch([{ externalId: 'a', qty: 1 }]),
    data: { updated: 1, total: 1, errors: [] },
  },
  'product.list': {
    line: 'GET /product/list',
    call: (platform) => platform.productList(LIST),
    data: {
      docs: [],
      totalDocs: 0,
      limit: 1,
      page: 1,
      totalPages: 0,
      hasNextPage: false,
      hasPrevPage: false,
    },
  },
  'product.get': {
    line: 'GET /product',
    call: (platform) => platform.productGet({ sku: '1' }),
    data: { id: 'p1', name: 'Queso', category: null, show: true, children: [] },
  },
  'webhook.put': {
    line: 'PUT /webhook',
    call: (platform) => platform.webhookPut({ callbackUrl: WEBHOOK.callbackUrl, secret: 'planted-secret' }),
    data: WEBHOOK,
  },
  'webhook.get': { line: 'GET /webhook', call: (platform) => platform.webhookGet(), data: WEBHOOK },
};

type Answer = (response: ServerResponse, good: string) => void;
const json =
  (status: number, body: unknown, headers: Record<string, string> = {}): Answer =>
  (response) =>
    void response
      .writeHead(status, { 'content-type': 'application/json', ...headers })
      .end(JSON.stringify(body));
const html =
  (status: number): Answer =>
  (response) =>
    void response.writeHead(status, { 'content-type': 'text/html' }).end('<html><h1>nginx</h1></html>');
const coded =
  (coding: string, encode: (text: string) => Buffer): Answer =>
  (response, good) =>
    void response.writeHead(200, { 'content-encoding': coding }).end(encode(good));

const ANSWERS: Record<string, Answer> = {
  good: (response, good) => void response.end(good),
  null: json(200, null),
  'data: null': json(200, { success: true, message: '', data: null }),
  'no data': json(200, { success: true }),
  'data: {}': json(200, { success: true, data: {} }),
  'data: 7': json(200, { success: true, data: 7 }),
  'no envelope': (response, good) => void response.end(JSON.stringify(JSON.parse(good).data)),
  'success: false': json(200, { success: false, message: 'dates too far apart' }),
  'a page': html(200),
  nothing: (response) => void response.end(),
  '204': (response) => void response.writeHead(204).end(),
  redirect: (response) => void response.writeHead(302, { location: 'https://login.test/' }).end(),
  '400': json(400, { success: false, message: 'dates too far apart' }),
  '401': json(401, { message: 'Unauthorized' }),
  '401 page': html(401),
  '403': json(403, { message: 'Forbidden' }),
  '403 page': html(403),
  '404': json(404, { message: 'Cannot find it' }),
  '404 page': html(404),
  '429': json(429, { message: 'Too Many Requests' }),
  '429 page': html(429),
  '500': json(500, { message: 'Internal server error' }),
  '502 page': html(502),
  gzip: coded('gzip', gzipSync),
  deflate: coded('deflate', deflateSync),
  br: coded('br', brotliCompressSync),
  zstd: coded('zstd', zstdCompressSync),
  'cut off': (response, good) => {
    response.writeHead(200, { 'content-length': String(good.length) }).write(good.slice(0, 5));
    setImmediate(() => response.socket?.destroy());
  },
  silence: () => undefined,
};

/** The columns of the table. */
const COLUMNS = [
  'token.refresh',
  'order.all',
  'single',
  'batch',
  'product.list',
  'product.get',
  'webhook.put',
  'webhook.get',
] as const;
const ENDPOINTS_OF: Record<string, readonly Endpoint[]> = {
  single: ['product.put', 'product.stock.put'],
  batch: ['product.batch', 'product.stock.batch'],
};

/**
 * What a caller gets for each answer: `ok`, or the code of the error. `blocked` stops all calls for a while,
 * `rate-limited` and `forbidden` the one endpoint, `auth-required` all until the next try of the tokens, and nothing
 * else stops anything. The body of order.all is read later (test/orders/order-import.test.ts), so any JSON but a
 * refusal is `ok`.
 */
const TABLE = `
answer         | token.refresh | order.all    | single       | batch        | product.list | product.get  | webhook.put  | webhook.get
---------------|---------------|--------------|--------------|--------------|--------------|--------------|--------------|-------------
good           | ok            | ok           | ok           | ok           | ok           | ok           | ok           | ok
null           | garbled       | garbled      | garbled      | garbled      | garbled      | garbled      | garbled      | garbled
data: null     | garbled       | ok           | ok           | ok           | ok           | ok           | ok           | ok
no data        | garbled       | ok           | ok           | ok           | ok           | garbled      | ok           | garbled
data: {}       | garbled       | ok           | ok           | ok           | garbled      | garbled      | ok           | ok
data: 7        | garbled       | ok           | ok           | garbled      | garbled      | garbled      | garbled      | garbled
no envelope    | ok            | ok           | garbled      | garbled      | garbled      | garbled      | garbled      | garbled
success: false | refused       | refused      | refused      | refused      | refused      | refused      | refused      | refused
a page         | garbled       | garbled      | garbled      | garbled      | garbled      | garbled      | garbled      | garbled
nothing        | garbled       | garbled      | garbled      | garbled      | garbled      | garbled      | garbled      | garbled
204            | garbled       | garbled      | garbled      | garbled      | garbled      | garbled      | garbled      | garbled
redirect       | garbled       | garbled      | garbled      | garbled      | garbled      | garbled      | garbled      | garbled
400            | refused       | refused      | refused      | refused      | refused      | refused      | refused      | refused
401            | auth-required | unauthorized | unauthorized | unauthorized | unauthorized | unauthorized | unauthorized | unauthorized
401 page       | failed        | unauthorized | unauthorized | unauthorized | unauthorized | unauthorized | unauthorized | unauthorized
403            | blocked       | blocked      | blocked      | blocked      | blocked      | blocked      | blocked      | forbidden
403 page       | blocked       | blocked      | blocked      | blocked      | blocked      | blocked      | blocked      | forbidden
404            | refused       | refused      | refused      | refused      | refused      | refused      | refused      | ok
404 page       | garbled       | garbled      | garbled      | garbled      | garbled      | garbled      | garbled      | ok
429            | rate-limited  | rate-limited | rate-limited | rate-limited | rate-limited | rate-limited | rate-limited | rate-limited
429 page       | rate-limited  | rate-limited | rate-limited | rate-limited | rate-limited | rate-limited | rate-limited | rate-limited
500            | failed        | failed       | failed       | failed       | failed       | failed       | failed       | failed
502 page       | failed        | failed       | failed       | failed       | failed       | failed       | failed       | failed
gzip           | ok            | ok           | ok           | ok           | ok           | ok           | ok           | ok
deflate        | ok            | ok           | ok           | ok           | ok           | ok           | ok           | ok
br             | ok            | ok           | ok           | ok           | ok           | ok           | ok           | ok
zstd           | garbled       | garbled      | garbled      | garbled      | garbled      | garbled      | garbled      | garbled
cut off        | unreachable   | unreachable  | unreachable  | unreachable  | unreachable  | unreachable  | unreachable  | unreachable
silence        | unreachable   | unreachable  | unreachable  | unreachable  | unreachable  | unreachable  | unreachable  | unreachable
`;

/** A platform that gives `answer` to `endpoint` until `heal` is called, and good answers to all else. */
async function platformThat(endpoint: Endpoint, answer: Answer) {
  const calls: string[] = [];
  let isFaulty = true;
  let open = 0;
  const handle = (request: IncomingMessage, response: ServerResponse) => {
    request.resume().on('end', () => {
      const line = `${request.method} ${request.url?.split('?')[0]}`;
      calls.push(line);
      const called = ENDPOINTS.find((each) => CALLS[each].line === line);
      if (called === undefined) throw new Error(line);
      const good = JSON.stringify({ success: true, message: '', data: CALLS[called].data });
      const isHere = isFaulty && called === endpoint;
      if (!isHere || answer !== ANSWERS.silence) {
        open += 1;
        response.on('close', () => {
          open -= 1;
        });
      }
      (isHere ? answer : (ANSWERS.good as Answer))(response, good);
    });
  };
  const server = createServer(handle);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const clock = new FakeClock();
  const state = tempState(clock);
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const transport = createHttpTransport({ baseUrl, userAgent: 'tillsync/test', clock });
  const platform = new PlatformClient({
    transport,
    ledger: state.ledger,
    tokens: state.tokens,
    limits: documentLimits,
    clock,
    random: seededRandom(5),
    log: silentLog,
  });
  await platform.tokens.set({ refreshToken: 'planted-refresh', accessToken: 'planted-access' });
  onTestFinished(async () => {
    await transport.close();
    server.closeAllConnections();
    server.close();
  });
  /** Waits for a call. The clock moves only while no answer is under way. */
  const outcomeOf = async (call: Promise<unknown>): Promise<TillsyncError | undefined> => {
    let isOver = false;
    const ended = call.then(
      () => undefined,
      (error: unknown) => {
        if (error instanceof TillsyncError) return error;
        throw error;
      },
    );
    void ended.then(() => {
      isOver = true;
    });
    while (!isOver) {
      for (let turn = 0; turn < 10 && !isOver; turn++) await new Promise((resolve) => setImmediate(resolve));
      if (!isOver && open === 0) await clock.advance(500);
    }
    return ended;
  };
  return {
    ...{ calls, clock, state, platform, outcomeOf },
    heal: () => {
      isFaulty = false;
    },
  };
}

const short = (error: TillsyncError | undefined) => error?.code.replace('platform-', '') ?? 'ok';
/** Longest time after which everything that is no fault any more works again, without a person. */
const HEALED_AFTER_MS = 3_660_000;

const rows = TABLE.trim()
  .split('\n')
  .slice(2)
  .map((line) => line.split('|').map((cell) => cell.trim()));

test('the table has a row for each answer', () => {
  expect(rows.map(([answer]) => answer).sort()).toEqual(Object.keys(ANSWERS).sort());
});

for (const [name = '', ...cells] of rows) {
  test(`the platform answers "${name}"`, { tags: ['bulk'] }, async () => {
    const answer = ANSWERS[name] as Answer;
    const found: string[] = [];
    for (const column of COLUMNS) {
      const outcomes = new Set<string>();
      for (const endpoint of ENDPOINTS_OF[column] ?? [column as Endpoint]) {
        const { line, call } = CALLS[endpoint];
        const at = `${endpoint} answers ${name}`;
        const { calls, clock, state, platform, outcomeOf, heal } = await platformThat(endpoint, answer);
        const error = await outcomeOf(call(platform));
        outcomes.add(short(error));

        // What is called: once, and after a 401 once more with a new token.
        const isRenewed = error?.code === 'unauthorized';
        expect(calls, at).toEqual(isRenewed ? [line, CALLS['token.refresh'].line, line] : [line]);

        // What is told: a sentence with the platform's own words, if it has any, and without a token or a secret.
        const told = `${error?.message} ${error?.hint}`;
        expect(told, at).not.toMatch(/planted|access-2|refresh-2/);
        if (error?.code === 'platform-refused')
          expect(told, at).toMatch(/dates too far apart|Cannot find it/);
        if (error?.code === 'blocked' || error?.code === 'forbidden')
          expect(told, at).toMatch(/Forbidden|HTTP 403/);

        // What is kept: the tokens, unless the platform itself refused them, which is written down.
        const isLockedOut = error?.code === 'auth-required';
        expect(platform.tokens.describe(), at).toMatchObject({
          state: isLockedOut ? 'locked-out' : 'ok',
          triesAgainAtMs: isLockedOut ? clock.nowMs() + 60_000 : null,
        });

        // What stops: all calls after a block or a lock-out, one endpoint after a 429 or a 403 of its own, else nothing.
        const other = endpoint === 'product.get' ? 'product.list' : 'product.get';
        const waits = state.ledger.waits(documentLimits);
        const isOne = error?.code === 'rate-limited' || error?.code === 'forbidden';
        const stopped = waits.filter(({ reason }) => reason === 'blocked' || reason === 'retry-after');
        if (error?.code === 'blocked') expect(waits, at).toHaveLength(ENDPOINTS.length);
        else
          expect(
            stopped.map((wait) => wait.endpoint),
            at,
          ).toEqual(isOne ? [endpoint] : []);
        if (error?.code !== 'blocked') {
          expect(short(await outcomeOf(CALLS[other].call(platform))), at).toBe(
            isLockedOut ? 'auth-required' : 'ok',
          );
        }

        // Nobody is locked out: once the platform answers well, so does tillsync, without a person.
        heal();
        await clock.advance(HEALED_AFTER_MS);
        expect(short(await outcomeOf(call(platform))), at).toBe('ok');
        expect(short(await outcomeOf(CALLS[other].call(platform))), at).toBe('ok');
        expect(platform.tokens.describe().state, at).toBe('ok');
      }
      found.push([...outcomes].join(' and '));
    }
    expect(found).toEqual(cells);
  });
}
