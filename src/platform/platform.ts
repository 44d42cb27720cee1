/** Every endpoint of the platform, by the name used in the rate budget, logs and metrics. */
export const ENDPOINTS = [
  'token.refresh', // POST /token/refresh
  'order.all', // GET /order/all
  'product.put', // PUT /product
  'product.stock.put', // PUT /product/stock
  'product.batch', // PUT /product/batch
  'product.stock.batch', // PUT /product/stock/batch
  'product.list', // GET /product/list
  'product.get', // GET /product
  'webhook.put', // PUT /webhook
  'webhook.get', // not shown in the document; configurable
] as const;
export type Endpoint = (typeof ENDPOINTS)[number];

/** The platform's published limits (document, "Limits"), from the config's `[limits]`. */
export interface PlatformLimits {
  /** Interval of every endpoint but `order.all`. */
  endpointIntervalMs: number;
  /** Interval of `order.all`. */
  ordersIntervalMs: number;
  /** Length of the sliding anti-abuse window. */
  windowMs: number;
  /** Calls of all endpoints together within one window. */
  requestsPerWindow: number;
  /** Calls of `order.all` within one window. */
  ordersPerWindow: number;
}

/** Items in one batch call (document, "Batch size"). */
export const BATCH_ITEMS_MAX = 100;

/** The least time between two calls of `endpoint`. */
export function intervalMsOf(endpoint: Endpoint, limits: PlatformLimits): number {
  return endpoint === 'order.all' ? limits.ordersIntervalMs : limits.endpointIntervalMs;
}

/** Why a call is not sent yet; shown to people as "next order poll allowed in 1m 12s". */
export type WaitReason =
  | 'interval' // the endpoint was called too recently
  | 'in-flight' // another call of this endpoint, perhaps of another process, is not answered yet
  | 'window' // the five-minute cap is used up
  | 'retry-after' // the platform answered 429
  | 'blocked' // the platform answered 403
  | 'refreshing'; // another process is refreshing the tokens

export interface Wait {
  endpoint: Endpoint;
  reason: WaitReason;
  /** Best estimate; the true moment is checked again at its end. */
  waitMs: number;
}

/** What a caller of the platform may say about one call. */
export interface CallOptions {
  /** Ends a wait or a call under way with code `aborted`. A refresh under way is finished first. */
  signal?: AbortSignal;
  /** Told each time the call has to wait, before it does. */
  onWait?: (wait: Wait) => void;
  /** Told at the moment the request really leaves, after every wait; again if it is sent once more after a 401. */
  onSend?: () => void;
}

/**
 * The commerce platform as the rest of tillsync sees it: one method per endpoint of the document. Every call
 * passes the rate budget and the token keeper. Errors are TillsyncError: `aborted`, `auth-required`,
 * `unauthorized`, `rate-limited`, `blocked`, `forbidden`, `platform-unreachable`, `platform-failed`,
 * `platform-garbled`, `platform-refused`.
 */
export interface Platform {
  /** GET /order/all. The body is not shown in the document, so it comes back as bytes, known to be JSON-like. */
  orderAll(query: OrderAllQuery, options?: CallOptions): Promise<{ body: Uint8Array }>;
  /** GET /product/list. */
  productList(query: ProductListQuery, options?: CallOptions): Promise<ProductPage>;
  /** GET /product; null when the platform does not know the product. */
  productGet(
    query: { sku: string } | { externalId: string },
    options?: CallOptions,
  ): Promise<ProductRecord | null>;
  /** PUT /product; a refusal (success: false) throws `platform-refused` with the platform's message. */
  productPut(item: ProductChangeItem, options?: CallOptions): Promise<SingleAnswer>;
  /** PUT /product/stock; a refusal throws `platform-refused`. */
  productStockPut(item: StockChangeItem, options?: CallOptions): Promise<SingleAnswer>;
  /** PUT /product/batch, 1 to 100 items. */
  productBatch(items: ProductChangeItem[], options?: CallOptions): Promise<BatchAnswer>;
  /** PUT /product/stock/batch, 1 to 100 items. */
  productStockBatch(items: StockChangeItem[], options?: CallOptions): Promise<BatchAnswer>;
  /** PUT /webhook. */
  webhookPut(change: WebhookChange, options?: CallOptions): Promise<WebhookState>;
  /**
   * The webhook read, whose method and path are not shown (configurable). null: none is configured;
   * `unsupported`: the configured path does not exist on this platform.
   */
  webhookGet(options?: CallOptions): Promise<WebhookState | null | 'unsupported'>;
  /** How long a call of this endpoint would have to wait now, in milliseconds; 0: it could leave at once. */
  delayMs(endpoint: Endpoint): Promise<number>;
}

export interface OrderAllQuery {
  /** YYYY-MM-DD, in the company's calendar. */
  startDate: string;
  endDate: string;
  /** Further query parameters from the config, such as a page number. */
  extra?: Record<string, string>;
}

export type ProductListQuery = ({ subsidiaryId: string } | { externalId: string }) & {
  page: number;
  limit: number;
  order: 'asc' | 'desc';
  orderBy: string;
};

/** A product as the platform sent it: known fields where they could be read, everything in `raw`. */
export interface ProductRecord {
  id: string;
  name: string | null;
  category: string | null;
  show: boolean | null;
  children: SkuRecord[];
  /** JSON text of the whole record. */
  raw: string;
}

export interface SkuRecord {
  sku: string;
  barcode: string | null;
  price: number | string | null;
  /** As sent; its type is not shown. JSON text when it is not a scalar. */
  withDiscount: string | number | boolean | null;
  discount: string | number | boolean | null;
  show: boolean | null;
  stocks: { subsidiaryId: string; qty: number | string | null; show: boolean | null }[];
  integrations: {
    subsidiaryId: string;
    productIdPosA: string | null;
    productCodePosB: string | null;
    extId: string | null;
  }[];
}

export interface ProductPage {
  docs: ProductRecord[];
  /** Entries of docs that could not be read as a product, as JSON text. */
  unreadable: string[];
  totalDocs: number | null;
  limit: number | null;
  page: number | null;
  totalPages: number | null;
  hasNextPage: boolean | null;
}

/** Body of PUT /product and item of PUT /product/batch. */
export interface ProductChangeItem {
  sku?: number;
  externalId?: string;
  price?: number;
  name?: string;
  description?: string;
  show?: boolean;
}

/** Body of PUT /product/stock and item of PUT /product/stock/batch. */
export interface StockChangeItem {
  externalId: string;
  qty: number;
  show?: boolean;
  subsidiaryExternalId?: string;
  subsidiaryId?: string;
}

/** `unsaid`: an envelope whose `success` is neither true nor false. */
export type SingleAnswer = 'applied' | 'unsaid';

/** Messages are short, on one line and without secrets. */
export interface BatchAnswer {
  updated: number | null;
  total: number | null;
  errors: { index: number | null; sku: number | string | null; externalId: string | null; message: string }[];
}

export interface WebhookChange {
  callbackUrl?: string;
  /** Empty clears it; omitted keeps it. */
  secret?: string;
  active?: boolean;
}

export interface WebhookState {
  callbackUrl: string | null;
  active: boolean | null;
  hasSecret: boolean | null;
}
