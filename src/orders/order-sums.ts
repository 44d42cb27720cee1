import type { OrderItem } from './mirrored-order.ts';
import type { OrderFields } from './order.ts';

/*
 * Whether the sums that an order states hold. A line that the platform left out, or sent twice, shows in them alone.
 * A coupon, a tip, a fee or a discount that the order names explains a difference.
 */

type Sums = Pick<OrderFields, 'amount' | 'amountToPay' | 'deliveryFee' | 'couponDiscount'>;

/** Shops round to whole coins. */
const ROUNDED_SHARE = 0.01;
const ROUNDED_MIN = 0.05;

/** null: not all of them are there. `stated`: every number that the order names; asked only where sums differ. */
export function doSumsDiffer(
  fields: Sums,
  items: readonly OrderItem[],
  stated: () => readonly number[],
): boolean | null {
  const amount = numberOf(fields.amount);
  if (amount === null) return null;
  const coupon = Math.abs(numberOf(fields.couponDiscount) ?? 0);
  const rounded = Math.max(Math.abs(amount) * ROUNDED_SHARE, ROUNDED_MIN);
  const isNone = (difference: number) => Math.abs(difference) <= rounded;
  const isExplained = (difference: number) =>
    isNone(difference) || stated().some((number) => isNone(Math.abs(difference) - Math.abs(number)));

  const toPay = numberOf(fields.amountToPay);
  const fee = numberOf(fields.deliveryFee);
  const rest = toPay === null || fee === null ? null : toPay - fee - amount;
  if (rest !== null && !isExplained(rest)) return true;

  const sums = lineSums(items);
  const [paid] = sums;
  if (paid === undefined) return rest === null ? null : false;
  if (sums.some((sum) => sum >= amount - rounded && sum <= amount + coupon + rounded)) return false;
  if (paid < amount) return !sums.some((sum) => sum < amount && isExplained(amount - sum));
  // Lines worth more than the order are a discount that nobody names, unless one of them is there twice.
  return isNone(paid - amount - priceOfTwins(items));
}

/** What the lines come to, as each way of reading their prices has it; empty: a line has no price. */
function lineSums(items: readonly OrderItem[]): number[] {
  const readings = [
    (item: OrderItem) => numberOf(item.productPrice),
    (item: OrderItem) => times(item.productPrice, item.quantity),
    (item: OrderItem) => times(item.unitPrice, item.quantity),
    (item: OrderItem) => numberOf(item.productBasePrice),
  ];
  if (items.length === 0) return [];
  return readings.flatMap((read) => {
    let sum = 0;
    for (const item of items) {
      const price = read(item);
      if (price === null) return [];
      sum += price;
    }
    return [sum];
  });
}

/** The price of the lines that say just what an earlier line says. */
function priceOfTwins(items: readonly OrderItem[]): number {
  const seen = new Set<string>();
  let price = 0;
  for (const item of items) {
    const text = JSON.stringify(item);
    if (seen.has(text)) price += numberOf(item.productPrice) ?? 0;
    seen.add(text);
  }
  return price;
}

function times(price: unknown, quantity: unknown): number | null {
  const [each, pieces] = [numberOf(price), numberOf(quantity)];
  return each === null || pieces === null ? null : each * pieces;
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

/** The numbers of a payload and of the objects in it. */
export function statedNumbers(payload: string): number[] {
  let value: unknown;
  try {
    value = JSON.parse(payload);
  } catch {
    return [];
  }
  const numbers: number[] = [];
  const walk = (part: unknown, depth: number) => {
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return;
    for (const each of Object.values(part)) {
      const number = typeof each === 'string' && each.trim() !== '' ? Number(each) : each;
      if (typeof number === 'number' && Number.isFinite(number) && number !== 0) numbers.push(number);
      else if (depth < STATED_DEPTH) walk(each, depth + 1);
    }
  };
  walk(value, 0);
  return numbers;
}

/** An order in a wrapper, and its totals in an object of their own. */
const STATED_DEPTH = 2;
