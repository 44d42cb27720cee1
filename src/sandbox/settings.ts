import * as z from 'zod';
import type { Log } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import type { Endpoint } from '../platform/platform.ts';

/** How GET /order/all wraps its list; the document does not show it. */
export const ORDER_ENVELOPES = ['array', 'data', 'docs', 'orders'] as const;

/** How GET /order/all spells a record's fields; the document does not show it. */
export const ORDER_RECORDS = ['notification', 'internal', 'snake'] as const;
export type OrderRecordStyle = (typeof ORDER_RECORDS)[number];

const ms = z.number().min(0);
const status = z.int();
const atLeastOne = z.int().min(1);

const orderShape = z.strictObject({
  /** `array`: bare; `data`: {success,data:[…]}; `docs`: {success,data:{docs,totalDocs,…}}; `orders`: {orders:[…]}. */
  envelope: z.enum(ORDER_ENVELOPES),
  record: z.enum(ORDER_RECORDS),
  /** Records per page of `docs` when the query names no limit; null: all in one page. */
  pageSize: atLeastOne.nullable(),
});
export type OrderShape = z.infer<typeof orderShape>;

/**
 * What the document leaves open, and what a test wants to vary. Everything may change while the sandbox runs;
 * each default is the strict or the plainest reading.
 */
export const sandboxSettings = z.strictObject({
  shape: orderShape,
  /** Calendar of startDate and endDate (IANA zone). */
  timeZone: z.string(),
  /** HTTP status of a request that does not validate. */
  validationStatus: status,
  /** HTTP status of an envelope with success: false. */
  refusalStatus: status,
  /** How a 429 names its wait. */
  retryAfter: z.enum(['seconds', 'date', 'absent']),
  /** How much sooner than the interval a call may arrive. */
  slackMs: ms,
  /** How long a token stays blocked after a 403. */
  blockMs: ms,
  /** The platform's wall clock minus the injected one. */
  clockSkewMs: z.number(),
  /** Least and most of a round trip; its share before the arrival is drawn too. */
  latencyMs: z.tuple([ms, ms]).readonly(),
  /** GET /product/list never returns more per page, whatever `limit` asks; null: no cap. */
  maxPageSize: atLeastOne.nullable(),
  webhookReadMethod: z.string(),
  /** null: the platform has no webhook read. */
  webhookReadPath: z.string().nullable(),
  /** Name of the enable flag in the request of PUT /webhook. */
  webhookFlagName: z.string(),
  /** External POS option of the company; without it no notification leaves. */
  externalPos: z.boolean(),
  webhookTimeoutMs: ms,
  /** Waits before the second, third, … try of a notification that got no 2xx; empty: one try. */
  webhookRetry: z.strictObject({ delaysMs: z.array(ms).readonly() }),
  /** Using a dead refresh token kills its successors too. */
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

/** What every part of one sandbox works with. */
export interface World {
  clock: Clock;
  random: Random;
  settings: SandboxSettings;
  log: Log;
  /** Ends hangs and notifications under way when the sandbox closes. */
  closing: AbortSignal;
}

/** The platform's wall clock, epoch milliseconds. */
export function platformNowMs({ clock, settings }: Pick<World, 'clock' | 'settings'>): number {
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

/** The endpoint that a method and a path name, with the webhook read where the settings put it. */
export function endpointOf(method: string, path: string, settings: SandboxSettings): Endpoint | undefined {
  const isRead = method === settings.webhookReadMethod && path === settings.webhookReadPath;
  return ENDPOINT_AT[`${method} ${path}`] ?? (isRead ? 'webhook.get' : undefined);
}
