import type { Endpoint } from '../platform/platform.ts';

/** How GET /order/all wraps its list; the document does not show it. */
export const ORDER_ENVELOPES = ['array', 'data', 'docs', 'orders'] as const;
export type OrderEnvelope = (typeof ORDER_ENVELOPES)[number];

/** How GET /order/all spells a record's fields; the document does not show it. */
export const ORDER_RECORDS = ['notification', 'internal', 'snake'] as const;
export type OrderRecordStyle = (typeof ORDER_RECORDS)[number];

export interface OrderShape {
  /** `array`: bare; `data`: {success,data:[…]}; `docs`: {success,data:{docs,totalDocs,…}}; `orders`: {orders:[…]}. */
  envelope: OrderEnvelope;
  record: OrderRecordStyle;
  /** Records per page of `docs` when the query names no limit; null: all in one page. */
  pageSize: number | null;
}

/**
 * What the document leaves open, and what a test wants to vary. Everything may change while the sandbox runs;
 * each default is the strict or the plainest reading.
 */
export interface SandboxSettings {
  shape: OrderShape;
  /** Calendar of startDate and endDate (IANA zone). */
  timeZone: string;
  /** HTTP status of a request that does not validate. */
  validationStatus: number;
  /** HTTP status of an envelope with success: false. */
  refusalStatus: number;
  /** How a 429 names its wait. */
  retryAfter: 'seconds' | 'date' | 'absent';
  /** How much sooner than the interval a call may arrive. */
  slackMs: number;
  /** How long a token stays blocked after a 403. */
  blockMs: number;
  /** The platform's wall clock minus the injected one. */
  clockSkewMs: number;
  /** Least and most of a round trip; its share before the arrival is drawn too. */
  latencyMs: readonly [number, number];
  /** GET /product/list never returns more per page, whatever `limit` asks; null: no cap. */
  maxPageSize: number | null;
  webhookReadMethod: string;
  /** null: the platform has no webhook read. */
  webhookReadPath: string | null;
  /** Name of the enable flag in the request of PUT /webhook. */
  webhookFlagName: string;
  /** External POS option of the company; without it no notification leaves. */
  externalPos: boolean;
  webhookTimeoutMs: number;
  /** Waits before the second, third, … try of a notification that got no 2xx; empty: one try. */
  webhookRetry: { delaysMs: readonly number[] };
  /** Using a dead refresh token kills its successors too. */
  reuseRevokes: boolean;
}

export const DEFAULT_SETTINGS: SandboxSettings = {
  shape: { envelope: 'docs', record: 'notification', pageSize: null },
  timeZone: 'America/Santiago',
  validationStatus: 400,
  refusalStatus: 200,
  retryAfter: 'seconds',
  slackMs: 0,
  blockMs: 300_000,
  clockSkewMs: 0,
  latencyMs: [0, 0],
  maxPageSize: null,
  webhookReadMethod: 'GET',
  webhookReadPath: '/webhook',
  webhookFlagName: 'active',
  externalPos: true,
  webhookTimeoutMs: 10_000,
  webhookRetry: { delaysMs: [] },
  reuseRevokes: false,
};

/** Method and path of each endpoint whose place the document shows. */
export const ROUTES: readonly { method: string; path: string; endpoint: Endpoint }[] = [
  { method: 'POST', path: '/token/refresh', endpoint: 'token.refresh' },
  { method: 'GET', path: '/order/all', endpoint: 'order.all' },
  { method: 'PUT', path: '/product', endpoint: 'product.put' },
  { method: 'PUT', path: '/product/stock', endpoint: 'product.stock.put' },
  { method: 'PUT', path: '/product/batch', endpoint: 'product.batch' },
  { method: 'PUT', path: '/product/stock/batch', endpoint: 'product.stock.batch' },
  { method: 'GET', path: '/product/list', endpoint: 'product.list' },
  { method: 'GET', path: '/product', endpoint: 'product.get' },
  { method: 'PUT', path: '/webhook', endpoint: 'webhook.put' },
];

/** The endpoint that a method and a path name, with the webhook read where the settings put it. */
export function endpointOf(method: string, path: string, settings: SandboxSettings): Endpoint | undefined {
  const known = ROUTES.find((route) => route.method === method && route.path === path);
  if (known) return known.endpoint;
  const isRead = method === settings.webhookReadMethod && path === settings.webhookReadPath;
  return isRead ? 'webhook.get' : undefined;
}
