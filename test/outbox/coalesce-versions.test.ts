import fc from 'fast-check';
import { expect, it } from 'vitest';
import { mergeVersioned, withoutNewer } from '../../src/outbox/sending/call-plan.ts';

type Versioned = Parameters<typeof mergeVersioned>[0];

const values = fc.record({ price: fc.nat(), name: fc.string(), show: fc.boolean() }, { requiredKeys: [] });

it('gives the same whether changes were merged as they came or split over two rows and joined later', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), values)), (changes) => {
      // The expected result: each field has the value of the last change that set it.
      const whole = Object.assign({ sku: 1 }, ...changes.map(([, each]) => each));
      const rows = [true, false].map((side): Versioned => {
        const row = { body: { sku: 1 } as Record<string, unknown>, versions: {} as Record<string, number> };
        for (const [i, [ofSide, each]] of changes.entries()) {
          if (ofSide !== side) continue;
          Object.assign(row.body, each);
          for (const field of Object.keys(each)) row.versions[field] = i + 1;
        }
        return row as Versioned;
      });
      const [a, b] = rows as [Versioned, Versioned];
      expect(mergeVersioned(a, b).body).toEqual(whole);
      expect(mergeVersioned(b, a)).toEqual(mergeVersioned(a, b));
    }),
  );
});

it('takes nothing from a change that the other one says no newer', () => {
  const change: Versioned = { body: { sku: 1, name: 'a', price: 5 }, versions: { name: 3, price: 3 } };
  expect(withoutNewer(change, change, 'all')).toEqual(change.body);
  expect(withoutNewer(change, { ...change, versions: { name: 4, price: 2 } }, 'all')).toEqual({
    sku: 1,
    price: 5,
  });
});
