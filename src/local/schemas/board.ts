import { z } from 'zod';
import type { TrendHour } from '../../domain/health/trends.ts';
import type { BoardOrder } from '../../domain/order/order-board.ts';
import { amount, isoTime, text } from './common.ts';

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
