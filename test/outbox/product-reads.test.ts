import { expect, it } from 'vitest';
import { type ErrorCode, TillsyncError } from '../../src/core/errors.ts';
import { ProductReads, StockLooker } from '../../src/outbox/sending/product-reads.ts';
import type { MirrorStores } from '../../src/outbox/sending/repositories.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';
import { FakeClock } from '../support/fake-clock.ts';

/**
 * Makes changes 1, 2, … that wait for their products. For change n, the platform answers with the error `fates[n - 1]`,
 * or with no product if that is null.
 */
function setUp(fates: (ErrorCode | TillsyncError | null)[]) {
  const waiting = new Set(fates.map((_, i) => i + 1));
  const asked: number[] = [];
  class Reads extends ProductReads {
    override count = () => waiting.size;
    override async next(passedOver: ReadonlySet<number>) {
      const changeId = [...waiting].find((id) => !passedOver.has(id));
      return changeId === undefined ? undefined : { changeId, query: { externalId: `${changeId}` } };
    }
    override async resolved(changeId: number) {
      waiting.delete(changeId);
    }
  }
  const reads = new Reads({
    stores: { read: () => ({ push: 0, orderSeq: 0 }) } as unknown as MirrorStores,
    platform: {
      async productGet(query) {
        const id = Number('externalId' in query ? query.externalId : query.sku);
        asked.push(id);
        const fate = fates[id - 1];
        if (fate instanceof TillsyncError) throw fate;
        if (fate) throw new TillsyncError(fate, 'no');
        return null as ProductRecord | null;
      },
    },
    onQueued() {},
    clock: new FakeClock(),
  });
  const steps = async (count: number) => {
    for (let i = 0; i < count; i++) await reads.step({}).catch(() => {});
  };
  return { waiting, asked, steps };
}

it.each(['platform-garbled', 'platform-failed'] as const)(
  'a product whose answer is %s waits behind the others, and is asked for again',
  async (code) => {
    const { waiting, asked, steps } = setUp([code, null, null]);
    await steps(3);
    expect([...waiting]).toEqual([1]);
    await steps(2);
    expect(asked).toEqual([1, 2, 3, 1]);
  },
);

it('a product that the platform refuses to show three times is taken for unknown', async () => {
  const { waiting, asked, steps } = setUp(['platform-refused', null]);
  await steps(5);
  expect([...waiting]).toEqual([1]);
  await steps(1);
  expect(waiting.size).toBe(0);
  expect(asked).toEqual([1, 2, 1, 1]);
});

it('a product that the platform was too slow to show is asked for until it is shown, behind the others', async () => {
  const tooSlow = new TillsyncError('platform-refused', 'no', { httpStatus: 408, retryable: true });
  const { waiting, asked, steps } = setUp([tooSlow, null]);
  await steps(9);
  expect([...waiting]).toEqual([1]);
  expect(asked.slice(0, 3)).toEqual([1, 2, 1]);
});

it('an outage is about no product: the oldest stays the first', async () => {
  const { asked, steps } = setUp(['platform-unreachable', null]);
  await steps(2);
  expect(asked).toEqual([1, 1]);
});

it('a look at scarce stocks ends before the next one once something is urgent', async () => {
  const asked: unknown[] = [];
  const looker = new StockLooker({
    stores: { read: () => ({ push: 0, orderSeq: 0 }), write: async () => {} } as unknown as MirrorStores,
    platform: {
      async productGet(query) {
        asked.push('sku' in query && query.sku);
        return null;
      },
    },
    lookBelow: 3,
    isHeardLate: () => true,
    clock: new FakeClock(),
  });
  const places = ['1', '2', '3'].map((sku) => ({ sku, subsidiaryId: 's1' }));
  await looker.look(places, {}, () => asked.length === 2);
  expect(asked).toEqual(['1', '2']);
  await looker.look(places, {}, () => false);
  expect(asked).toHaveLength(5);
});
