/** Tests src/outbox/sending/differences.ts. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isDifferent } from '../../src/outbox/sending/differences.ts';
import { HOLDING, placed, send } from './held-back-steps.ts';
import { order, outgoing, product, SEND_ALL } from './outbox-fixture.ts';

const MINUTE_MS = 60_000;

/** Makes a shop whose catalogue sets the platform's quantity of A in B1. */
function shop(holdBack: boolean) {
  const out = outgoing();
  const rules = { ...(holdBack ? HOLDING : SEND_ALL), holdBack };
  const platformHas = (qty: number) => {
    out.clock.jumpWall(MINUTE_MS);
    out.sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['A', qty] } }])]);
  };
  platformHas(0);
  out.reservations.begin(holdBack);
  const count = (qty: number, state: 'done' | 'rejected' = 'done') => {
    out.accept('stock', [{ externalId: 'A', qty }]);
    return send(out, state, rules);
  };
  /** Lets `ms` pass until the end of a poll, and returns the differences that are reported then. */
  const told = (ms = 2 * MINUTE_MS) => {
    out.dispatcher.catchUp(rules);
    out.clock.jumpWall(ms);
    const part = out.differences.part(out.clock.nowMs());
    if (out.differences.isNews(part)) out.differences.keep(part);
    return out.differences.list(9).map(({ platformQty, wantedQty }) => [platformQty, wantedQty]);
  };
  const again = () => send(out, 'done', rules);
  return { out, platformHas, count, told, again };
}

describe.each([true, false])('a stock that differs, where the hold-back is %s', (holdBack) => {
  it('is told once the orders of that time have been heard, until the two agree', () => {
    const { platformHas, count, told, again } = shop(holdBack);
    count(12);
    expect(told()).toEqual([]);
    platformHas(500);
    expect(told(10_000)).toEqual([]);
    expect(told()).toEqual([[500, 12]]);
    expect(again()).toEqual([]);
    platformHas(12);
    expect(told()).toEqual([]);
  });

  it('keeps since when it is so', () => {
    const { out, platformHas, count, told } = shop(holdBack);
    count(12);
    platformHas(500);
    told();
    const [first] = out.differences.list(1);
    platformHas(400);
    expect(told()).toEqual([[400, 12]]);
    expect(out.differences.list(1)[0]).toMatchObject({
      sinceMs: first?.sinceMs,
      name: 'Tea',
      countedQty: 12,
    });
  });

  it('is not told of a sale that only the platform has heard of', () => {
    const { out, platformHas, count, told } = shop(holdBack);
    count(12);
    platformHas(10);
    expect(told(20_000)).toEqual([]);
    order(out, 'o1', 'B1', [['A', 2]], 'pending', placed(out, 60));
    expect(told()).toEqual([]);
  });

  it('is not told while a newer count waits, is under way, is held or was refused', () => {
    const { out, platformHas, count, told } = shop(holdBack);
    count(12);
    platformHas(500);
    expect(told()).toEqual([[500, 12]]);
    out.accept('stock', [{ externalId: 'A', qty: 11 }]);
    expect(told()).toEqual([]);
    const { callId, items } = out.dispatcher.claim('stock', 9, { ...HOLDING, holdBack });
    expect(told()).toEqual([]);
    out.dispatcher.settle(callId!, [{ changeId: items[0]!.changeId, state: 'rejected', message: 'No.' }]);
    expect(told()).toEqual([]);
  });

  it('is not told where a guard holds the count', () => {
    const { out, platformHas, count, told } = shop(holdBack);
    count(12);
    platformHas(500);
    out.accept('stock', [{ externalId: 'A', qty: 0 }], { zeroItemsMax: 0, zeroShareMax: 0 });
    out.db.prepare("UPDATE _outbox SET held_guard = 'zero-items' WHERE state = 'pending'").run();
    expect(told()).toEqual([]);
  });

  it('is not told of the safety stock, nor where nobody counts', () => {
    const { out, platformHas, count, told } = shop(holdBack);
    platformHas(500);
    expect(told()).toEqual([]);
    out.safety.set({ sku: null, subsidiaryId: null, qty: 2 });
    expect(count(12)).toEqual([10]);
    platformHas(10);
    expect(told()).toEqual([]);
    platformHas(12);
    expect(told()).toEqual(holdBack ? [[12, 10]] : [[12, 10]]);
  });

  it('is sent again where the configuration says so, with the reason', () => {
    const { out, platformHas, count, again } = shop(holdBack);
    count(12);
    platformHas(500);
    out.clock.jumpWall(2 * MINUTE_MS);
    out.differences.send(out.differences.part(out.clock.nowMs()).found);
    expect(again()).toEqual([12]);
    expect(out.queries.list({ limit: 1 })[0]?.message).toBe(
      'Sent again as 12: the platform had 500, the POS counted 12.',
    );
  });
});

