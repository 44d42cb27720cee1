import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sellableStock, type Taking } from '../../src/domain/change/hold-back.ts';

const taking = (part: Partial<Taking> = {}): Taking => ({
  quantity: 2,
  status: 'inProcess',
  acknowledged: false,
  firstSeq: 5,
  ...part,
});

describe('stock that is already sold', () => {
  it('is held back until the order is acknowledged, and not when it took nothing', () => {
    const count = { qty: 10, asOfSeq: 9 };
    expect(sellableStock(count, [taking()])).toEqual({ qty: 8, heldBack: 2 });
    expect(sellableStock(count, [taking({ acknowledged: true })])).toEqual({ qty: 10, heldBack: 0 });
    for (const status of ['cancel', 'refund', 'payment-canceled']) {
      expect(sellableStock(count, [taking({ status })]).qty).toBe(10);
    }
    for (const status of ['dispatched', 'shippingError', 'brand-new', null]) {
      expect(sellableStock(count, [taking({ status })]).qty).toBe(8);
    }
  });

  it('stays held back from a count that is older than the order, acknowledged or not', () => {
    const old = { qty: 1, asOfSeq: 4 };
    expect(sellableStock(old, [taking({ quantity: 1, acknowledged: true })]).qty).toBe(0);
  });

  it('is never below zero nor above the count, and exact for weights', () => {
    expect(sellableStock({ qty: 0.3, asOfSeq: 9 }, [taking({ quantity: 0.1 })]).qty).toBe(0.2);
    const takings = fc.array(
      fc.record({ quantity: fc.nat(20), acknowledged: fc.boolean(), firstSeq: fc.nat(9) }),
    );
    fc.assert(
      fc.property(fc.nat(100), fc.nat(9), takings, (qty, asOfSeq, list) => {
        const result = sellableStock({ qty, asOfSeq }, list.map(taking));
        expect(result.qty).toBe(Math.max(0, qty - result.heldBack));
        const acknowledgedAll = list.map((each) => taking({ ...each, acknowledged: true, firstSeq: 0 }));
        expect(sellableStock({ qty, asOfSeq }, acknowledgedAll).qty).toBe(qty);
      }),
    );
  });
});
