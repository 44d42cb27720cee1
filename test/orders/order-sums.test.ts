import { describe, expect, it } from 'vitest';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { doSumsDiffer, statedNumbers } from '../../src/orders/merging/incomplete-orders.ts';
import type { OrderItem } from '../../src/orders/merging/mirrored-order.ts';
import type { OrderReading } from '../../src/orders/merging/order.ts';
import { readOrder } from '../../src/orders/merging/order-reader.ts';

const line = (name: string, productPrice: number, quantity = 1) => ({
  product: { name },
  amount: quantity,
  unitPrice: productPrice / quantity,
  productPrice,
});

function differ(sent: Record<string, unknown>): boolean | null {
  const { fields, items } = readOrder({ internalOrderId: '1', ...sent }, compileSpellings()) as OrderReading;
  return doSumsDiffer(fields, items as OrderItem[], () => statedNumbers(JSON.stringify(sent)));
}

const whole = {
  amountToPay: 12_000,
  amount: 10_000,
  deliveryFee: 2_000,
  items: [line('a', 6_000, 2), line('b', 4_000)],
};

describe('sums of an order', () => {
  it.each([
    ['hold', {}],
    ['hold to a whole coin', { amount: 9_990, amountToPay: 11_990 }],
    ['hold after a coupon', { amount: 8_000, amountToPay: 10_000, couponDiscount: 2_000 }],
    ['hold before a coupon', { amountToPay: 10_000, couponDiscount: 2_000 }],
    ['hold with a tip that is named', { amountToPay: 13_000, tip: 1_000 }],
    ['hold with a fee within', { amount: 10_500, amountToPay: 12_500, totals: { service: '500' } }],
    ['hold with a discount that nobody names', { amount: 7_000, amountToPay: 9_000 }],
    [
      'hold where the price is that of one piece',
      { items: [line('a', 3_000), { ...line('b', 3_500), amount: 2 }] },
    ],
  ])('%s', (_title, changes) => {
    expect(differ({ ...whole, ...changes })).toBe(false);
  });

  it.each([
    ['a line is missing', { items: [line('a', 6_000, 2)] }],
    ['a line is there twice', { items: [...whole.items, line('b', 4_000)] }],
    ['what is to be paid is something else', { amountToPay: 15_000 }],
  ])('differ where %s', (_title, changes) => {
    expect(differ({ ...whole, ...changes })).toBe(true);
  });

  it.each([
    ['there is no amount', { amount: undefined }],
    ['neither a line nor a fee has an amount', { deliveryFee: null, items: [{ product: { name: 'a' } }] }],
  ])('are not looked at where %s', (_title, changes) => {
    expect(differ({ ...whole, ...changes })).toBeNull();
  });
});
