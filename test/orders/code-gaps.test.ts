import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { GapMonitor } from '../../src/orders/receiving/order-poll.ts';

/** Returns the gaps that the first and the second check find among `known`. */
function find(known: number[]): number[][] {
  const watch = new GapMonitor({ codesBetween: () => known });
  const range = { min: 0, max: 1_000 };
  return [watch.newGaps(range), watch.newGaps(range)];
}

describe('gaps in the codes', () => {
  it('are named once, newest first', () => {
    expect(find([1, 2, 5, 9, 5])).toEqual([[8, 7, 6, 4, 3], []]);
    expect(find([])).toEqual([[], []]);
    expect(find([4])).toEqual([[], []]);
    expect(new GapMonitor({ codesBetween: () => [1, 3] }).newGaps(null)).toEqual([]);
  });

  it('that open later are named without those looked for before', () => {
    const known = [1, 3];
    const watch = new GapMonitor({ codesBetween: () => known });
    expect(watch.newGaps({ min: 1, max: 9 })).toEqual([2]);
    known.push(6);
    expect(watch.newGaps({ min: 1, max: 9 })).toEqual([5, 4]);
  });

  it('of a long run are another numbering, and there is a bound', () => {
    expect(find([1, 300])).toEqual([[], []]);
    expect(find([1, 202])[0]).toHaveLength(200);
    expect(find([1, 203])).toEqual([[], []]);
    const every200th = Array.from({ length: 100 }, (_, i) => i * 200);
    expect(find(every200th)[0]).toHaveLength(10_000);
  });

  it('are exactly the missing codes', () => {
    const codes = fc.uniqueArray(fc.integer({ min: 1, max: 60 }));
    fc.assert(
      fc.property(codes, (known) => {
        const wanted = [];
        for (let code = Math.max(...known) - 1; code > Math.min(...known); code--) {
          if (!known.includes(code)) wanted.push(code);
        }
        expect(find(known)[0]).toEqual(wanted);
      }),
    );
  });
});
