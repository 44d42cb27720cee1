/** Counts, stocks of the platform and order lines below zero. Tests src/outbox/ledger/stock-ledger.ts. */

import { describe, expect, it } from 'vitest';
import { order, outgoing, product, SEND_ALL } from './outbox-fixture.ts';

const HOLDING = { ...SEND_ALL, holdBack: true };

/** Makes a mirror in which the platform has `qty` of one stock, and functions to count and to send. */
function shelf(qty: number) {
  const out = outgoing();
  out.sweep([product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', qty] } }])]);
  const count = (counted: number) => {
    const [taken] = out.accept('stock', [{ externalId: 'A', qty: counted }]);
    return taken?.changeId ?? 0;
  };
  /** Sends all that is due, and returns the quantities that were sent. */
  const send = (rules = SEND_ALL) => {
    const sent: unknown[] = [];
    for (;;) {
      const { callId, items } = out.dispatcher.claim('stock', 100, rules);
      if (callId === null) return sent;
      sent.push(...items.map(({ body }) => ('qty' in body ? body.qty : null)));
      out.dispatcher.settle(
        callId,
        items.map(({ changeId }) => ({ changeId, state: 'done' })),
      );
    }
  };
  const stock = () => out.db.prepare('SELECT counted_qty, wanted_qty, expected_qty FROM _stock_ledger').get();
  return { out, count, send, stock };
}

describe('a count below zero', () => {
  it('is sent as 0, and the count is kept and said', () => {
    const { out, count, send, stock } = shelf(10);
    const changeId = count(-2);
    expect(send()).toEqual([0]);
    expect(out.queries.get(changeId)).toMatchObject({
      state: 'done',
      body: { qty: -2 },
      message: 'Sent as 0: the POS counted -2.',
    });
    expect(stock()).toEqual({ counted_qty: -2, wanted_qty: 0, expected_qty: 0 });
  });

  it('is not sent where the platform has 0', () => {
    const { out, count, send } = shelf(0);
    const changeId = count(-2.5);
    expect(send()).toEqual([]);
    expect(out.queries.get(changeId)?.message).toBe('The platform has 0 already. The POS counted -2.5.');
  });

  it('leaves among the first, as what is sold out', () => {
    const out = outgoing();
    const shelves = ['10', '11', '12'].map((sku) => ({ sku, stocks: { s1: [`A${sku}`, 9] } as never }));
    out.sweep([product('p1', 'Tea', shelves)]);
    out.accept('stock', [
      { externalId: 'A10', qty: 4 },
      { externalId: 'A11', qty: 5 },
      { externalId: 'A12', qty: -1 },
    ]);
    const { items } = out.dispatcher.claim('stock', 1, SEND_ALL);
    expect(items).toMatchObject([{ body: { externalId: 'A12', qty: 0 } }]);
  });

  it('counts for the guards as a stock that goes to zero', () => {
    const { out } = shelf(10);
    const guards = { zeroItemsMax: 1, zeroItemsWindowMs: 60_000 };
    out.sweep([
      product('p1', 'Tea', [
        { sku: '10', stocks: { s1: ['A', 10] } },
        { sku: '11', stocks: { s1: ['B', 10] } },
      ]),
    ]);
    const accepted = out.accept(
      'stock',
      [
        { externalId: 'A', qty: -1 },
        { externalId: 'B', qty: 0 },
      ],
      guards,
    );
    expect(accepted.map(({ state }) => state)).toEqual(['held', 'held']);
  });

  it('of a stock that is below zero at the platform is no new zero for the guards', () => {
    const { out } = shelf(-3);
    const [taken] = out.accept('stock', [{ externalId: 'A', qty: 0 }], {
      zeroItemsMax: 1,
      zeroItemsWindowMs: 60_000,
    });
    expect(taken?.state).toBe('pending');
    expect(out.db.prepare('SELECT zeroed_at FROM _outbox').pluck().get()).toBeNull();
  });

  it('stays as it was counted when the steps of an order are folded', () => {
    const { out, count, stock } = shelf(10);
    out.reservations.begin(true);
    order(out, 'o1', 'B1', [['A', 2]]);
    count(-2);
    out.dispatcher.claim('stock', 1, HOLDING);
    out.db.exec(
      "UPDATE _ledger_orders SET takes = 0; UPDATE _orders SET updated_at = '2001'; UPDATE _sweeps SET as_of_seq = 99",
    );
    expect(out.reservations.collect()).toBe(1);
    expect(stock()).toMatchObject({ counted_qty: -2 });
  });
});

describe('a stock below zero at the platform', () => {
  it.each([3, 0, -3])('gets a count of %d', (counted) => {
    const { count, send, stock } = shelf(-3);
    count(counted);
    expect(send()).toEqual([Math.max(0, counted)]);
    expect(stock()).toMatchObject({ expected_qty: Math.max(0, counted) });
    count(counted);
    expect(send()).toEqual([]);
  });

  it('gets a count of the last pieces that are looked at first', () => {
    const { out, count, send } = shelf(-3);
    count(3);
    const rules = { ...SEND_ALL, lookBelow: 3 };
    const { toLook } = out.dispatcher.claim('stock', 100, rules);
    expect(toLook).toEqual([{ sku: '10', subsidiaryId: 's1' }]);
    out.looks.note({ sku: '10', subsidiaryId: 's1' }, () => {});
    expect(send(rules)).toEqual([3]);
  });

  it('is unknown once orders took more than the platform had', () => {
    const { out, count, send, stock } = shelf(1);
    out.reservations.begin(true);
    count(1);
    send(HOLDING);
    out.clock.jumpWall(60_000);
    order(out, 'o1', 'B1', [['A', 2]], 'pending', { createdAt: new Date(out.clock.nowMs()).toISOString() });
    out.dispatcher.catchUp({ holdBack: true });
    expect(stock()).toEqual({ counted_qty: 1, wanted_qty: 0, expected_qty: null });
    expect(send(HOLDING)).toEqual([0]);
    expect(send(HOLDING)).toEqual([]);
  });
});

describe('an order line below zero', () => {
  it('takes nothing, and makes what the platform has unknown', () => {
    const { out, count, send, stock } = shelf(9);
    out.reservations.begin(true);
    count(8);
    send(HOLDING);
    out.clock.jumpWall(60_000);
    order(
      out,
      'o1',
      'B1',
      [
        ['A', 2],
        ['A', -1],
      ],
      'pending',
      { createdAt: new Date(out.clock.nowMs()).toISOString() },
    );
    out.dispatcher.catchUp({ holdBack: true });
    expect(stock()).toEqual({ counted_qty: 8, wanted_qty: 6, expected_qty: null });
    expect(send(HOLDING)).toEqual([6]);
    expect(send(HOLDING)).toEqual([]);
  });
});
