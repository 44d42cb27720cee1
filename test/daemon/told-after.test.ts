import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { AlarmKey } from '../../src/core/alarm.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { Heartbeat } from '../../src/health/heartbeat.ts';
import { matrixRows } from '../fault-matrix-rows.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { type StoreRig, storeRig, type Tamper } from '../support/store-rig.ts';
import { heartbeatTo, listener } from '../support/watchers.ts';

const MINUTE_MS = 60_000;
const STEP_MS = 5_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const GIVEN_UP_MS = 60 * MINUTE_MS;

/** A store that polls every two minutes and looks as often as in a shop. */
const openStore = () =>
  storeRig({
    config: (config) => ({ ...config, orders: { ...config.orders, poll: '*/2 * * * *' } }),
    lookEveryMs: 15_000,
  });

interface Scene {
  store: StoreRig;
  daemon: Daemon;
  line: { isCut: boolean };
}

/** Each fault that a person is told of, and how it comes about; `again`: every minute. */
const FAULTS: { key: AlarmKey; begin?: (scene: Scene) => unknown; again?: (scene: Scene) => unknown }[] = [
  {
    key: 'orders.stale',
    begin: ({ line }) => {
      line.isCut = true;
    },
  },
  {
    key: 'auth.locked-out',
    begin({ store: { sandbox } }) {
      sandbox.control.revokeRefreshTokens();
      sandbox.control.expireAccessTokens();
    },
  },
  {
    key: 'platform.blocked',
    begin: ({ store: { sandbox } }) => sandbox.control.setFault({ kind: 'block', times: 1 }),
  },
  {
    key: 'clock.wrong',
    begin({ store: { clock, sandbox } }) {
      clock.jumpWall(5 * DAY_MS);
      sandbox.control.configure({ clockSkewMs: -5 * DAY_MS });
    },
  },
  {
    key: 'inbox.locked',
    begin({ store: { directory } }) {
      const pos = new Database(path.join(directory, 'inbox', 'inbox.db'), { timeout: 0 });
      onTestFinished(() => void pos.close());
      pos.exec("INSERT INTO stock_changes (external_id, qty) VALUES ('any', 1); BEGIN IMMEDIATE");
    },
  },
  {
    key: 'mirror.reader-holds-wal',
    begin({ store: { directory } }) {
      const reader = new Database(path.join(directory, 'mirror.db'), { readonly: true });
      onTestFinished(() => void reader.close());
      reader.exec('BEGIN; SELECT count(*) FROM orders');
    },
    again: ({ daemon }) =>
      void daemon.parts.mirror.write((db) =>
        db.exec(
          'UPDATE marks SET value = value + 1; CREATE TABLE IF NOT EXISTS filling (x); INSERT INTO filling VALUES (zeroblob(20000000)); DELETE FROM filling',
        ),
      ),
  },
  {
    key: 'webhook.silent',
    again: ({ store: { sandbox } }) => sandbox.control.createOrder({}, { hidden: true }),
  },
  {
    key: 'webhook.refused',
    again: ({ daemon }) =>
      fetch(String(daemon.webhookUrl), {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-webhook-secret': 'another' },
        body: '{}',
      }),
  },
  { key: 'webhook.unreadable', begin: ({ store, daemon }) => store.announce(daemon, { what: 'is this' }) },
  {
    key: 'outbox.rejected',
    begin: ({ daemon }) =>
      fetch(`${daemon.localUrl}/v1/stock`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '[{"externalId":"nobody-knows-it","qty":1}]',
      }),
  },
  {
    // The disk is full: not a page more for the mirror.
    key: 'storage.failing',
    begin: ({ daemon }) => daemon.parts.mirror.read((db) => db.pragma('max_page_count = 1')),
    again: ({ store, daemon }) =>
      store.announce(daemon, sampleNotification(1, { name: 'x'.repeat(200_000) })),
  },
  {
    key: 'orders.unbooked',
    async begin({ store, daemon }) {
      const ids: string[] = [];
      for (const number of [1, 2]) {
        const order = sampleNotification(number, { status: 'picker-pending' });
        ids.push(String(order.internalOrderId));
        await store.announce(daemon, order);
      }
      void daemon.parts.outbox.acknowledge(ids.slice(1), 'http');
    },
  },
];

