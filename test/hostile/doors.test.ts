/** Tries the doors of a running daemon without the key, or without the secret of callbacks: by path, header and connection. */

import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { notify, openFaultPlace, rowsOf } from '../faults/support/fault-place.ts';
import { sendRaw } from '../slow/fuzz/raw-http.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { limitMs } from '../support/shared-config.ts';
import { type DaemonProcess, SECRET, until, type Workplace } from '../support/workplace.ts';

const KEY = 'key-of-the-hostile-tests-0123456789';
/** What no answer without a key may contain: of a customer, of an order, of a metric, of a secret. */
const INSIDE = /Ana|Núñez|\+569|ana@example|Av\. Uno|65a10|tillsync_|key-of|"versions"/;

let place: Workplace;
let daemon: DaemonProcess;
let withdrawn: string;
let screen: string;

const apiPort = () => Number(new URL(daemon.localUrl).port);
const orderCount = () => rowsOf<{ n: number }>(place, 'SELECT count(*) AS n FROM orders')[0]?.n;
const addKey = async (name: string, may: string) => {
  const made = await place.command('key', 'add', name, '--may', may, '--json');
  return (JSON.parse(made.stdout) as { key: string }).key;
};

beforeAll(async () => {
  place = await openFaultPlace();
  place.env.TILLSYNC_LOCAL_API_KEY = KEY;
  daemon = await place.run();
  for (let n = 1; n <= 3; n++) expect(await notify(place, sampleNotification(n))).toBe(200);
  withdrawn = await addKey('till-1', 'orders,ack,stock');
  screen = await addKey('kitchen', 'screen');
  await place.command('key', 'remove', 'till-1');
});

afterAll(async () => {
  await daemon.end('SIGTERM');
  await place.close();
});

/** Sends a request to the local API as it is given. Returns status and whole answer. */
async function ask(line: string, ...headers: string[]) {
  const head = [`${line} HTTP/1.1`, 'connection: close', ...headers, '', ''].join('\r\n');
  const { statuses, text } = await sendRaw(apiPort(), head, { waitMs: limitMs(2_000) });
  return { status: statuses[0], text };
}

const HOST = 'host: 127.0.0.1';
const keyOf = (key: string) => `x-api-key: ${key}`;

it('gives orders to the key, so that what the others get can be told from it', async () => {
  const orders = await ask('GET /v1/orders', HOST, keyOf(KEY));
  expect(orders.status).toBe(200);
  expect(orders.text).toMatch(INSIDE);
  expect((await ask('GET /metrics', HOST, keyOf(KEY))).text).toMatch(INSIDE);
});

const PATHS = [
  ...[
    '/v1/orders',
    '/v1/orders/',
    '//v1/orders',
    '/v1//orders',
    '/V1/ORDERS',
    '/v1/./orders',
    '/v1/../v1/orders',
  ],
  ...['/healthz/../v1/orders', '/healthz/..%2fv1/orders', '/index.html/../v1/orders', '/%76%31/orders'],
  ...[
    '/v1%2forders',
    '/v1/orders%00',
    '/v1/orders%20',
    '/v1/orders;/healthz',
    '/healthz;/../v1/orders',
    '/\\v1\\orders',
  ],
  ...['http://127.0.0.1/v1/orders', 'http://healthz/v1/orders', '/v1/orders#/healthz', '/v1/orders?/healthz'],
  ...[
    '/v1/status',
    '/v1/board',
    '/v1/stream',
    '/v1/orders/search?q=Ana',
    '/v1/openapi.json/../orders',
    '/metrics',
    '/metrics/',
  ],
  ...[
    `/v1/orders?x-api-key=${KEY}`,
    `/v1/orders?key=${KEY}`,
    `/v1/orders?api_key=${KEY}`,
    `/healthz?key=${KEY}`,
  ],
];

describe.each([
  ['no key', () => [] as string[]],
  ['a wrong key', () => [keyOf('key-of-nobody')]],
  ['a withdrawn key', () => [keyOf(withdrawn)]],
])('with %s', (_what, headers) => {
  it.each(PATHS)('%s shows nothing', async (path) => {
    for (const method of ['GET', 'HEAD', 'OPTIONS', 'POST']) {
      const { status = 0, text } = await ask(`${method} ${path}`, HOST, 'content-length: 0', ...headers());
      expect(text, method).not.toMatch(INSIDE);
      if (/v1|metrics/i.test(path)) expect(status, method).toBeGreaterThanOrEqual(400);
    }
  });
});

it.each([
  ['two keys', [keyOf('key-of-nobody'), keyOf(KEY)]],
  ['the right key among others', [`x-api-key: key-of-nobody, ${KEY}`]],
  ['a part of the key', [keyOf(KEY.slice(0, -1))]],
  ['the key and more', [keyOf(`${KEY}0`)]],
  ['the key in capitals', [keyOf(KEY.toUpperCase())]],
  ['an empty key', ['x-api-key:']],
  ['the key as a password', [`authorization: Basic ${Buffer.from(`user:${KEY}`).toString('base64')}`]],
  ['the key in a cookie', [`cookie: x-api-key=${KEY}; key=${KEY}`]],
  ['the path of another route', ['x-original-url: /healthz', 'x-rewrite-url: /healthz']],
  [
    'the address of this machine',
    ['x-forwarded-for: 127.0.0.1', 'x-real-ip: 127.0.0.1', 'forwarded: for=127.0.0.1'],
  ],
  ['another method', ['x-http-method-override: OPTIONS', 'x-method-override: HEAD']],
])('%s in the headers shows nothing', async (_what, headers) => {
  for (const path of ['/v1/orders', '/metrics']) {
    const { status, text } = await ask(`GET ${path}`, HOST, ...headers);
    expect(text, path).not.toMatch(INSIDE);
    expect(status, path).toBe(401);
  }
});

