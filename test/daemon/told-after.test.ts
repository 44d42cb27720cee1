import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';

import { sweepNow } from '../../src/catalog/sweep.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { FindingCode } from '../../src/health/facts.ts';
import type { Heartbeat } from '../../src/health/heartbeat.ts';
import type { HookSettings } from '../../src/hooks/hook.ts';
import { networkFault } from '../../src/platform/transport.ts';
import { matrixRows } from '../fault-matrix-rows.ts';
import { hook } from '../hooks/event-receiver.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { type StoreRig, storeRig, type Tamper } from '../support/store-rig.ts';
import { heartbeatTo, listener } from '../support/watchers.ts';

const MINUTE_MS = 60_000;
const STEP_MS = 5_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
/** Longer than the two whole hours after which a POS counts as silent. */
const GIVEN_UP_MS = 4 * 60 * MINUTE_MS;

/** Opens a store that polls every two minutes and whose loops run as often as in a shop. */
const openStore = ({
  hooks = [],
  callbackUrl,
}: {
  hooks?: HookSettings[];
  callbackUrl?: string | undefined;
} = {}) =>
  storeRig({
    config: (config) => ({
      ...config,
      hooks,
      orders: { ...config.orders, poll: '*/2 * * * *' },
      ...(callbackUrl !== undefined && { webhook: { ...config.webhook, callbackUrl } }),
    }),
    lookEveryMs: 15_000,
  });

const PAGE_BYTES = 4_096;

/** Overwrites all but the beginning of a database that no process has open. */
function overwritePages(file: string, keptShare: number): void {
  for (const suffix of ['-wal', '-shm']) rmSync(file + suffix, { force: true });
  const bytes = readFileSync(file);
  const kept = Math.max(1, Math.floor((bytes.length * keptShare) / PAGE_BYTES)) * PAGE_BYTES;
  writeFileSync(file, bytes.fill(0xa5, kept));
}

interface Scene {
  store: StoreRig;
  daemon: Daemon;
  line: { isCut: boolean; code?: string };
  /** Changes the orders that the platform lists. */
  list: { of: (data: { docs: { internalOrderId?: unknown }[] }) => unknown };
}

interface Fault {
  key: FindingCode;
  /**
   * Beginning of the row in the fault matrix. If left out, the fault covers every row with this alarm that has no fault
   * of its own here.
   */
  row?: string;
  what?: string;
  /** How the receiver of the store's hook fails. */
  receive?: RequestListener;
  /** Address at which the store has its callbacks registered; if left out, it registers none. */
  callbackUrl?: string;
  /** Causes the fault. */
  begin?: (scene: Scene) => unknown;
  /** Called every minute while the fault lasts. */
  again?: (scene: Scene) => unknown;
}

const ordersListed = ({ method, path: asked }: Parameters<Tamper>[0]) =>
  method === 'GET' && asked.startsWith('/order/all');
const announceOrder = ({ store, daemon }: Scene) => store.announce(daemon, sampleNotification(1));

