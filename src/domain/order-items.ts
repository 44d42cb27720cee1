import type { OrderItem, OrderModifier } from './order.ts';
import { nameValues, readValues } from './read-fields.ts';
import { isRecord } from './sent-value.ts';
import type { OrderSpellings } from './spelling-tree.ts';

/** Reads the products of an order; entries that are no objects are left to the payload. */
export function readItems(sent: readonly unknown[], spellings: OrderSpellings): OrderItem[] {
  const items: OrderItem[] = [];
  for (const each of sent) {
    if (!isRecord(each)) continue;
    const values = readValues(each, spellings.item).map(orNull) as ItemValues;
    const [productExternalId, productName, quantity, comment, ...rest] = values;
    const [unitPrice, baseUnitPrice, productPrice, productBasePrice, sentModifiers] = rest;
    const modifiers: OrderModifier[] = [];
    for (const modifier of sentModifiers ?? []) modifiers.push(...readModifier(modifier, spellings));
    items.push({
      productExternalId,
      productName,
      quantity,
      comment,
      unitPrice,
      baseUnitPrice,
      productPrice,
      productBasePrice,
      modifiers,
    });
  }
  return items;
}

/** In the order of the table of spellings. */
type ItemValues = [
  productExternalId: string | null,
  productName: string | null,
  quantity: Amount,
  comment: string | null,
  unitPrice: Amount,
  baseUnitPrice: Amount,
  productPrice: Amount,
  productBasePrice: Amount,
  modifiers: unknown[] | null,
];
type Amount = number | string | null;

function orNull(value: unknown): unknown {
  return value ?? null;
}

interface FoundModifier {
  name?: string | null;
  shortName?: string | null;
  description?: string | null;
  countById?: Record<string, unknown> | null;
  countByExternalId?: Record<string, unknown> | null;
  quantity?: number | null;
  price?: number | string | null;
  externalId?: string | null;
  options?: unknown[] | null;
}

interface FoundOption {
  optionId?: string | null;
  externalId?: string | null;
  name?: string | null;
  price?: number | string | null;
  quantity?: number | null;
}

/** One row for each option, or one for a modifier that has none. */
function readModifier(sent: unknown, spellings: OrderSpellings): OrderModifier[] {
  if (!isRecord(sent)) return [];
  const found = nameValues(readValues(sent, spellings.modifier), spellings.modifier) as FoundModifier;
  const shared = {
    name: found.name ?? null,
    shortName: found.shortName ?? null,
    description: found.description ?? null,
  };
  const options = (found.options ?? []).filter(isRecord);
  if (options.length === 0) {
    const quantity = onlyCount(found) ?? found.quantity ?? null;
    const optionExternalId = found.externalId ?? null;
    return [
      {
        ...shared,
        optionId: null,
        optionExternalId,
        optionName: null,
        optionPrice: found.price ?? null,
        quantity,
      },
    ];
  }
  return options.map((each) => {
    const option = nameValues(readValues(each, spellings.option), spellings.option) as FoundOption;
    const quantity =
      countOf(found.countById, option.optionId) ??
      countOf(found.countByExternalId, option.externalId) ??
      option.quantity ??
      (options.length === 1 ? onlyCount(found) : null) ??
      null;
    return {
      ...shared,
      optionId: option.optionId ?? null,
      optionExternalId: option.externalId ?? null,
      optionName: option.name ?? null,
      optionPrice: option.price ?? null,
      quantity,
    };
  });
}

function countOf(
  counts: Record<string, unknown> | null | undefined,
  key: string | null | undefined,
): number | null {
  if (!counts || key == null || !Object.hasOwn(counts, key)) return null;
  return toCount(counts[key]);
}

/** The document keys `countById` by the modifier, so a single count belongs to a single option. */
function onlyCount(found: FoundModifier): number | null {
  for (const counts of [found.countById, found.countByExternalId]) {
    const values = counts ? Object.values(counts) : [];
    if (values.length === 1) return toCount(values[0]);
  }
  return null;
}

function toCount(value: unknown): number | null {
  const count = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  return typeof count === 'number' && Number.isFinite(count) ? count : null;
}