it('a request without the key has no part in the key of another on its connection', async () => {
  const first = `GET /v1/status HTTP/1.1\r\n${HOST}\r\n${keyOf(KEY)}\r\n\r\n`;
  const second = `GET /v1/orders HTTP/1.1\r\n${HOST}\r\nconnection: close\r\n\r\n`;
  const both = await sendRaw(apiPort(), first + second, { waitMs: limitMs(2_000) });
  expect(both.statuses).toEqual([200, 401]);
});

it.each([
  ['both lengths', 'content-length: 6\r\ntransfer-encoding: chunked'],
  ['two lengths', 'content-length: 0\r\ncontent-length: 60'],
  ['an unknown coding', 'transfer-encoding: xchunked'],
  ['a coding twice', 'transfer-encoding: chunked\r\ntransfer-encoding: identity'],
])('a request in the body of one with %s is not answered', async (_what, lengths) => {
  const hidden = `GET /v1/orders HTTP/1.1\r\n${HOST}\r\n${keyOf(KEY)}\r\n\r\n`;
  const around = `POST /v1/stock HTTP/1.1\r\n${HOST}\r\n${lengths}\r\n\r\n0\r\n\r\n${hidden}`;
  const { statuses, text } = await sendRaw(apiPort(), around, { waitMs: limitMs(1_000) });
  expect(text).not.toMatch(INSIDE);
  expect(statuses.filter((status) => status < 400)).toEqual([]);
});

it('a key for a screen shows no telephone, no e-mail and no address, on any route', async () => {
  const { text } = await ask('GET /v1/openapi.json', HOST, keyOf(screen));
  const { paths } = JSON.parse(text.slice(text.indexOf('\r\n\r\n'))) as { paths: Record<string, object> };
  const id = String(sampleNotification(1).internalOrderId);
  const seen: (number | undefined)[] = [];
  for (const [path, methods] of Object.entries(paths)) {
    if (!('get' in methods) || path === '/stream') continue;
    const url = `/v1${path.replace('{orderId}', id).replace(/\{\w+\}/, '1')}`;
    const answer = await ask(`GET ${url}`, HOST, keyOf(screen));
    seen.push(answer.status);
    expect(answer.text, url).not.toMatch(/\+569|ana@example|Av\. Uno/);
  }
  expect(seen.filter((status) => status === 200).length).toBeGreaterThan(5);
});

it('a key that is withdrawn ends the stream that it opened, and its next request is refused', async () => {
  const key = await addKey('tablet', 'orders');
  const stream = await request(`${daemon.localUrl}/v1/stream`, { headers: { 'x-api-key': key } });
  let isOver = false;
  stream.body
    .on('data', () => {})
    .on('close', () => {
      isOver = true;
    });
  expect(stream.statusCode).toBe(200);
  await place.command('key', 'remove', 'tablet');
  expect((await ask('GET /v1/orders', HOST, keyOf(key))).status).toBe(401);
  await until('the stream ends', () => isOver, 2_000);
});

it('callbacks by another path, method or header leave no order', async () => {
  const before = orderCount();
  const { pathname, host, port } = new URL(place.config.webhook.callbackUrl);
  const body = JSON.stringify(sampleNotification(77));
  const send = async (line: string, ...headers: string[]) => {
    const lines = [`${line} HTTP/1.1`, `host: ${host}`, 'connection: close', ...headers];
    const head = `${lines.join('\r\n')}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`;
    const { statuses, text } = await sendRaw(Number(port), Buffer.from(head + body), {
      waitMs: limitMs(2_000),
    });
    expect(text, line).not.toMatch(/Ana|secret-|65a10/);
    return statuses;
  };
  const secret = `x-webhook-secret: ${SECRET}`;
  const tries = [
    ...[
      pathname,
      `/${pathname}`,
      `${pathname}/`,
      `${pathname}/..${pathname}`,
      `${pathname}?secret=${SECRET}`,
    ].map((path) => send(`POST ${path}`)),
    ...['GET', 'PUT', 'DELETE', 'OPTIONS', 'TRACE'].map((method) => send(`${method} ${pathname}`, secret)),
    ...['/', '/v1/orders', `/x${pathname}`].map((path) => send(`POST ${path}`, secret)),
    send(`POST ${pathname}`, `x-webhook-secret: ${SECRET.slice(1)}`),
    send(`POST ${pathname}`, 'x-webhook-secret: no', secret),
    send(`POST ${pathname}`, `authorization: Bearer ${SECRET}`),
    send(`POST ${pathname}`, 'x-tillsync-probe: 1'),
    send(`POST ${pathname}`, secret, 'content-length: 0'),
  ];
  for (const statuses of await Promise.all(tries)) {
    expect(statuses.filter((status) => status < 400)).toEqual([]);
  }
  expect(orderCount()).toBe(before);
  expect(await notify(place, sampleNotification(77))).toBe(200);
  expect(orderCount()).toBe((before ?? 0) + 1);
});
