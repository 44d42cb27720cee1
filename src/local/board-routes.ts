import { whenFree } from '../domain/busy.ts';
import type { TrendHour } from '../domain/health/trends.ts';
import type { BoardOrder } from '../domain/order/order-board.ts';
import { type Clock, isoUtc } from '../domain/time/clock.ts';
import type { ApiFamily, RouteDoc } from './api-route.ts';
import { boardAnswer, trendsAnswer } from './schemas/board.ts';

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
