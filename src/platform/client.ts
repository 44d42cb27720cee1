import type { z } from 'zod';
import { TillsyncError, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import { jsonText } from '../core/values.ts';
import {
  bounded,
  expectJsonLike,
  garbled,
  PlatformClock,
  readAs,
  readData,
  readEnvelope,
} from './answers.ts';
import { AuthorizedCall, type PlatformCall } from './authorized-call.ts';
import type {
  BatchAnswer,
  CallOptions,
  Endpoint,
  Platform,
  PlatformLimits,
  ProductPage,
  ProductRecord,
  SingleAnswer,
  Wait,
  WebhookState,
} from './platform.ts';
import { type ForbiddenNote, RateBudget, type RateLedger } from './rate-budget.ts';
import {
  batchData,
  orderAllQuery,
  productBatchRequest,
  productChangeItem,
  productGetQuery,
  productListData,
  productListQuery,
  readProduct,
  stockBatchRequest,
  stockChangeItem,
  webhookData,
  webhookPutRequest,
} from './schemas.ts';
import { TokenKeeper } from './token-keeper.ts';
import type { LockOut, TokenStore } from './tokens.ts';
import type { CallAnswer, Transport } from './transport.ts';

/** What is about to be sent, by the document's rules; `platform-refused` before anything leaves. */
export function checkedToSend<T>(schema: z.ZodType<T>, value: unknown): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const faults = read.error.issues
    .slice(0, 5)
    .map((issue) => `${issue.path.length > 0 ? `${issue.path.join('.')}: ` : ''}${issue.message}`);
  throw new TillsyncError(
    'platform-refused',
    `Not sent, the platform would refuse it: ${faults.join('; ')}.`,
    {
      retryable: false,
    },
  );
}

const TOO_DEEP = 'An entry that is nested too deeply to be kept.';

/**
 * Far beyond a whole catalogue in one answer, its SKUs, stocks and integrations included: reading more would keep
 * everything else waiting for minutes.
 */
const OBJECTS_MAX = 300_000;
const OPENING_BRACE = 0x7b;

/** A page of GET /product/list; entries that cannot be read, or only in part, are also given as text. */
export function readProductPage(answer: CallAnswer): ProductPage {
  const { docs: entries, ...counts } = readAs(productListData, readBounded(answer), answer);
  const docs: ProductRecord[] = [];
  const unreadable: string[] = [];
  for (const entry of entries) {
    const read = readProduct(entry);
    if (read) docs.push(read.record);
    if (!read?.complete) unreadable.push(jsonText(entry) ?? TOO_DEEP);
  }
  const { totalDocs, limit, page, totalPages, hasNextPage } = counts;
  return { docs, unreadable, totalDocs, limit, page, totalPages, hasNextPage };
}

/** The product of GET /product; null when the platform does not know it. */
export function readProductData(answer: CallAnswer): ProductRecord | null {
  const data = readBounded(answer);
  if (data === null || data === undefined) return null;
  const read = readProduct(data);
  if (read) return read.record;
  throw new TillsyncError('platform-garbled', 'The platform sent a product without an id.', {
    httpStatus: answer.status,
  });
}

/** `data` of the envelope; throws as `readData`, and `platform-garbled` for more than any catalogue holds. */
function readBounded(answer: CallAnswer): unknown {
  let objects = 0;
  for (const byte of answer.bytes) if (byte === OPENING_BRACE) objects += 1;
  if (objects > OBJECTS_MAX) throw garbled(answer, `more than ${OBJECTS_MAX} objects`);
  return readData(answer);
}

/** The answer of PUT /product and PUT /product/stock; throws `platform-refused`, `platform-garbled`. */
export function readSingle(answer: CallAnswer): SingleAnswer {
  return readEnvelope(answer).success === true ? 'applied' : 'unsaid';
}

/** The answer of either batch endpoint; throws `platform-refused`, `platform-garbled`. */
export function readBatchData(answer: CallAnswer): BatchAnswer {
  const { updated, total, errors } = readAs(batchData, readData(answer), answer);
  const told = (text: string) => bounded(text, answer) || 'The platform gives no reason.';
  return { updated, total, errors: errors.map((error) => ({ ...error, message: told(error.message) })) };
}

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
