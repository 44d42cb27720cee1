import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type SafetyRule, StockLedger } from '../../src/outbox/ledger/stock-ledger.ts';
import { lessSafety } from '../../src/outbox/ledger/stock-rule.ts';
import { Stores } from '../../src/outbox/sending/repositories.ts';
import { holding, send } from './held-back-steps.ts';
import { BRANCHES, order, outgoing, product } from './outbox-fixture.ts';

const TEA = product('p1', 'Tea', [
  { sku: '10', stocks: { s1: ['A', 40], s2: ['C', 40] } },
  { sku: '11', stocks: { s1: ['B', 40] } },
]);
const OFF = { holdBack: false, sendAsIs: true, skipUnchanged: true, trustMs: 600_000 };
const ALL: Pick<SafetyRule, 'sku' | 'subsidiaryId'> = { sku: null, subsidiaryId: null };

/** Makes a swept store without hold-back. */
function swept() {
  const out = outgoing();
  out.sweep([TEA]);
  return out;
}

/** Submits a count of the stock of sku 10 in branch s1. */
const count = (out: ReturnType<typeof outgoing>, qty: number) =>
  out.accept('stock', [{ externalId: 'A', qty }]);

/** Claims the next call without hold-back, settles it, and returns its quantities. */
function sendOff(
  out: Pick<ReturnType<typeof outgoing>, 'dispatcher'>,
  state: 'done' | 'retry' = 'done',
): unknown[] {
  const { callId, items } = out.dispatcher.claim('stock', 100, OFF);
  if (callId === null) return [];
  out.dispatcher.settle(
    callId,
    items.map(({ changeId }) => ({ changeId, state })),
  );
  return items.map(({ body }) => ('qty' in body ? body.qty : body));
}

const newest = (out: ReturnType<typeof outgoing>) => out.queries.list({ limit: 1 })[0];

describe('what is kept back', () => {
  it('is taken off each count, never below 0, and the change says so', () => {
    const out = swept();
    out.safety.configure([{ ...ALL, qty: 3 }]);
    count(out, 10);
    expect(sendOff(out)).toEqual([7]);
    expect(newest(out)).toMatchObject({
      body: { qty: 10 },
      message: 'Sent as 7: the safety stock of 3 is kept back.',
    });
    count(out, 2);
    expect(sendOff(out)).toEqual([0]);
    count(out, 0);
    expect(sendOff(out)).toEqual([]);
    expect(newest(out)?.message).toBe('The platform has this value already.');
  });

  it('comes on top of what is sold online and not booked', async () => {
    const out = holding();
    out.safety.configure([{ ...ALL, qty: 1 }]);
    out.safety.set({ sku: '11', subsidiaryId: null, qty: 3 });
    order(out, 'o1', 'B1', [['B', 2]]);
    out.accept('stock', [{ externalId: 'B', qty: 10 }]);
    expect(send(out)).toEqual([5]);
    expect(newest(out)?.message).toBe(
      'Sent as 5: 2 are sold online and not booked: order o1. The safety stock of 3 is kept back too.',
    );
    await out.clock.advance(60_000);
    order(out, 'o2', 'B1', [['B', 1]], 'pending', { createdAt: new Date(out.clock.nowMs()).toISOString() });
    expect(send(out)).toEqual([]);
  });

  it('of fractions has no noise', () => {
    expect(lessSafety(1.1, 0.3)).toBe(0.8);
    const out = swept();
    out.safety.set({ sku: '10', subsidiaryId: 's1', qty: 0.3 });
    count(out, 1.1);
    expect(sendOff(out)).toEqual([0.8]);
    expect(sendOff(out)).toEqual([]);
  });

  it('of a change that is sent by its own words is what is known of all products', () => {
    const out = outgoing();
    out.safety.configure([{ ...ALL, qty: 2 }]);
    out.safety.set({ sku: '10', subsidiaryId: null, qty: 9 });
    count(out, 5);
    expect(sendOff(out)).toEqual([3]);
    expect(newest(out)?.message).toBe('Sent as 3: the safety stock of 2 is kept back.');
  });
});

