/** Tests src/outbox/sending/call-plan.ts. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { alternate, fillCall, Turns } from '../../src/outbox/sending/call-plan.ts';
import { runsOf } from '../support/seed.ts';

interface Waiting {
  branch: string;
  isSoldOut: boolean;
  /** True if the platform has the value already. */
  isKnown: boolean;
  since: number;
}

/** A queue of changes, and its calls, which `Turns` and `fillCall` fill. */
class Planner {
  readonly #waiting: Waiting[] = [];
  readonly #turns = [new Turns(0), new Turns(0)];
  calls = 0;

  constructor(start = 0) {
    this.#turns = [new Turns(start), new Turns(start)];
  }

  get waiting(): readonly Waiting[] {
    return this.#waiting;
  }

  add(branch: string, count: number, more: Partial<Waiting> = {}): void {
    for (let i = 0; i < count; i++) {
      this.#waiting.push({ branch, isSoldOut: false, isKnown: false, since: this.calls, ...more });
    }
  }

  /**
   * Fills the next call and returns its changes. Removes them from the queue, as well as the known changes that were
   * examined.
   */
  call(places = 100, lookMax = 2_000): Waiting[] {
    const lane = (isSoldOut: boolean) => {
      const lines = Map.groupBy(
        this.#waiting.filter((each) => each.isSoldOut === isSoldOut),
        ({ branch }) => branch,
      );
      const turns = this.#turns[Number(isSoldOut)] as Turns;
      return turns.of([...lines.keys()].sort(), (branch) => (lines.get(branch) ?? []).values());
    };
    const gone = new Set<Waiting>();
    const taken = fillCall({ soldOut: lane(true), others: lane(false) }, { places, lookMax }, (each) => {
      gone.add(each);
      return !each.isKnown;
    });
    const left = this.#waiting.filter((each) => !gone.has(each));
    this.#waiting.splice(0, this.#waiting.length, ...left);
    this.calls += 1;
    return taken;
  }
}

const name = (i: number) => `b${String(i).padStart(3, '0')}`;
const counts = fc.array(fc.record({ others: fc.nat(60), soldOut: fc.nat(60), known: fc.nat(20) }), {
  minLength: 1,
  maxLength: 40,
});
const sizes = fc.record({ places: fc.integer({ min: 1, max: 100 }), start: fc.nat(1_000) });

function filled(lines: { others: number; soldOut: number; known: number }[], start: number): Planner {
  const planner = new Planner(start);
  for (const [i, { others, soldOut, known }] of lines.entries()) {
    planner.add(name(i), known, { isKnown: true });
    planner.add(name(i), others);
    planner.add(name(i), soldOut, { isSoldOut: true });
  }
  return planner;
}

