import * as z from 'zod';
import { amount, flag, isoTime, text, whole } from '../../core/schema.ts';

/** Types of an order in the mirror, which the local API returns and documents. */

const dueTime = text.describe(
  'When a scheduled order is due; ISO 8601 in UTC where it could be read as a time',
);

export const orderModifier = z.object({
  name: text,
  shortName: text,
  description: text.describe('JSON text of the array as sent'),
  optionId: text,
  optionExternalId: text,
  optionName: text,
  optionPrice: amount,
  quantity: z.number().nullable(),
  modifierExternalId: text.describe('Of the modifier itself; the platform sends null today'),
});

export const orderItem = z.object({
  productExternalId: text.describe('null when the item has modifiers'),
  productName: text,
  quantity: amount,
  comment: text,
  unitPrice: amount.describe('Final unit price with discounts'),
  baseUnitPrice: amount.describe('List unit price without discounts'),
  productPrice: amount.describe('Final item price including additionals'),
  productBasePrice: amount.describe('List item price including additionals'),
  sku: text.describe(
    'Which SKU it is; null: the catalogue does not know it yet, or it may be any of several',
  ),
  productId: text,
  matchedBy: z
    .enum(['external_id', 'name'])
    .nullable()
    .describe(
      'How that was found; a line with modifiers carries no id and is found by the name of its product',
    ),
  modifiers: z.array(orderModifier),
});

/** An order as the mirror has it now; null where a value is unknown. */
export const order = z.object({
  orderId: z.string(),
  seq: whole.describe('Of its newest event'),
  updatedAt: isoTime,
  code: z.number().nullable().describe('Order number, sequential per company'),
  status: text,
  storeExternalId: text,
  websiteId: text,
  name: text,
  channel: text.describe('Through what it was placed: the last part of its name'),
  createdAt: text.describe('ISO 8601 in UTC where the sent text could be read as a time; so for all times'),
  deliveryType: text.describe('delivery or pickup'),
  amountToPay: amount.describe('Total to pay, including shipping'),
  amount: amount.describe('Products without shipping'),
  deliveryFee: amount,
  couponDiscount: amount,
  deliveryTime: text,
  isScheduled: flag,
  scheduledFor: dueTime,
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
  items: z.array(orderItem),
});

export type MirroredOrder = z.output<typeof order>;

/** Fields by which an order's customer can be reached or found. A screen does not get them. */
const CONTACT_FIELDS = (Object.keys(order.shape) as (keyof MirroredOrder)[]).filter((name) =>
  /^(address|customerEmail|customerPhoneNumber)/.test(name),
);

/** Returns the order with null in each field by which its customer can be reached or found. */
export function withoutContact<O extends MirroredOrder>(order: O): O {
  return { ...order, ...Object.fromEntries(CONTACT_FIELDS.map((name) => [name, null])) };
}

/** A line of an order as the mirror stores it. */
export type PlacedItem = MirroredOrder['items'][number];
/** A line of an order as the platform sends it, without the match in the catalogue. */
export type OrderItem = Omit<PlacedItem, 'sku' | 'productId' | 'matchedBy'>;
export type OrderModifier = OrderItem['modifiers'][number];

/** An order that the POS must prepare and book. */
export const orderToBook = order.extend({
  acknowledgedAt: isoTime
    .nullable()
    .describe(
      'null: never; else the POS acknowledged it before an edit that takes something else, or left lines out',
    ),
});

export type OrderToBook = z.output<typeof orderToBook>;

/** The fields of an order that lists on the page show. */
export const boardOrder = z.object({
  orderId: z.string(),
  seq: whole.describe('Of its newest event'),
  code: z.number().nullable(),
  status: text,
  storeExternalId: text,
  customerFirstName: text,
  customerLastName: text,
  deliveryType: text,
  amountToPay: amount,
  createdAt: text,
  isScheduled: flag,
  scheduledFor: dueTime,
  updatedAt: isoTime,
  acknowledgedAt: isoTime.nullable().describe('When the POS acknowledged it; null: it did not'),
  waitingSince: text.describe(
    'Since when it waits for the POS to acknowledge it; null: it does not, or no POS here acknowledges orders',
  ),
});

export type BoardOrder = z.output<typeof boardOrder>;

/** Numbers of one hour, for the trends on the page. */
export const trendHour = z.object({
  from: isoTime.describe('Begin of the hour'),
  orders: whole.describe('Orders created in it'),
  pushed: whole.describe('Changes that the platform took in it; a good guess above 500'),
  pushMedianMs: z
    .number()
    .int()
    .nullable()
    .describe('From hand-over to the platform\u2019s yes; null: none was sent'),
  pushP95Ms: whole.nullable(),
});

export type TrendHour = z.output<typeof trendHour>;
