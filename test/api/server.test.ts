/** Tests src/api/status-routes.ts and src/core/listen.ts. */

import os from 'node:os';
import type { FastifyPluginAsync } from 'fastify';
import { Agent, type Dispatcher, request } from 'undici';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { LoopBeat } from '../../src/api/metrics.ts';
import { createLocalServer } from '../../src/api/server.ts';
import { healthRoutes } from '../../src/api/status-routes.ts';
import { hostOf } from '../../src/core/listen.ts';
import { silentLog } from '../../src/core/log.ts';
import { API_KEY, sendingKey } from '../support/api-key.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';

type LocalServer = ReturnType<typeof createLocalServer>;

let server: LocalServer | undefined;
let dispatcher: Dispatcher | undefined;
afterEach(async () => {
  await dispatcher?.close();
  await server?.close();
  server = undefined;
  dispatcher = undefined;
});

async function start(plugins: FastifyPluginAsync[] = [], host = '127.0.0.1') {
  const clock = new FakeClock();
  const loops: LoopBeat[] = [];
  const reasons: string[] = [];
  const health = healthRoutes({
    clock,
    loopsAlive: () => loops,
    notReady: () => reasons,
    storage: '/var/lib/tillsync',
    apiKey: API_KEY,
  });
  server = createLocalServer({ host, port: 0, clock, log: silentLog, plugins: [health, ...plugins] });
  dispatcher = new Agent().compose(sendingKey);
  const { url, port } = await server.listen();
  const get = async (path: string, headers: Record<string, string> = {}) => {
    const answer = await request(`${url}${path}`, { dispatcher: dispatcher as Dispatcher, headers });
    return { status: answer.statusCode, body: (await answer.body.json()) as Record<string, unknown> };
  };
  return { clock, loops, reasons, get, port };
}

it.each(['0.0.0.0', '::', 'localhost'])('listens on %s where nobody may list the addresses', async (host) => {
  // The systemd units forbid netlink sockets, so in a service this call fails with such an error.
  vi.spyOn(os, 'networkInterfaces').mockImplementation(() => {
    throw new Error('uv_interface_addresses returned Unknown system error 97');
  });
  try {
    const { port } = await start([], host);
    const name = host === '::' ? '[::1]' : '127.0.0.1';
    const answer = await request(`http://${name}:${port}/healthz`, { dispatcher: dispatcher as Dispatcher });
    expect(await answer.body.json()).toMatchObject({ status: 'ok' });
  } finally {
    vi.restoreAllMocks();
  }
});

describe('health', () => {
  it('is good while every loop gives signs of life', async () => {
    const { clock, loops, get } = await start();
    loops.push({ name: 'orders', lastBeatMs: clock.monotonicMs() });
    await clock.advance(60_000);
    expect(await get('/healthz')).toEqual({
      status: 200,
      body: {
        status: 'ok',
        storage: '/var/lib/tillsync',
        loops: [{ name: 'orders', silentMs: 60_000 }],
        stalled: [],
        notReady: [],
      },
    });
  });

  it('fails with the names of loops that went silent', async () => {
    const { clock, loops, get } = await start();
    loops.push({ name: 'orders', lastBeatMs: clock.monotonicMs() });
    await clock.advance(1);
    loops.push({ name: 'push', lastBeatMs: clock.monotonicMs() });
    await clock.advance(600_000);
    expect(await get('/healthz')).toMatchObject({ status: 503, body: { stalled: ['orders'] } });
    await clock.advance(1);
    expect(await get('/healthz')).toMatchObject({ status: 503, body: { stalled: ['orders', 'push'] } });
  });

  it('is ready or says why not', async () => {
    const { reasons, get } = await start();
    expect(await get('/readyz')).toEqual({ status: 200, body: { status: 'ok', reasons: [] } });
    reasons.push('The mirror is not open.');
    expect(await get('/readyz')).toEqual({
      status: 503,
      body: { status: 'failing', reasons: ['The mirror is not open.'] },
    });
  });

  it('tells no reasons without the key', async () => {
    const { reasons, get } = await start();
    reasons.push('The mirror is not open.');
    expect(await get('/readyz', { 'x-api-key': 'wrong' })).toEqual({
      status: 503,
      body: { status: 'failing' },
    });
  });
});

describe('the local server', () => {
  it.each(['127.0.0.1', 'localhost:8788', 'till.shop.example', 'evil.example', ''])(
    'tells under the name %j nothing but its state to who has no key',
    async (host) => {
      const { get, loops, clock } = await start();
      loops.push({ name: 'orders', lastBeatMs: clock.monotonicMs() });
      expect(await get('/healthz', { host, 'x-api-key': '' })).toEqual({
        status: 200,
        body: { status: 'ok', storage: '/var/lib/tillsync' },
      });
      expect((await get('/readyz', { host, 'x-api-key': '' })).body).toEqual({ status: 'ok' });
    },
  );

  it('takes further plugins and tells nothing of what goes wrong in them', async () => {
    const { get } = await start([
      async (app) => {
        app.get('/fails', async () => {
          throw new Error('secret detail');
        });
      },
    ]);
    const failed = await get('/fails');
    expect(failed.status).toBe(500);
    expect(JSON.stringify(failed.body)).not.toContain('secret detail');
    expect((await get('/nothing')).status).toBe(404);
  });

  it('cuts off a request that outlasts the deadline of closing', async () => {
    const { clock, get } = await start([
      async (app) => {
        app.get('/stuck', () => new Promise(() => {}));
      },
    ]);
    const stuck = get('/stuck').catch(() => 'cut off');
    await settle(50);
    let closed = false;
    const closing = server?.close(1_000).then(() => {
      closed = true;
    });
    await clock.advance(999);
    expect(closed).toBe(false);
    await clock.advance(1);
    await closing;
    expect(await stuck).toBe('cut off');
  });

  it('says which address it cannot listen on', async () => {
    const { port, clock } = await start();
    const other = createLocalServer({ host: '127.0.0.1', port, clock, log: silentLog, plugins: [] });
    await expect(other.listen()).rejects.toMatchObject({ code: 'config-invalid' });
  });
});

describe('names', () => {
  it.each([
    ['a:1', 'a'],
    ['[::1]:80', '[::1]'],
    ['a:b:c', ''],
    ['a@127.0.0.1', 'a@127.0.0.1'],
    [undefined, ''],
  ])('host of %s', (header, expected) => expect(hostOf(header)).toBe(expected));
});