/** Every fault of which a person is notified. */
const FAULTS: Fault[] = [
  {
    key: 'orders.stale',
    begin: ({ line }) => {
      line.isCut = true;
    },
  },
  ...['ECONNREFUSED', 'ENOTFOUND', 'CERT_HAS_EXPIRED'].map(
    (code): Fault => ({
      key: 'orders.stale',
      row: 'the platform for one reason',
      what: code,
      begin: ({ line }) => void Object.assign(line, { isCut: true, code }),
    }),
  ),
  ...['EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT'].map(
    (code): Fault => ({
      key: 'orders.stale',
      row: 'names or connections get no answer',
      what: `${code}, while signs of life get out`,
      begin({ line, daemon }) {
        const since = new Date(0).toISOString();
        daemon.services.state.alarms.rememberHeartbeat({ ok: true, since, message: '' });
        Object.assign(line, { isCut: true, code });
      },
    }),
  ),
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
    key: 'platform.limits-shared',
    begin: ({ store: { sandbox } }) =>
      sandbox.control.setFault({ kind: 'status', status: 429, endpoint: 'order.all' }),
  },
  {
    key: 'clock.wrong',
    begin({ store: { clock, sandbox } }) {
      clock.jumpWall(5 * DAY_MS);
      sandbox.control.configure({ clockSkewMs: -5 * DAY_MS });
    },
  },
  {
    key: 'clock.off',
    begin({ store: { clock, sandbox } }) {
      clock.jumpWall(60 * MINUTE_MS);
      sandbox.control.configure({ clockSkewMs: -60 * MINUTE_MS });
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
    key: 'inbox.damaged',
    row: 'inbox locked',
    what: 'overwritten',
    begin: ({ store }) =>
      writeFileSync(path.join(store.directory, 'inbox', 'inbox.db'), Buffer.alloc(20_000, 0xa5)),
  },
  {
    key: 'inbox.damaged',
    row: 'inbox locked',
    what: 'deleted',
    begin: ({ store }) => rmSync(path.join(store.directory, 'inbox', 'inbox.db')),
  },
  {
    key: 'storage.failing',
    row: 'mirror page corrupt',
    async begin(scene) {
      const { store, daemon } = scene;
      for (let i = 0; i < 300; i++) store.sandbox.control.createOrder({}, { hidden: true });
      await store.clock.advance(5 * MINUTE_MS);
      await store.run(daemon.stop());
      overwritePages(path.join(store.directory, 'mirror.db'), 0.7);
      scene.daemon = await store.daemon();
    },
  },
  {
    key: 'mirror.damaged',
    row: 'mirror page corrupt',
    async begin(scene) {
      const { store, daemon } = scene;
      await store.run(daemon.stop());
      overwritePages(path.join(store.directory, 'mirror.db'), 0);
      scene.daemon = await store.daemon();
    },
  },
  {
    key: 'hooks.lagging',
    what: 'whose receiver is dead',
    receive: (request) => request.socket.destroy(),
    begin: announceOrder,
  },
  {
    key: 'hooks.lagging',
    what: 'whose receiver takes longer than it may',
    receive: () => {},
    begin: announceOrder,
  },
  {
    key: 'hooks.lagging',
    what: 'whose receiver answers a page of a proxy',
    receive: (_request, response) => response.writeHead(502).end('<html>Bad Gateway</html>'),
    begin: announceOrder,
  },
  {
    key: 'mirror.reader-holds-wal',
    begin({ store: { directory } }) {
      const reader = new Database(path.join(directory, 'mirror.db'), { readonly: true });
      onTestFinished(() => void reader.close());
      reader.exec('BEGIN; SELECT count(*) FROM orders');
    },
    again: ({ daemon }) =>
      void daemon.services.mirror.write((db) =>
        db.exec(
          'UPDATE marks SET value = value + 1; CREATE TABLE IF NOT EXISTS filling (x); INSERT INTO filling VALUES (zeroblob(20000000)); DELETE FROM filling',
        ),
      ),
  },
  {
    key: 'webhook.external-pos',
    again: ({ store: { sandbox } }) => sandbox.control.createOrder({}, { hidden: true }),
  },
  {
    key: 'webhook.silent',
    begin: announceOrder,
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
    key: 'outbox.stuck',
    begin({ store, daemon }) {
      for (const endpoint of ['product.stock.batch', 'product.stock.put'] as const)
        store.sandbox.control.setFault({ kind: 'status', status: 500, endpoint });
      const [stock] = store.rows('SELECT sku, subsidiary_id AS subsidiaryId, 77 AS qty FROM stocks LIMIT 1');
      return fetch(`${daemon.localUrl}/v1/stock`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify([stock]),
      });
    },
  },
  {
    // Makes the disk look full: the mirror gets no more pages.
    key: 'storage.failing',
    begin: ({ daemon }) => daemon.services.mirror.read((db) => db.pragma('max_page_count = 1')),
    again: ({ store, daemon }) =>
      store.announce(daemon, sampleNotification(1, { name: 'x'.repeat(200_000) })),
  },
  {
    key: 'orders.unbooked',
    async begin({ store, daemon }) {
      const ids: string[] = [];
      for (const number of [1, 2]) {
        const createdAt = new Date(store.clock.nowMs()).toISOString();
        const order = sampleNotification(number, { status: 'picker-pending', createdAt });
        ids.push(String(order.internalOrderId));
        await store.announce(daemon, order);
      }
      void daemon.services.outbox.acknowledge(ids.slice(1), 'http');
    },
  },
  {
    key: 'pos.silent',
    begin({ store: { directory, clock } }) {
      // It gave a sign in each hour of the last three weeks, the last one now.
      const mirror = new Database(path.join(directory, 'mirror.db'));
      const sign = mirror.prepare(
        "INSERT INTO _seen (kind, name, first_at, last_at) VALUES ('pos-hour', ?, ?, ?)",
      );
      mirror.transaction(() => {
        for (let ms = clock.nowMs() - 21 * DAY_MS; ms <= clock.nowMs(); ms += 60 * MINUTE_MS) {
          const at = new Date(ms).toISOString();
          sign.run(`${at.slice(0, 13)} B1`, at, at);
        }
      })();
      mirror.close();
    },
  },
  {
    key: 'orders.held',
    async begin({ store, daemon }) {
      store.sandbox.control.setFault({ kind: 'status', status: 500, endpoint: 'order.all' });
      for (const status of ['dispatched', 'payment-canceled'])
        await store.announce(daemon, sampleNotification(1, { status }));
    },
  },
  {
    key: 'orders.status-unknown',
    begin: ({ store, daemon }) => store.announce(daemon, sampleNotification(1, { status: 'PENDIENTE' })),
  },
  {
    key: 'orders.lists',
    begin({ store: { sandbox }, list }) {
      sandbox.control.createOrder({}, { hidden: true });
      list.of = (data) => ({ ...data, archive: [{ id: 'x', status: 'ready', code: 7, total: 5 }] });
    },
  },
  {
    key: 'orders.unlisted',
    async begin({ store: { sandbox, clock }, list }) {
      const create = () => sandbox.control.createOrder({ status: 'ready' }, { hidden: true });
      const [first] = [create(), create(), create()];
      await clock.advance(5 * MINUTE_MS);
      list.of = ({ docs, ...rest }) => ({
        ...rest,
        docs: docs.filter(({ internalOrderId }) => internalOrderId !== first?.internalOrderId),
      });
    },
  },
  {
    key: 'catalog.shrunk',
    async begin({ store, daemon: { services } }) {
      for (const { id } of store.sandbox.control.products()) store.sandbox.control.removeProduct(id);
      await store.run(sweepNow(services, {}));
    },
  },
  {
    key: 'webhook.active-field',
    callbackUrl: 'https://store.example/webhook',
    async begin(scene) {
      const { store, daemon } = scene;
      await store.run(daemon.stop());
      const { control } = store.sandbox;
      const registered = control.webhook();
      control.setWebhook(registered && { ...registered, active: false });
      control.configure({ webhookFlagName: 'enabled' });
      scene.daemon = await store.daemon();
    },
  },
];