describe('a person is told', () => {
  const measured = new Map<string, number>();

  it.each(FAULTS)('of $key', async ({ key, begin, again }) => {
    const store = openStore();
    const line = { isCut: false };
    const tamper: Tamper = (_request, pass) => {
      if (line.isCut) throw new TillsyncError('platform-unreachable', 'The line is cut.');
      return pass();
    };
    const daemon = await store.daemon(tamper);
    await store.clock.advance(10 * MINUTE_MS);
    const told: string[] = [];
    const look = listener(daemon.parts, store.clock, (_news, key) => void told.push(key));
    await look();
    const scene = { store, daemon, line };
    await begin?.(scene);
    let waitedMs = 0;
    for (; !told.includes(key) && waitedMs < GIVEN_UP_MS; waitedMs += STEP_MS) {
      if (waitedMs % MINUTE_MS === 0) await again?.(scene);
      await store.clock.advance(STEP_MS);
      await look();
    }
    measured.set(key, Math.ceil(waitedMs / MINUTE_MS));
    expect(told).toContain(key);
  });

  it('as soon as the fault matrix says', () => {
    const said = new Map(
      matrixRows().flatMap(({ toldAfter }) =>
        Array.from(toldAfter.matchAll(/`([\w.-]+)` (\d+) min/g), ([, key, minutes]) => [
          key,
          Number(minutes),
        ]),
      ) as [string, number][],
    );
    expect(Object.fromEntries(measured)).toEqual(Object.fromEntries(said));
  });
});

describe('a watcher outside, which knows the heartbeat alone, tells of', () => {
  let server: Server;
  let heard: { atMs: number; isWell: boolean }[];
  let store: StoreRig;
  let isCut = false;
  beforeEach(async () => {
    heard = [];
    isCut = false;
    server = createServer((request, response) => {
      if (isCut) return void request.socket.destroy();
      heard.push({ atMs: store.clock.monotonicMs(), isWell: !request.url?.endsWith('/fail') });
      response.end('OK');
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  afterEach(() => {
    server.closeAllConnections();
    server.close();
  });

  /** As docs/operator.md has it set: a period of a minute and a grace of two. */
  const isDown = () => {
    const last = heard.at(-1);
    return !last?.isWell || store.clock.monotonicMs() - last.atMs > 3 * MINUTE_MS;
  };

  const DEATHS: { what: string; row: string; end: (scene: Scene & { heartbeat: Heartbeat }) => unknown }[] = [
    // It is stopped below.
    { what: 'a machine without power', row: 'power off', end: () => {} },
    {
      what: 'a line that is cut',
      row: 'line cut',
      end: () => {
        isCut = true;
      },
    },
    {
      what: 'a disk of which nothing can be read any more',
      row: 'dead disk',
      end: ({ daemon: { parts } }) => {
        const dead = () => {
          throw new TillsyncError('storage-failed', 'disk I/O error');
        };
        Object.assign(parts.mirror, { freshness: dead, raisedAlarms: dead, read: dead });
      },
    },
  ];

  it.each(DEATHS)('$what within five minutes, as the fault matrix says', async ({ row, end }) => {
    store = openStore();
    const line = { isCut: false };
    const daemon = await store.daemon();
    const { port } = server.address() as AddressInfo;
    const heartbeat = heartbeatTo(`http://127.0.0.1:${port}/secret`, daemon.parts, store.clock);
    const { signal } = new AbortController();
    let isDead = false;
    const pass = async () => {
      await store.clock.advance(STEP_MS);
      if (!(isDead && row === 'power off')) await heartbeat.look(signal);
    };
    for (let ms = 0; ms < 10 * MINUTE_MS; ms += STEP_MS) await pass();
    expect(isDown()).toBe(false);
    expect(heard.every(({ isWell }) => isWell)).toBe(true);
    isDead = true;
    if (row === 'power off') await store.run(daemon.stop());
    else await end({ store, daemon, line, heartbeat });
    let waitedMs = 0;
    for (; !isDown() && waitedMs < 10 * MINUTE_MS; waitedMs += STEP_MS) await pass();
    expect(waitedMs).toBeLessThanOrEqual(5 * MINUTE_MS);
    const said = matrixRows().find(({ words }) => words[0]?.startsWith(row))?.toldAfter;
    expect(said).toBe(`watcher ${Math.ceil(waitedMs / MINUTE_MS)} min`);
  });
});
