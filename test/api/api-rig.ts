import { Agent, request } from 'undici';
import { localApi } from '../../src/api/api.ts';
import { type ChangeBatch, changeRoutes, type TakenChange } from '../../src/api/change-routes.ts';
import { ackRoutes, ChangeSignal, orderRoutes } from '../../src/api/order-routes.ts';
import { type OutboxChange, type OutboxListFilter, outboxRoutes } from '../../src/api/outbox-routes.ts';
import { productRoutes } from '../../src/api/product-routes.ts';
import { createLocalServer } from '../../src/api/server.ts';
import { type StatusSource, statusRoutes } from '../../src/api/status-routes.ts';
import type { MirroredProduct, ProductFilter } from '../../src/catalog/product.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import type { MirroredOrder, OrderEvent } from '../../src/orders/order.ts';
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
  apiKey?: string;
  limitBytes?: number;
  handOversMax?: number;
  streamsMax?: number;
  groupSocket?: { path: string; gid: number };
  others?: { host: string; port: number }[];
}

/** The mirror and the outbox in memory, behind the real API on a free port. */
export async function openApi(options: ApiRigOptions = {}) {
  const clock = new FakeClock();
  const signal = new ChangeSignal();
  const events: OrderEvent[] = [];
  const orders = new Map<string, MirroredOrder>();
  const state = {
    reads: 0,
    /** Streams that are told of changes. */
    listeners: 0,
    failure: undefined as TillsyncError | undefined,
    taken: [] as ChangeBatch[],
    take: undefined as undefined | ((batch: ChangeBatch) => Promise<TakenChange[]>),
    acked: [] as string[],
    filters: [] as (ProductFilter | OutboxListFilter)[],
    products: [] as MirroredProduct[],
    changes: [] as OutboxChange[],
    decisions: [] as string[],
    tokensFail: undefined as TillsyncError | undefined,
  };
  let nextId = 1;
  const source = {
    eventsAfter(seq: number, limit: number) {
      state.reads += 1;
      if (state.failure) throw state.failure;
      return events.filter((event) => event.seq > seq).slice(0, limit);
    },
    newestSeq: () => events.at(-1)?.seq ?? 0,
    trimmedTo: () => 2,
    order: (orderId: string) => orders.get(orderId),
    orderPayload: (orderId: string) => (orders.has(orderId) ? '{"internalOrderId":"x","n":1.50}' : undefined),
  };
  const families = [
    orderRoutes({
      source,
      onChange: (listener) => {
        state.listeners += 1;
        const end = signal.subscribe(listener);
        return () => {
          state.listeners -= 1;
          end();
        };
      },
      clock,
      log: silentLog,
      ...(options.streamsMax === undefined ? {} : { streamsMax: options.streamsMax }),
    }),
    ackRoutes({
      async acknowledge(orderIds) {
        state.acked.push(...orderIds);
        return orderIds.map((orderId) => ({ orderId, state: orders.has(orderId) ? 'new' : 'unheard' }));
      },
    }),
    productRoutes({
      clock,
      products(filter) {
        state.filters.push(filter);
        return state.products
          .filter(({ productId }) => productId > (filter.after ?? ''))
          .slice(0, filter.limit);
      },
    }),
    changeRoutes({
      begin: async () => async (batch) => {
        state.taken.push(batch);
        if (state.take) return state.take(batch);
        return batch.changes.map(() => ({
          changeId: nextId++,
          state: 'pending',
          message: null,
          candidates: [],
        }));
      },
      ...(options.limitBytes === undefined ? {} : { limitBytes: options.limitBytes }),
      ...(options.handOversMax === undefined ? {} : { handOversMax: options.handOversMax }),
    }),
    outboxRoutes({ clock, outbox: memoryDesk(state) }),
    statusRoutes({
      shop: 'Corner shop',
      clock,
      versions: { tillsync: '1.0.0', node: 'v24' },
      status: memoryStatus(state),
    }),
  ];
  const { host = '127.0.0.1', apiKey, groupSocket, others = [] } = options;
  const server = createLocalServer({
    host,
    port: 0,
    others,
    groupSocket,
    hasKey: apiKey !== undefined,
    clock,
    log: silentLog,
    plugins: [localApi({ apiKey, families, version: '1.0.0' })],
  });
  const { port } = await server.listen();
  const dispatcher = new Agent();
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
      await dispatcher.destroy();
    },
  };
}

export type ApiRig = Awaited<ReturnType<typeof openApi>>;

function memoryDesk(state: {
  changes: OutboxChange[];
  filters: (ProductFilter | OutboxListFilter)[];
  decisions: string[];
}) {
  const get = (changeId: number) => state.changes.find((change) => change.changeId === changeId);
  return {
    list(filter: OutboxListFilter) {
      state.filters.push(filter);
      const { before = Number.MAX_SAFE_INTEGER } = filter;
      return state.changes.filter(({ changeId }) => changeId < before).slice(0, filter.limit);
    },
    get,
    follow: (changeId: number) => get(get(changeId)?.supersededBy ?? changeId),
    async retry(changeId: number) {
      if (get(changeId)?.state !== 'rejected')
        throw new TillsyncError('usage', 'Only a rejected one is retried.');
      state.decisions.push(`retry ${changeId}`);
    },
    async drop(changeId: number) {
      state.decisions.push(`drop ${changeId}`);
    },
    async release(which: { changeId: number } | { guard: string | null }) {
      state.decisions.push(`release ${JSON.stringify(which)}`);
      return 3;
    },
  };
}

function memoryStatus(state: { tokensFail: TillsyncError | undefined }): StatusSource {
  return {
    freshness: () => [{ subject: 'auth', lastOkAt: null, lastTryAt: null, state: 'unknown', message: '' }],
    raisedAlarms: () => [{ key: 'orders.stale', message: 'm', raisedAt: 'r', changedAt: 'c' }],
    tokens() {
      if (state.tokensFail) throw state.tokensFail;
      return { state: 'ok', savedAtMs: 0, accessExpiresInMs: 5, refreshExpiresInMs: null, lockedOut: null };
    },
    waits: () => [{ endpoint: 'order.all', reason: 'interval', waitMs: 1200 }],
    counts: () => ({ orders: 1, openOrders: 1, events: 2, quarantine: 0, products: 3 }),
    outboxCounts: () => ({
      pending: 1,
      held: 0,
      needsRead: 0,
      sending: 0,
      rejected: 0,
      oldestPendingAt: null,
    }),
    disk: () => ({ freeBytes: 20 * 1024 ** 3, totalBytes: 40 * 1024 ** 3 }),
  };
}
