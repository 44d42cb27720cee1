import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { PUBLISHED_LIMITS } from '../../src/demo/sandbox-platform.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { createHttpTransport, type Transport } from '../../src/platform/transport.ts';
import { API_KEY } from '../support/api-key.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

type TransportRequest = Parameters<Transport['send']>[0];

export const INTERVAL_MS = PUBLISHED_LIMITS.endpointIntervalMs;
const BRANCH = 'sub-1';
const STOCK_CALLS = ['product.stock.batch', 'product.stock.put'] as const;

/** A stock that a change can name. */
export interface StockTarget {
  externalId: string;
  sku: number;
}

/** The whole daemon with a platform that enforces its published limits to the millisecond. */
export interface OutgoingPlace {
  sandbox: Workplace['sandbox'];
  daemon: Daemon;
  targets: StockTarget[];
  /** Posts quantities to the local API; throws unless all are accepted. */
  post(changes: readonly { externalId: string; qty: number }[]): Promise<void>;
  /** Returns the calls that sent stock changes, in order of arrival. */
  stockCalls(): { arrivedMs: number; items: number }[];
  /** Waits until every change is settled, and returns the monotonic time of that moment in ms. */
  settled(deadlineMs: number): Promise<number>;
  qtyOf(target: StockTarget): number | undefined;
  close(): Promise<void>;
}

export async function openOutgoingPlace(options: {
  seed: number;
  products: number;
  onSend?: (request: TransportRequest, daemon: Daemon) => void;
}): Promise<OutgoingPlace> {
  const place = await openWorkplace(options.seed, {
    limits: PUBLISHED_LIMITS,
    slackMs: 0,
    latencyMs: [0, 50],
    seed: { branches: [{ subsidiaryId: BRANCH, externalId: 'B1' }], products: options.products },
  });
  const http = createHttpTransport({
    userAgent: 'tillsync/test',
    baseUrl: place.sandbox.url,
    clock: systemClock,
  });
  const daemon: Daemon = await startDaemon({
    config: {
      ...place.config,
      branches: [{ subsidiaryId: BRANCH }],
      catalog: { ...place.config.catalog, pageSize: 5_000 },
      orders: { ...place.config.orders, poll: '0 0 1 1 *' },
      guard: GUARDS_OFF,
    },
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET], localApiKey: API_KEY },
    clock: systemClock,
    random: seededRandom(options.seed),
    log: silentLog,
    transport: {
      ...http,
      send: (request) => {
        options.onSend?.(request, daemon);
        return http.send(request);
      },
    },
  });
  const { stores, outbox } = daemon.services;
  await until('the catalogue is swept', () => stores.read(({ lookup }) => lookup.isComplete), 120_000);
  const { control } = place.sandbox;
  return {
    sandbox: place.sandbox,
    daemon,
    targets: targetsOf(place),
    post: (changes) => post(daemon.localUrl, changes),
    stockCalls: () =>
      STOCK_CALLS.flatMap((endpoint) => control.calls(endpoint))
        .map(({ arrivedMs, items }) => ({ arrivedMs, items: items ?? 1 }))
        .sort((a, b) => a.arrivedMs - b.arrivedMs),
    async settled(deadlineMs) {
      const isIdle = () => {
        const { pending, sending, needsRead } = outbox.counts();
        return pending + sending + needsRead === 0;
      };
      await until('everything is settled', isIdle, deadlineMs);
      return systemClock.monotonicMs();
    },
    qtyOf: ({ sku }) => control.stockOf(sku, BRANCH),
    async close() {
      await daemon.stop();
      await http.close();
      await place.close();
    },
  };
}

function targetsOf(place: Workplace): StockTarget[] {
  return place.sandbox.control
    .products()
    .flatMap(({ children }) => children)
    .flatMap(({ sku, stocks, integrations: [mapping] }) => {
      const externalId = mapping?.extId ?? mapping?.productIdPosA ?? mapping?.productCodePosB;
      return externalId && stocks.length > 0 ? [{ externalId, sku }] : [];
    });
}

async function post(localUrl: string, changes: readonly object[]): Promise<void> {
  const answer = await fetch(`${localUrl}/v1/stock`, {
    method: 'POST',
    body: JSON.stringify(changes),
    headers: { 'content-type': 'application/json' },
  });
  const text = await answer.text();
  if ((JSON.parse(text) as { pending?: number }).pending !== changes.length) {
    throw new Error(`Not everything was taken: ${text.slice(-300)}`);
  }
}
