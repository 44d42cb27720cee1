/** Tests src/core/one-at-a-time.ts and src/api/places.ts as the local API uses them. */

import { connect, type Socket } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { keyDigest } from '../../src/db/api-keys.ts';
import { settle } from '../support/fake-clock.ts';
import { type ApiRig, type ApiRigOptions, openApi } from './api-rig.ts';
import { sampleOrder } from './api-samples.ts';

const KEY = 'key-of-the-connections-test-0123456789';
const sockets: Socket[] = [];
let rig: ApiRig | undefined;
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await rig?.close();
  rig = undefined;
});

async function open(options: ApiRigOptions = {}) {
  rig = await openApi({ apiKey: KEY, ...options });
  return rig;
}

/** Sends text on a connection of its own. */
function send(port: number, text: string) {
  const socket = connect(port, '127.0.0.1');
  sockets.push(socket);
  // The end apart, because to look at the end of a long text joins its pieces each time.
  const got = { text: '', end: '', closed: false };
  socket.on('data', (chunk) => {
    const piece = chunk.toString('latin1');
    got.text += piece;
    got.end = (got.end + piece).slice(-100);
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    got.closed = true;
  });
  socket.write(text);
  return { socket, got, count: () => got.text.match(/HTTP\/1\.1 \d+/g)?.length ?? 0 };
}

const get = (path: string, key = KEY) =>
  `GET ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${key}\r\n\r\n`;

async function until(isTrue: () => boolean): Promise<void> {
  for (let i = 0; i < 20_000 && !isTrue(); i++) await settle(1);
  expect(isTrue()).toBe(true);
}

it('begins a request when the one before it on its connection is answered', async () => {
  const { port, state, addEvent, signal, call } = await open();
  addEvent('a', 'pending');
  const { got, count, socket } = send(
    port,
    get('/v1/orders?after=1&wait=30') + get('/v1/orders?after=0').repeat(3),
  );
  await until(() => state.listeners === 1);
  await settle(50);
  const { reads } = state;
  // Another connection is served meanwhile.
  expect((await call('/v1/orders?after=0', { headers: { 'x-api-key': KEY } })).status).toBe(200);
  expect([count(), state.reads - reads]).toEqual([0, 1]);
  addEvent('b', 'pending');
  signal.notify();
  await until(() => count() === 4);
  expect(got.closed).toBe(false);
  socket.destroy();
});

it('closes a connection on which too many wait, after the answers to those before', async () => {
  const { port, state, addEvent } = await open();
  addEvent('a', 'pending');
  const { got, count } = send(port, get('/v1/orders').repeat(400));
  await until(() => got.closed);
  // One is handled, and eight wait.
  expect([count(), state.reads]).toEqual([9, 9]);
});

it('does not work off what a closed connection asked', async () => {
  const { port, state, addEvent, signal } = await open();
  addEvent('a', 'pending');
  const { socket } = send(port, get('/v1/orders?after=1&wait=30') + get('/v1/orders').repeat(5));
  await until(() => state.listeners === 1);
  socket.resetAndDestroy();
  await until(() => state.listeners === 0);
  signal.notify();
  await settle(50);
  const { reads } = state;
  await settle(50);
  expect(state.reads).toBe(reads);
  // One read at the beginning of the wait, one at its end.
  expect(reads).toBeLessThanOrEqual(2);
});

it.each([
  ['without a valid key', get('/v1/orders', 'wrong'), 401],
  ['to where there is nothing', get('/v1/nothing'), 404],
  ['outside the API', get('/nothing'), 404],
  ['of a method that the path does not take', get('/v1/orders').replace('GET', 'DELETE'), 405],
])('closes the connection of a request %s', async (_which, text, status) => {
  const { port, state, addEvent } = await open();
  addEvent('a', 'pending');
  const { got, count } = send(port, text + get('/v1/orders').repeat(5));
  await until(() => got.closed);
  expect(got.text).toMatch(new RegExp(`^HTTP/1\\.1 ${status} .*\\r\\nconnection: close\\r\\n`, 's'));
  expect([count(), state.reads]).toEqual([1, 0]);
});

it('keeps the connection after an ordinary answer, 404 of an order too', async () => {
  const { port } = await open();
  const { got, count, socket } = send(port, get('/v1/orders/none') + get('/v1/orders?after=0'));
  await until(() => count() === 2);
  expect(got.text).toMatch(/^HTTP\/1\.1 404 .*HTTP\/1\.1 200 /s);
  expect(got.closed).toBe(false);
  socket.destroy();
});