describe.each([
  ['with the hold-back', holding, send],
  ['without the hold-back', swept, sendOff],
] as const)('a rule that changes, %s', (_name, open, next) => {
  const stocked = () => {
    const out = open();
    out.sweep([TEA]);
    count(out, 10);
    out.accept('stock', [{ externalId: 'B', qty: 5 }]);
    expect(next(out).sort()).toEqual([10, 5]);
    return out;
  };

  it('has what differs sent again, once', () => {
    const out = stocked();
    out.safety.configure([{ ...ALL, qty: 4 }]);
    expect(next(out).sort()).toEqual([1, 6]);
    expect(next(out)).toEqual([]);
    expect(out.queries.list({ limit: 2 }).map(({ message }) => message)).toEqual([
      'Sent again as 1: the platform had 5, the POS counted 5. Sent as 1: the safety stock of 4 is kept back.',
      'Sent again as 6: the platform had 10, the POS counted 10. Sent as 6: the safety stock of 4 is kept back.',
    ]);
    out.safety.configure([{ ...ALL, qty: 4 }]);
    expect(out.dispatcher.movedCount).toBe(0);
    out.safety.configure([]);
    expect(next(out).sort()).toEqual([10, 5]);
  });

  it('touches only what it speaks for', () => {
    const out = stocked();
    out.safety.configure([{ ...ALL, qty: 1 }]);
    expect(next(out).sort()).toEqual([4, 9]);
    out.safety.set({ sku: '10', subsidiaryId: null, qty: 6 });
    expect(next(out)).toEqual([4]);
    expect(out.safety.remove({ sku: '10', subsidiaryId: null })).toBe(true);
    expect(next(out)).toEqual([9]);
    expect(out.safety.remove({ sku: '10', subsidiaryId: null })).toBe(false);
  });

  it('is sent again until it is known to have arrived', () => {
    const out = stocked();
    out.safety.set({ sku: '10', subsidiaryId: 's1', qty: 2 });
    expect(next(out, 'retry')).toEqual([8]);
    expect(next(out)).toEqual([8]);
    expect(next(out)).toEqual([]);
  });

  it('takes nothing back that was sold since the count', async () => {
    const out = stocked();
    await out.clock.advance(60_000);
    order(out, 'o1', 'B1', [['A', 3]], 'pending', { createdAt: new Date(out.clock.nowMs()).toISOString() });
    next(out);
    out.safety.configure([{ ...ALL, qty: 1 }]);
    expect(next(out).sort()).toEqual([4, 6]);
  });

  it('leaves alone what nobody counted, and what was given up or refused', () => {
    const out = open();
    out.sweep([TEA]);
    const [refused] = count(out, 10);
    expect(next(out, 'rejected' as 'retry')).toEqual([10]);
    out.safety.configure([{ ...ALL, qty: 4 }]);
    expect(next(out)).toEqual([]);
    out.admin.discard(refused?.changeId ?? 0);
    out.safety.configure([]);
    expect(next(out)).toEqual([]);
  });
});

it.each([
  ['sends the counts of a branch again where only its safety stock goes', BRANCHES, [], [10]],
  ['leaves the counts of a closed shop whose table goes', BRANCHES.slice(0, 1), [], []],
  ['leaves them where all shops get a safety stock', BRANCHES.slice(0, 1), [{ ...ALL, qty: 1 }], []],
])('a changed configuration %s', (_name, branches, safety, sent) => {
  const out = swept();
  const withSafety = new Stores(out.db, {
    branches: BRANCHES,
    clock: out.clock,
    safety: [{ sku: null, subsidiaryId: 's2', qty: 3 }],
  });
  out.accept('stock', [{ externalId: 'C', qty: 10 }]);
  expect(sendOff(withSafety)).toEqual([7]);
  out.sweep([product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 40], s2: ['C', 0] } }])]);
  expect(sendOff(withSafety)).toEqual([]);
  const after = new Stores(out.db, { branches, clock: out.clock, safety });
  expect(sendOff(after)).toEqual(sent);
  expect(after.safety.list()).toEqual(safety);
});

