import { describe, expect, it } from 'vitest';
import { HOLDING, holding, placed, send } from './held-back-steps.ts';
import { BRANCHES, order, outgoing, product, SEND_ALL } from './outbox-fixture.ts';
import { TEA } from './swept-outbox.ts';

/** Orders two pieces that stay unbooked and counts ten, so that eight are sent. */
function countShortOfTwo(out: ReturnType<typeof outgoing>): void {
  order(out, 'o1', 'B1', [['B', 2]]);
  out.accept('stock', [{ externalId: 'B', qty: 10 }]);
  expect(send(out)).toEqual([8]);
}

describe('corrections of what was held back', () => {
  it('that were refused are not sent for ever', () => {
    const out = holding();
    countShortOfTwo(out);
    out.reservations.acknowledge(['o1'], 'http');
    const sent = [];
    for (let i = 0; i < 5; i++) sent.push(...send(out, 'rejected'));
    expect(sent).toEqual([10]);
  });

  it('are not made while a newer count stands refused, which they would undo', () => {
    const out = holding();
    countShortOfTwo(out);
    out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    const { callId, items } = out.dispatcher.claim('stock', 100, HOLDING);
    out.dispatcher.settle(callId ?? 0, [
      { changeId: items[0]!.changeId, state: 'rejected', message: 'busy' },
    ]);
    out.reservations.acknowledge(['o1'], 'http');
    expect(send(out)).toEqual([]);
    expect(out.queries.get(items[0]!.changeId)?.state).toBe('rejected');
  });

  it('leave a refused newer count to be tried again', () => {
    const out = holding();
    countShortOfTwo(out);
    const [acc] = out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    send(out, 'rejected');
    out.reservations.acknowledge(['o1'], 'http');
    expect(() => out.admin.retry(acc!.changeId)).not.toThrow();
  });

  it('are refused under the count they carry: a newer one that came meanwhile is sent, and stays the newest', () => {
    const out = holding();
    countShortOfTwo(out);
    out.reservations.acknowledge(['o1'], 'http');
    const { callId, items } = out.dispatcher.claim('stock', 100, HOLDING);
    const [newer] = out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    const rejected = { changeId: items[0]!.changeId, state: 'rejected', message: 'busy' } as const;
    out.dispatcher.settle(callId ?? 0, [rejected]);
    const [refused] = out.queries.list({ state: 'rejected', limit: 9 });
    expect(refused?.body).toMatchObject({ qty: 10 });
    expect(() => out.admin.retry(refused!.changeId)).toThrow(`older than change ${newer!.changeId}`);
    expect(send(out)).toEqual([3]);
    expect(out.queries.get(newer!.changeId)?.state).toBe('done');
    expect(out.queries.get(refused!.changeId)?.state).toBe('superseded');
    out.accept('stock', [{ externalId: 'B', qty: 4 }]);
    expect(send(out)).toEqual([4]);
  });

  it('that were refused can be tried again while nothing newer came', () => {
    const out = holding();
    countShortOfTwo(out);
    out.reservations.acknowledge(['o1'], 'http');
    expect(send(out, 'rejected')).toEqual([10]);
    const [refused] = out.queries.list({ state: 'rejected', limit: 9 });
    out.admin.retry(refused!.changeId);
    expect(send(out)).toEqual([10]);
    expect(send(out)).toEqual([]);
  });

  it('name the stock as the catalogue names it by now', () => {
    const out = holding();
    countShortOfTwo(out);
    const stocks = { s1: ['B', 8], s2: ['B', 1] } satisfies Record<string, [string, number]>;
    out.sweep([product('p1', 'Tea', [{ sku: '11', stocks }])]);
    out.reservations.acknowledge(['o1'], 'http');
    const { items } = out.dispatcher.claim('stock', 100, HOLDING);
    expect(items.map(({ body }) => body)).toEqual([{ externalId: 'B', subsidiaryId: 's1', qty: 10 }]);
  });

  it('go to the product that has the id by now', () => {
    const out = holding();
    countShortOfTwo(out);
    out.sweep([product('p9', 'Other tea', [{ sku: '99', stocks: { s1: ['B', 40] } }])]);
    out.reservations.acknowledge(['o1'], 'http');
    const stocks = () =>
      out.dispatcher
        .claim('stock', 100, HOLDING)
        .items.map(({ target, body }) => [target, 'qty' in body && body.qty]);
    expect(stocks()).toEqual([['sku:99@s1', 10]]);
    out.dispatcher.reclaim();
    out.sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B', 8] } }])]);
    expect(stocks()).toEqual([['sku:11@s1', 10]]);
  });

  it('are not made of a count from before the hold-back was switched off', () => {
    const out = holding();
    countShortOfTwo(out);
    // Hold-back is switched off.
    out.accept('stock', [{ externalId: 'B', qty: 8 }]);
    expect(send(out, 'done', SEND_ALL)).toEqual([]);
    // Hold-back is switched on again.
    out.reservations.acknowledge(['o1'], 'http');
    expect(send(out)).toEqual([]);
  });

  it('end when the clock was set back after an order was heard of', () => {
    for (const skipUnchanged of [true, false]) {
      const out = holding();
      const rules = { ...HOLDING, skipUnchanged };
      send(out);
      order(out, 'o1', 'B1', [['B', 2]], 'pending', placed(out, 5));
      out.clock.jumpWall(-2 * 3_600_000);
      out.accept('stock', [{ externalId: 'B', qty: 10 }]);
      const sent = [];
      for (let i = 0; i < 5; i++) sent.push(...send(out, 'done', rules));
      expect(sent).toEqual([8]);
    }
  });

  it('are not made at each event for a count that needed no call', async () => {
    const out = holding();
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
    await out.clock.advance(60_000);
    order(out, 'o1', 'B1', [['B', 2]], 'pending', placed(out, 5));
    expect(send(out)).toEqual([]);
    out.sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B', 7] } }])]);
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([]);
    const sent = [];
    for (let i = 0; i < 4; i++) {
      order(out, `x${i}`, 'B2', [['Z', 1]]);
      sent.push(...send(out));
    }
    expect(sent).toEqual([]);
  });

  it('follow an order whose quantity or items change', async () => {
    const out = holding();
    order(out, 'o1', 'B1', [['B', 2]], 'pending', placed(out, 5));
    out.accept('stock', [
      { externalId: 'B', qty: 10 },
      { externalId: 'A', subsidiaryId: 's1', qty: 10 },
    ]);
    expect(send(out).sort()).toEqual([10, 8]);
    order(out, 'o1', 'B1', [['B', 3]], 'pending', placed(out, 5));
    expect(send(out)).toEqual([7]);
    order(out, 'o1', 'B1', [['B', 1]], 'pending', placed(out, 5));
    expect(send(out)).toEqual([9]);
    order(out, 'o1', 'B1', [['A', 1]], 'pending', placed(out, 5));
    expect(send(out).sort()).toEqual([10, 9]);
  });

  it('are no newer word than one that waits under another name', () => {
    const out = holding();
    countShortOfTwo(out);
    const [acc] = out.accept('stock', [{ externalId: 'B9', qty: 3 }]);
    out.reservations.acknowledge(['o1'], 'http');
    send(out);
    const read = product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B9', 10] } }]);
    out.store.applyRead(read, out.store.readMark());
    for (const k of out.admin.unresolved('needs-read', { limit: 9 }))
      out.admin.retarget(k, out.resolve(k, true));
    expect(send(out)).toEqual([3]);
    expect(out.queries.get(acc!.changeId)?.state).toBe('done');
  });

  it('give back what the platform keeps of an order that came after the count and was cancelled', async () => {
    const out = holding();
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
    await out.clock.advance(60_000);
    order(out, 'o1', 'B1', [['B', 2]], 'pending', placed(out, 5)); // the platform has 7 now
    expect(send(out)).toEqual([]);
    order(out, 'o1', 'B1', [['B', 2]], 'cancel', placed(out, 5));
    expect(send(out)).toEqual([9]);
  });

  it('are made once the configuration names the branch of an order that nobody could place', () => {
    const branches = BRANCHES.map((branch) => ({ ...branch }));
    const out = outgoing(undefined, branches);
    out.sweep([TEA]);
    out.reservations.begin(true);
    order(out, 'o1', 'C1', [['B', 2]]);
    out.accept('stock', [{ externalId: 'B', qty: 10 }]);
    expect(send(out)).toEqual([10]);
    branches[0]!.externalId = 'C1';
    out.restart();
    out.dispatcher.catchUp(HOLDING);
    expect(send(out)).toEqual([8]);
  });

  it('are made for an order that was placed before a night without power and is heard of after it', async () => {
    const out = holding();
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
    const at = placed(out, 5);
    await out.clock.advance(10 * 3_600_000);
    out.reservations.collect();
    order(out, 'late', 'B1', [['B', 1]], 'pending', at);
    expect(send(out)).toEqual([8]);
  });

  it('are no reason for a released change to be older than the count that it takes along', () => {
    const out = holding();
    const zeros = [
      { externalId: 'B', qty: 0, show: false },
      { externalId: 'A', qty: 0, subsidiaryId: 's1' },
    ];
    const [held] = out.accept('stock', zeros, { zeroItemsMax: 1, zeroItemsWindowMs: 60_000 });
    order(out, 'o1', 'B1', [['B', 2]]);
    out.reservations.acknowledge(['o1'], 'http');
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out, 'retry')).toEqual([9]);
    out.admin.release({ changeId: held!.changeId });
    // The order is booked and older than the count, so nothing is subtracted.
    expect(send(out)).toEqual([9]);
    expect(out.queries.get(held!.changeId)).toMatchObject({ state: 'done', body: { qty: 9, show: false } });
    out.accept('stock', [{ externalId: 'B', qty: 4 }]);
    expect(send(out)).toEqual([4]);
  });

  it('wait neither for a held count nor with it: what it counted is not yet said', () => {
    const out = holding();
    const zeros = [
      { externalId: 'B', qty: 0 },
      { externalId: 'A', qty: 0, subsidiaryId: 's1' },
    ];
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
    const [held] = out.accept('stock', zeros, { zeroItemsMax: 1, zeroItemsWindowMs: 60_000 });
    order(out, 'o1', 'B1', [['B', 2]]);
    order(out, 'o1', 'B1', [['B', 2]], 'cancel');
    expect(send(out)).toEqual([9]);
    out.admin.discard(held?.changeId ?? 0);
    expect(send(out)).toEqual([]);
  });
});

