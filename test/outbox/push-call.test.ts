import { describe, expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import type { ChangeBody } from '../../src/outbox/intake/change.ts';
import { PushCall } from '../../src/outbox/sending/push-loop.ts';
import type { BatchAnswer, ProductRecord } from '../../src/platform/schemas.ts';

const REFUSED = new TillsyncError('platform-refused', 'No such page.');
const product = (price: number): ProductRecord => ({
  id: 'p',
  name: 'Tea',
  category: null,
  show: true,
  raw: '{}',
  children: [
    {
      sku: '10',
      barcode: null,
      withDiscount: null,
      discount: null,
      show: true,
      price,
      stocks: [],
      integrations: [],
    },
  ],
});

/** Sends product changes to a platform whose answers are unclear, and which shows the product or refuses to show it. */
async function push(
  bodies: readonly ChangeBody[],
  how: { shown: ProductRecord | null | Error; endpoint?: 'batch' | 'single'; attempts?: number },
) {
  const puts: number[] = [];
  const put = async (count: number) => void puts.push(count);
  const unclear: BatchAnswer = { updated: null, total: null, errors: [] };
  const items = bodies.map((body, i) => ({
    changeId: i + 1,
    target: `${i}`,
    body,
    attempts: how.attempts ?? 0,
  }));
  const call = new PushCall(
    {
      productPut: () => put(1).then(() => 'unsaid'),
      productStockPut: () => put(1).then(() => 'unsaid'),
      productBatch: (sent) => put(sent.length).then(() => unclear),
      productStockBatch: (sent) => put(sent.length).then(() => unclear),
      productGet: async () => {
        if (how.shown instanceof Error) throw how.shown;
        return how.shown;
      },
    },
    'product',
    { endpoint: how.endpoint ?? 'batch', call: {} },
  );
  const { answers, trouble } = await call.run(items);
  return { states: answers.map(({ state }) => state).join(), answers, trouble, puts };
}

describe('a change of which the answer does not say whether it was taken', () => {
  const price = { sku: 10, price: 7 };

  it.each(['batch', 'single'] as const)('is done once the product shows it (%s)', async (endpoint) => {
    expect((await push([price], { shown: product(7), endpoint })).states).toBe('done');
    expect((await push([price], { shown: product(8), endpoint })).states).toBe('retry');
    expect((await push([price], { shown: null, endpoint })).states).toBe('retry');
  });

  it('is sent again where a product cannot show it, and given to a person in the end', async () => {
    const text = { sku: 10, description: 'hot' };
    expect((await push([text], { shown: product(7) })).states).toBe('retry');
    const { answers } = await push([text], { shown: product(7), attempts: 2 });
    expect(answers).toMatchObject([{ state: 'rejected', message: expect.stringContaining('not say') }]);
  });

  it('is asked for a few times only, and sent again beyond that', async () => {
    let asked = 0;
    const shown = new Proxy(product(7), {
      get(target, name) {
        if (name === 'children') asked += 1;
        return Reflect.get(target, name);
      },
    });
    const many = Array.from({ length: 100 }, () => price);
    const { states } = await push(many, { shown });
    expect(states.split(',').filter((state) => state === 'done')).toHaveLength(10);
    expect(asked).toBeGreaterThan(0);
  });

  it('is not refused, nor sent at once again, where the platform refuses to show the product', async () => {
    const { states, puts, trouble } = await push([price, { sku: 11, price: 8 }], { shown: REFUSED });
    expect({ states, puts, trouble }).toEqual({ states: 'retry,retry', puts: [2], trouble: undefined });
    const { answers } = await push([price], { shown: REFUSED, attempts: 2 });
    expect(answers).toMatchObject([
      { state: 'rejected', message: expect.stringContaining('show the product') },
    ]);
  });
});
