import { tmpdir } from 'node:os';
import Database from 'better-sqlite3';
import { Agent, request } from 'undici';
import type * as z from 'zod';
import type { AccessOptions } from '../../src/api/access.ts';
import { ChangeSignal, type LocalApiOptions } from '../../src/api/api.ts';
import { localApi } from '../../src/api/local-api.ts';
import type { alarmTestResult } from '../../src/api/schemas.ts';
import { createLocalServer } from '../../src/api/server.ts';
import type { MirroredProduct, ProductFilter } from '../../src/catalog/product.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import type { MirroredOrder } from '../../src/orders/merging/mirrored-order.ts';
import type { OrderEvent } from '../../src/orders/merging/order.ts';
import type { OutboxEntry, SubmittedChange } from '../../src/outbox/intake/change.ts';
import type { Acceptance } from '../../src/outbox/intake/intake.ts';
import type { OutboxFilter } from '../../src/outbox/sending/outbox-queries.ts';
import type { Stores } from '../../src/outbox/sending/repositories.ts';
import { describeTokens } from '../../src/platform/tokens.ts';
import { API_KEY, sendingKey } from '../support/api-key.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { sampleOrder } from './api-samples.ts';

export interface ApiAnswer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers freely
  body: any;
}

export interface ApiRigOptions {
  host?: string;
  /** Main API key. If it is left out, the rig's requests send the key of all tests. */
  apiKey?: string;
  keyFile?: string;
  namedKeys?: AccessOptions['namedKeys'];
  onWrongKey?: (from: string) => void;
  changesMaxBytes?: number;
  handOversMax?: number;
  streamsMax?: number;
  isHub?: boolean;
  groupSocket?: { path: string; gid: number };
  ownSocket?: string;
  others?: { host: string; port: number }[];
}

/** Serves the real API on a free port. The mirror and the outbox behind it exist only in memory. */
export async function openApi(options: ApiRigOptions = {}) {
  const clock = new FakeClock();
  const signal = new ChangeSignal();
  const events: OrderEvent[] = [];
  const orders = new Map<string, MirroredOrder>();
  const state = {
    reads: 0,
    /** Number of event streams and held requests that listen for changes. */
    listeners: 0,
    failure: undefined as TillsyncError | undefined,
    taken: [] as SubmittedChange[][],
    /** Origin of each submission in `taken`. */
    origins: [] as (string | undefined)[],
    take: undefined as undefined | ((items: readonly SubmittedChange[]) => Promise<Acceptance[]>),
    acked: [] as string[],
    filters: [] as (ProductFilter | OutboxFilter)[],
    products: [] as MirroredProduct[],
    changes: [] as OutboxEntry[],
    decisions: [] as string[],
    /** Answers of those who are told of alarms. */
    tested: [] as z.output<typeof alarmTestResult>[],
    /** Stores of the requests by which a POS shows that it runs. */
    posSigns: [] as string[],
    tokensFail: undefined as TillsyncError | undefined,
  };
  const mirror = {
    ...statusOfMirror(),
    orders: {
      eventsAfter(seq: number, limit: number) {
        state.reads += 1;
        if (state.failure) throw state.failure;
        return events.filter((event) => event.seq > seq).slice(0, limit);
      },
      newestSeq: () => events.at(-1)?.seq ?? 0,
      trimmedTo: () => 2,
      get: (orderId: string) => orders.get(orderId),
      acknowledgement: () => null,
      payload: (orderId: string) => (orders.has(orderId) ? '{"internalOrderId":"x","n":1.50}' : undefined),
    },
  };
  const stores = {
    read: (action: (stores: Stores) => unknown) =>
      action({
        catalogQueries: {
          counts: () => ({ products: 3 }),
          products(filter: ProductFilter) {
            state.filters.push(filter);
            return state.products
              .filter(({ productId }) => productId > (filter.after ?? ''))
              .slice(0, filter.limit);
          },
        },
      } as unknown as Stores),
  };
  const subscribe = signal.subscribe.bind(signal);
  signal.subscribe = (listener) => {
    state.listeners += 1;
    const end = subscribe(listener);
    return () => {
      state.listeners -= 1;
      end();
    };
  };
  const limits = { endpointIntervalMs: 1, ordersIntervalMs: 1, windowMs: 1 };
  const plugin = localApi({
    ...options,
    apiKey: options.apiKey ?? API_KEY,
    services: {
      config: {
        platform: { baseUrl: 'http://platform.test' },
        limits: { ...limits, requestsPerWindow: 1, ordersPerWindow: 1 },
        orders: { poll: '*/2 * * * *', timezone: 'UTC' },
        storage: { directory: tmpdir(), group: '' },
        shop: { name: 'Corner shop', currency: 'CLP' },
        hub: { nats: options.isHub ? 'nats://127.0.0.1:4222' : '' },
        link: { hub: '' },
        branches: [{ externalId: 'B1', subsidiaryId: 'sub-1' }],
        stock: { holdBackUnbooked: false },
        hooks: [
          { name: 'printer', events: ['order'] },
          { name: 'till', events: ['change.rejected'] },
        ],
      },
      mirror,
      stores,
      outbox: memoryOutbox(state, orders),
      posLife: { note: async (stores: string[]) => void state.posSigns.push(...stores) },
      state: { ledger: { waits: () => [{ endpoint: 'order.all', reason: 'interval', waitMs: 1200 }] } },
      platform: {
        tokens: {
          describe() {
            if (state.tokensFail) throw state.tokensFail;
            return { ...describeTokens(null, null, 0), state: 'ok', savedAtMs: 0 };
          },
        },
      },
    } as unknown as LocalApiOptions['services'],
    changes: signal,
    receivers: {
      testAlarms: async () => state.tested,
      testHook: async (asked) => ({
        ok: true,
        what: 'printer.local answered 200',
        text: JSON.stringify(asked),
      }),
    },
    version: '1.0.0',
    clock,
    log: silentLog,
  });
  const { host = '127.0.0.1', apiKey, groupSocket, ownSocket, others = [] } = options;
  const server = createLocalServer({
    host,
    port: 0,
    others,
    groupSocket,
    ownSocket,
    clock,
    log: silentLog,
    plugins: [plugin],
  });
  const { port } = await server.listen();
  const agent = new Agent();
  const dispatcher = apiKey === undefined ? agent.compose(sendingKey) : agent;
  const url = `http://127.0.0.1:${port}`;
  const call = async (
    path: string,
    {
      method = 'GET',
      headers = {},
      body,
    }: { method?: string; headers?: Record<string, string>; body?: unknown } = {},
  ): Promise<ApiAnswer> => {
    const isRaw = typeof body === 'string' || body instanceof Uint8Array || body === undefined;
    const answer = await request(`${url}${path}`, {
      dispatcher,
      method: method as 'GET',
      headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      body: isRaw ? ((body as string | Uint8Array | undefined) ?? null) : JSON.stringify(body),
    });
    const text = await answer.body.text();
    const isJson = String(answer.headers['content-type']).startsWith('application/json');
    return {
      status: answer.statusCode,
      headers: answer.headers,
      text,
      body: isJson && text !== '' ? JSON.parse(text) : undefined,
    };
  };
  const addEvent = (orderId: string, status: string) => {
    const seq = (events.at(-1)?.seq ?? 0) + 1;
    orders.set(orderId, sampleOrder(orderId, seq, status));
    events.push({
      seq,
      orderId,
      status,
      previousStatus: null,
      source: 'webhook',
      observedAt: '2026-01-15T12:00:00.000Z',
    });
    return seq;
  };
  return {
    clock,
    signal,
    events,
    orders,
    state,
    url,
    port,
    server,
    dispatcher,
    call,
    addEvent,
    post: (path: string, body: unknown, headers = {}) => call(path, { method: 'POST', body, headers }),
    async close() {
      await server.close();
      await agent.destroy();
    },
  };
}

