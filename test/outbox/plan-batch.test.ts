import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chooseLane, compareWaiting, planBatch, priorityOf } from '../../src/outbox/batch.ts';

describe('the line', () => {
  it('has sold-out stock first, then the oldest', () => {
    const line = [
      { id: 'old', priority: priorityOf({ qty: 3 }), queueSeq: 1 },
      { id: 'price', priority: priorityOf({ price: 0 }), queueSeq: 2 },
      { id: 'gone', priority: priorityOf({ qty: 0 }), queueSeq: 9 },
      { id: 'gone first', priority: priorityOf({ qty: 0 }), queueSeq: 5 },
    ];
    expect(line.toSorted(compareWaiting).map((each) => each.id)).toEqual([
      'gone first',
      'gone',
      'old',
      'price',
    ]);
  });
});

describe('filling a call', () => {
  it('takes in order, at most a hundred, and nothing that conflicts or needs no call', () => {
    const verdicts = fc.array(fc.constantFrom('take', 'settle', 'leave'), { maxLength: 400 });
    fc.assert(
      fc.property(verdicts, (line) => {
        const plan = planBatch(line.entries(), ([, verdict]) => verdict);
        expect(plan.take.length).toBeLessThanOrEqual(100);
        const takes = [...line.entries()].filter(([, verdict]) => verdict === 'take');
        expect(plan.take).toEqual(takes.slice(0, 100));
        if (!plan.more) expect(plan.settle).toHaveLength(line.filter((each) => each === 'settle').length);
        expect(plan.more).toBe(plan.take.length === 100 && plan.take.at(-1)?.[0] !== line.length - 1);
      }),
    );
  });

  it('does not read an endless line', () => {
    function* endless() {
      for (;;) yield 1;
    }
    expect(planBatch(endless(), () => 'settle', { lookMax: 50 })).toMatchObject({ more: true, take: [] });
  });
});

describe('the choice of endpoint', () => {
  const base = { waiting: 1, urgent: false, batchFreeInMs: 500, singleFreeInMs: 0 };
  it('sends a lone or urgent change where the slot is free sooner', () => {
    expect(chooseLane(base)).toBe('single');
    expect(chooseLane({ ...base, waiting: 900, urgent: true })).toBe('single');
    expect(chooseLane({ ...base, waiting: 900 })).toBe('batch');
    expect(chooseLane({ ...base, batchFreeInMs: 0 })).toBe('batch');
    expect(chooseLane({ ...base, waiting: 0 })).toBe('none');
  });
});
