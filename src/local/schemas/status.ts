import { z } from 'zod';
import { FRESHNESS_SUBJECTS } from '../../domain/freshness.ts';
import { isoTime, text } from './common.ts';
import { outboxCounts } from './outbox.ts';

const ms = z.number().nullable();

export const statusAnswer = z.object({
  at: isoTime,
  versions: z.object({ tillsync: z.string(), node: z.string() }),
  freshness: z
    .array(
      z.object({
        subject: z.enum(FRESHNESS_SUBJECTS),
        lastOkAt: isoTime.nullable(),
        lastTryAt: isoTime.nullable(),
        state: z.enum(['unknown', 'ok', 'waiting', 'degraded', 'failing', 'blocked', 'locked-out', 'off']),
        message: z.string().describe('What happened and what to do; empty when all is well'),
      }),
    )
    .describe('One for each flow'),
  alarms: z
    .array(z.object({ key: z.string(), message: z.string(), raisedAt: isoTime, changedAt: isoTime }))
    .describe('Those that are up, oldest first'),
  tokens: z
    .object({
      state: z.enum(['none', 'ok', 'locked-out']),
      savedAt: isoTime.nullable(),
      accessExpiresInMs: ms.describe('On the platform\u2019s clock; negative: over; null: unknown'),
      refreshExpiresInMs: ms,
      lockedOutBy: z.enum(['refused', 'reply-lost']).nullable(),
    })
    .nullable()
    .describe('null when they cannot be looked up; `tokensFault` says why'),
  tokensFault: text,
  waits: z
    .array(z.object({ endpoint: z.string(), reason: z.string(), waitMs: z.number() }))
    .describe('Which endpoints of the platform may not be called yet, and why'),
  counts: z.object({
    orders: z.number().int(),
    openOrders: z.number().int(),
    events: z.number().int().describe('Newest seq of the change feed'),
    quarantine: z.number().int(),
    products: z.number().int(),
  }),
  outbox: outboxCounts,
});