it('an order is no reason to send a stock again without the hold-back', async () => {
  const out = swept();
  out.safety.configure([{ ...ALL, qty: 1 }]);
  count(out, 10);
  expect(sendOff(out)).toEqual([9]);
  order(out, 'o1', 'B1', [['A', 3]]);
  order(out, 'o1', 'B1', [['A', 3]], 'cancel');
  expect(sendOff(out)).toEqual([]);
  out.sweep([TEA]);
  expect(sendOff(out)).toEqual([]);
});

it('a new rule for thousands does not keep fresh counts waiting', () => {
  const out = outgoing();
  out.db.pragma('synchronous = OFF');
  const shelves = Array.from({ length: 300 }, (_, i) => ({
    sku: `${i}`,
    stocks: { s1: [`E${i}`, 1] as [string, number] },
  }));
  out.sweep([product('many', 'Many', [...shelves, { sku: '900', stocks: { s1: ['F', 1] } }])]);
  out.accept(
    'stock',
    shelves.map((_, i) => ({ externalId: `E${i}`, qty: 20 })),
  );
  while (sendOff(out).length > 0);
  out.safety.configure([{ ...ALL, qty: 1 }]);
  out.accept('stock', [{ externalId: 'F', qty: 8 }]);
  expect(sendOff(out)).toContain(7);
});

it('the most special rule speaks, in the ledger as in a preview', () => {
  const some = fc.option(fc.constantFrom('10', '11'), { nil: null });
  const where = fc.option(fc.constantFrom('s1', 's2'), { nil: null });
  const rule = fc.record({ sku: some, subsidiaryId: where, qty: fc.nat(9) });
  const out = swept();
  out.db.pragma('synchronous = OFF');
  for (const externalId of ['A', 'B', 'C']) out.accept('stock', [{ externalId, qty: 20 }]);
  sendOff(out);
  const ledger = new StockLedger(out.db);
  fc.assert(
    fc.property(fc.array(rule, { maxLength: 8 }), (rules) => {
      out.db.exec('DELETE FROM _stock_notes');
      for (const each of rules) out.safety.set(each);
      const of = out.safety.lookup();
      const stocks = ['10', '11'].flatMap((sku) => ledger.ofSku(sku));
      expect(stocks).toHaveLength(3);
      for (const { sku, subsidiaryId, safetyQty, wantedQty } of stocks) {
        const speaks = [
          [sku, subsidiaryId],
          [sku, null],
          [null, subsidiaryId],
          [null, null],
        ].flatMap(([a, b]) => rules.filter((each) => each.sku === a && each.subsidiaryId === b).slice(-1));
        expect(safetyQty).toBe(speaks[0]?.qty ?? 0);
        expect(of(sku, subsidiaryId)).toBe(safetyQty);
        expect(wantedQty).toBe(20 - safetyQty);
      }
    }),
  );
});

it('a rule that leaves nothing to be sold, or speaks for nothing, is odd', () => {
  const out = swept();
  count(out, 10);
  sendOff(out);
  out.safety.configure([
    { ...ALL, qty: 9 },
    { sku: null, subsidiaryId: 's9', qty: 1 },
  ]);
  expect(out.safety.odd()).toEqual([{ sku: null, subsidiaryId: 's9', qty: 1, highestQty: null }]);
  out.safety.set({ sku: '10', subsidiaryId: 's1', qty: 10 });
  // The stock was not counted, so it is unknown whether the rule leaves pieces to sell.
  out.safety.set({ sku: '11', subsidiaryId: null, qty: 50 });
  expect(out.safety.odd()).toMatchObject([
    { subsidiaryId: 's9' },
    { sku: '10', subsidiaryId: 's1', highestQty: 10 },
  ]);
});
