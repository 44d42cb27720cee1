import * as z from 'zod';
import { product } from '../catalog/product.ts';
import { isoTime, text, whole } from '../core/schema.ts';
import { HOOK_EVENTS } from '../core/values.ts';
import { boardOrder, order, orderToBook, trendHour } from '../orders/merging/mirrored-order.ts';
import { ORDER_ID_LENGTH_MAX } from '../orders/merging/order.ts';
import { WITHOUT_MAX } from '../outbox/intake/change.ts';

/** Schemas of the local API. They validate requests, type the answers, and describe both at /v1/openapi.json. */

/**
 * Schema of a whole number in a query. Only digits are accepted, because `after=` and `0x10` would be read as numbers
 * too.
 */
export function digits(min = 0, max = Number.MAX_SAFE_INTEGER) {
  return z
    .string()
    .regex(/^\d{1,15}$/, { error: 'a whole number of digits is needed' })
    .pipe(z.coerce.number<string>().int().min(min).max(max));
}

/** Schema of the `limit` of a list. */
export function limitOf(usual: number, max: number) {
  return digits(1, max).default(usual).describe('How many at most');
}

export const errorAnswer = z.object({
  error: z.object({
    code: z.string().describe('Stays the same; branch on it, never on the message'),
    message: z.string().describe('What happened and what was kept'),
    hint: z.string().nullable().describe('What to do about it'),
  }),
});

/** One event of the feed, with its order in its present state. */
export const feedEvent = z.object({
  seq: whole.describe('Never reused, strictly rising'),
  orderId: z.string(),
  status: text.describe('Status at this event; `order.status` may be newer'),
  previousStatus: text,
  source: z.enum(['webhook', 'poll']),
  observedAt: isoTime,
  order: order.nullable().describe('null when the order is no longer kept'),
});

/** Body of a hook's POST for an order: an event of the feed, or an event of `hooks test`. */
export const hookEvent = feedEvent.extend({
  source: z.enum(['webhook', 'poll', 'test']),
  test: z.literal(true).optional().describe('Made up by `tillsync hooks test`: book nothing'),
});

export const alarmTestResult = z.object({
  receiver: z.enum(['command', 'url', 'heartbeat']),
  description: z.string().describe('Which program or address it is'),
  ok: z.boolean(),
  message: z.string().describe('Why the test did not arrive; empty if it did'),
});
export const alarmTestAnswer = z.object({
  ok: z.boolean().describe('Everybody took it'),
  results: z.array(alarmTestResult).describe('Empty: nobody is told of alarms'),
});

export const hookPath = z.strictObject({ hook: z.string().describe('Its name, as in the configuration') });
export const hookTestRequest = z.strictObject({
  event: z
    .enum(HOOK_EVENTS)
    .exactOptional()
    .describe('Which of its events; left out: the first that it gets'),
  order: z
    .string()
    .exactOptional()
    .describe(
      'Id of an order of the mirror, for which a key needs the right `orders` too; left out: an order is made up',
    ),
});
export const hookTestAnswer = z.object({
  ok: z.boolean().describe('The hook took it'),
  hook: z.string(),
  event: z.enum(HOOK_EVENTS),
  what: z.string().describe('What became of it'),
  answer: z.string().describe('The words of the hook'),
});

export const feedPage = z.object({
  events: z.array(feedEvent).describe('Oldest first'),
  next: whole.describe('Pass it as `after` for what follows'),
  newest: whole.describe('Newest seq there is'),
  trimmedTo: whole.describe(
    'Up to this seq earlier events of orders that ended long ago are deleted; 0: none is. A reader from before it ' +
      'has missed steps, and no order: the newest event of each order that is kept is always there',
  ),
});

export const storeName = z
  .string()
  .trim()
  .min(1)
  .max(200)
  .describe('Only orders of this branch, by either of its ids; one that is not configured is refused');

export const feedQuery = z.strictObject({
  after: z
    .union([z.literal('newest'), digits()], { error: 'a whole number of digits, or `newest`, is needed' })
    .default(0)
    .describe('Only events with a higher seq; `newest`: only what comes from now on'),
  limit: limitOf(100, 500),
});

export const pageQuery = feedQuery.extend({
  store: storeName
    .optional()
    .describe(
      'Only orders of this branch, by either of its ids, and those that it acknowledged, or of whose articles they took ' +
        'there, before they moved away',
    ),
  wait: digits(0, 30)
    .default(0)
    .describe('Seconds to wait for an event where there is none yet; the page is empty when none came'),
});

export const toBookQuery = z.strictObject({
  store: storeName.optional(),
  after: digits().default(0).describe('`next` of the page before'),
  limit: limitOf(100, 500),
});

export const toBookPage = z.object({
  orders: z
    .array(orderToBook)
    .describe(
      'By their newest event. Acknowledge each as of its `seq` once it is booked, and it is not here any more',
    ),
  next: whole.nullable().describe('Pass it as `after` for the next page; null: there is none'),
});

export const orderSearch = z.strictObject({
  q: z
    .string()
    .trim()
    .max(200)
    .optional()
    .describe(
      'The code, or a part of an id, of a name, phone or e-mail of the customer, of an address or an item',
    ),
  day: z.iso.date().optional().describe('When they were created, on the calendar of `orders.timezone`'),
  limit: limitOf(30, 200),
});

