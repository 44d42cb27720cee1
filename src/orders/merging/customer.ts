import { parseLossless } from '../../core/values.ts';
import {
  type ITEM_SPELLINGS,
  ORDER_SPELLINGS,
  type OrderSpellings,
  type SpellingNode,
  type SpellingTrees,
} from './field-aliases.ts';
import { isRecord } from './field-values.ts';
import type { OrderFields, OrderObservation, OrderReading } from './order.ts';
import { unwrap } from './order-reader.ts';

/**
 * Removes personal data from an order. Only values known to be impersonal are kept; every other text is removed, also
 * in unknown fields.
 */

/**
 * Personal fields of an order. `name` is one of them, because it contains the customer's name (document, "Order
 * notification").
 */
export const PERSONAL_FIELDS = Object.keys(ORDER_SPELLINGS).filter(
  (name) => name === 'name' || /^(address|customer)/.test(name),
) as (keyof OrderFields)[];
/** Personal fields of an item. Customers may write anything into the comment. */
export const PERSONAL_ITEM_FIELDS = ['comment'] as const satisfies (keyof typeof ITEM_SPELLINGS)[];

const PERSONAL: Readonly<Record<keyof SpellingTrees, ReadonlySet<string>>> = {
  order: new Set(PERSONAL_FIELDS),
  item: new Set(PERSONAL_ITEM_FIELDS),
  modifier: new Set(),
  option: new Set(),
};
/** Lists in a payload whose entries have their own table of fields. */
const ENTRIES: Readonly<Record<string, keyof SpellingTrees>> = {
  items: 'item',
  modifiers: 'modifier',
  options: 'option',
};
/**
 * Names of objects in which numbers are personal too, such as house numbers, coordinates and identity card numbers.
 */
const PERSONAL_PART =
  /address|user|customer|client|buyer|shopper|recipient|receiver|contact|person|phone|mobile|mail|location|geo|coord|^lat|^lng|^lon|ship|deliver|billing|invoice|document|passport|birth|^rut$|^dni$/i;
/**
 * Limit for numbers in unknown fields. A number is kept only if it is smaller and has at most two decimals; others may
 * be telephone numbers, card numbers or coordinates.
 */
const HARMLESS_MAX = 1_000_000;

/**
 * Returns an order's payload without personal data, in the same structure. Names of fields, product numbers, amounts
 * and times are kept.
 */
export function payloadWithoutCustomer(raw: string, spellings: OrderSpellings): string {
  try {
    const value: unknown = parseLossless(raw);
    if (!isRecord(value)) return 'null';
    const order = unwrap(value, spellings);
    if (order === value) return JSON.stringify(knownOf(value, 'order', spellings));
    const wrapped = Object.entries(value).map(([name, inside]) => [
      name,
      inside === order ? knownOf(order, 'order', spellings) : blank(inside, isPersonalPart(name)),
    ]);
    return JSON.stringify(Object.fromEntries(wrapped));
  } catch {
    // Text that is not JSON, or is nested too deeply, is removed entirely, because its parts cannot be judged.
    return 'null';
  }
}

/** Returns the observation without the customer's data. */
export function withoutCustomer<Seen extends Pick<OrderObservation, 'raw' | 'reading'>>(
  observation: Seen,
  spellings: OrderSpellings,
): Seen {
  const { raw, reading } = observation;
  return {
    ...observation,
    raw: payloadWithoutCustomer(raw, spellings),
    reading: readingWithoutCustomer(reading),
  };
}

export function readingWithoutCustomer(reading: OrderReading): OrderReading {
  const fields = { ...reading.fields };
  for (const field of PERSONAL_FIELDS) if (fields[field] !== undefined) fields[field] = null as never;
  const items = reading.items?.map((item) => ({ ...item, comment: null }));
  return { ...reading, fields, ...(items && { items }) };
}

type Sent = Record<string, unknown>;

function knownOf(sent: Sent, table: keyof SpellingTrees, spellings: OrderSpellings): Sent {
  const { fields, names } = spellings[table];
  const isKept = (node: SpellingNode, value: unknown) =>
    node.hits.some(({ slot, read }) => !PERSONAL[table].has(fields[slot] ?? '') && read(value) !== undefined);
  const entryTable = (node: SpellingNode) =>
    node.hits.map(({ slot }) => ENTRIES[fields[slot] ?? '']).find((name) => name !== undefined);

  const inside = (part: Sent, known: ReadonlyMap<string, SpellingNode>, isPersonal: boolean): Sent =>
    mapped(part, (name, value) => {
      const node = known.get(name);
      const isPersonalHere = isPersonal || isPersonalPart(name);
      if (node === undefined) return blank(value, isPersonalHere);
      const entries = entryTable(node);
      if (Array.isArray(value) && entries !== undefined) {
        return value.map((each) =>
          isRecord(each) ? knownOf(each, entries, spellings) : blank(each, isPersonalHere),
        );
      }
      if (isRecord(value) && node.inside !== undefined) return inside(value, node.inside, isPersonalHere);
      return isKept(node, value) ? value : blank(value, isPersonalHere);
    });
  return inside(sent, names, false);
}

/** Replaces personal values in an unknown field by null: texts, and numbers that may be personal. */
function blank(value: unknown, isPersonal: boolean): unknown {
  if (typeof value === 'string') return null;
  if (typeof value === 'number') return isPersonal || !isHarmless(value) ? null : value;
  if (Array.isArray(value)) return value.map((each) => blank(each, isPersonal));
  if (!isRecord(value)) return value;
  return mapped(value, (name, inside) => blank(inside, isPersonal || isPersonalPart(name)));
}

function isHarmless(value: number): boolean {
  return Math.abs(value) < HARMLESS_MAX && Number.isInteger(Math.round(value * 1e6) / 1e4);
}

function isPersonalPart(name: string): boolean {
  return PERSONAL_PART.test(name);
}

function mapped(record: Sent, change: (name: string, value: unknown) => unknown): Sent {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, change(name, value)]));
}
