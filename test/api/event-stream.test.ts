import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { API_KEY } from '../support/api-key.ts';
import { settle } from '../support/fake-clock.ts';
import { type ApiRig, type ApiRigOptions, openApi } from './api-rig.ts';
import { sampleOrder } from './api-samples.ts';

let rig: ApiRig;
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await rig?.close();
});
const open = async (options?: ApiRigOptions) => {
  rig = await openApi(options);
  return rig;
};

/** Opens a reader on a plain socket, so that it can stop reading. */
async function follow(query = '', headers: Record<string, string> = {}) {
  const socket = connect({ port: rig.port, host: '127.0.0.1' });
  sockets.push(socket);
  const reader = { socket, text: '', closed: false };
  socket.on('data', (chunk) => {
    reader.text += chunk.toString();
  });
  socket.on('close', () => {
    reader.closed = true;
  });
  socket.on('error', () => {});
  const lines = Object.entries({ accept: 'text/event-stream', 'x-api-key': API_KEY, ...headers }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  socket.write(`GET /v1/orders${query} HTTP/1.1\r\nHost: 127.0.0.1\r\n${lines.join('')}\r\n`);
  await turns(() => reader.text.includes('\r\n\r\n'));
  return reader;
}
const idsOf = ({ text }: { text: string }) =>
  [...text.matchAll(/^id: (\d+)$/gm)].map((match) => Number(match[1]));

/** Runs turns of the event loop until `isSo` is true, because real sockets need real turns. */
async function turns(isSo: () => boolean, max = 5000): Promise<void> {
  for (let i = 0; i < max && !isSo(); i++) await settle(1);
  expect(isSo()).toBe(true);
}

describe('the stream of orders', () => {
  it('gives what there is, then what comes, each event whole', async () => {
    const { addEvent, signal } = await open();
    addEvent('a', 'pending');
    const reader = await follow();
    await turns(() => idsOf(reader).length === 1);
    expect(reader.text).toMatch(/^HTTP\/1\.1 200 /);
    expect(reader.text.toLowerCase()).toContain('content-type: text/event-stream');
    expect(reader.text.toLowerCase()).toContain('x-content-type-options: nosniff');
    addEvent('a', 'ready');
    signal.notify();
    await turns(() => idsOf(reader).length === 2);
    const data = /id: 2\nevent: order\ndata: (.*)\n\n/.exec(reader.text)?.[1];
    expect(JSON.parse(data ?? '')).toMatchObject({
      seq: 2,
      status: 'ready',
      order: { orderId: 'a', items: [{}] },
    });
  });

  it('is told of nothing any more once its reader has left', async () => {
    const { state } = await open();
    const readers = [await follow(), await follow()];
    expect(state.listeners).toBe(2);
    for (const { socket } of readers) socket.destroy();
    await turns(() => state.listeners === 0);
  });

  it('looks by itself every second, since others write the mirror, too', async () => {
    const { addEvent, clock } = await open();
    const reader = await follow();
    addEvent('a', 'pending');
    await clock.advance(999);
    await settle(50);
    expect(idsOf(reader)).toEqual([]);
    await clock.advance(1);
    await turns(() => idsOf(reader).length === 1);
  });

  it.each([
    ['?after=2', {}, [3, 4]],
    ['', { 'last-event-id': '3' }, [4]],
    ['?after=1', { 'last-event-id': '3' }, [4]],
    ['?after=newest', {}, []],
    ['?after=newest', { 'last-event-id': '2' }, [3, 4]],
    ['', {}, [1, 2, 3, 4]],
  ])('goes on after %s and %j', async (query, headers, expected) => {
    const { addEvent, signal } = await open();
    for (let i = 0; i < 4; i++) addEvent('a', `${i}`);
    const reader = await follow(query, headers as Record<string, string>);
    await turns(() => idsOf(reader).length === expected.length);
    addEvent('b', 'new');
    signal.notify();
    await turns(() => idsOf(reader).length === expected.length + 1);
    expect(idsOf(reader)).toEqual([...expected, 5]);
  });

  it('gives a sign of life when nothing happens', async () => {
    const { clock } = await open();
    const reader = await follow();
    await settle(20);
    for (let second = 0; second < 14; second++) await clock.advance(1000);
    await settle(20);
    expect(reader.text).not.toContain(': still here');
    for (let second = 0; second < 3; second++) await clock.advance(1000);
    await turns(() => reader.text.includes(': still here\n\n'));
  });

  it('reads no further than a slow reader takes, and leaves out nothing for it', {
    tags: ['bulk'],
  }, async () => {
    const { addEvent, orders, state, signal } = await open();
    const count = 1200;
    for (let i = 0; i < count; i++) {
      const seq = addEvent(`o${i}`, 'pending');
      orders.set(`o${i}`, { ...sampleOrder(`o${i}`, seq, 'pending'), name: 'x'.repeat(20_000) });
    }
    const reader = await follow();
    reader.socket.pause();
    let before = -1;
    while (before !== state.reads) {
      before = state.reads;
      await settle(200);
      signal.notify();
    }
    // The events have 24 MB; the buffers of the sockets hold only a part of that.
    expect(state.reads).toBeLessThan(count / 25 / 2);
    reader.socket.resume();
    await turns(() => idsOf(reader).length === count, 20_000);
    expect(idsOf(reader)).toEqual(Array.from({ length: count }, (_, i) => i + 1));
  });

  it('cuts off a reader that takes nothing for a minute, and reads nothing more for it', async () => {
    const { addEvent, orders, clock, state } = await open({ streamsMax: 1 });
    // A sleep of 0 ends at once, as with the real clock.
    const sleep = clock.sleep.bind(clock);
    clock.sleep = async (ms, signal) => (ms > 0 ? sleep(ms, signal) : undefined);
    for (let i = 0; i < 1000; i++) {
      const seq = addEvent(`o${i}`, 'pending');
      orders.set(`o${i}`, { ...sampleOrder(`o${i}`, seq, 'pending'), name: 'x'.repeat(20_000) });
    }
    const reader = await follow();
    reader.socket.pause();
    // Waits until nothing is read for some turns, because a busy machine empties the socket's buffers late.
    let before = -1;
    for (let same = 0; same < 20; same = before === state.reads ? same + 1 : 0) {
      before = state.reads;
      await settle(200);
    }
    await clock.advance(59_000);
    expect((await rig.call('/v1/orders', { headers: { accept: 'text/event-stream' } })).status).toBe(429);
    await clock.advance(2_000);
    let next = await follow('?after=newest');
    // The minute begins anew with each byte that the kernel of a busy machine takes late.
    for (let minute = 1; minute < 5 && next.text.startsWith('HTTP/1.1 429 '); minute++) {
      await clock.advance(61_000);
      next = await follow('?after=newest');
    }
    expect(next.text).toMatch(/^HTTP\/1\.1 200 /);
    const { reads } = state;
    await settle(200);
    expect(state.reads).toBe(reads);
  });

  it('leaves room for other addresses: no caller holds more than two of five', async () => {
    const { clock } = await open({ streamsMax: 5 });
    const [first] = [await follow(), await follow()];
    await turns(() => clock.sleeping === 2);
    expect((await follow()).text).toMatch(/^HTTP\/1\.1 429 /);
    first?.socket.destroy();
    await turns(() => clock.sleeping === 1);
    expect((await follow()).text).toMatch(/^HTTP\/1\.1 200 /);
  });

  it('lets go of a reader that leaves', async () => {
    const { clock } = await open({ streamsMax: 1 });
    const first = await follow();
    await turns(() => clock.sleeping === 1);
    first.socket.destroy();
    await turns(() => clock.sleeping === 0);
    expect((await follow()).text).toMatch(/^HTTP\/1\.1 200 /);
  });

  it('ends when the mirror was made anew or cannot be read, so that the reader comes back and is told', async () => {
    const { events, clock, state, addEvent } = await open();
    addEvent('a', 'pending');
    const first = await follow();
    await turns(() => idsOf(first).length === 1);
    events.length = 0;
    await clock.advance(1000);
    await turns(() => first.text.endsWith('0\r\n\r\n'));
    const ahead = await follow('', { 'last-event-id': '1' });
    expect(ahead.text).toMatch(/^HTTP\/1\.1 400 /);

    const second = await follow();
    await settle(20);
    state.failure = new TillsyncError('storage-failed', 'The disk fails.');
    await clock.advance(1000);
    await turns(() => second.text.endsWith('0\r\n\r\n'));
  });

  it('does not hold up the end of the server', async () => {
    const { server, clock } = await open();
    const reader = await follow();
    await settle(20);
    const closing = server.close();
    await turns(() => reader.text.endsWith('0\r\n\r\n'));
    await closing;
    expect(clock.sleeping).toBe(0);
  });
});
