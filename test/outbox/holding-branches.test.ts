import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { waitingOrders } from '../../src/orders/reading/order-queries.ts';
import { holdBackOf, holdingKeys } from '../../src/outbox/ledger/hold-back.ts';
import { send } from './held-back-steps.ts';
import { BRANCHES, order, outgoing, product, SEND_ALL, tempMirror } from './outbox-fixture.ts';

const AUTO = { ...SEND_ALL, holdBack: 'auto' as const };
const MINUTE_MS = 60_000;

/** Makes two branches in which nobody has acknowledged an order yet. */
function shop(branches: Parameters<typeof outgoing>[1] = BRANCHES) {
  const out = outgoing(tempMirror(), branches);
  out.sweep([
    product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['A', 10], s2: ['C', 10] } }]),
    product('p2', 'Mug', [{ sku: '12', stocks: { s1: ['B', 10], s2: ['D', 10] } }]),
  ]);
  out.reservations.begin('auto');
  const count = (externalId: string, qty: number) => {
    out.accept('stock', [{ externalId, qty }]);
    return send(out, 'done', AUTO);
  };
  const wait = (ms: number) => out.clock.jumpWall(ms);
  return { ...out, out, count, wait };
}

const id = fc.constantFrom('B1', 'B2', 's1', 's2');
const branches = fc.uniqueArray(fc.record({ subsidiaryId: fc.option(id), externalId: fc.option(id) }), {
  maxLength: 4,
  selector: (branch) => JSON.stringify(branch),
});
const stores = fc.uniqueArray(fc.constantFrom('', 'B1', 'B2', 's1', 's2')).map((all) => new Set(all));

describe('the hold-back of branches', () => {
  it('is on exactly where nothing is missing, and as the configuration says where that says it', () => {
    fc.assert(
      fc.property(branches, stores, fc.constantFrom('auto' as const, true, false), (all, acking, setting) => {
        const states = holdBackOf(all, setting, acking);
        expect(states).toHaveLength(all.length);
        const keys = holdingKeys(all, setting, acking);
        if (setting !== 'auto') {
          expect(states.every(({ isOn, missing }) => isOn === setting && missing.length === 0)).toBe(true);
          expect([...keys]).toEqual(setting ? [''] : []);
          return;
        }
        for (const [i, { isOn, missing }] of states.entries()) {
          const branch = all[i]!;
          expect(isOn).toBe(missing.length === 0);
          expect(isOn).toBe(
            branch.subsidiaryId !== null &&
              branch.externalId !== null &&
              !missing.includes('acknowledgement'),
          );
          if (isOn) expect(keys).toContain(branch.subsidiaryId);
        }
        expect(keys.size).toBeLessThanOrEqual(states.filter(({ isOn }) => isOn).length);
      }),
    );
  });

  it('never goes off because one more store acknowledges', () => {
    fc.assert(
      fc.property(branches, stores, id, (all, acking, more) => {
        const before = holdingKeys(all, 'auto', acking);
        const after = holdingKeys(all, 'auto', new Set([...acking, more]));
        for (const key of before) expect(after).toContain(key);
      }),
    );
  });
});

