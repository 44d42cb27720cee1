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
