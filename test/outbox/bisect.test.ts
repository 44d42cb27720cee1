import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Bisection } from '../../src/outbox/batch.ts';

function run(size: number, isBad: (item: number) => boolean) {
  const items = Array.from({ length: size }, (_, i) => i);
  const search = new Bisection(items, 'refused');
  const accepted: number[] = [];
  let calls = 0;
  for (let group = search.next; group; group = search.next) {
    calls += 1;
    if (group.some(isBad)) search.groupRefused(`refused ${group.length}`);
    else {
      accepted.push(...group);
      search.groupAccepted();
    }
  }
  return { accepted, refused: search.refused, calls, search };
}

describe('a call refused whole', () => {
  it('is split until each bad item is alone, and every good one is accepted once, in order', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 100 }), fc.array(fc.nat(99)), (size, bad) => {
        const { accepted, refused } = run(size, (item) => bad.includes(item));
        const all = Array.from({ length: size }, (_, i) => i);
        expect(accepted).toEqual(all.filter((item) => !bad.includes(item)));
        expect(refused.map((each) => each.item)).toEqual(all.filter((item) => bad.includes(item)));
      }),
    );
  });

  it('finds one bad item of a hundred in no more than fourteen calls', () => {
    for (let bad = 0; bad < 100; bad++) {
      const { calls, refused } = run(100, (item) => item === bad);
      expect(calls).toBeLessThanOrEqual(14);
      expect(refused).toEqual([{ item: bad, message: 'refused 1' }]);
    }
  });

  it('is hopeless when the first three are refused alone and nothing was accepted', () => {
    const search = new Bisection([1, 2, 3, 4, 5], 'refused');
    let calls = 0;
    while (search.next && !search.isHopeless) {
      search.groupRefused('no');
      calls += 1;
    }
    expect(calls).toBeLessThan(9);
    expect(search.open).toEqual([4, 5]);
  });

  it('is not hopeless once something was accepted', () => {
    const { search } = run(10, (item) => item < 5 && item > 0);
    expect(search.refused).toHaveLength(4);
    expect(search.isHopeless).toBe(false);
  });
});
