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

/** The limits that the platform publishes (its document, "Limits"), from `[limits]` of the configuration. */
export interface PlatformLimits {
  /** Minimum interval of every endpoint except `order.all`. */
  endpointIntervalMs: number;
  /** Interval of `order.all`. */
  ordersIntervalMs: number;
  /** Length of the sliding window in which the platform counts calls to detect abuse. */
  windowMs: number;
  /** Maximum number of calls in one window, of all endpoints together. */
  requestsPerWindow: number;
  /** Maximum number of calls of `order.all` in one window. */
  ordersPerWindow: number;
}

/** Maximum number of items in one batch call (document, "Batch size"). */
export const BATCH_ITEMS_MAX = 100;

/** Why a call has to wait. People see it in texts such as "next order poll allowed in 1m 12s". */
export type WaitReason =
  | 'interval' // the endpoint was called too recently
  | 'in-flight' // another call of this endpoint, perhaps of another process, has no answer yet
  | 'window' // as many calls as allowed were sent within the window
  | 'retry-after' // the platform answered 429
  | 'blocked' // the platform answered 403
  | 'refreshing'; // another process is refreshing the tokens

export interface Wait {
  endpoint: Endpoint;
  reason: WaitReason;
  /** Estimated wait. Afterwards the rate budget is asked again. */
  waitMs: number;
}

/** Options of one call to the platform. */
export interface CallOptions {
  /**
   * Aborts a wait or a running call with the error `aborted`. A token refresh that was already sent goes on without the
   * caller.
   */
  signal?: AbortSignal;
  /** Called before each wait. */
  onWait?: (wait: Wait) => void;
  /**
   * Called when the request is really sent, so after all waits. Called again if the request is repeated after a 401.
   */
  onSend?: () => void;
}

export interface OrderAllQuery {
  /** YYYY-MM-DD, in the company's calendar. */
  startDate: string;
  endDate: string;
  /** Further query parameters from the configuration, such as a page number. */
  extra?: Record<string, string>;
}

/** Whether a change was applied. `unsaid` means that `success` in the answer is neither true nor false. */
export type SingleAnswer = 'applied' | 'unsaid';

export interface WebhookChange {
  callbackUrl?: string;
  /** '' deletes the secret. If the field is left out, the secret stays. */
  secret?: string;
  active?: boolean;
}
