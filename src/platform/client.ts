import type { z } from 'zod';
import { hasCode, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import {
  expectJsonLike,
  expectNoRefusal,
  expectSuccess,
  PlatformClock,
  readAs,
  readBatchData,
  readData,
  readDone,
  readProductData,
  readProductPage,
  readSingle,
  serverDateMs,
} from './answers.ts';
import type { CallOptions, Endpoint, OrderAllQuery, SingleAnswer, WebhookChange } from './platform.ts';
import { RateBudget, type RateBudgetOptions, type SlotTicket } from './rate-budget.ts';
import {
  type BatchAnswer,
  orderAllQuery,
  type ProductChangeItem,
  type ProductListQuery,
  type ProductPage,
  type ProductRecord,
  productBatchRequest,
  productChangeItem,
  productGetQuery,
  productListQuery,
  type StockChangeItem,
  stockBatchRequest,
  stockChangeItem,
  type WebhookState,
  webhookData,
  webhookPutRequest,
} from './schemas.ts';
import { type AccessToken, TokenKeeper, type TokenKeeperOptions, unauthorized } from './token-keeper.ts';
import type { TokenStore } from './tokens.ts';
import type { CallAnswer, TransportAnswer } from './transport.ts';

/**
 * Checks a body or query by the rules of the platform's document, and returns it. Throws `platform-refused` if it
 * breaks a rule, so that it is never sent.
 */
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

interface PlatformClientOptions
  extends RateBudgetOptions,
    Omit<TokenKeeperOptions, 'store' | 'budget' | 'platformClock'> {
  tokens: TokenStore;
  /**
   * Method and path by which the webhook is read. They are configured, because the document does not show this call.
   */
  webhookRead?: { method: string; path: string };
  /** Name of the field that enables the webhook in a request. The document does not show it. */
  webhookEnableFlag?: string;
  /** Time limit of one call. GET /order/all has its own, longer limit, because its answer may be large. */
  timeoutMs?: number;
}

const TIMEOUT_MS = 30_000;
const ORDERS_TIMEOUT_MS = 180_000;
const MIB = 1024 * 1024;
const READ_MAX_BYTES = 32 * MIB;
/** Maximum size of the answer to a change. Such an answer has at most one message for each of 100 items. */
const WRITTEN_MAX_BYTES = 4 * MIB;
const ORDERS_MAX_BYTES = 512 * MIB;

interface PlatformCall {
  endpoint: Endpoint;
  method: string;
  path: string;
  query?: Record<string, string | undefined>;
  /** Body of the request; sent as JSON. */
  body?: unknown;
  /** Values that must not appear in any message, such as tokens. */
  secrets?: readonly string[];
}

/**
 * Calls the endpoints of the document, within the shared rate budget and with a valid token. Every error is a
 * TillsyncError with one of these codes: `aborted`, `auth-required`, `unauthorized`, `rate-limited`, `blocked`,
 * `forbidden`, `platform-unreachable`, `platform-failed`, `platform-garbled`, `platform-refused`.
 */
export class PlatformClient {
  readonly tokens: TokenKeeper;
  /** The platform's wall clock, as the Date header of its answers shows it. */
  readonly clock: PlatformClock;
  readonly #budget: RateBudget;
  readonly #o: PlatformClientOptions;

  constructor(options: PlatformClientOptions) {
    const { clock, tokens: store } = options;
    this.#o = options;
    this.#budget = new RateBudget(options);
    this.clock = new PlatformClock({ clock, store });
    this.tokens = new TokenKeeper({ ...options, store, budget: this.#budget, platformClock: this.clock });
  }

  /**
   * GET /order/all. The document does not show the body, so it is returned as bytes, after a check that it begins and
   * ends like JSON and does not say `success: false`.
   */
  async orderAll(
    { startDate, endDate, extra }: OrderAllQuery,
    how?: CallOptions,
  ): Promise<{ body: Uint8Array }> {
    const query = checkedToSend(orderAllQuery, { ...extra, startDate, endDate }) as Record<string, string>;
    const answer = await this.#get('order.all', '/order/all', query, how);
    expectJsonLike(answer);
    expectNoRefusal(answer);
    return { body: answer.bytes };
  }

  /** GET /product/list. */
  async productList(asked: ProductListQuery, how?: CallOptions): Promise<ProductPage> {
    const { page, limit, ...rest } = checkedToSend(productListQuery, asked);
    const query = { ...rest, page: String(page), limit: String(limit) };
    return readProductPage(await this.#get('product.list', '/product/list', query, how));
  }

  /** GET /product. Returns null if the platform does not know the product. */
  async productGet(
    asked: { sku: string } | { externalId: string },
    how?: CallOptions,
  ): Promise<ProductRecord | null> {
    const query = checkedToSend(productGetQuery, asked);
    return readProductData(await this.#get('product.get', '/product', query, how));
  }

  /** PUT /product. If the platform answers `success: false`, throws `platform-refused` with the platform's message. */
  async productPut(item: ProductChangeItem, how?: CallOptions): Promise<SingleAnswer> {
    const body = checkedToSend(productChangeItem, item);
    return readSingle(await this.#put('product.put', '/product', body, how));
  }

  /** PUT /product/stock. Throws `platform-refused` as `productPut` does. */
  async productStockPut(item: StockChangeItem, how?: CallOptions): Promise<SingleAnswer> {
    const body = checkedToSend(stockChangeItem, item);
    return readSingle(await this.#put('product.stock.put', '/product/stock', body, how));
  }

  /** PUT /product/batch, with 1 to 100 items. */
  async productBatch(products: ProductChangeItem[], how?: CallOptions): Promise<BatchAnswer> {
    const body = checkedToSend(productBatchRequest, { products });
    return readBatchData(await this.#put('product.batch', '/product/batch', body, how));
  }

  /** PUT /product/stock/batch, with 1 to 100 items. */
  async productStockBatch(products: StockChangeItem[], how?: CallOptions): Promise<BatchAnswer> {
    const body = checkedToSend(stockBatchRequest, { products });
    return readBatchData(await this.#put('product.stock.batch', '/product/stock/batch', body, how));
  }

  /** PUT /webhook. */
  async webhookPut({ callbackUrl, secret, active }: WebhookChange, how?: CallOptions): Promise<WebhookState> {
    const flag = this.#o.webhookEnableFlag ?? 'active';
    const body = checkedToSend(webhookPutRequest(flag), {
      ...(callbackUrl !== undefined && { callbackUrl }),
      ...(secret !== undefined && { secret }),
      ...(active !== undefined && { [flag]: active }),
    });
    const secrets = secret === undefined ? [] : [secret];
    const answer = await this.#put('webhook.put', '/webhook', body, how, secrets);
    return readAs(webhookData, readDone(answer), answer);
  }

  /**
   * Reads the webhook's settings by a configurable method and path, because the document shows none. Returns null if
   * the platform has no webhook of the company, and `unsupported` if it answers 404 or 405.
   */
  async webhookGet(how?: CallOptions): Promise<WebhookState | null | 'unsupported'> {
    const { method, path } = this.#o.webhookRead ?? { method: 'GET', path: '/webhook' };
    try {
      const answer = await this.#send({ endpoint: 'webhook.get', method, path }, how);
      return readAs(webhookData.nullable(), readData(answer), answer);
    } catch (error) {
      const status = error instanceof TillsyncError ? error.httpStatus : undefined;
      if (status === 404 || status === 405) return 'unsupported';
      throw error;
    }
  }

  /** Returns the milliseconds that a call of this endpoint would have to wait now; 0 if it could be sent at once. */
  async delayMs(endpoint: Endpoint): Promise<number> {
    const { clock, ledger, limits } = this.#o;
    return (await whenFree(clock, () => ledger.waitOf(endpoint, limits)))?.waitMs ?? 0;
  }

  /** Waits until the tokens of a running refresh are saved, then closes all connections. */
  async close(): Promise<void> {
    await this.tokens.finish();
    await this.#o.transport.close();
  }

  #get(endpoint: Endpoint, path: string, query: PlatformCall['query'] & {}, how?: CallOptions) {
    return this.#send({ endpoint, method: 'GET', path, query }, how);
  }

  #put(endpoint: Endpoint, path: string, body: unknown, how?: CallOptions, secrets: readonly string[] = []) {
    return this.#send({ endpoint, method: 'PUT', path, body, secrets }, how);
  }

  /** Sends a call. After a 401, sends it once more with a new token. Throws for every status except 2xx. */
  async #send(call: PlatformCall, options: CallOptions = {}): Promise<CallAnswer> {
    const budget = this.#budget;
    for (let attempt = 0; ; attempt++) {
      const { ticket, access } = await this.#enter(call.endpoint, options);
      const sent = await budget.during(ticket, () => this.#attempt(call, options, ticket, access));
      const answer: CallAnswer = { ...sent, secrets: [...(call.secrets ?? []), access.token] };
      const { status } = answer;
      const serverNowMs = serverDateMs(answer.headers);
      if (serverNowMs !== undefined) this.clock.observe(serverNowMs);
      if (status === 403 || status === 429) throw await budget.refused(ticket, answer);
      if (status >= 200 && status < 300) {
        await budget.answered(ticket);
        this.tokens.accepted(access);
        return answer;
      }
      await budget.failed(ticket);
      if (status !== 401) expectSuccess(answer);
      if (attempt > 0) {
        throw unauthorized(`The platform answers 401 to ${call.endpoint} also with a fresh token.`);
      }
      this.tokens.reject(access);
    }
  }

  /**
   * Gets a valid token first and the endpoint's slot afterwards, because no call may hold a slot while it waits for a
   * token.
   */
  async #enter(
    endpoint: Endpoint,
    options: CallOptions,
  ): Promise<{ ticket: SlotTicket; access: AccessToken }> {
    for (;;) {
      await this.tokens.ready(options);
      const ticket = await this.#budget.enter(endpoint, options);
      if (!ticket) continue;
      let access: AccessToken | undefined;
      try {
        access = this.tokens.current();
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