it('ends a request of whose body nothing comes for five seconds, and gives its place to others', async () => {
  const { port, clock, state, post } = await open();
  const head = `POST /v1/stock HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: ${KEY}\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n[`;
  const slow = Array.from({ length: 75 }, () => send(port, head));
  await until(() => clock.sleeping === slow.length);
  const headers = { 'x-api-key': KEY };
  const item = [{ externalId: 'A', qty: 1 }];
  expect((await post('/v1/stock', item, headers)).status).toBe(429);
  await clock.advance(4_000);
  slow[0]?.socket.write(' ');
  await settle(20);
  await clock.advance(1_000);
  await until(() => slow.slice(1).every(({ got }) => got.closed));
  for (const { got } of slow.slice(1)) expect(got.text).toMatch(/^HTTP\/1\.1 408 .*connection: close/s);
  expect(slow[0]?.got.text).toBe('');
  expect((await post('/v1/stock', item, headers)).status).toBe(200);
  await clock.advance(5_000);
  await until(() => slow[0]?.got.closed === true);
  expect(state.taken).toHaveLength(1);
});

const SCREEN = 'key-of-a-screen-0123456789';

/** The main key, and a key with the right `screen`. Both come from this machine. */
function withScreen(options: ApiRigOptions = {}) {
  const screen = { name: 'wall', may: ['screen'] as const, withdrawnAt: null };
  const digest = keyDigest(SCREEN, 'latin1');
  const find = (offered: Buffer) => (offered.equals(digest) ? screen : undefined);
  return open({ namedKeys: { find } as NonNullable<ApiRigOptions['namedKeys']>, ...options });
}

it('keeps places for the till while another key holds all that it may', async () => {
  const { port, state, addEvent, call } = await withScreen({ streamsMax: 5 });
  addEvent('a', 'pending');
  for (let i = 0; i < 5; i++) {
    send(port, get('/v1/orders?after=1&wait=30', SCREEN));
    send(port, get('/v1/stream?after=1', SCREEN));
  }
  await until(() => state.listeners === 4);
  const headers = { 'x-api-key': SCREEN };
  const refused = await call('/v1/orders?after=1&wait=30', { headers });
  expect([refused.status, refused.headers['retry-after']]).toEqual([429, '1']);
  expect(refused.body.error.message).toBe('2 requests wait for an event already, all with this key.');
  const polls = [1, 2].map(() => send(port, get('/v1/orders?after=1&wait=30')));
  const streams = [1, 2].map(() => send(port, get('/v1/stream?after=1')));
  await until(() => state.listeners === 8);
  await until(() => streams.every(({ got }) => got.text.startsWith('HTTP/1.1 200 ')));
  expect(polls.map(({ got }) => got.text)).toEqual(['', '']);
});

/** Fills the feed with so much that no socket takes a page of it whole. */
function fill({ addEvent, orders }: ApiRig): void {
  for (let i = 0; i < 500; i++) {
    const seq = addEvent(`o${i}`, 'pending');
    orders.set(`o${i}`, { ...sampleOrder(`o${i}`, seq, 'pending'), name: 'x'.repeat(100_000) });
  }
}

it('makes no more of a page than its reader takes, and lets those with another key read meanwhile', async () => {
  const opened = await withScreen();
  fill(opened);
  let made = 0;
  const find = opened.orders.get.bind(opened.orders);
  opened.orders.get = (id) => {
    made += 1;
    return find(id);
  };
  const quiet = Array.from({ length: 30 }, () => {
    const sent = send(opened.port, get('/v1/orders?limit=500', SCREEN));
    sent.socket.pause();
    return sent;
  });
  let before = -1;
  for (let same = 0; same < 10; same = before === made ? same + 1 : 0) {
    before = made;
    await settle(200);
  }
  // Two pages are under way, of which each has 8 MiB, 80 orders.
  expect(made).toBeGreaterThan(0);
  expect(made).toBeLessThan(160);
  const headers = { 'x-api-key': KEY };
  const page = await opened.call('/v1/orders?limit=500', { headers });
  expect(page.status).toBe(200);
  expect(page.body).toMatchObject({ newest: 500, next: page.body.events.length });
  // Twenty wait for the two; the others were told to come again.
  for (const { socket } of quiet) socket.resume();
  await until(() => quiet.filter(({ got }) => got.text.startsWith('HTTP/1.1 429 ')).length === 8);
  await until(() => quiet.filter(({ got }) => got.end.endsWith('"trimmedTo":2}\r\n0\r\n\r\n')).length === 22);
});

it('stops making a page when its reader leaves, and cuts off one that takes nothing for a minute', async () => {
  const opened = await withScreen();
  fill(opened);
  const { clock, port } = opened;
  const one = send(port, get('/v1/orders?limit=500'));
  const two = send(port, get('/v1/orders?limit=500'));
  one.socket.pause();
  two.socket.pause();
  await until(() => clock.sleeping === 2);
  const third = send(port, get('/v1/orders?limit=500'));
  one.socket.resetAndDestroy();
  await until(() => third.got.end.endsWith('"trimmedTo":2}\r\n0\r\n\r\n'));
  await settle(200);
  await until(() => clock.sleeping === 1);
  for (let minutes = 0; minutes < 5 && clock.sleeping > 0; minutes++) await clock.advance(60_000);
  expect(clock.sleeping).toBe(0);
});