export const foundOrders = z.object({
  orders: z
    .array(boardOrder)
    .describe('Newest first; a text is looked for in the newest 5,000, a code in all'),
  hasMore: z.boolean(),
});

export const orderPath = z.strictObject({ orderId: z.string().min(1) });

export const orderAnswer = z.object({
  order,
  acknowledged: z
    .object({
      at: isoTime,
      source: z.string().describe('Way in: inbox, http or cli'),
      without: z
        .array(whole)
        .describe('Numbers of the lines that it left out; the order is still to be booked'),
    })
    .nullable()
    .describe('When the POS took it; null: it has not told'),
  payload: z
    .unknown()
    .describe('As received from the platform; null for a key with the right `screen` without `orders`'),
});

export const explanationEntry = z.object({
  at: isoTime.nullable().describe('null: the time is not known'),
  what: z.string().describe('What happened: a sentence, in English'),
});

const explanation = z.object({
  entries: z.array(explanationEntry).describe('What happened, the oldest first; what has no time comes last'),
  now: z.array(z.string()).describe('How it stands now, a sentence each, in English'),
});

export const orderExplanation = explanation.extend({
  orderId: z.string(),
  code: whole.nullable(),
  status: text,
});

export const skuPath = z.strictObject({ sku: z.string().min(1).max(200) });

export const stockExplanationQuery = z.strictObject({
  branch: z
    .string()
    .trim()
    .min(1)
    .max(200)
    .optional()
    .describe('Only the stock of this branch, by either of its ids; one that is not configured is refused'),
});

export const stockExplanation = explanation.extend({ sku: z.string(), subsidiaryId: z.string() });

export const stockExplanations = z.object({
  stocks: z.array(stockExplanation).describe('One for each branch that has a stock of the sku'),
});

const orderId = z
  .string()
  .trim()
  .min(1)
  .max(ORDER_ID_LENGTH_MAX)
  .refine((id) => id.isWellFormed(), { error: 'is not valid text' });

const ACKS_MAX = 10_000;
export const ACK_ITEM = `an order id of 1 to ${ORDER_ID_LENGTH_MAX} characters, or {"orderId": …, "seq": …, "without": […]} with one, the whole number of an event of the feed, and numbers of lines from 1`;
const ackSeq = z
  .number()
  .int()
  .min(0)
  .describe('The event of the feed up to which the POS has booked the order; without it, the newest');
const ackWithout = z
  .array(z.number().int().min(1))
  .max(WITHOUT_MAX)
  .describe('Numbers of the lines, from 1, that the POS has not booked; the order stays to be booked');
const ACKS_RANGE = { error: `1 to ${ACKS_MAX} orders are taken` };

export const ackItem = z.union([
  orderId,
  z
    .strictObject({ orderId, seq: ackSeq.optional(), without: ackWithout.optional() })
    .transform(({ orderId, ...how }) => (Object.keys(how).length === 0 ? orderId : { orderId, ...how })),
]);

/** Orders that the POS has booked. An unreadable item becomes undefined, so that the others are still accepted. */
export const ackRequest = z
  .array(ackItem.catch(undefined as never), { error: 'A list of order ids is needed' })
  .min(1, ACKS_RANGE)
  .max(ACKS_MAX, ACKS_RANGE)
  .describe(`Orders that the POS has booked, 1 to ${ACKS_MAX}, each checked by itself`);

export const ackResult = z.object({
  index: whole.describe('Of the item, from 0'),
  orderId: z.string().optional().describe('Not there when it could not be read'),
  state: z
    .enum(['new', 'known', 'unheard', 'rejected'])
    .describe(
      '`known`: acknowledged before; `unheard`: noted, though the mirror has no such order yet; `rejected`: not taken, ' +
        'for example an order number in place of an `orderId`',
    ),
  message: z.string().optional().describe('Why it was rejected; with an order number, its `orderId`'),
});

export const ackAnswer = z.object({
  results: z.array(ackResult).describe('One for each, in order'),
  rejected: whole,
});

export const boardQuery = z.strictObject({ store: storeName.optional() });

export const boardAnswer = z.object({
  newest: whole.describe('Newest seq of the change feed; follow it after this one'),
  orders: z
    .array(boardOrder)
    .describe(
      'The newest open orders, those that are due next and those that wait for the POS, then those that ended last',
    ),
});

export const trendsAnswer = z.object({
  at: isoTime,
  hours: z.array(trendHour).describe('The last 24, oldest first; the last one is not over yet'),
});

const term = z.string().min(1).max(200).optional();

export const productQuery = z.strictObject({
  q: term.describe('Part of a name, or a whole sku, barcode or externalId'),
  sku: term,
  externalId: term.describe('Searched in all three mapping fields'),
  branch: term.describe('subsidiaryId: only products with a stock or a mapping there'),
  after: term.describe('`next` of the page before'),
  limit: limitOf(50, 200),
});

export const productPage = z.object({
  products: z.array(product).describe('By productId'),
  next: z.string().nullable().describe('Pass it as `after` for the next page; null: there is none'),
});

export const outboxCounts = z.object({
  pending: whole.describe('Waiting, without those that are held'),
  held: whole,
  needsRead: whole.describe('Waiting for their product to be read'),
  sending: whole,
  rejected: whole,
  oldestPendingAt: isoTime.nullable(),
});
