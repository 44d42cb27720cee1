/** Tests src/conform/behaviours.ts. */

import { describe, expect, it } from 'vitest';
import { BEHAVIOURS } from '../../src/conform/behaviours.ts';
import type { Judgement, Report } from '../../src/conform/conform.ts';
import { certificateOf, hasPassed, textOf } from '../../src/conform/report.ts';

const judged = (id: number, more: Partial<Judgement> = {}): Judgement => ({
  ...{
    id,
    does: 'loses no order',
    verdict: 'passed',
    saw: '20 came.',
    mend: null,
    printed: null,
    chapter: 'following-orders',
  },
  ms: 5,
  ...more,
});
const FAILED = { verdict: 'failed', saw: 'the count was <b>9</b>', mend: 'Count it.' } as const;

function report(behaviours: Judgement[]): Report {
  const count = (verdict: string) => behaviours.filter((each) => each.verdict === verdict).length;
  return {
    ...{
      version: '1.2.3',
      at: '2026-03-01T18:30:00.000Z',
      seed: 7,
      way: 'http',
      leadS: 0,
      command: ['php', 'till.php'],
    },
    durationMs: 61_200,
    passed: count('passed'),
    failed: count('failed'),
    notJudged: count('not-judged'),
    behaviours,
  };
}

describe('the report on a till', () => {
  it('says what was seen, and where to mend it, of what failed alone', () => {
    const text = textOf(report([judged(1), judged(5, FAILED)]));
    expect(text).toContain('passed       1  loses no order\nFAILED       5  loses no order\n');
    expect(text).toContain('Count it. (docs/pos.md#following-orders)');
    expect(text).not.toContain('20 came.');
    expect(text).toContain('1 passed, 1 failed, in 61 s with seed 7.');
  });

  it('is passed only when all was judged and nothing failed', () => {
    expect(hasPassed(report([judged(1)]))).toBe(true);
    expect(hasPassed(report([judged(1), judged(2, FAILED)]))).toBe(false);
    expect(hasPassed(report([judged(1), judged(2, { verdict: 'not-judged' })]))).toBe(false);
  });

  it('makes a page on which foreign text is text', () => {
    const page = certificateOf(report([judged(5, FAILED)]), '<Caja>');
    expect(page).toContain('did not pass');
    expect(page).toContain('&lt;Caja&gt;');
    expect(page).toContain('the count was &lt;b&gt;9&lt;/b&gt;');
    for (const fact of ['1.2.3', '2026-03-01T18:30:00.000Z', 'php till.php', '<dd>http</dd>', '<dd>7</dd>'])
      expect(page).toContain(fact);
    expect(certificateOf(report([judged(1)]), 'Caja')).toContain('the till passed');
  });

  it('has 38 behaviours, whose ids stay', () => {
    expect(BEHAVIOURS.map(({ id }) => id)).toEqual(Array.from({ length: 38 }, (_, i) => i + 1));
  });
});
