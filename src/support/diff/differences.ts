import type { MirroredProduct, MirroredSku } from '../../catalog/product.ts';
import type { MirroredOrder, OrderItem, PlacedItem } from '../../orders/merging/mirrored-order.ts';
import type { OrderFields, OrderReading } from '../../orders/merging/order.ts';
import type { ProductRecord, SkuRecord } from '../../platform/schemas.ts';

type Scalar = string | number | boolean | null;

/** A value of a product that differs between the mirror and the platform. */
export interface ProductDifference {
  productId: string;
  sku: string | null;
  subsidiaryId: string | null;
  /** Name of the field; `product`, `sku`, `stock` or `mapping` if the mirror or the platform lacks the whole entry. */
  field: string;
  /** Value in the mirror; null if it is unknown or the entry does not exist. */
  mirror: Scalar;
  platform: Scalar;
}

/**
 * Compares a mirrored product with the platform's record. A stock or mapping that the record lacks is reported only in
 * the branches of `speaksFor` (undefined: in all), because a branch's list may leave other branches out.
 */
export function productDifferences(
  mirrored: MirroredProduct | undefined,
  record: ProductRecord,
  speaksFor?: ReadonlySet<string>,
): ProductDifference[] {
  const found = new Findings(record.id);
  if (!mirrored) {
    found.add({}, 'product', null, record.name ?? record.id);
    return found.list;
  }
  if (mirrored.vanishedAt !== null) found.add({}, 'product', null, record.name ?? record.id);
  for (const field of ['name', 'category', 'show'] as const) {
    found.compare({}, field, mirrored[field], record[field]);
  }
  const known = new Map(mirrored.skus.map((sku) => [sku.sku, sku]));
  for (const child of record.children) {
    const sku = known.get(child.sku);
    known.delete(child.sku);
    if (sku) compareSku(found, sku, child, speaksFor);
    else found.add({ sku: child.sku }, 'sku', null, child.sku);
  }
  for (const sku of known.keys()) found.add({ sku }, 'sku', sku, null);
  return found.list;
}

function compareSku(
  found: Findings,
  mirrored: MirroredSku,
  record: SkuRecord,
  speaksFor: ReadonlySet<string> | undefined,
): void {
  const { sku } = mirrored;
  for (const field of ['barcode', 'price', 'withDiscount', 'discount', 'show'] as const) {
    found.compare({ sku }, field, mirrored[field], record[field]);
  }
  const stocks = new Map(mirrored.stocks.map((stock) => [stock.subsidiaryId, stock]));
  for (const { subsidiaryId, qty, show } of record.stocks) {
    const stock = stocks.get(subsidiaryId);
    stocks.delete(subsidiaryId);
    const at = { sku, subsidiaryId };
    if (!stock) found.add(at, 'stock', null, qty);
    else {
      found.compare(at, 'qty', stock.qty, qty);
      found.compare(at, 'stock.show', stock.show, show);
    }
  }
  for (const { subsidiaryId, qty } of stocks.values()) {
    if (!speaksFor || speaksFor.has(subsidiaryId)) found.add({ sku, subsidiaryId }, 'stock', qty, null);
  }
  const mappings = new Map(mirrored.integrations.map((mapping) => [mappingText(mapping), mapping]));
  for (const mapping of record.integrations) {
    const text = mappingText(mapping);
    const { subsidiaryId } = mapping;
    if (!mappings.delete(text)) found.add({ sku, subsidiaryId }, 'mapping', null, text);
  }
  for (const [text, { subsidiaryId }] of mappings) {
    if (!speaksFor || speaksFor.has(subsidiaryId)) found.add({ sku, subsidiaryId }, 'mapping', text, null);
  }
}

function mappingText({
  subsidiaryId,
  productIdPosA,
  productCodePosB,
  extId,
}: SkuRecord['integrations'][number]): string {
  const parts = { productIdPosA, productCodePosB, extId };
  const named = Object.entries(parts).filter(([, value]) => value !== null);
  return [subsidiaryId, ...named.map(([field, value]) => `${field} ${value}`)].join(' ');
}

/** Sku and branch in which a value differs. */
interface At {
  sku?: string;
  subsidiaryId?: string;
}

class Findings {
  readonly list: ProductDifference[] = [];
  readonly #productId: string;

  constructor(productId: string) {
    this.#productId = productId;
  }

  add(at: At, field: string, mirror: Scalar, platform: Scalar): void {
    const { sku = null, subsidiaryId = null } = at;
    this.list.push({ productId: this.#productId, sku, subsidiaryId, field, mirror, platform });
  }

  /** Adds a difference if the values differ in the form in which the mirror stores them. */
  compare(at: At, field: string, mirror: Scalar, platform: Scalar): void {
    if (asKept(mirror) !== asKept(platform)) this.add(at, field, mirror, platform);
  }
}

/**
 * Returns a value as a text, so that values of the mirror and the platform can be compared. Booleans become `1` and
 * `0`.
 */
function asKept(value: Scalar): string | null {
  if (value === null) return null;
  return typeof value === 'boolean' ? String(Number(value)) : String(value);
}

/** A value of an order that differs between the mirror and the platform. */
export interface OrderDifference {
  orderId: string;
  /** Name of the field; `order` if one side lacks the order, `items` if the lists of items differ. */
  field: string;
  /** Value in the mirror; null if it is unknown or the order does not exist. */
  mirror: Scalar;
  platform: Scalar;
}

/** Compares the mirror's order with the platform's. A field that the platform does not send does not differ. */
export function orderDifferences(
  mirrored: MirroredOrder | undefined,
  { orderId, fields, items }: OrderReading,
): OrderDifference[] {
  if (!mirrored) return [{ orderId, field: 'order', mirror: null, platform: fields.status ?? 'there' }];
  const differences: OrderDifference[] = [];
  for (const field of Object.keys(fields) as (keyof OrderFields)[]) {
    const platform = fields[field] ?? null;
    const mirror = mirrored[field];
    if (asKept(mirror) !== asKept(platform)) differences.push({ orderId, field, mirror, platform });
  }
  if (items && itemsText(items) !== itemsText(mirrored.items)) {
    const [mirror, platform] = [`${mirrored.items.length} items`, `${items.length} items`];
    differences.push({ orderId, field: 'items', mirror, platform });
  }
  return differences;
}

/** Fields that only the mirror has. They get the same value on both sides, so that they never differ. */
const OF_MIRROR: Pick<PlacedItem, 'sku' | 'productId' | 'matchedBy'> = {
  sku: null,
  productId: null,
  matchedBy: null,
};

/** Returns order lines as text for a comparison, without sku and product, which only the mirror knows. */
function itemsText(items: readonly (OrderItem | PlacedItem)[]): string {
  return JSON.stringify(
    items.map(({ modifiers, ...item }) => [
      sorted({ ...item, ...OF_MIRROR }),
      modifiers.map((each) => sorted({ ...each })),
    ]),
  );
}

function sorted(fields: object): [string, unknown][] {
  return Object.entries(fields)
    .map(([name, value]): [string, unknown] => [name, value === null ? null : String(value)])
    .sort(([a], [b]) => (a < b ? -1 : 1));
}