// Measures each time in the fault matrix on a store that runs for simulated hours.
describe('a person is told', { tags: ['bulk'] }, () => {
  /** Longest time until a person was notified, in minutes, by row and alarm. */
  const measured = new Map<string, number>();
  let receive: RequestListener | undefined;
  const receiver = createServer((request, response) => receive?.(request, response));
  beforeAll(async () => {
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
  });
  afterAll(() => {
    receiver.closeAllConnections();
    receiver.close();
  });

  it.each(FAULTS)('of $key $what', async ({ key, row = '', begin, again, ...fault }) => {
    receive = fault.receive;
    const { port } = receiver.address() as AddressInfo;
    const store = openStore({
      hooks: receive ? [hook('pos', { url: `http://127.0.0.1:${port}/`, timeoutMs: 50 })] : [],
      callbackUrl: fault.callbackUrl,
    });
    const line: Scene['line'] = { isCut: false };
    const list: Scene['list'] = { of: (data) => data };
    const tamper: Tamper = async (request, pass) => {
      if (line.isCut) throw networkFault({ code: line.code }, { host: 'platform.test', port: 443 });
      const answer = await pass();
      if (!ordersListed(request) || answer.status !== 200) return answer;
      const { data, ...rest } = JSON.parse(Buffer.from(answer.bytes).toString());
      return { ...answer, bytes: Buffer.from(JSON.stringify({ ...rest, data: list.of(data) })) };
    };
    const daemon = await store.daemon(tamper);
    await store.clock.advance(10 * MINUTE_MS);
    const told: string[] = [];
    const scene: Scene = { store, daemon, line, list };
    const hear = () => listener(scene.daemon.services, store.clock, (_news, key) => void told.push(key));
    let look = hear();
    await look();
    await begin?.(scene);
    if (scene.daemon !== daemon) look = hear();
    let waitedMs = 0;
    for (; !told.includes(key) && waitedMs < GIVEN_UP_MS; waitedMs += STEP_MS) {
      if (waitedMs % MINUTE_MS === 0) await again?.(scene);
      await store.clock.advance(STEP_MS);
      // Sockets need real time.
      if (receive) await new Promise((resolve) => setTimeout(resolve, 5));
      await look();
    }
    const name = `${row} ${key}`;
    measured.set(name, Math.max(measured.get(name) ?? 0, Math.ceil(waitedMs / MINUTE_MS)));
    expect(told).toContain(key);
  });

  it('as soon as the fault matrix says', () => {
    const used = new Set<string>();
    for (const { number, toldAfter, words } of matrixRows()) {
      for (const [, key, minutes] of toldAfter.matchAll(/`([\w.-]+)` (\d+) min/g)) {
        const own = FAULTS.find(({ row }) => row && words[0]?.startsWith(row))?.row;
        const name = [`${own} ${key}`, ` ${key}`].find((each) => measured.has(each)) ?? '';
        used.add(name);
        expect(`${measured.get(name)} min`, `row ${number}, ${key}`).toBe(`${minutes} min`);
      }
    }
    expect([...measured.keys()].filter((name) => !used.has(name))).toEqual([]);
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

  /**
   * Whether the watcher tells of a failure. It expects a heartbeat every minute and tolerates two minutes more, as in
   * docs/operator.md.
   */
  const isDown = () => {
    const last = heard.at(-1);
    return !last?.isWell || store.clock.monotonicMs() - last.atMs > 3 * MINUTE_MS;
  };

  interface Death {
    what: string;
    row: string;
    /** True if the daemon is stopped before `end` runs. */
    isStopped?: true;
    end: (scene: Scene & { heartbeat: Heartbeat }) => unknown;
  }
  const DEATHS: Death[] = [
    { what: 'a machine without power', row: 'power off', isStopped: true, end: () => {} },
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
      end: ({ daemon: { services } }) => {
        const dead = () => {
          throw new TillsyncError('storage-failed', 'disk I/O error');
        };
        Object.assign(services.mirror.health, { freshness: dead, raised: dead });
        Object.assign(services.mirror, { read: dead });
      },
    },
  ];

  const STARTS: Death[] = [
    {
      what: 'a start that tokens with overwritten pages prevent',
      row: 'state.db corrupt',
      isStopped: true,
      end: async ({ store: { directory, daemon } }) => {
        overwritePages(path.join(directory, 'state.db'), 0);
        await expect(daemon()).rejects.toMatchObject({ code: 'storage-corrupt' });
      },
    },
  ];

  const isHeardOf = async ({ row, isStopped, end }: Death) => {
    store = openStore();
    const line = { isCut: false };
    const list: Scene['list'] = { of: (data) => data };
    const daemon = await store.daemon();
    const { port } = server.address() as AddressInfo;
    const heartbeat = heartbeatTo(`http://127.0.0.1:${port}/secret`, daemon.services, store.clock);
    const { signal } = new AbortController();
    let isDead = false;
    const pass = async () => {
      await store.clock.advance(STEP_MS);
      if (!(isDead && isStopped)) await heartbeat.pingIfDue(signal);
    };
    for (let ms = 0; ms < 10 * MINUTE_MS; ms += STEP_MS) await pass();
    expect(isDown()).toBe(false);
    expect(heard.every(({ isWell }) => isWell)).toBe(true);
    isDead = true;
    if (isStopped) await store.run(daemon.stop());
    await end({ store, daemon, line, list, heartbeat });
    let waitedMs = 0;
    for (; !isDown() && waitedMs < 10 * MINUTE_MS; waitedMs += STEP_MS) await pass();
    expect(waitedMs).toBeLessThanOrEqual(5 * MINUTE_MS);
    const said = matrixRows().find(({ words }) => words[0]?.startsWith(row))?.toldAfter;
    expect(said?.split(', ')).toContain(`watcher ${Math.ceil(waitedMs / MINUTE_MS)} min`);
  };
  it.each(DEATHS)('$what within five minutes, as the fault matrix says', isHeardOf);
  // For the watcher, these cases look like a machine without power.
  it.each(STARTS)('$what within five minutes, as the fault matrix says', { tags: ['bulk'] }, isHeardOf);
});
