import type { z } from 'zod';
import { hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import { jsonText } from '../core/values.ts';
import type { BatchAnswer, CallOptions, Endpoint, Platform, ProductPage, ProductRecord } from './platform.ts';
import { RateBudget, type RateBudgetOptions, type SlotTicket } from './rate-budget.ts';
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
import { type AccessToken, TokenKeeper, type TokenKeeperOptions, unauthorized } from './token-keeper.ts';
import { PlatformClock, type TokenStore } from './tokens.ts';
import {
  bounded,
  type CallAnswer,
  expectJsonLike,
  expectSuccess,
  garbled,
  readAs,
  readData,
  readEnvelope,
  serverDateMs,
  type TransportAnswer,
} from './transport.ts';

/** What is about to be sent, by the document's rules; `platform-refused` before anything leaves. */
function checkedToSend<T>(schema: z.ZodType<T>, value: unknown): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const faults = read.error.issues
    .slice(0, 5)
    .map(({ path, message }) => (path.length > 0 ? `${path.join('.')}: ${message}` : message));
  throw new TillsyncError(
    'platform-refused',
    `Not sent, the platform would refuse it: ${faults.join('; ')}.`,
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
export function readSingle(answer: CallAnswer): 'applied' | 'unsaid' {
  return readEnvelope(answer).success === true ? 'applied' : 'unsaid';
}

/** The answer of either batch endpoint; throws `platform-refused`, `platform-garbled`. */
export function readBatchData(answer: CallAnswer): BatchAnswer {
  const { updated, total, errors } = readAs(batchData, readData(answer), answer);
  const told = (text: string) => bounded(text, answer) || 'The platform gives no reason.';
  return { updated, total, errors: errors.map((error) => ({ ...error, message: told(error.message) })) };
}

export interface PlatformClientOptions
  extends RateBudgetOptions,
    Omit<TokenKeeperOptions, 'store' | 'budget' | 'platformClock'> {
  tokens: TokenStore;
  /** The webhook read, which the document does not show. */
  webhookRead?: { method: string; path: string };
  /** Request name of the webhook's enable flag, which the document does not show. */
  webhookEnableFlag?: string;
  /** Whole time of one call; GET /order/all may carry much and has its own. */
  timeoutMs?: number;
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
const READ_MAX_BYTES = 32 * MIB;
/** What a change is answered with is short: a message for each of 100 items. */
const WRITTEN_MAX_BYTES = 4 * MIB;
const ORDERS_MAX_BYTES = 512 * MIB;

interface PlatformCall {
  endpoint: Endpoint;
  method: string;
  path: string;
  query?: Record<string, string | undefined>;
  /** Sent as JSON. */
  body?: unknown;
  /** Values that no message may repeat. */
  secrets?: readonly string[];
}

/** Sends calls, each with a good token at an allowed moment. */
class AuthorizedCalls {
  readonly keeper: TokenKeeper;
  readonly platformClock: PlatformClock;
  readonly #budget: RateBudget;
  readonly #o: PlatformClientOptions;

  constructor(options: PlatformClientOptions) {
    const { clock, tokens: store } = options;
    this.#o = options;
    this.#budget = new RateBudget(options);
    this.platformClock = new PlatformClock({ clock, store });
    const { platformClock } = this;
    this.keeper = new TokenKeeper({ ...options, store, budget: this.#budget, platformClock });
  }

  /** Once, and once more with a fresh token after a 401. Throws for every answer that is not of status 2xx. */
  async send(call: PlatformCall, options: CallOptions = {}): Promise<CallAnswer> {
    const budget = this.#budget;
    for (let attempt = 0; ; attempt++) {
      const { ticket, access } = await this.#enter(call.endpoint, options);
      const sent = await budget.during(ticket, () => this.#attempt(call, options, ticket, access));
      const answer: CallAnswer = { ...sent, secrets: [...(call.secrets ?? []), access.token] };
      const { status } = answer;
      const serverNowMs = serverDateMs(answer.headers);
      if (serverNowMs !== undefined) this.platformClock.observe(serverNowMs);
      if (status === 403 || status === 429) throw await budget.refused(ticket, answer);
      if (status >= 200 && status < 300) {
        await budget.answered(ticket);
        this.keeper.accepted(access);
        return answer;
      }
      await budget.failed(ticket);
      if (status !== 401) expectSuccess(answer);
      if (attempt > 0) {
        throw unauthorized(`The platform answers 401 to ${call.endpoint} also with a fresh token.`);
      }
      this.keeper.reject(access);
    }
  }

  /** A good token first, since a slot is held for the length of one call only. */
  async #enter(
    endpoint: Endpoint,
    options: CallOptions,
  ): Promise<{ ticket: SlotTicket; access: AccessToken }> {
    for (;;) {
      await this.keeper.ready(options);
      const ticket = await this.#budget.enter(endpoint, options);
      if (!ticket) continue;
      let access: AccessToken | undefined;
      try {
        access = this.keeper.current();
      } finally {
        if (!access) await this.#budget.cancel(ticket);
      }
      if (access) return { ticket, access };
    }
  }

  async #attempt(
    call: PlatformCall,
    options: CallOptions,
    ticket: SlotTicket,
    access: AccessToken,
  ): Promise<TransportAnswer> {
    const { transport, clock, log, timeoutMs = TIMEOUT_MS } = this.#o;
    const { endpoint, method, path, query, body } = call;
    const isOrders = endpoint === 'order.all';
    const maxBytes = method === 'PUT' ? WRITTEN_MAX_BYTES : READ_MAX_BYTES;
    const startMs = clock.monotonicMs();
    try {
      options.onSend?.();
      const answer = await transport.send({
        endpoint,
        method,
        path: path + queryText(query),
        headers: {
          accept: 'application/json',
          authorization: `Bearer ${access.token}`,
          ...(body !== undefined && { 'content-type': 'application/json' }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        timeoutMs: isOrders ? ORDERS_TIMEOUT_MS : timeoutMs,
        bodyMaxBytes: isOrders ? ORDERS_MAX_BYTES : maxBytes,
        ...(options.signal && { signal: options.signal }),
      });
      const durationMs = Math.round(clock.monotonicMs() - startMs);
      log.debug({ endpoint, status: answer.status, durationMs }, 'The platform answered.');
      return answer;
    } catch (error) {
      await this.#budget.failed(ticket);
      if (!hasCode(error, 'aborted')) log.debug({ endpoint, err: error }, 'A call failed.');
      throw error;
    }
  }
}

function queryText(query: PlatformCall['query'] = {}): string {
  const sent = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) sent.append(name, value);
  return sent.size === 0 ? '' : `?${sent}`;
}

/** The document's endpoints over `transport`, each call within the shared rate budget and with a good token. */
export function createPlatformClient(options: PlatformClientOptions): PlatformClient {
  const calls = new AuthorizedCalls(options);
  const get = (endpoint: Endpoint, path: string, query: PlatformCall['query'] & {}, how?: CallOptions) =>
    calls.send({ endpoint, method: 'GET', path, query }, how);
  const put = (endpoint: Endpoint, path: string, body: unknown, how?: CallOptions) =>
    calls.send({ endpoint, method: 'PUT', path, body }, how);
  const flag = options.webhookEnableFlag ?? 'active';
  const webhookRead = options.webhookRead ?? { method: 'GET', path: '/webhook' };

  return {
    tokens: calls.keeper,
    clock: calls.platformClock,

    async orderAll({ startDate, endDate, extra }, how) {
      const query = checkedToSend(orderAllQuery, { ...extra, startDate, endDate }) as Record<string, string>;
      const answer = await get('order.all', '/order/all', query, how);
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

    async webhookPut({ callbackUrl, secret, active }, how) {
      const body = checkedToSend(webhookPutRequest(flag), {
        ...(callbackUrl !== undefined && { callbackUrl }),
        ...(secret !== undefined && { secret }),
        ...(active !== undefined && { [flag]: active }),
      });
      const secrets = secret === undefined ? [] : [secret];
      const call = { endpoint: 'webhook.put', method: 'PUT', path: '/webhook', body, secrets } as const;
      const answer = await calls.send(call, how);
      return readAs(webhookData, readData(answer), answer);
    },

    async webhookGet(how) {
      try {
        const answer = await calls.send({ endpoint: 'webhook.get', ...webhookRead }, how);
        const data = readData(answer);
        return data === null || data === undefined ? null : readAs(webhookData, data, answer);
      } catch (error) {
        const status = error instanceof TillsyncError ? error.httpStatus : undefined;
        if (status === 404 || status === 405) return 'unsupported';
        throw error;
      }
    },

    async delayMs(endpoint) {
      const wait = await whenFree(options.clock, () => options.ledger.waitOf(endpoint, options.limits));
      return wait?.waitMs ?? 0;
    },

    async close() {
      await calls.keeper.finish();
      await options.transport.close();
    },
  };
}
