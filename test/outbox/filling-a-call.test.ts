import { describe, expect, it } from 'vitest';
import { chooseEndpoint } from '../../src/outbox/sending/call-plan.ts';
import { outgoing, product, SEND_ALL } from './outbox-fixture.ts';

const MANY = Array.from({ length: 2_500 }, (_, i) =>
  product(`p${i}`, `Product ${i}`, [{ sku: `${i}`, stocks: { s1: [`E${i}`, i % 2 === 0 ? 7 : 1] } }]),
);
const COUNTS = MANY.map((_, i) => ({ externalId: `E${i}`, qty: 7 }));

describe('filling a call', () => {
  const swept = (products = MANY) => {
    const out = outgoing();
    out.sweep(products);
    return out;
  };

  it('takes in order, at most a hundred, and settles on the way what needs no call', () => {
    const out = swept(MANY.slice(0, 300));
    out.accept('stock', COUNTS.slice(0, 300));
    const { items, settled } = out.dispatcher.claim('stock', 100, SEND_ALL);
    expect(items.map(({ target }) => target)).toEqual(
      Array.from({ length: 100 }, (_, i) => `sku:${2 * i + 1}@s1`),
    );
    expect(settled).toBe(100);
  });

  it('looks at no more than two thousand changes that need no call', { tags: ['bulk'] }, () => {
    const out = swept();
    const known = MANY.map((_, i) => ({ externalId: `E${i}`, qty: i % 2 === 0 ? 7 : 1 }));
    out.accept('stock', known);
    expect(out.dispatcher.claim('stock', 100, SEND_ALL)).toMatchObject({ settled: 2_000, items: [] });
    expect(out.dispatcher.claim('stock', 100, SEND_ALL)).toMatchObject({ settled: 500, items: [] });
  });
});

describe('the choice of endpoint', () => {
  const soon = { batch: 500, single: 0 };
  it('sends a lone or urgent change where the slot is free sooner', () => {
    expect(chooseEndpoint({ waiting: 1, urgent: false }, soon)).toBe('single');
    expect(chooseEndpoint({ waiting: 900, urgent: true }, soon)).toBe('single');
    expect(chooseEndpoint({ waiting: 900, urgent: false }, soon)).toBe('batch');
    expect(chooseEndpoint({ waiting: 1, urgent: false }, { batch: 0, single: 0 })).toBe('batch');
    expect(chooseEndpoint({ waiting: 0, urgent: false }, soon)).toBe('none');
  });
});
