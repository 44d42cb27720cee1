import * as z from 'zod';
import { isoTime, text, whole } from '../core/schema.ts';
import { order } from '../orders/merging/mirrored-order.ts';

const preparedSide = z
  .object({
    name: z.string(),
    quantity: z.number().nullable(),
    options: z.array(z.object({ name: z.string(), quantity: z.number().nullable() })),
  })
  .nullable();

/** Body of a hook's POST for an order that is to be prepared, changed after that, or is not to be prepared any more. */
export const preparationEvent = z.object({
  event: z.enum(['order.prepare', 'order.changed', 'order.undone']),
  seq: whole.describe('Number of the event among these events of this hook'),
  id: z.string().describe('As `webhook-id`: the same for each try'),
  orderId: z.string(),
  status: text.describe('Present status of the order'),
  reason: z
    .enum(['cancel', 'refund', 'payment-canceled', 'moved'])
    .nullable()
    .describe('Why it is undone; null for the other events'),
  changes: z
    .array(
      z.union([
        z.object({
          what: z.literal('line'),
          change: z.enum(['new', 'changed', 'removed']),
          line: whole.nullable().describe('Number of the line in `order.items`, from 1; null: it is gone'),
          before: preparedSide,
          after: preparedSide,
          comment: z.literal(true).optional().describe('The comment of the line changed'),
        }),
        z.object({ what: z.enum(['dueAt', 'deliveryType']), before: text, after: text }),
        z.object({ what: z.literal('address') }),
      ]),
    )
    .nullable()
    .describe('What changed since the last event of the order; null: not known, and for the other events'),
  observedAt: isoTime.describe('When it was decided'),
  dueAt: text.describe('When a scheduled order is due, ISO 8601 in UTC, or a day; null: it is not scheduled'),
  local: z
    .object({ timezone: z.string(), createdAt: text, dueAt: text, observedAt: text })
    .describe('Times by the clock of the shop, such as 2026-11-28 13:30'),
  order: order.nullable().describe('As it is now; null: it was deleted meanwhile'),
  test: z.literal(true).optional().describe('Made up by `tillsync hooks test`: prepare nothing'),
});
