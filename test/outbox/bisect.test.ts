import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { PushCall } from '../../src/outbox/sending/push-loop.ts';

type ErrorDetails = ConstructorParameters<typeof TillsyncError>[2];

/** Sends `size` changes in one call to a platform that refuses every call that contains a bad change. */
async function run(size: number, isBad: (item: number) => boolean, details: ErrorDetails = {}) {
  let calls = 0;
  const sent: number[] = [];
  const never = () => Promise.reject(new Error('not asked'));
  const call = new PushCall(
    {
      productPut: never,
      productStockPut: never,
      productBatch: never,
      productGet: never,
      async productStockBatch(items) {
        calls += 1;
        const ids = items.map(({ qty }) => qty);
        if (ids.some(isBad)) throw new TillsyncError('platform-refused', `refused ${ids.length}`, details);
        sent.push(...ids);
        return { updated: ids.length, total: ids.length, errors: [] };
      },
    },
    'stock',
    { endpoint: 'batch', call: {} },
  );
  const items = Array.from({ length: size }, (_, qty) => ({
    changeId: qty,
    target: `${qty}`,
    attempts: 0,
    body: { externalId: `E${qty}`, qty },
  }));
  const { answers, trouble } = await call.run(items);
  const of = (state: string) => answers.filter((each) => each.state === state);
  return { sent, calls, trouble, done: of('done'), rejected: of('rejected'), retry: of('retry') };
}

describe('a call refused whole', () => {
  it('is split until each bad item is alone, and every good one is accepted once', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 2, max: 100 }), fc.array(fc.nat(99)), async (size, bad) => {
        const { sent, done, rejected, trouble } = await run(size, (item) => bad.includes(item));
        if (trouble !== undefined) {
          expect([sent, rejected]).toEqual([[], []]);
          return;
        }
        const all = Array.from({ length: size }, (_, i) => i);
        const ids = (answers: { changeId: number }[]) =>
          answers.map(({ changeId }) => changeId).sort((a, b) => a - b);
        expect(sent).toHaveLength(done.length);
        expect(ids(done)).toEqual(all.filter((item) => !bad.includes(item)));
        expect(ids(rejected)).toEqual(all.filter((item) => bad.includes(item)));
      }),
    );
  });

  it('finds one bad item of a hundred in no more than fourteen calls after the first', async () => {
    for (let bad = 0; bad < 100; bad++) {
      const { calls, rejected } = await run(100, (item) => item === bad);
      expect(calls).toBeLessThanOrEqual(15);
      expect(rejected).toEqual([{ changeId: bad, state: 'rejected', message: 'refused 1' }]);
    }
  });

  it('is sent again whole when the platform was only too slow for it', async () => {
    for (const size of [1, 4]) {
      const tooSlow = { httpStatus: 408, retryable: true };
      const { calls, rejected, retry, trouble } = await run(size, () => true, tooSlow);
      expect([calls, rejected.length, retry.length]).toEqual([1, 0, size]);
      expect(trouble).toMatchObject({ httpStatus: 408 });
    }
  });

  it('is given up when the first three and the last are refused alone and nothing was accepted', async () => {
    for (const size of [3, 5, 100]) {
      const { calls, rejected, retry, trouble } = await run(size, () => true);
      expect(calls).toBeLessThan(20);
      expect(trouble).toMatchObject({ code: 'platform-refused' });
      expect([rejected.length, retry.length]).toEqual([0, size]);
    }
  });

  it('is not given up for its first three', async () => {
    const { sent, rejected, trouble } = await run(100, (item) => item < 60);
    expect([sent.length, rejected.length, trouble]).toEqual([40, 60, undefined]);
  });

  it('is not given up once something was accepted', async () => {
    const { rejected, trouble } = await run(10, (item) => item < 5 && item > 0);
    expect(rejected).toHaveLength(4);
    expect(trouble).toBeUndefined();
  });
});
