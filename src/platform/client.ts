import { whenFree } from '../domain/busy.ts';
import { TillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';
import type { CallOptions, Wait } from '../domain/platform/call.ts';
import type { Endpoint, PlatformLimits } from '../domain/platform/limits.ts';
import type { Platform, WebhookState } from '../domain/platform/platform.ts';
import type { RateLedger } from '../domain/platform/rate-ledger.ts';
import type { LockOut, TokenStore } from '../domain/platform/tokens.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import { expectJsonLike, readAs, readData } from './answers.ts';
import { AuthorizedCall, type PlatformCall } from './authorized-call.ts';
import { PlatformClock } from './platform-clock.ts';
import { type ForbiddenNote, RateBudget } from './rate-budget.ts';
import { readProductData, readProductPage } from './read-products.ts';
import { readBatchData, readSingle } from './read-written.ts';
import { orderAllQuery } from './schemas/orders.ts';
import { productBatchRequest, productChangeItem } from './schemas/product-change.ts';
import { productGetQuery, productListQuery } from './schemas/product-query.ts';
import { stockBatchRequest, stockChangeItem } from './schemas/stock-change.ts';
import { webhookData, webhookPutRequest } from './schemas/webhook.ts';
import { checkedToSend } from './sent.ts';
import { TokenKeeper } from './token-keeper.ts';
import type { Transport } from './transport.ts';

export interface PlatformClientOptions {
  transport: Transport;
  ledger: RateLedger;
  tokens: TokenStore;
  limits: PlatformLimits;
  clock: Clock;
  random: Random;
  log: Log;
  /** The webhook read, which the document does not show. */
  webhookRead?: { method: string; path: string };
  /** Request name of the webhook's enable flag, which the document does not show. */
  webhookEnableFlag?: string;
  /** Whole time of one call; GET /order/all may carry much and has its own. */
  timeoutMs?: number;
  ordersTimeoutMs?: number;
  refreshTimeoutMs?: number;
  /** Told once when the platform refuses the tokens, and once when new ones have come. */
  onLockOut?: (lockOut: LockOut) => void;
  onHealed?: () => void;
  /** Told once for each token pair that the platform has taken. */
  onAccepted?: () => void;
  /** Told of each 403 that holds something back, and of each 2xx. */
  onForbidden?: (told: ForbiddenNote) => void;
  onAnswered?: (endpoint: Endpoint) => void;
  /** Told after each wait for the rate budget how long it really was. */
  onWaited?: ((wait: Wait) => void) | undefined;
}

export interface PlatformClient extends Platform {
  readonly tokens: TokenKeeper;
  /** What its answers tell of the platform's wall clock. */
  readonly clock: Pick<PlatformClock, 'skewMs' | 'agreedSkewMs'>;
  /** Sees a refresh that was sent through to its save, then closes all connections. */
  close(): Promise<void>;
}

const TIMEOUT_MS = 30_000;
const ORDERS_TIMEOUT_MS = 180_000;
const MIB = 1024 * 1024;
const BODY_MAX_BYTES = 32 * MIB;
/** What a change is answered with is short: a message for each of 100 items. */
const WRITTEN_BODY_MAX_BYTES = 4 * MIB;
const ORDERS_BODY_MAX_BYTES = 512 * MIB;

/** The document's endpoints over `transport`, each call within the shared rate budget and with a good token. */
export function createPlatformClient(options: PlatformClientOptions): PlatformClient {
  const budget = new RateBudget(options);
  const platformClock = new PlatformClock({ clock: options.clock, store: options.tokens });
  const keeper = new TokenKeeper({ ...options, store: options.tokens, budget, platformClock });
  const calls = new AuthorizedCall({ ...options, budget, keeper, platformClock });
  const frame = { timeoutMs: options.timeoutMs ?? TIMEOUT_MS, bodyMaxBytes: BODY_MAX_BYTES };
  const written = { ...frame, bodyMaxBytes: WRITTEN_BODY_MAX_BYTES };
  const get = (endpoint: Endpoint, path: string, query: PlatformCall['query'], how?: CallOptions) =>
    calls.send({ ...frame, endpoint, method: 'GET', path, query }, how);
  const put = (endpoint: Endpoint, path: string, body: unknown, how?: CallOptions) =>
    calls.send({ ...written, endpoint, method: 'PUT', path, body }, how);

  return {
    tokens: keeper,
    clock: platformClock,

    async orderAll({ startDate, endDate, extra }, how) {
      const query = checkedToSend(orderAllQuery, { ...extra, startDate, endDate }) as Record<string, string>;
      const answer = await calls.send(
        {
          endpoint: 'order.all',
          method: 'GET',
          path: '/order/all',
          query,
          timeoutMs: options.ordersTimeoutMs ?? ORDERS_TIMEOUT_MS,
          bodyMaxBytes: ORDERS_BODY_MAX_BYTES,
        },
        how,
      );
      expectJsonLike(answer);
      return { body: answer.bytes };
    },

    async productList(query, how) {
      const { page, limit, ...rest } = checkedToSend(productListQuery, query);
      const sent = { ...rest, page: String(page), limit: String(limit) };
      return readProductPage(await get('product.list', '/product/list', sent, how));
    },

    async productGet(query, how) {
      const sent = checkedToSend(productGetQuery, query);
      return readProductData(await get('product.get', '/product', sent, how));
    },

    async productPut(item, how) {
      return readSingle(await put('product.put', '/product', checkedToSend(productChangeItem, item), how));
    },

    async productStockPut(item, how) {
      const body = checkedToSend(stockChangeItem, item);
      return readSingle(await put('product.stock.put', '/product/stock', body, how));
    },

    async productBatch(products, how) {
      const body = checkedToSend(productBatchRequest, { products });
      return readBatchData(await put('product.batch', '/product/batch', body, how));
    },

    async productStockBatch(products, how) {
      const body = checkedToSend(stockBatchRequest, { products });
      return readBatchData(await put('product.stock.batch', '/product/stock/batch', body, how));
    },

    ...webhookCalls(options, calls, frame),

    async delayMs(endpoint) {
      const wait = await whenFree(options.clock, () => options.ledger.waitOf(endpoint, options.limits));
      return wait?.waitMs ?? 0;
    },

    async close() {
      await keeper.finish();
      await options.transport.close();
    },
  };
}

/** PUT /webhook, and the read that the document mentions without showing it. */
function webhookCalls(
  options: PlatformClientOptions,
  calls: AuthorizedCall,
  frame: { timeoutMs: number; bodyMaxBytes: number },
): Pick<Platform, 'webhookPut' | 'webhookGet'> {
  const flag = options.webhookEnableFlag ?? 'active';
  const read = options.webhookRead ?? { method: 'GET', path: '/webhook' };
  return {
    async webhookPut({ callbackUrl, secret, active }, how) {
      const body = checkedToSend(webhookPutRequest(flag), {
        ...(callbackUrl !== undefined && { callbackUrl }),
        ...(secret !== undefined && { secret }),
        ...(active !== undefined && { [flag]: active }),
      });
      const secrets = secret === undefined ? [] : [secret];
      const answer = await calls.send(
        { ...frame, endpoint: 'webhook.put', method: 'PUT', path: '/webhook', body, secrets },
        how,
      );
      return readAs(webhookData, readData(answer), answer);
    },

    async webhookGet(how): Promise<WebhookState | null | 'unsupported'> {
      try {
        const answer = await calls.send({ ...frame, endpoint: 'webhook.get', ...read }, how);
        const data = readData(answer);
        return data === null || data === undefined ? null : readAs(webhookData, data, answer);
      } catch (error) {
        const status = error instanceof TillsyncError ? error.httpStatus : undefined;
        if (status === 404 || status === 405) return 'unsupported';
        throw error;
      }
    },
  };
}
