import type { FastifyPluginAsync } from 'fastify';
import { localApi } from '../api/api.ts';
import { boardRoutes } from '../api/board-routes.ts';
import { type ChangeBatch, changeRoutes } from '../api/change-routes.ts';
import { ackRoutes, type ChangeSignal, orderRoutes } from '../api/order-routes.ts';
import { outboxRoutes } from '../api/outbox-routes.ts';
import { productRoutes } from '../api/product-routes.ts';
import { type StatusSource, statusRoutes } from '../api/status-routes.ts';
import type { ChangeDesk, HandedOver } from '../app/change-desk.ts';
import { shopName } from '../app/installation.ts';
import { mirrorCounts } from '../app/readers.ts';
import { storageSpace } from '../app/storage.ts';
import type { MirrorStores } from '../app/stores.ts';
import type { Config } from '../config/config-type.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import type { Mirror } from '../orders/mirror.ts';
import { readBoard, readTrends } from '../orders/order-queries.ts';
import type { RateLedger } from '../platform/rate-budget.ts';
import type { TokenStatus } from '../platform/tokens.ts';

export interface LocalApiWiring {
  parts: {
    config: Pick<Config, 'limits' | 'storage'> & { alarms: Pick<Config['alarms'], 'name'> };
    mirror: Mirror;
    stores: MirrorStores;
    changeDesk: ChangeDesk;
    state: { ledger: Pick<RateLedger, 'waits'> };
    platform: { tokens: { describe(): TokenStatus } };
  };
  apiKey: string | undefined;
  /** False: nobody said yet which platform this store is at. */
  isSetUp?: boolean | undefined;
  /** How old the last good order poll may be before orders count as missing. */
  ordersStaleAfterMs?: (() => number) | undefined;
  /** To be notified whenever this process changed the mirror. */
  changes: ChangeSignal;
  /** Of tillsync. */
  version: string;
  clock: Clock;
  log: Log;
}

/** The local API on what the daemon has open. */
export function localApiPlugin(wiring: LocalApiWiring): FastifyPluginAsync {
  const { parts, changes, apiKey, isSetUp, ordersStaleAfterMs, version, clock, log } = wiring;
  const { mirror, stores, changeDesk } = parts;
  const families = [
    statusRoutes({
      status: statusSource(parts),
      shop: shopName(parts.config),
      versions: { tillsync: version, node: process.version },
      clock,
      isSetUp,
      ordersStaleAfterMs,
    }),
    boardRoutes({
      source: {
        newestSeq: () => mirror.newestSeq(),
        board: (limits) => mirror.read((db) => readBoard(db, limits)),
        trends: (nowMs, hours) => mirror.read((db) => readTrends(db, nowMs, hours)),
      },
      clock,
    }),
    orderRoutes({ source: mirror, onChange: changes.subscribe, clock, log }),
    ackRoutes({ acknowledge: (orderIds) => changeDesk.acknowledge(orderIds, 'http') }),
    productRoutes({
      products: (filter) => stores.read(({ catalogQueries }) => catalogQueries.products(filter)),
      clock,
    }),
    changeRoutes({
      async begin(whole) {
        const zeros = await changeDesk.zeroHold(handedOver(whole));
        return (part) => changeDesk.take(handedOver(part), 'http', { zeros });
      },
    }),
    outboxRoutes({ outbox: changeDesk, clock }),
  ];
  return localApi({ apiKey, families, version });
}

function handedOver(batch: ChangeBatch): HandedOver[] {
  return batch.kind === 'stock'
    ? batch.changes.map((change) => ({ kind: 'stock', change }))
    : batch.changes.map((change) => ({ kind: 'product', change }));
}

function statusSource(parts: LocalApiWiring['parts']): StatusSource {
  const { mirror, stores, changeDesk, state, platform, config } = parts;
  return {
    freshness: () => mirror.freshness(),
    raisedAlarms: () => mirror.raisedAlarms(),
    tokens: () => platform.tokens.describe(),
    waits: () => state.ledger.waits(config.limits),
    counts: () => ({
      ...mirrorCounts(mirror),
      products: stores.read(({ catalogQueries }) => catalogQueries.counts().products),
    }),
    outboxCounts: () => changeDesk.counts(),
    disk: () => storageSpace(config.storage.directory),
  };
}
