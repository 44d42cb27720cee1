import * as z from 'zod';
import { product } from '../catalog/product.ts';
import { ROLES } from '../config/roles.ts';
import { FRESHNESS_STATES, FRESHNESS_SUBJECTS } from '../core/alarm.ts';
import { isoTime, text, whole } from '../core/schema.ts';
import { FAILURE_CAUSES } from '../health/facts.ts';
import { FINDINGS, type FindingCode } from '../health/findings.ts';
import { branchStatus } from '../link/branch-status.ts';
import { boardOrder, order, orderToBook, trendHour } from '../orders/mirrored-order.ts';
import { ORDER_ID_LENGTH_MAX } from '../orders/order.ts';

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
    .object({ at: isoTime, source: z.string().describe('Way in: inbox, http or cli') })
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
export const ACK_ITEM = `an order id of 1 to ${ORDER_ID_LENGTH_MAX} characters, or {"orderId": …, "seq": …} with one and the whole number of an event of the feed`;
const ackSeq = z
  .number()
  .int()
  .min(0)
  .describe('The event of the feed up to which the POS has booked the order; without it, the newest');
const ACKS_RANGE = { error: `1 to ${ACKS_MAX} orders are taken` };

export const ackItem = z.union([
  orderId,
  z
    .strictObject({ orderId, seq: ackSeq.optional() })
    .transform(({ seq, ...item }) => (seq === undefined ? item.orderId : { ...item, seq })),
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

export const finding = z.object({
  code: z
    .enum(Object.keys(FINDINGS) as FindingCode[])
    .describe('Stays the same; branch on it, never on a sentence'),
  level: z.enum(['amber', 'red']),
  message: z.string().describe('What is wrong'),
  remedy: z.string().describe('What to do about it; empty where it ends with what is told before it'),
  detail: text.describe('The words of the part that noticed it'),
  count: whole.nullable(),
  since: isoTime.nullable(),
  cause: z.enum(FAILURE_CAUSES).optional().describe('Why, where the remedy depends on it'),
  flow: z.enum(FRESHNESS_SUBJECTS).optional().describe('Which flow of `freshness` it is about'),
});

export const verdict = z.object({
  level: z
    .enum(['green', 'amber', 'red'])
    .describe('`amber`: somebody should look today; `red`: orders or changes do not get through'),
  findings: z.array(finding).describe('Worst first'),
});

export const statusAnswer = z.object({
  at: isoTime,
  shop: z
    .string()
    .describe('What the shop is called: `shop.name`, `alarms.name`, or the name of the machine'),
  role: z
    .enum(ROLES)
    .describe(
      '`hub`: branches hang on it, see GET /v1/branches; `branch`: it hangs on a hub; `store`: neither',
    ),
  currency: text.describe('Of prices and amounts, as ISO 4217 has it; null: nobody has set it'),
  timezone: z.string().describe("The shop's time zone, `orders.timezone`; the page shows all times in it"),
  commands: z
    .object({
      tillsync: z.string(),
      start: z.string(),
      restart: z.string(),
      stop: z.string(),
      enable: z.string(),
      journal: z.string(),
      storage: z.string().describe('The storage directory'),
    })
    .describe('How the commands that texts name are typed on this machine'),
  verdict: verdict.describe('Whether everything is all right, and if not, what to do'),
  versions: z.object({ tillsync: z.string(), node: z.string() }),
  freshness: z
    .array(
      z.object({
        subject: z.enum(FRESHNESS_SUBJECTS),
        lastOkAt: isoTime.nullable(),
        lastTryAt: isoTime.nullable(),
        state: z.enum(FRESHNESS_STATES),
        message: z.string().describe('What happened and what to do; empty when all is well'),
      }),
    )
    .describe('One for each flow'),
  holdBack: z
    .array(
      z.object({
        branch: z.string(),
        isOn: z.boolean(),
        missing: z
          .array(z.enum(['acknowledgement', 'subsidiary_id', 'external_id']))
          .describe('What keeps it from being on; empty where it is on, or off in the configuration'),
      }),
    )
    .describe('Of each branch: whether orders that are not booked are taken off its counts'),
  alarms: z
    .array(
      z.object({
        key: z.string(),
        message: z.string(),
        level: z.enum(['amber', 'red']).nullish().describe('null: as its finding is'),
        raisedAt: isoTime,
        changedAt: isoTime,
      }),
    )
    .describe('What parts of tillsync noted, oldest first; `verdict` has all that is wrong'),
  tokens: z
    .object({
      state: z.enum(['none', 'ok', 'locked-out']),
      savedAt: isoTime.nullable(),
      accessExpiresInMs: z
        .number()
        .nullable()
        .describe('On the platform\u2019s clock; negative: over; null: unknown'),
      refreshExpiresInMs: z.number().nullable(),
      lockedOutBy: z.enum(['refused', 'reply-lost']).nullable(),
    })
    .nullable()
    .describe('null when they cannot be looked up, `tokensFault` says why; and at a branch, which has none'),
  tokensFault: text,
  waits: z
    .array(z.object({ endpoint: z.string(), reason: z.string(), waitMs: z.number() }))
    .describe('Which endpoints of the platform may not be called yet, and why'),
  counts: z.object({
    orders: whole,
    openOrders: whole,
    events: whole.describe('Newest seq of the change feed'),
    quarantine: whole,
    products: whole,
  }),
  outbox: outboxCounts,
  disk: z
    .object({
      freeBytes: whole,
      totalBytes: whole,
      unsafe: z.string().optional().describe('Name of a file system that does not keep databases safe'),
    })
    .nullable()
    .describe('Of the disk that holds the storage directory; null when the system does not tell'),
});

/** States of a hub's branches. */
export const branchesAnswer = z.object({
  at: isoTime,
  branches: z.array(branchStatus).describe('Those of the configuration, those first that need somebody most'),
});