describe('the hold-back that is on by itself', () => {
  it('begins with the first acknowledgement of a branch, in that branch alone', () => {
    const { out, count } = shop();
    order(out, 'o1', 'B1', [['A', 2]]);
    order(out, 'o2', 'B2', [['C', 3]]);
    expect(count('A', 10)).toEqual([10]);
    out.reservations.acknowledge(['o1'], 'inbox');
    order(out, 'o3', 'B1', [['B', 1]]);
    expect(count('B', 10)).toEqual([9]);
    expect(count('C', 10)).toEqual([10]);
    out.reservations.acknowledge(['o2'], 'http');
    order(out, 'o4', 'B2', [['D', 1]]);
    expect(count('D', 10)).toEqual([9]);
  });

  it('does not begin with an acknowledgement that a person typed', () => {
    const { out, count } = shop();
    order(out, 'o1', 'B1', [['A', 2]]);
    out.reservations.acknowledge(['o1'], 'cli');
    order(out, 'o3', 'B1', [['B', 1]]);
    expect(count('B', 10)).toEqual([10]);
  });

  it('does not begin where an id of the branch is not known', () => {
    const { out, count } = shop([{ subsidiaryId: 's1', externalId: null }]);
    order(out, 'o1', 's1', [['A', 2]]);
    out.reservations.acknowledge(['o1'], 'http');
    order(out, 'o3', 's1', [['B', 1]]);
    expect(count('B', 10)).toEqual([10]);
  });

  it('keeps nothing back of orders that nobody acknowledged before it began, and sends nothing then', () => {
    const { out, count, wait } = shop();
    for (let i = 0; i < 20; i++) {
      order(out, `old${i}`, 'B1', [
        ['A', 1],
        ['B', 1],
      ]);
      wait(15 * MINUTE_MS);
    }
    expect(count('A', 10)).toEqual([10]);
    order(out, 'new', 'B1', [['B', 1]]);
    out.reservations.acknowledge(['new'], 'http');
    out.reservations.begin('auto');
    expect(send(out, 'done', AUTO)).toEqual([]);
    expect(count('A', 9)).toEqual([9]);
    expect(count('B', 8)).toEqual([8]);
  });

  it('keeps an order back that came just before it, at most for half an hour', () => {
    const { out, count, wait } = shop();
    order(out, 'late', 'B1', [['A', 4]]);
    wait(MINUTE_MS);
    order(out, 'o1', 'B1', [['B', 1]]);
    out.reservations.acknowledge(['o1'], 'http');
    expect(count('A', 10)).toEqual([6]);
    wait(31 * MINUTE_MS);
    expect(count('A', 9)).toEqual([9]);
  });

  it('does not insist on a count from before that the platform has another number of', () => {
    const { out, count, sweep } = shop();
    expect(count('A', 5)).toEqual([5]);
    sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['A', 500], s2: ['C', 10] } }])]);
    order(out, 'o1', 'B1', [['B', 1]]);
    out.reservations.acknowledge(['o1'], 'http');
    out.reservations.begin('auto');
    order(out, 'o2', 'B1', [['A', 1]]);
    expect(send(out, 'done', AUTO)).toEqual([]);
    expect(count('A', 7)).toEqual([6]);
  });

  it('insists on a count from before that the platform has', () => {
    const { out, count } = shop();
    expect(count('A', 5)).toEqual([5]);
    order(out, 'o1', 'B1', [['B', 1]]);
    out.reservations.acknowledge(['o1'], 'http');
    out.reservations.begin('auto');
    order(out, 'o2', 'B1', [['A', 2]]);
    expect(send(out, 'done', AUTO)).toEqual([3]);
    order(out, 'o2', 'B1', [['A', 2]], 'cancel');
    expect(send(out, 'done', AUTO)).toEqual([5]);
  });

  it('goes on where the configuration follows a rename of the branch, and its orders wait for the POS', () => {
    const { out, count } = shop();
    order(out, 'o1', 'B1', [['B', 1]], 'payment-approved');
    out.reservations.acknowledge(['o1'], 'http');
    order(out, 'o2', 'B1', [['A', 2]], 'payment-approved');
    expect(count('B', 5)).toEqual([5]);
    const renamed = outgoing(out.db, [{ subsidiaryId: 's1', externalId: 'North' }, BRANCHES[1]!]);
    renamed.reservations.begin('auto');
    expect(renamed.reservations.isSwitchDue('auto')).toBe(false);
    renamed.accept('stock', [{ externalId: 'A', qty: 10 }]);
    renamed.accept('stock', [{ externalId: 'B', qty: 4 }]);
    expect(send(renamed, 'done', AUTO)).toEqual([8, 4]);
    order(renamed, 'o3', 'North', [['A', 1]], 'payment-approved');
    const waiting = waitingOrders(renamed.db, renamed.clock.nowMs() + 10 * MINUTE_MS, 9);
    expect(waiting.map(({ orderId }) => orderId)).toContain('o3');
    renamed.accept('stock', [{ externalId: 'C', qty: 10 }]);
    order(renamed, 'o4', 'B2', [['C', 1]], 'payment-approved');
    expect(send(renamed, 'done', AUTO)).toEqual([10, 7]);
  });

  it('leaves an ended order of a branch that does not hold back to be collected, as its count has it', () => {
    const { out, count, sweep } = shop();
    order(out, 'o1', 'B1', [['B', 1]]);
    out.reservations.acknowledge(['o1'], 'http');
    order(out, 'o2', 'B2', [['C', 2]]);
    order(out, 'o3', 'B1', [['A', 2]]);
    expect(count('A', 10)).toEqual([8]);
    for (const [orderId, store, id] of [
      ['o2', 'B2', 'C'],
      ['o3', 'B1', 'A'],
    ] as const) {
      order(out, orderId, store, [[id, 2]], 'dispatched');
    }
    count('C', 8);
    count('A', 8);
    sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['A', 8], s2: ['C', 8] } }])]);
    expect(out.reservations.collect()).toBe(1);
    const left = out.db.prepare('SELECT order_id FROM _ledger_orders ORDER BY order_id').pluck().all();
    expect(left).toEqual(['o1', 'o3']);
  });

  it('goes off in a branch whose ids were mixed up with those of the branch that acknowledges', () => {
    const { out } = shop();
    order(out, 'o1', 'B1', [['B', 1]]);
    out.reservations.acknowledge(['o1'], 'http');
    out.reservations.begin('auto');
    const put = outgoing(out.db, [
      { subsidiaryId: 's1', externalId: 'B2' },
      { subsidiaryId: 's2', externalId: 'B1' },
    ]);
    put.reservations.begin('auto');
    expect(out.db.prepare("SELECT name FROM _seen WHERE kind = 'holding-branch'").pluck().all()).toEqual([
      's2',
    ]);
  });
});
