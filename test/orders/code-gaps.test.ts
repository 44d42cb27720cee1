import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findCodeGaps } from '../../src/orders/order.ts';

const find = (known: number[], lookedFor: number[] = [], runMax = 50, gapsMax = 10) =>
  findCodeGaps({ known, lookedFor: new Set(lookedFor), runMax, gapsMax });

describe('gaps in the codes', () => {
  it('names each run of missing codes, newest first', () => {
    expect(find([1, 2, 5, 9, 5])).toEqual([
      { from: 6, to: 8 },
      { from: 3, to: 4 },
    ]);
    expect(find([])).toEqual([]);
    expect(find([4])).toEqual([]);
  });

  it('leaves out what was looked for', () => {
    expect(find([1, 9], [4, 5, 8])).toEqual([
      { from: 6, to: 7 },
      { from: 2, to: 3 },
    ]);
    expect(find([1, 3], [2])).toEqual([]);
  });

  it('takes a long run for another numbering and stays within its bound', () => {
    expect(find([1, 100])).toEqual([]);
    expect(
      find(
        Array.from({ length: 100 }, (_, i) => i * 2),
        [],
        50,
        3,
      ),
    ).toHaveLength(3);
  });

  it('covers exactly the missing codes', () => {
    const codes = fc.uniqueArray(fc.integer({ min: 1, max: 60 }));
    fc.assert(
      fc.property(codes, codes, (known, lookedFor) => {
        const found = find(known, lookedFor, 100, 100).flatMap(({ from, to }) =>
          Array.from({ length: to - from + 1 }, (_, i) => from + i),
        );
        const wanted = [];
        for (let code = Math.min(...known); code < Math.max(...known); code++) {
          if (!known.includes(code) && !lookedFor.includes(code)) wanted.push(code);
        }
        expect(found.sort((a, b) => a - b)).toEqual(wanted);
      }),
    );
  });
});
