import type { MirroredOrder, OrderHistory } from '../../domain/order/mirrored-order.ts';
import type { OrderEvent, OrderItem } from '../../domain/order/order.ts';
import { fields, table } from './table.ts';
import { timeTitle, when, whenIn } from './when.ts';

/** Orders as a table for people, times in the company's zone. */
export function orderTable(orders: readonly MirroredOrder[], timeZone: string): string {
  return table<MirroredOrder>(
    [
      { title: 'CODE', cell: (order) => order.code, align: 'right' },
      { title: 'ORDER', cell: (order) => order.orderId },
      { title: 'STATUS', cell: (order) => order.status },
      { title: timeTitle('CREATED', timeZone), cell: (order) => when(order.createdAt, timeZone) },
      { title: 'DELIVERY', cell: (order) => order.deliveryType },
      { title: 'TO PAY', cell: (order) => order.amountToPay, align: 'right' },
      { title: 'STORE', cell: (order) => order.storeExternalId },
      { title: 'CUSTOMER', cell: customerOf },
    ],
    orders,
  );
}

function customerOf(order: MirroredOrder): string | null {
  return [order.customerFirstName, order.customerLastName].filter(Boolean).join(' ') || null;
}

const TIMES: ReadonlySet<string> = new Set(['createdAt', 'deliveryTime', 'scheduledFor', 'updatedAt']);

/** Every field of one order and its items, under the names that the mirror's columns have. */
export function orderDetails(order: MirroredOrder, timeZone: string): string {
  const { items, ...scalars } = order;
  const entries = Object.entries(scalars).map(([name, value]): [string, unknown] => [
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    TIMES.has(name) && typeof value === 'string' ? whenIn(value, timeZone) : value,
  ]);
  if (items.length === 0) return `${fields(entries)}\nno items\n`;
  return `${fields(entries)}\n${itemTable(items)}${modifierTable(items)}`;
}

const CAME_BY = { webhook: 'callback', poll: 'poll' } as const;

/** What became of an order: its statuses, and whether a POS has it. */
export function historyText({ events, acknowledged }: OrderHistory, timeZone: string): string {
  const booked =
    acknowledged === null
      ? 'No POS has acknowledged this order.'
      : `Acknowledged by the POS at ${whenIn(acknowledged.at, timeZone)}, by ${acknowledged.source}.`;
  const statuses = table<OrderEvent>(
    [
      { title: timeTitle('HEARD', timeZone), cell: (event) => when(event.observedAt, timeZone) },
      { title: 'STATUS', cell: (event) => event.status },
      { title: 'BEFORE', cell: (event) => event.previousStatus },
      { title: 'BY', cell: (event) => CAME_BY[event.source] },
      { title: 'SEQ', cell: (event) => event.seq, align: 'right' },
    ],
    events,
  );
  return `${events.length === 0 ? '' : `\n${statuses}`}\n${booked}\n`;
}

function itemTable(items: readonly OrderItem[]): string {
  return table<OrderItem>(
    [
      { title: 'QUANTITY', cell: (item) => item.quantity, align: 'right' },
      { title: 'PRODUCT', cell: (item) => item.productExternalId },
      { title: 'NAME', cell: (item) => item.productName },
      { title: 'UNIT PRICE', cell: (item) => item.unitPrice, align: 'right' },
      { title: 'BASE UNIT PRICE', cell: (item) => item.baseUnitPrice, align: 'right' },
      { title: 'PRICE', cell: (item) => item.productPrice, align: 'right' },
      { title: 'BASE PRICE', cell: (item) => item.productBasePrice, align: 'right' },
      { title: 'COMMENT', cell: (item) => item.comment },
    ],
    items,
  );
}

function modifierTable(items: readonly OrderItem[]): string {
  const rows = items.flatMap((item) => item.modifiers.map((modifier) => ({ item, modifier })));
  if (rows.length === 0) return '';
  return `\n${table<(typeof rows)[number]>(
    [
      { title: 'MODIFIER OF', cell: ({ item }) => item.productName },
      { title: 'NAME', cell: ({ modifier }) => modifier.name },
      { title: 'SHORT NAME', cell: ({ modifier }) => modifier.shortName },
      { title: 'QUANTITY', cell: ({ modifier }) => modifier.quantity, align: 'right' },
      { title: 'OPTION', cell: ({ modifier }) => modifier.optionName },
      { title: 'OPTION ID', cell: ({ modifier }) => modifier.optionExternalId ?? modifier.optionId },
      { title: 'PRICE', cell: ({ modifier }) => modifier.optionPrice, align: 'right' },
      { title: 'DESCRIPTION', cell: ({ modifier }) => modifier.description },
    ],
    rows,
  )}`;
}
