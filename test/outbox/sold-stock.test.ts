import { describe, expect, it } from 'vitest';
import { BRANCHES, order, outgoing, product, SEND_ALL } from './outbox-fixture.ts';

const TEA = product('p1', 'Tea', [
  { sku: '10', stocks: { s1: ['A', 5], s2: ['A', 7] } },
  { sku: '11', stocks: { s1: ['B', 3] } },
]);

function swept(records = [TEA]) {
  const out = outgoing();
  out.sweep(records);
  return out;
}

const done = (items: { changeId: number }[]) =>
  items.map(({ changeId }) => ({ changeId, state: 'done' as const }));

describe('stock that is already sold', () => {
  const RULES = { ...SEND_ALL, holdBack: true };
  const send = (out: ReturnType<typeof outgoing>) => {
    const { callId, items } = out.dispatcher.claim('stock', 100, RULES);
    if (callId !== null) out.dispatcher.settle(callId, done(items));
    return items.map((each) => ('qty' in each.body ? each.body.qty : null));
  };

  it('is held back in its branch until the order is booked, then corrected', () => {
    const out = swept();
    expect(send(out)).toEqual([]);
    order(out, 'o1', 'B1', [['A', 2]]);
    order(out, 'o2', 'B2', [['A', 1]]);
    out.accept('stock', [{ externalId: 'A', qty: 10, subsidiaryId: 's1' }]);
    expect(send(out)).toEqual([8]);
    expect(out.queries.list({ limit: 1 })[0]?.message).toContain('Sent as 8');
    expect(send(out)).toEqual([]);
    expect(out.reservations.acknowledge(['o1', 'o9'], 'http')).toEqual([
      { orderId: 'o1', state: 'new' },
      { orderId: 'o9', state: 'unheard' },
    ]);
    expect(send(out)).toEqual([10]);
    expect(send(out)).toEqual([]);
    expect(out.reservations.acknowledge(['o1'], 'http')).toEqual([{ orderId: 'o1', state: 'known' }]);
  });

  it('is corrected when the call is settled, where it was booked or heard of while the count was under way', () => {
    const out = swept();
    send(out);
    order(out, 'o1', 'B1', [['A', 2]]);
    out.accept('stock', [
      { externalId: 'A', qty: 10, subsidiaryId: 's1' },
      { externalId: 'A', qty: 6, subsidiaryId: 's2' },
      { externalId: 'B', qty: 4 },
    ]);
    const { callId, items } = out.dispatcher.claim('stock', 100, RULES);
    expect(items.map(({ body }) => 'qty' in body && body.qty).sort()).toEqual([4, 6, 8]);
    out.reservations.acknowledge(['o1'], 'http');
    order(out, 'o2', 'B1', [['B', 1]]);
    out.accept('stock', [{ externalId: 'A', qty: 5, subsidiaryId: 's2' }]);
    expect(send(out)).toEqual([]);
    out.dispatcher.settle(callId ?? 0, done(items));
    expect(send(out).sort()).toEqual([10, 3, 5]);
    expect(send(out)).toEqual([]);
  });

  it('cannot be undone by a count older than the order that sold the last piece', () => {
    const out = swept();
    send(out);
    out.accept('stock', [{ externalId: 'B', qty: 1 }]);
    order(out, 'o1', 'B1', [['B', 1]]);
    out.reservations.acknowledge(['o1'], 'inbox');
    expect(send(out)).toEqual([0]);
    expect(send(out)).toEqual([]);
    out.accept('stock', [{ externalId: 'B', qty: 4 }]);
    expect(send(out)).toEqual([4]);
  });

  it('is sent again when an order that was placed before is heard of after, not when it was placed later', async () => {
    const out = swept();
    send(out);
    const placed = (secondsAgo: number) => new Date(out.clock.nowMs() - secondsAgo * 1_000).toISOString();
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
    await out.clock.advance(60_000);
    order(out, 'after', 'B1', [['B', 2]], 'pending', { createdAt: placed(10) });
    expect(send(out)).toEqual([]);
    order(out, 'before', 'B1', [['B', 1]], 'pending', { createdAt: placed(60) });
    expect(send(out)).toEqual([6]);
    expect(send(out)).toEqual([]);
  });

  it('waits for its correction also when the count needed no call', () => {
    const out = swept();
    send(out);
    order(out, 'o1', 'B1', [['B', 2]]);
    out.sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B', 7] } }])]);
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([]);
    out.reservations.acknowledge(['o1'], 'http');
    expect(send(out)).toEqual([9]);
  });

  it('is sent after all when it needed no call and an order, heard of only now, was cancelled', async () => {
    const out = swept();
    const placed = { createdAt: new Date(out.clock.nowMs() - 300_000).toISOString() };
    out.accept('stock', [{ externalId: 'A', qty: 5, subsidiaryId: 's1' }]);
    expect(send(out)).toEqual([]);
    expect(send(out)).toEqual([]);
    await out.clock.advance(600_000);
    order(out, 'o1', 'B2', [['A', 1]], 'cancel', placed);
    expect(send(out)).toEqual([]);
    order(out, 'o2', 'B1', [['A', 2]], 'cancel', placed);
    expect(send(out)).toEqual([5]);
    expect(send(out)).toEqual([]);
  });

  it('counts an item without an id by the name of its product, in each of its skus', () => {
    const out = outgoing();
    const shelves = [
      { sku: '21', stocks: { s1: ['S', 9] as [string, number] } },
      { sku: '22', stocks: { s1: ['L', 9] as [string, number] } },
    ];
    out.sweep([product('p5', 'Pizza', shelves)]);
    send(out);
    order(out, 'o1', 'B1', [[null, 2, 'Pizza']]);
    out.accept('stock', [
      { externalId: 'S', qty: 10 },
      { externalId: 'L', qty: 1 },
    ]);
    expect(send(out)).toEqual([8, 0]);
  });

  it('holds back in each branch that may be the store, where the configuration does not tell which is', () => {
    const branches = [
      { subsidiaryId: 's1', externalId: null },
      { subsidiaryId: 's2', externalId: 'B2' },
      { subsidiaryId: 's3', externalId: null },
    ];
    const out = outgoing(undefined, branches);
    out.sweep([product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 5], s2: ['A', 5], s3: ['A', 5] } }])]);
    send(out);
    order(out, 'o1', 'B1', [['A', 2]]);
    order(out, 'o2', 's3', [['A', 1]]);
    const count = (subsidiaryId: string) => ({ externalId: 'A', qty: 10, subsidiaryId });
    out.accept('stock', [count('s1'), count('s2'), count('s3')]);
    expect(send(out)).toEqual([8, 10, 7]);
  });

  it('stays part of a count that included it when the order, forgotten meanwhile, moves on', () => {
    const out = swept();
    send(out);
    order(out, 'o1', 'B1', [['B', 3]], 'dispatched');
    out.accept('stock', [{ externalId: 'B', qty: 13 }]);
    out.reservations.acknowledge(['o1'], 'http');
    expect(send(out)).toEqual([13]);
    out.sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B', 13] } }])]);
    expect(send(out)).toEqual([]);
    expect(out.reservations.collect()).toBe(1);
    order(out, 'o1', 'B1', [['B', 3]], 'shippingError');
    expect(send(out)).toEqual([]);
    expect(send(out)).toEqual([]);
  });

  it('is forgotten although a branch, configured no more, is never read again', () => {
    const out = swept();
    send(out);
    order(out, 'o1', 'B1', [['B', 3]], 'cancel');
    const [s1] = BRANCHES;
    const whole = { startedAtMs: out.clock.nowMs(), pages: 1, seen: new Set(['p1']) };
    out.store.completeSweep({ branch: s1!, mark: out.store.readMark(), ...whole });
    expect(send(out)).toEqual([]);
    expect(out.reservations.collect()).toBe(0);
    out.store.keepOnly([s1!]);
    expect(out.reservations.collect()).toBe(1);
  });

  it('is held back again when a cancelled order, forgotten meanwhile, comes back to life', () => {
    const out = swept();
    send(out);
    order(out, 'o1', 'B1', [['B', 3]]);
    order(out, 'o1', 'B1', [['B', 3]], 'cancel');
    out.reservations.acknowledge(['o1'], 'http');
    out.accept('stock', [{ externalId: 'B', qty: 13 }]);
    expect(send(out)).toEqual([13]);
    out.sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B', 13] } }])]);
    expect(send(out)).toEqual([]);
    expect(out.reservations.collect()).toBe(1);
    order(out, 'o1', 'B1', [['B', 3]], 'inProcess');
    expect(send(out)).toEqual([10]);
  });

  it('is corrected when the order is cancelled, and kept when a newer count waits', () => {
    const out = swept();
    send(out);
    order(out, 'o1', 'B1', [['B', 2]]);
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([7]);
    order(out, 'o1', 'B1', [['B', 2]], 'cancel');
    out.accept('stock', [{ externalId: 'B', qty: 6 }]);
    expect(send(out)).toEqual([6]);
    expect(send(out)).toEqual([]);
  });

  it('is held back from the first count of all also when the order ended before that could leave', () => {
    const out = swept();
    order(out, 'o1', 'B1', [['A', 2]]);
    out.reservations.begin(true);
    out.accept('stock', [{ externalId: 'A', qty: 10, subsidiaryId: 's1' }]);
    order(out, 'o1', 'B1', [['A', 2]], 'dispatched');
    order(out, 'o2', 'B1', [['A', 1]], 'dispatched');
    expect(send(out)).toEqual([7]);
  });

  it('is part of the first count of all, made with the order booked, however the order moved on until it left', () => {
    const out = swept();
    order(out, 'o1', 'B1', [['A', 2]]);
    out.accept('stock', [{ externalId: 'A', qty: 10, subsidiaryId: 's1' }]);
    out.reservations.acknowledge(['o1'], 'http');
    order(out, 'o1', 'B1', [['A', 2]], 'ready');
    expect(send(out)).toEqual([10]);
    expect(send(out)).toEqual([]);
  });

  it('counts open orders from before it was switched on, not those that had ended', () => {
    const out = swept();
    order(out, 'o1', 'B1', [['B', 1]], 'dispatched');
    order(out, 'o2', 'B1', [['B', 2]], 'inProcess');
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([7]);
    out.reservations.acknowledge(['o2'], 'cli');
    expect(send(out)).toEqual([9]);
  });
});
