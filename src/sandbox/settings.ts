import * as z from 'zod';
import type { Log } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import type { Endpoint } from '../platform/platform.ts';

/** Forms in which GET /order/all wraps its list; the document does not show the form. */
const ENVELOPES = ['array', 'data', 'docs', 'orders'] as const;

/** Forms in which GET /order/all spells a record's fields; the document does not show the form. */
const ORDER_RECORDS = ['notification', 'internal', 'snake'] as const;
export type OrderRecordStyle = (typeof ORDER_RECORDS)[number];

const ms = z.number().min(0);
const status = z.int();
const atLeastOne = z.int().min(1);

const orderShape = z.strictObject({
  /** `array`: bare; `data`: {success,data:[…]}; `docs`: {success,data:{docs,totalDocs,…}}; `orders`: {orders:[…]}. */
  envelope: z.enum(ENVELOPES),
  record: z.enum(ORDER_RECORDS),
  /** Records per page of `docs` if the query has no limit; null for all on one page. */
  pageSize: atLeastOne.nullable(),
});
export type OrderShape = z.infer<typeof orderShape>;

/**
 * Settings that the document leaves open or that tests vary. All except `timeZone` may change while the sandbox runs.
 * Each default is the strictest or plainest reading of the document.
 */
export const sandboxSettings = z.strictObject({
  shape: orderShape,
  /** IANA time zone of the calendar of startDate and endDate. */
  timeZone: z.string(),
  /** HTTP status of an invalid request. */
  validationStatus: status,
  /** HTTP status of an envelope with success: false. */
  refusalStatus: status,
  /** Form of Retry-After in a 429. */
  retryAfter: z.enum(['seconds', 'date', 'absent']),
  /** Time by which a call may arrive before the end of the interval. */
  slackMs: ms,
  /** Time that a token stays blocked after a 403. */
  blockMs: ms,
  /** The platform's wall clock minus the wall clock of `SandboxEnvironment.clock`. */
  clockSkewMs: z.number(),
  /** Shortest and longest time of a round trip. A random share of it passes before the call arrives. */
  latencyMs: z.tuple([ms, ms]).readonly(),
  /** Largest page of GET /product/list, whatever `limit` asks for; null for no maximum. */
  maxPageSize: atLeastOne.nullable(),
  webhookReadMethod: z.string(),
  /** null if the platform offers no webhook read. */
  webhookReadPath: z.string().nullable(),
  /** Name of the enable flag in the request of PUT /webhook. */
  webhookFlagName: z.string(),
  /** The company's external POS option; without it no notification is sent. */
  externalPos: z.boolean(),
  webhookTimeoutMs: ms,
  /** Waits before the second, third, … try of a notification without a 2xx; empty for one try. */
  webhookRetry: z.strictObject({ delaysMs: z.array(ms).readonly() }),
  /** Whether using a dead refresh token also kills its successors. */
  reuseRevokes: z.boolean(),
});
export type SandboxSettings = z.infer<typeof sandboxSettings>;

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

/** Clock, random numbers, settings and log that all parts of a sandbox share. */
export interface SandboxEnvironment {
  clock: Clock;
  random: Random;
  settings: SandboxSettings;
  log: Log;
  /** Ends hanging answers and running notifications when the sandbox closes. */
  closing: AbortSignal;
}

/** Returns the platform's wall clock in epoch milliseconds. */
export function platformNowMs({ clock, settings }: Pick<SandboxEnvironment, 'clock' | 'settings'>): number {
  return clock.nowMs() + settings.clockSkewMs;
}

/** The endpoint at each method and path that the document shows. */
const ENDPOINT_AT: Readonly<Record<string, Endpoint>> = {
  'POST /token/refresh': 'token.refresh',
  'GET /order/all': 'order.all',
  'PUT /product': 'product.put',
  'PUT /product/stock': 'product.stock.put',
  'PUT /product/batch': 'product.batch',
  'PUT /product/stock/batch': 'product.stock.batch',
  'GET /product/list': 'product.list',
  'GET /product': 'product.get',
  'PUT /webhook': 'webhook.put',
};

/** Returns the endpoint of a method and path, including the webhook read as configured. */
export function endpointOf(method: string, path: string, settings: SandboxSettings): Endpoint | undefined {
  const isRead = method === settings.webhookReadMethod && path === settings.webhookReadPath;
  return ENDPOINT_AT[`${method} ${path}`] ?? (isRead ? 'webhook.get' : undefined);
}