describe('the places of a call', () => {
  it('are all used while anything waits, and each change goes once', () => {
    fc.assert(
      fc.property(counts, sizes, (lines, { places, start }) => {
        const planner = filled(lines, start);
        let due = planner.waiting.filter(({ isKnown }) => !isKnown).length;
        while (planner.waiting.length > 0) {
          const taken = planner.call(places);
          expect(taken).toHaveLength(Math.min(places, due));
          due -= taken.length;
        }
        expect(due).toBe(0);
      }),
      { numRuns: runsOf(100) },
    );
  });

  it('go to sold out first, and to others at least every fifth while they have something', () => {
    fc.assert(
      fc.property(counts, sizes, (lines, { places, start }) => {
        const planner = filled(lines, start);
        while (planner.waiting.length > 0) {
          const due = (isSoldOut: boolean) =>
            planner.waiting.filter((each) => !each.isKnown && each.isSoldOut === isSoldOut).length;
          const [others, soldOut] = [due(false), due(true)];
          const kept = Math.min(others, places - Math.ceil((places * 80) / 100));
          const taken = planner.call(places);
          const first = taken.findIndex((each) => !each.isSoldOut);
          const soldOutTaken = taken.filter((each) => each.isSoldOut).length;
          expect(soldOutTaken).toBe(Math.min(soldOut, places - kept));
          expect(first === -1 || first === soldOutTaken).toBe(true);
        }
      }),
      { numRuns: runsOf(100) },
    );
  });

  it('are shared: of two branches that have something, neither is two places ahead, whatever went before', () => {
    fc.assert(
      fc.property(counts, sizes, (lines, { places, start }) => {
        const planner = filled(
          lines.map(({ others }) => ({ others, soldOut: 0, known: 0 })),
          start,
        );
        const got = new Map<string, number>();
        while (planner.waiting.length > 0) {
          for (const { branch } of planner.call(places)) got.set(branch, (got.get(branch) ?? 0) + 1);
          const hungry = new Set(planner.waiting.map(({ branch }) => branch));
          const shares = [...hungry].map((branch) => got.get(branch) ?? 0);
          // Each branch that still has changes had as many turns as any other, except in the current round.
          if (shares.length > 0)
            expect(Math.max(...got.values()) - Math.min(...shares)).toBeLessThanOrEqual(1);
        }
      }),
      { numRuns: runsOf(100) },
    );
  });

  it('starve nobody: who joins waits no longer than one round, whatever others add in each call', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 60 }),
        sizes,
        fc.nat(20),
        (branches, { places, start }, before) => {
          const planner = new Planner(start);
          const flood = () => {
            for (let i = 0; i < branches; i++) if (i !== 1) planner.add(name(i), places);
          };
          for (let i = 0; i < before; i++) {
            flood();
            planner.call(places);
          }
          flood();
          planner.add(name(1), 1);
          const joined = planner.calls;
          while (!planner.call(places).some(({ branch }) => branch === name(1))) flood();
          expect(planner.calls - joined).toBeLessThanOrEqual(Math.ceil(branches / places));
        },
      ),
      { numRuns: Number(process.env.TILLSYNC_RUNS ?? 6) },
    );
  });

  it('starve nobody by restarts: each begins elsewhere', () => {
    const lines = Array.from({ length: 30 }, () => ({ others: 500, soldOut: 0, known: 0 }));
    const got = new Set<string>();
    for (let restart = 0; restart < 30; restart++) {
      for (const { branch } of filled(lines, restart).call(1)) got.add(branch);
    }
    expect(got.size).toBe(30);
  });

  it('are looked for no further than so many changes, of both lanes', () => {
    const planner = new Planner();
    planner.add('a', 500, { isSoldOut: true, isKnown: true });
    planner.add('b', 5);
    expect(planner.call(100, 100).map(({ branch }) => branch)).toEqual(['b', 'b', 'b', 'b', 'b']);
    expect(planner.waiting).toHaveLength(405);
  });
});

it('of two lines by turns, what is longer goes on', () => {
  expect([...alternate([1, 3], [2, 4, 5, 6])]).toEqual([1, 2, 3, 4, 5, 6]);
  expect([...alternate([1, 2], [])]).toEqual([1, 2]);
});

describe('one branch that hands over 10,000 and 499 that hand over 5 each', () => {
  const rush = () => {
    const planner = new Planner();
    planner.add(name(0), 10_000);
    for (let i = 1; i < 500; i++) planner.add(name(i), 5);
    return planner;
  };

  it('take as many calls as first come, first served; a small branch waits 25 calls and not 125', () => {
    const planner = rush();
    let worst = 0;
    while (planner.waiting.length > 0) {
      const taken = planner.call();
      if (taken.some(({ branch }) => branch !== name(0))) worst = planner.calls;
    }
    expect([planner.calls, worst]).toEqual([125, 25]);
    const inOrder = rush().waiting;
    expect(
      [inOrder.length, inOrder.findLastIndex(({ branch }) => branch !== name(0))].map((n) =>
        Math.ceil(n / 100),
      ),
    ).toEqual([125, 125]);
  });

  it('keep what is sold out meanwhile waiting for one call', () => {
    const planner = rush();
    for (let i = 0; i < 60; i++) {
      planner.add(name(i), 1, { isSoldOut: true });
      expect(planner.call().filter(({ isSoldOut }) => isSoldOut)).toHaveLength(1);
    }
  });
});
