import type { OrderItem, OrderModifier } from './order.ts';
import { readValues } from './read-fields.ts';
import { isRecord } from './sent-value.ts';
import type { OrderSpellings } from './spelling-tree.ts';

/** Reads the products of an order; entries that are no objects are left to the payload. */
export function readItems(sent: readonly unknown[], spellings: OrderSpellings): OrderItem[] {
  const items: OrderItem[] = [];
  for (const each of sent) {
    if (!isRecord(each)) continue;
    const values = readValues(each, spellings.item) as ItemValues;
    const modifiers: OrderModifier[] = [];
    for (const modifier of values[8] ?? []) addModifier(modifiers, modifier, spellings);
    items.push({
      productExternalId: values[0] ?? null,
      productName: values[1] ?? null,
      quantity: values[2] ?? null,
      comment: values[3] ?? null,
      unitPrice: values[4] ?? null,
      baseUnitPrice: values[5] ?? null,
      productPrice: values[6] ?? null,
      productBasePrice: values[7] ?? null,
      modifiers,
    });
  }
  return items;
}

/** In the order of the table of spellings. */
type ItemValues = [
  productExternalId: string | null | undefined,
  productName: string | null | undefined,
  quantity: Amount | undefined,
  comment: string | null | undefined,
  unitPrice: Amount | undefined,
  baseUnitPrice: Amount | undefined,
  productPrice: Amount | undefined,
  productBasePrice: Amount | undefined,
  modifiers: unknown[] | null | undefined,
];
type Amount = number | string | null;

type ModifierValues = [
  name: string | null | undefined,
  shortName: string | null | undefined,
  description: string | null | undefined,
  countById: Counts,
  countByExternalId: Counts,
  quantity: number | null | undefined,
  price: Amount | undefined,
  externalId: string | null | undefined,
  options: unknown[] | null | undefined,
];
type OptionValues = [
  optionId: string | null | undefined,
  externalId: string | null | undefined,
  name: string | null | undefined,
  price: Amount | undefined,
  quantity: number | null | undefined,
];
type Counts = Record<string, unknown> | null | undefined;

/** One row for each option, or one for a modifier that has none. */
function addModifier(rows: OrderModifier[], sent: unknown, spellings: OrderSpellings): void {
  if (!isRecord(sent)) return;
  const values = readValues(sent, spellings.modifier) as ModifierValues;
  const options = (values[8] ?? []).filter(isRecord);
  if (options.length === 0) addRow(rows, values, [], onlyCount(values) ?? values[5]);
  for (const each of options) {
    const option = readValues(each, spellings.option) as OptionValues;
    const quantity =
      countOf(values[3], option[0]) ??
      countOf(values[4], option[1]) ??
      option[4] ??
      (options.length === 1 ? onlyCount(values) : null);
    addRow(rows, values, option, quantity);
  }
}

function addRow(
  rows: OrderModifier[],
  modifier: ModifierValues,
  option: OptionValues | [],
  quantity: number | null | undefined,
): void {
  const alone = option.length === 0;
  rows.push({
    name: modifier[0] ?? null,
    shortName: modifier[1] ?? null,
    description: modifier[2] ?? null,
    optionId: option[0] ?? null,
    optionExternalId: (alone ? modifier[7] : option[1]) ?? null,
    optionName: option[2] ?? null,
    optionPrice: (alone ? modifier[6] : option[3]) ?? null,
    quantity: quantity ?? null,
  });
}

function countOf(counts: Counts, key: string | null | undefined): number | null {
  if (!counts || key == null || !Object.hasOwn(counts, key)) return null;
  return toCount(counts[key]);
}

/** The document keys `countById` by the modifier, so a single count belongs to a single option. */
function onlyCount(modifier: ModifierValues): number | null {
  for (const counts of [modifier[3], modifier[4]]) {
    const values = counts ? Object.values(counts) : [];
    if (values.length === 1) return toCount(values[0]);
  }
  return null;
}

function toCount(value: unknown): number | null {
  const count = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  return typeof count === 'number' && Number.isFinite(count) ? count : null;
}
