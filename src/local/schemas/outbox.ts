import { z } from 'zod';
import { isoTime, limitOf, text } from './common.ts';

export const OUTBOX_STATES = ['pending', 'sending', 'done', 'rejected', 'superseded'] as const;

const changeBody = z
  .record(z.string(), z.unknown())
  .describe('In the platform\u2019s item shape; of an unread item what was handed over');

/** One change on its way to the platform. */
export const change = z.object({
  changeId: z.number().int(),
  kind: z.enum(['product', 'stock']),
  target: z.string().describe('What it is for; two waiting changes of one kind never have the same'),
  body: changeBody,
  state: z.enum(OUTBOX_STATES),
  attempts: z.number().int(),
  message: text.describe('Why it is held, rejected or replaced'),
  createdAt: isoTime,
  settledAt: isoTime.nullable(),
  heldGuard: text.describe('The guard rail that holds it for a person'),
  source: z.string().describe('Way in: inbox, http, cli or hold-back'),
  reference: text,
  replaced: z.number().int().describe('How many earlier values for the target went into it'),
  supersededBy: z.number().int().nullable(),
});

export const outboxQuery = z.strictObject({
  state: z
    .enum([...OUTBOX_STATES, 'held'])
    .optional()
    .describe('`held`: the part of `pending` that waits for a person'),
  kind: z.enum(['product', 'stock']).optional(),
  before: z.coerce
    .number()
    .int()
    .min(1)
    .optional()
    .describe('Only changes with a lower id, for the next page'),
  limit: limitOf(100, 1000),
});

export const outboxCounts = z.object({
  pending: z.number().int().describe('Waiting, without those that are held'),
  held: z.number().int(),
  needsRead: z.number().int().describe('Waiting for their product to be read'),
  sending: z.number().int(),
  rejected: z.number().int(),
  oldestPendingAt: isoTime.nullable(),
});

export const outboxPage = z.object({
  changes: z.array(change).describe('Newest first'),
  before: z.number().int().nullable().describe('For the next page; null: there is none'),
});

export const changePath = z.strictObject({ changeId: z.coerce.number().int().min(1) });

export const changeAnswer = z.object({
  change,
  became: change.nullable().describe('The change that took its place, where one did'),
});

export const releaseRequest = z.strictObject({
  guard: z
    .enum(['zero-items', 'price-factor', 'missing-share', 'restored'])
    .nullable()
    .describe('Lets go what this guard rail holds; null: all that is held'),
});
export const releaseAnswer = z.object({ released: z.number().int() });
