import { z } from 'zod';
import { whenFree } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import type { BoardOrder, TrendHour } from '../orders/order.ts';
import { type ApiFamily, amount, isoTime, type RouteDoc, text } from './api.ts';

export const boardOrder = z.object({
  orderId: z.string(),
  seq: z.number().int().describe('Of its newest event'),
  code: z.number().nullable(),
  status: text,
  storeExternalId: text,
  customerFirstName: text,
  customerLastName: text,
  deliveryType: text,
  amountToPay: amount,
  createdAt: text,
  updatedAt: isoTime,
}) satisfies z.ZodType<BoardOrder>;

export const boardAnswer = z.object({
  newest: z.number().int().describe('Newest seq of the change feed; follow it after this one'),
  orders: z.array(boardOrder).describe('The newest open orders, then those that ended last'),
});

const ms = z.number().int().nullable();

export const trendHour = z.object({
  from: isoTime.describe('Begin of the hour'),
  orders: z.number().int().describe('Orders created in it'),
  pushed: z.number().int().describe('Changes that the platform took in it; a good guess above 500'),
  pushMedianMs: ms.describe('From hand-over to the platform\u2019s yes; null: none was sent'),
  pushP95Ms: ms,
}) satisfies z.ZodType<TrendHour>;

export const trendsAnswer = z.object({
  at: isoTime,
  hours: z.array(trendHour).describe('The last 24, oldest first; the last one is not over yet'),
});

/** Short reads that may throw `storage-…`. */
export interface BoardSource {
  newestSeq(): number;
  board(limits: { open: number; ended: number }): BoardOrder[];
  trends(nowMs: number, hours: number): TrendHour[];
}

export interface BoardRoutesOptions {
  source: BoardSource;
  clock: Clock;
}

const LIMITS = { open: 200, ended: 30 };
const HOURS = 24;
/** For so long the same trends are told again, however many look. */
const TRENDS_FOR_MS = 15_000;

const docs = (): readonly RouteDoc[] => [
  {
    method: 'get',
    path: '/board',
    operationId: 'getBoard',
    summary: 'The orders under way at a glance, to be kept up to date from the change feed',
    answers: { 200: boardAnswer },
  },
  {
    method: 'get',
    path: '/trends',
    operationId: 'getTrends',
    summary: 'Orders for each hour of the last day, and how long changes took to the platform',
    answers: { 200: trendsAnswer },
  },
];

/** `GET /board` and `GET /trends`. */
export function boardRoutes({ source, clock }: BoardRoutesOptions): ApiFamily {
  let trends: { untilMonoMs: number; answer: object } | undefined;
  return {
    docs,
    plugin: async (app) => {
      app.get('/board', () =>
        whenFree(clock, () => {
          // First: an order that changes meanwhile comes once more by the feed.
          const newest = source.newestSeq();
          return { newest, orders: source.board(LIMITS) };
        }),
      );
      app.get('/trends', async () => {
        if (trends && clock.monotonicMs() < trends.untilMonoMs) return trends.answer;
        const nowMs = clock.nowMs();
        const hours = await whenFree(clock, () => source.trends(nowMs, HOURS));
        const answer = { at: isoUtc(nowMs), hours };
        trends = { untilMonoMs: clock.monotonicMs() + TRENDS_FOR_MS, answer };
        return answer;
      });
    },
  };
}