export type ApiRig = Awaited<ReturnType<typeof openApi>>;

function memoryOutbox(
  state: {
    changes: OutboxEntry[];
    filters: (ProductFilter | OutboxFilter)[];
    decisions: string[];
    taken: SubmittedChange[][];
    origins: (string | undefined)[];
    take: undefined | ((items: readonly SubmittedChange[]) => Promise<Acceptance[]>);
    acked: string[];
  },
  orders: ReadonlyMap<string, MirroredOrder>,
) {
  let nextId = 1;
  const get = (changeId: number) => state.changes.find((change) => change.changeId === changeId);
  return {
    zeroHolds: async () => new Map(),
    dated: (items: SubmittedChange[]) => items,
    oneRowEach: async (items: readonly SubmittedChange[]) => [...items],
    async submit(items: SubmittedChange[], _source: string, { origin }: { origin?: string } = {}) {
      state.taken.push(items);
      state.origins.push(origin);
      if (state.take) return state.take(items);
      return items.map(() => ({ changeId: nextId++, state: 'pending', message: null, candidates: [] }));
    },
    async acknowledge(orderIds: readonly string[]) {
      state.acked.push(...orderIds);
      return orderIds.map((orderId) => ({ orderId, state: orders.has(orderId) ? 'new' : 'unheard' }));
    },
    list(filter: OutboxFilter) {
      state.filters.push(filter);
      const { before = Number.MAX_SAFE_INTEGER } = filter;
      return state.changes.filter(({ changeId }) => changeId < before).slice(0, filter.limit);
    },
    get,
    follow: (changeId: number) => get(get(changeId)?.supersededBy ?? changeId),
    async retry(changeId: number) {
      if (get(changeId)?.state !== 'rejected')
        throw new TillsyncError('conflict', 'Only a rejected one is retried.');
      state.decisions.push(`retry ${changeId}`);
    },
    async discard(changeId: number) {
      state.decisions.push(`discard ${changeId}`);
    },
    async release(which: { changeId: number } | { guard: string | null }) {
      state.decisions.push(`release ${JSON.stringify(which)}`);
      return 3;
    },
    counts: () => ({
      pending: 1,
      held: 0,
      needsRead: 0,
      sending: 0,
      rejected: 0,
      oldestPendingAt: null,
    }),
  };
}

function statusOfMirror() {
  return {
    polls: { lastOkMs: () => null },
    health: {
      freshness: () => [{ subject: 'auth', lastOkAt: null, lastTryAt: null, state: 'unknown', message: '' }],
      raised: () => [{ key: 'orders.stale', message: 'm', raisedAt: 'r', changedAt: 'c' }],
    },
    read(action: (db: Database.Database) => unknown) {
      const db = new Database(':memory:');
      db.exec(
        'CREATE TABLE _orders (status TEXT); CREATE TABLE _quarantine (id INTEGER); CREATE TABLE _seen (kind TEXT, name TEXT)',
      );
      try {
        return action(db);
      } finally {
        db.close();
      }
    },
  };
}
