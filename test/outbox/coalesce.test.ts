import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hasSharedFields, mergeBodies, withoutOverruled } from '../../src/outbox/sending/call-plan.ts';
import type { ProductChangeItem } from '../../src/platform/schemas.ts';

const fields = fc.record(
  { price: fc.nat(), name: fc.string(), description: fc.string(), show: fc.boolean() },
  { requiredKeys: [] },
);
const body: fc.Arbitrary<ProductChangeItem> = fc
  .tuple(fc.oneof(fc.record({ sku: fc.nat() }), fc.record({ externalId: fc.string() })), fields)
  .map(([address, values]) => ({ ...address, ...values }));

describe('merging', () => {
  it('keeps the last value of every field, however it is grouped', () => {
    fc.assert(
      fc.property(body, body, body, (a, b, c) => {
        const inOrder = mergeBodies(mergeBodies(a, b), c);
        expect(mergeBodies(a, mergeBodies(b, c))).toEqual(inOrder);
        for (const key of ['price', 'name', 'description', 'show'] as const) {
          expect(inOrder[key]).toEqual([c, b, a].find((each) => key in each)?.[key]);
        }
      }),
    );
  });

  it('takes the address of the newer change alone', () => {
    expect(mergeBodies({ sku: 1, price: 5 }, { externalId: 'A', name: 'x' })).toEqual({
      externalId: 'A',
      name: 'x',
      price: 5,
    });
  });
});

describe('what is left under a newer change', () => {
  it('never repeats a field of it, and loses no other', () => {
    fc.assert(
      fc.property(body, body, (older, newer) => {
        const rest = withoutOverruled(older, newer, 'all');
        expect(mergeBodies(rest ?? newer, newer)).toEqual(mergeBodies(older, newer));
        for (const key of ['price', 'name', 'description', 'show'])
          expect(rest && key in rest && key in newer).toBeFalsy();
      }),
    );
  });

  it("leaves another sku's price alone but not the product's name", () => {
    const newer = { sku: 2, price: 9, name: 'new' };
    expect(withoutOverruled({ sku: 1, price: 5, name: 'old' }, newer, 'shared')).toEqual({
      sku: 1,
      price: 5,
    });
    expect(withoutOverruled({ sku: 1, name: 'old' }, newer, 'shared')).toBeUndefined();
  });

  it('knows which bodies can overrule a sibling', () => {
    expect(hasSharedFields('product', { sku: 1, price: 5 })).toBe(false);
    expect(hasSharedFields('product', { sku: 1, show: true })).toBe(true);
    expect(hasSharedFields('stock', { externalId: 'A', qty: 1, show: true })).toBe(false);
  });
});
