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

export interface OrderAllQuery {
  /** YYYY-MM-DD, in the company's calendar. */
  startDate: string;
  endDate: string;
  /** Further query parameters from the config, such as a page number. */
  extra?: Record<string, string>;
}

/** `unsaid`: an envelope whose `success` is neither true nor false. */
export type SingleAnswer = 'applied' | 'unsaid';

export interface WebhookChange {
  callbackUrl?: string;
  /** Empty clears it; omitted keeps it. */
  secret?: string;
  active?: boolean;
}
