import type { OrderFields, OrderReading } from './order.ts';
import { readItems } from './order-items.ts';
import { WRAPPER_NAMES } from './order-spellings.ts';
import { nameValues, readValues } from './read-fields.ts';
import { BROKEN_ID, INEXACT_ID, isRecord } from './sent-value.ts';
import type { OrderSpellings } from './spelling-tree.ts';

/**
 * Reads a notification, or a record of GET /order/all, as an order. Never throws, whatever the value is:
 * what cannot be read of a field counts as not sent, and a value without an order id is unreadable, with one
 * sentence that says why.
 */
export function readOrder(value: unknown, spellings: OrderSpellings): OrderReading | { unreadable: string } {
  if (!isRecord(value)) return { unreadable: `An order was expected, found ${kindOf(value)}.` };
  const values = readValues(unwrap(value, spellings), spellings.order);
  const [orderId, items] = values;
  if (orderId === INEXACT_ID) return { unreadable: 'The order id is a number too large to be exact.' };
  if (orderId === BROKEN_ID) return { unreadable: 'The order id is not valid text.' };
  if (typeof orderId !== 'string')
    return { unreadable: `No order id was found; its names are: ${namesOf(value)}.` };
  const reading: OrderReading = {
    orderId,
    fields: nameValues(values, spellings.order, 2) as OrderFields,
  };
  if (Array.isArray(items)) reading.items = readItems(items, spellings);
  return reading;
}

/** The same from JSON text, keeping ids exact that are numbers too large for JavaScript. */
export function readOrderText(raw: string, spellings: OrderSpellings): OrderReading | { unreadable: string } {
  try {
    return readSentOrder(JSON.parse(raw), raw, spellings);
  } catch {
    return { unreadable: 'It is not JSON.' };
  }
}

/** The same of a value and the text that it was parsed from, which may begin with a byte order mark. */
export function readSentOrder(
  value: unknown,
  raw: string,
  spellings: OrderSpellings,
): OrderReading | { unreadable: string } {
  const reading = readOrder(value, spellings);
  if ('orderId' in reading || !LONG_NUMBER.test(raw)) return reading;
  return readOrder(JSON.parse(raw.replace(/^\u{FEFF}/u, ''), keepLongNumbers), spellings);
}

const LONG_NUMBER = /[:,[]\s*-?\d{16}/;

function keepLongNumbers(_name: string, value: unknown, context?: { source?: string }): unknown {
  const long = typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value);
  return long && context?.source !== undefined && /^-?\d+$/.test(context.source) ? context.source : value;
}

/** The order itself, when the record only carries it; an order that names itself is never looked into. */
function unwrap(value: Record<string, unknown>, spellings: OrderSpellings): Record<string, unknown> {
  if (Object.hasOwn(value, 'internalOrderId')) return value;
  for (const name of WRAPPER_NAMES) {
    const inside = Object.hasOwn(value, name) ? value[name] : undefined;
    if (!isRecord(inside)) continue;
    const [orderId, items, status] = readValues(inside, spellings.order);
    if (typeof orderId === 'string' && (items ?? status) !== undefined) return inside;
  }
  return value;
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'a list' : `a ${typeof value}`;
}

function namesOf(value: Record<string, unknown>): string {
  const names = Object.keys(value);
  if (names.length === 0) return 'none';
  return names.slice(0, 12).join(', ').slice(0, 200) + (names.length > 12 ? ', …' : '');
}
