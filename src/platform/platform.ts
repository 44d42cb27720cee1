/** Every endpoint of the platform, by its name in the rate budget, logs and metrics. */
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
  /** Minimum interval of every endpoint except `order.all`. */
  endpointIntervalMs: number;
  /** Interval of `order.all`. */
  ordersIntervalMs: number;
  /** Length of the sliding anti-abuse window. */
  windowMs: number;
  /** Calls of all endpoints together that one window allows. */
  requestsPerWindow: number;
  /** Calls of `order.all` that one window allows. */
  ordersPerWindow: number;
}

/** Maximum number of items in one batch call (document, "Batch size"). */
export const BATCH_ITEMS_MAX = 100;

/** Returns the minimum time between two calls of `endpoint`. */
export function intervalMsOf(endpoint: Endpoint, limits: PlatformLimits): number {
  return endpoint === 'order.all' ? limits.ordersIntervalMs : limits.endpointIntervalMs;
}

/** Why a call has to wait. People see it as "next order poll allowed in 1m 12s". */
export type WaitReason =
  | 'interval' // the endpoint was called too recently
  | 'in-flight' // another call of this endpoint, perhaps by another process, has no answer yet
  | 'window' // the five-minute cap is used up
  | 'retry-after' // the platform answered 429
  | 'blocked' // the platform answered 403
  | 'refreshing'; // another process is refreshing the tokens

export interface Wait {
  endpoint: Endpoint;
  reason: WaitReason;
  /** An estimate. When it is over, the budget is asked again. */
  waitMs: number;
}

/** Options of one call to the platform. */
export interface CallOptions {
  /** Cancels a wait or a running call with the code `aborted`. A refresh that was sent is finished first. */
  signal?: AbortSignal;
  /** Called before each wait. */
  onWait?: (wait: Wait) => void;
  /** Called when the request is really sent, after every wait, and again if it is repeated after a 401. */
  onSend?: () => void;
}

export interface OrderAllQuery {
  /** YYYY-MM-DD, in the company's calendar. */
  startDate: string;
  endDate: string;
  /** Further query parameters from the configuration, such as a page number. */
  extra?: Record<string, string>;
}

/** `unsaid` means that `success` in the envelope is neither true nor false. */
export type SingleAnswer = 'applied' | 'unsaid';

export interface WebhookChange {
  callbackUrl?: string;
  /** An empty text clears the secret. Without the field it stays. */
  secret?: string;
  active?: boolean;
}