it('a stock without hold-back is not told of orders that came after its count, in either number', () => {
  const { out, platformHas, count, told } = shop(false);
  count(10);
  order(out, 'o1', 'B1', [['A', 2]], 'pending', placed(out, 0));
  for (const qty of [8, 9, 10]) {
    platformHas(qty);
    expect(told()).toEqual([]);
  }
  platformHas(7);
  expect(told()).toEqual([[7, 8]]);
  platformHas(11);
  expect(told()).toEqual([[11, 8]]);
});

describe('an order that is over, at a branch that does not hold back', () => {
  const over = (platformKeeps: boolean, heardLive: boolean) => {
    const { out, platformHas, count, told, again } = shop(false);
    count(17);
    if (heardLive) order(out, 'o1', 'B1', [['A', 2]], 'pending', placed(out, 0));
    order(out, 'o1', 'B1', [['A', 2]], 'cancel', placed(out, 30));
    platformHas(platformKeeps ? 15 : 17);
    const look = () => {
      const list = told();
      out.differences.send(out.differences.part(out.clock.nowMs()).kept);
      return list;
    };
    return { out, platformHas, look, again };
  };

  it.each([true, false])(
    'is told to nobody, and what the platform kept is sent again (heard before: %s)',
    (heardLive) => {
      const { out, look, again, platformHas } = over(true, heardLive);
      // The ledger keeps the order until its stock was sent again after the order's end.
      expect(out.reservations.collect()).toBe(0);
      expect(look()).toEqual([]);
      expect(again()).toEqual([17]);
      expect(out.reservations.collect()).toBe(1);
      expect(look()).toEqual([]);
      expect(again()).toEqual([]);
      // No order explains the rest of the difference.
      platformHas(15);
      expect(look()).toEqual([[15, 17]]);
      expect(again()).toEqual([]);
    },
  );

  it.each([true, false])('is told to nobody where the platform gave back (heard before: %s)', (heardLive) => {
    const { look, again } = over(false, heardLive);
    expect(look()).toEqual([]);
    expect(again()).toEqual([]);
  });

  it('explains no more than it gave back', () => {
    const { out, platformHas, count, told } = shop(false);
    order(out, 'o1', 'B1', [['A', 2]], 'pending', placed(out, 0));
    count(17);
    order(out, 'o1', 'B1', [['A', 2]], 'cancel', placed(out, 60));
    platformHas(19);
    expect(told()).toEqual([]);
    platformHas(20);
    expect(told()).toEqual([[20, 17]]);
  });
});

it('the rule never tells of a number that is wanted, nor before the orders of that time are heard', () => {
  const qty = fc.integer({ min: 0, max: 20 });
  const stock = fc.record({
    callId: fc.option(qty),
    countedQty: qty,
    safetyQty: fc.integer({ min: 0, max: 3 }),
    wantedQty: qty,
    expectedQty: fc.option(qty),
    confirmedMs: fc.integer({ min: 0, max: 200_000 }),
    holds: fc.boolean(),
  });
  const back = fc.record({ isSome: fc.boolean(), qty: fc.integer({ min: 0, max: 3 }) });
  fc.assert(
    fc.property(stock, fc.option(fc.integer({ min: 0, max: 400_000 })), back, (of, polledMs, givenBack) => {
      const verdict = isDifferent(of, polledMs, () => givenBack);
      if (of.expectedQty === null || of.callId !== null) expect(verdict).toBeUndefined();
      else if (of.expectedQty === of.wantedQty) expect(verdict).toBe(false);
      else if (verdict) expect(polledMs).toBeGreaterThanOrEqual(of.confirmedMs + 60_000);
      else if (of.holds) expect(verdict).toBeUndefined();
    }),
  );
});
