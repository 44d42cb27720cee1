import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readBatchAnswer } from '../../src/outbox/sending/call-plan.ts';
import type { BatchAnswer } from '../../src/platform/schemas.ts';

type BatchError = BatchAnswer['errors'][number];

const items = ['A', 'B', 'C', 'D'].map((externalId) => ({ externalId }));
const error = (part: Partial<BatchError>): BatchError => ({
  index: null,
  sku: null,
  externalId: null,
  message: 'bad',
  ...part,
});
const states = (answer: BatchAnswer, of: { externalId?: string; sku?: number }[] = items) =>
  readBatchAnswer(of, answer)
    .map((outcome) => outcome.state[0])
    .join('');

describe('a batch answer', () => {
  it('places errors by their index', () => {
    const errors = [error({ index: 1 }), error({ index: 3, externalId: 'D', message: 'no stock' })];
    const outcomes = readBatchAnswer(items, { updated: 2, total: 4, errors });
    expect(outcomes.map((each) => each.state)).toEqual(['done', 'rejected', 'done', 'rejected']);
    expect(outcomes[3]).toEqual({ state: 'rejected', message: 'no stock' });
  });

  it('falls back on the ids when the index is missing, out of range or contradicts them', () => {
    expect(states({ updated: 3, total: 4, errors: [error({ externalId: 'C' })] })).toBe('ddrd');
    expect(states({ updated: 3, total: 4, errors: [error({ index: 9, externalId: 'C' })] })).toBe('ddrd');
    expect(states({ updated: 3, total: 4, errors: [error({ index: 3, externalId: 'C' })] })).toBe('ddrd');
  });

  it('takes an index whose error names an id the item was not sent with', () => {
    expect(states({ updated: 3, total: 4, errors: [error({ index: 0, sku: 77 })] })).toBe('rddd');
  });

  it('knows nothing of the rest when an error cannot be placed', () => {
    expect(states({ updated: 3, total: 4, errors: [error({})] })).toBe('uuuu');
    expect(states({ updated: 3, total: 4, errors: [error({ index: 1.5, externalId: 'Z' })] })).toBe('uuuu');
    const twins = [{ externalId: 'A' }, { externalId: 'A' }, { externalId: 'B' }];
    expect(states({ updated: 2, total: 3, errors: [error({ externalId: 'A' })] }, twins)).toBe('uuu');
  });

  it('takes a repeated index with another message for an error of somebody else', () => {
    const errors = [error({ index: 1 }), error({ index: 1, message: 'other' })];
    expect(states({ updated: 2, total: 4, errors })).toBe('uruu');
    const same = [error({ index: 1 }), error({ index: 1 })];
    expect(states({ updated: 3, total: 4, errors: same })).toBe('drdd');
    const named = [error({ index: 1 }), error({ index: 1, externalId: 'B', message: 'other' })];
    expect(readBatchAnswer(items, { updated: 3, total: 4, errors: named })[1]).toEqual({
      state: 'rejected',
      message: 'bad; other',
    });
  });

  it('keeps a reason short however often it is given', () => {
    const errors = Array.from({ length: 5_000 }, (_, i) =>
      error({ index: 1, externalId: 'B', message: `reason ${i}` }),
    );
    const outcome = readBatchAnswer(items, { updated: 3, total: 4, errors })[1];
    expect(outcome?.state === 'rejected' && outcome.message.length).toBeLessThan(600);
  });

  it('notices sums that do not add up', () => {
    expect(states({ updated: 3, total: 4, errors: [] })).toBe('uuuu');
    expect(states({ updated: 4, total: 5, errors: [] })).toBe('uuuu');
    expect(states({ updated: null, total: null, errors: [] })).toBe('uuuu');
    expect(states({ updated: 2, total: 4, errors: [error({ index: 0 })] })).toBe('ruuu');
    expect(states({ updated: 4, total: null, errors: [] })).toBe('dddd');
    expect(states({ updated: 4, total: 3, errors: [] })).toBe('uuuu');
    const unsaid = readBatchAnswer(items, { updated: null, total: 4, errors: [] })[0];
    expect(unsaid).toMatchObject({ message: 'The platform did not say how many items it updated.' });
  });

  it('maps every honest answer exactly, with or without indexes', () => {
    const batch = fc.uniqueArray(fc.string({ minLength: 1 }), { minLength: 1, maxLength: 100 });
    fc.assert(
      fc.property(batch, fc.infiniteStream(fc.boolean()), fc.boolean(), (ids, coin, indexed) => {
        const bad = ids.map(() => coin.next().value as boolean);
        const errors = ids.flatMap((externalId, index) =>
          bad[index] ? [error(indexed ? { index } : { externalId, message: externalId })] : [],
        );
        const sent = ids.map((externalId) => ({ externalId }));
        const answer = { updated: ids.length - errors.length, total: ids.length, errors };
        expect(readBatchAnswer(sent, answer).map((each) => each.state === 'rejected')).toEqual(bad);
      }),
    );
  });
});
