import type { MirroredOrder } from './mirrored-order.ts';
import type { OrderFields, OrderItem, OrderReading } from './order.ts';

type Scalar = string | number | boolean | null;

/** One value that the mirror and the platform tell differently. */
export interface OrderDifference {
  orderId: string;
  /** `order` and `items` stand for the whole. */
  field: string;
  /** null: nothing is known, or the order is not there. */
  mirror: Scalar;
  platform: Scalar;
}

/** What differs between the mirror's order and what the platform says of it; what it does not say, does not. */
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
    const [mirror, platform] = [mirrored.items, items].map((each) => `${each.length} items`) as [
      string,
      string,
    ];
    differences.push({ orderId, field: 'items', mirror, platform });
  }
  return differences;
}

/** The mirror keeps true and false as 1 and 0. */
function asKept(value: Scalar): string | null {
  if (value === null) return null;
  return typeof value === 'boolean' ? String(Number(value)) : String(value);
}

function itemsText(items: readonly OrderItem[]): string {
  return JSON.stringify(
    items.map(({ modifiers, ...item }) => [sorted(item), modifiers.map((each) => sorted({ ...each }))]),
  );
}

function sorted(fields: object): [string, unknown][] {
  return Object.entries(fields)
    .map(([name, value]): [string, unknown] => [name, value === null ? null : String(value)])
    .sort(([a], [b]) => (a < b ? -1 : 1));
}
