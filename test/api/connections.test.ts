/** Tests src/core/one-at-a-time.ts as the local API uses it. */

import { connect } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { WAITING_MAX } from '../../src/core/one-at-a-time.ts';
import { settle } from '../support/fake-clock.ts';
import { type ApiRig, type ApiRigOptions, openApi } from './api-rig.ts';

const KEY = 'key-of-the-connections-test-0123456789';
let rig: ApiRig | undefined;
afterEach(async () => {
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
  const got = { text: '', closed: false };
  socket.on('data', (chunk) => {
    got.text += chunk.toString('latin1');
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
  expect([count(), state.reads]).toEqual([1 + WAITING_MAX, 1 + WAITING_MAX]);
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