describe('a visibility whose quantity is outdated', () => {
  const zeros = [
    { externalId: 'B', qty: 0, show: false },
    { externalId: 'A', qty: 0, subsidiaryId: 's1' },
  ];
  const GUARDS = { zeroItemsMax: 1, zeroItemsWindowMs: 60_000 };

  it('goes with the newest one where a person releases it', () => {
    const out = holding();
    const [held] = out.accept('stock', zeros, GUARDS);
    order(out, 'o1', 'B1', [['B', 2]]);
    out.reservations.acknowledge(['o1'], 'http');
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
    expect(out.queries.get(held!.changeId)?.body).toEqual({ externalId: 'B', qty: 9, show: false });
    out.admin.release({ changeId: held!.changeId });
    // The order is booked and older than the count, so nothing is subtracted.
    expect(send(out)).toEqual([9]);
    expect(out.queries.get(held!.changeId)?.state).toBe('done');
    // The released change did not set its stock to zero, so the guard does not count it.
    expect(out.accept('stock', zeros.slice(1), GUARDS)).toMatchObject([{ state: 'pending' }]);
    expect(send(out)).toEqual([0]);
    out.accept('stock', [{ externalId: 'B', qty: 4 }]);
    expect(send(out)).toEqual([4]);
  });

  it('goes with the newest one where its product is found late', () => {
    const out = holding();
    const [late] = out.accept('stock', [{ externalId: 'B9', qty: 2, show: false }]);
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
    const read = product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B9', 9] } }]);
    // The product keeps B beside B9; a count by an id that is taken away says nothing of it.
    for (const mapping of read.children[0]?.integrations ?? []) mapping.productIdPosA = 'B';
    out.store.applyRead(read, out.store.readMark());
    for (const each of out.admin.unresolved('needs-read', { limit: 9 }))
      out.admin.retarget(each, out.resolve(each, true));
    expect(out.queries.get(late!.changeId)?.body).toMatchObject({ qty: 9, show: false });
    expect(send(out)).toEqual([9]);
    out.accept('stock', [{ externalId: 'B9', qty: 4 }]);
    expect(send(out)).toEqual([4]);
  });

  it('goes with the newest one where it is tried again, and as old as that', () => {
    const out = holding();
    const [refused] = out.accept('stock', [{ externalId: 'B', qty: 0, show: false }]);
    expect(send(out, 'rejected')).toEqual([0]);
    order(out, 'o1', 'B1', [['B', 2]]);
    out.reservations.acknowledge(['o1'], 'http');
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
    out.admin.retry(refused!.changeId);
    expect(send(out)).toEqual([9]);
  });
});
