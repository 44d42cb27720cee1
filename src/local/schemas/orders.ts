import { z } from 'zod';
import type { MirroredOrder } from '../../domain/order/mirrored-order.ts';
import { ORDER_ID_LENGTH_MAX } from '../../domain/order/order.ts';
import { amount, flag, isoTime, limitOf, text } from './common.ts';

const modifier = z.object({
  name: text,
  shortName: text,
  description: text.describe('JSON text of the array as sent'),
  optionId: text,
  optionExternalId: text,
  optionName: text,
  optionPrice: amount,
  quantity: z.number().nullable(),
});

const item = z.object({
  productExternalId: text.describe('null when the item has modifiers'),
  productName: text,
  quantity: amount,
  comment: text,
  unitPrice: amount.describe('Final unit price with discounts'),
  baseUnitPrice: amount.describe('List unit price without discounts'),
  productPrice: amount.describe('Final item price including additionals'),
  productBasePrice: amount.describe('List item price including additionals'),
  modifiers: z.array(modifier),
});

/** An order as the mirror has it now; null where nothing is known. */
export const order = z.object({
  orderId: z.string(),
  seq: z.number().int().describe('Of its newest event'),
  updatedAt: isoTime,
  code: z.number().nullable().describe('Order number, sequential per company'),
  status: text,
  storeExternalId: text,
  websiteId: text,
  name: text,
  createdAt: text.describe('ISO 8601 in UTC where the sent text could be read as a time; so for all times'),
  deliveryType: text.describe('delivery or pickup'),
  amountToPay: amount.describe('Total to pay, including shipping'),
  amount: amount.describe('Products without shipping'),
  deliveryFee: amount,
  couponDiscount: amount,
  deliveryTime: text,
  isScheduled: flag,
  scheduledFor: text,
  addressLat: z.number().nullable(),
  addressLng: z.number().nullable(),
  addressAddress: text,
  addressStreetNumber: text,
  addressStreetAddress: text,
  addressCountry: text,
  addressState: text,
  addressCity: text,
  addressZipCode: text,
  addressPhoneNumber: text,
  addressDetails: text,
  customerFirstName: text,
  customerLastName: text,
  customerEmail: text,
  customerPhoneNumber: text,
  items: z.array(item),
}) satisfies z.ZodType<MirroredOrder>;

/** One line of the change feed, with the order as it is now. */
export const feedEvent = z.object({
  seq: z.number().int().describe('Never reused, strictly rising'),
  orderId: z.string(),
  status: text.describe('Status at this event; `order.status` may be newer'),
  previousStatus: text,
  source: z.enum(['webhook', 'poll']),
  observedAt: isoTime,
  order: order.nullable().describe('null when the order is no longer kept'),
});

export const feedPage = z.object({
  events: z.array(feedEvent).describe('Oldest first'),
  next: z.number().int().describe('Pass it as `after` for what follows'),
  newest: z.number().int().describe('Newest seq there is'),
  trimmedTo: z
    .number()
    .int()
    .describe(
      'Up to this seq earlier events of orders that ended long ago are deleted; 0: none is. A reader from before it ' +
        'has missed steps, and no order: the newest event of each order that is kept is always there',
    ),
});

export const feedQuery = z.strictObject({
  after: z
    .union([z.literal('newest'), z.coerce.number().int().min(0)])
    .default(0)
    .describe('Only events with a higher seq; `newest`: only what comes from now on'),
  limit: limitOf(100, 500),
});

export const orderPath = z.strictObject({ orderId: z.string().min(1) });

export const orderAnswer = z.object({
  order,
  payload: z.unknown().describe('As received from the platform'),
});

const orderId = z
  .string()
  .trim()
  .min(1)
  .max(ORDER_ID_LENGTH_MAX)
  .refine((id) => id.isWellFormed(), { error: 'is not valid text' });

export const ACKS_MAX = 10_000;

/** One order that the POS has booked. */
export const ackItem = z.union([orderId, z.strictObject({ orderId })]);
export const ACK_ITEM = `an order id of 1 to ${ORDER_ID_LENGTH_MAX} characters, or {"orderId": …} with one`;
const ackText = `Orders that the POS has booked, 1 to ${ACKS_MAX}, each checked by itself`;
/** As it is documented. */
export const ackRequest = z.array(ackItem).min(1).max(ACKS_MAX).describe(ackText);
/** As it is read. */
export const ackItems = z
  .array(z.unknown(), { error: 'A list of order ids is needed' })
  .refine((ids) => ids.length >= 1 && ids.length <= ACKS_MAX, { error: `1 to ${ACKS_MAX} orders are taken` });

export const ackAnswer = z.object({
  results: z
    .array(
      z.object({
        index: z.number().int().describe('Of the item, from 0'),
        orderId: z.string().optional().describe('Not there when it was rejected'),
        state: z
          .enum(['new', 'known', 'unheard', 'rejected'])
          .describe(
            '`known`: acknowledged before; `unheard`: noted, though the mirror has no such order yet; `rejected`: not taken',
          ),
        message: z.string().optional().describe('Why it was rejected'),
      }),
    )
    .describe('One for each, in order'),
  rejected: z.number().int(),
});
