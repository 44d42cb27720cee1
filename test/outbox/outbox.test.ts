import { describe, expect, it } from 'vitest';
import { order, outgoing, SEND_ALL } from './outbox-fixture.ts';
import { done, many, swept, TEA } from './swept-outbox.ts';

describe('taking changes in', () => {
  it('answers each item by itself and keeps the bad ones with their reason', () => {
    const out = swept();
    const answers = out.accept('stock', [
      { externalId: 'B', qty: 1 },
      { externalId: 'B', qty: -1e300 },
      { externalId: 'A', qty: 1 },
      { externalId: 'A', qty: 2, subsidiaryExternalId: 'B2' },
    ]);
    expect(answers.map((each) => each.state)).toEqual(['pending', 'rejected', 'rejected', 'pending']);
    expect(answers[2]?.candidates).toHaveLength(2);
    expect(out.queries.counts()).toMatchObject({ pending: 2, rejected: 2 });
    expect(out.queries.get(answers[1]?.changeId ?? 0)).toMatchObject({
      body: { externalId: 'B', qty: -1e300 },
    });
  });

  it('has one waiting row for a target, whatever it is called, with the last values', () => {
    const out = swept();
    const [first] = out.accept('product', [{ sku: 10, price: 5, name: 'a' }]);
    const [second] = out.accept('product', [{ externalId: 'A', price: 6 }]);
    expect(second?.changeId).toBe(first?.changeId);
    expect(out.queries.list({ limit: 9 })).toMatchObject([
      { target: 'sku:10', body: { sku: 10, price: 6, name: 'a' }, replaced: 1 },
    ]);
  });

  it("lets a newer name by another sku of the product stand, and leaves each sku's price", () => {
    const out = swept();
    out.accept('product', [{ sku: 10, price: 5, name: 'old' }]);
    out.accept('product', [{ sku: 11, name: 'new' }]);
    expect(out.queries.list({ limit: 9 }).map((each) => each.body)).toEqual([
      { sku: 11, name: 'new' },
      { sku: 10, price: 5 },
    ]);
  });

  it('never gives a change id twice', () => {
    const out = swept();
    const [a] = out.accept('stock', [{ externalId: 'B', qty: 1 }]);
    out.admin.discard(a?.changeId ?? 0);
    out.clock.jumpWall(10_000);
    expect(out.admin.prune(out.clock.nowMs())).toBe(1);
    const [b] = out.accept('stock', [{ externalId: 'B', qty: 2 }]);
    expect(b?.changeId).toBeGreaterThan(a?.changeId ?? 0);
  });
});

describe('taking changes out', () => {
  it('sends sold-out stock first, then the oldest, at most a hundred', () => {
    const out = swept(many);
    out.accept(
      'stock',
      many.map((_, i) => ({ externalId: `M${i}`, qty: i === 200 ? 0 : 5 })),
    );
    const claim = out.dispatcher.claim('stock', 100, SEND_ALL);
    expect(claim.items).toHaveLength(100);
    expect(claim.items[0]?.body).toEqual({ externalId: 'M200', qty: 0 });
    expect(claim.items[1]?.body).toEqual({ externalId: 'M0', qty: 5 });
    expect(out.dispatcher.outlook('stock', SEND_ALL)).toEqual({ waiting: 150, urgent: false });
  });

  it('settles what the platform has already without a call', () => {
    const out = swept();
    out.accept('stock', [
      { externalId: 'B', qty: 3 },
      { externalId: 'A', qty: 8, subsidiaryId: 's1' },
    ]);
    const claim = out.dispatcher.claim('stock', 100, SEND_ALL);
    expect(claim).toMatchObject({
      settled: 1,
      items: [{ body: { externalId: 'A', qty: 8, subsidiaryId: 's1' } }],
    });
    out.accept('product', [{ sku: 10, price: 1000, name: 'Tea', show: true }]);
    expect(out.dispatcher.claim('product', 100, SEND_ALL)).toMatchObject({ callId: null, settled: 1 });
    out.accept('product', [{ sku: 10, price: 1000, description: '' }]);
    expect(out.dispatcher.claim('product', 100, SEND_ALL).items).toHaveLength(1);
  });

  it('does not take the mirror for the platform after an order or a lost answer', () => {
    const out = swept();
    order(out, 'o1', 'B1', [['B', 1]]);
    out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    const first = out.dispatcher.claim('stock', 100, SEND_ALL);
    expect(first.items).toHaveLength(1);
    out.dispatcher.settle(first.callId ?? 0, done(first.items));
    out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    expect(out.dispatcher.claim('stock', 100, SEND_ALL)).toMatchObject({ settled: 1, callId: null });
    out.accept('stock', [{ externalId: 'B', qty: 4 }]);
    const lost = out.dispatcher.claim('stock', 100, SEND_ALL);
    out.dispatcher.settle(lost.callId ?? 0, [{ changeId: lost.items[0]?.changeId ?? 0, state: 'retry' }]);
    out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    expect(out.dispatcher.claim('stock', 100, SEND_ALL).items[0]?.body).toEqual({ externalId: 'B', qty: 3 });
  });

  it('does not take the mirror for the platform after an order that names the product by another id', () => {
    const out = swept();
    out.db.prepare("UPDATE integrations SET product_code_pos_b = 'CODE-B' WHERE sku = '11'").run();
    order(out, 'o1', 'B1', [['CODE-B', 1]]);
    out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    expect(out.dispatcher.claim('stock', 100, SEND_ALL).items).toHaveLength(1);
  });

  it('does not take the mirror for the platform after a call that was under way when the process died', () => {
    const out = swept();
    out.accept('stock', [{ externalId: 'B', qty: 8 }]);
    out.dispatcher.claim('stock', 100, SEND_ALL);
    out.restart();
    expect(out.dispatcher.reclaim()).toBe(1);
    out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    expect(out.dispatcher.claim('stock', 100, SEND_ALL).items).toMatchObject([{ body: { qty: 3 } }]);
  });

  it('sends all where nothing is to be skipped, and whether a product shows by itself', () => {
    const out = swept();
    out.accept('product', [{ sku: 10, price: 1000 }]);
    expect(out.dispatcher.claim('product', 9, { ...SEND_ALL, skipUnchanged: false }).items).toHaveLength(1);
    out.accept('stock', [{ externalId: 'B', qty: 3, show: false }]);
    expect(out.dispatcher.claim('stock', 9, SEND_ALL).items).toMatchObject([
      { body: { qty: 3, show: false } },
    ]);
  });

  it('never has one product under way twice', () => {
    const out = swept();
    out.accept('product', [{ sku: 10, name: 'x' }]);
    expect(out.dispatcher.claim('product', 1, SEND_ALL).items).toHaveLength(1);
    out.accept('product', [
      { sku: 11, name: 'y' },
      { sku: 10, price: 7 },
    ]);
    expect(out.dispatcher.claim('product', 100, SEND_ALL).items).toEqual([]);
  });

  it('keeps changes that the mirror cannot place waiting, or sends them by their own words', () => {
    const out = outgoing();
    out.accept('stock', [
      { externalId: 'Z', qty: 1 },
      { sku: 5, qty: 1 },
    ]);
    expect(out.dispatcher.claim('stock', 9, { ...SEND_ALL, sendAsIs: false }).items).toEqual([]);
    expect(out.dispatcher.claim('stock', 9, SEND_ALL).items.map((each) => each.body)).toEqual([
      { externalId: 'Z', qty: 1 },
    ]);
    expect(out.queries.counts()).toMatchObject({ needsRead: 1, sending: 1 });
  });
});

describe('settling', () => {
  it('writes what the platform took into the mirror, and the refusal to the change', () => {
    const out = swept();
    out.accept('stock', [
      { externalId: 'B', qty: 8 },
      { externalId: 'A', qty: 9, show: false, subsidiaryId: 's1' },
    ]);
    const { callId, items } = out.dispatcher.claim('stock', 100, SEND_ALL);
    const [a, b] = items;
    const report = out.dispatcher.settle(callId ?? 0, [
      { changeId: a?.changeId ?? 0, state: 'rejected', message: 'no stock here' },
      { changeId: b?.changeId ?? 0, state: 'done' },
    ]);
    expect(report).toMatchObject({ done: 1, rejected: 1 });
    const stocks = out.db
      .prepare('SELECT sku, subsidiary_id, qty, show FROM stocks ORDER BY 1, 2')
      .raw()
      .all();
    expect(stocks).toEqual([
      ['10', 's1', 9, 0],
      ['10', 's2', 7, 1],
      ['11', 's1', 3, 1],
    ]);
    expect(out.queries.list({ state: 'rejected', limit: 9 })).toMatchObject([{ message: 'no stock here' }]);
  });

  it('is told of each kind by what was really sent last', () => {
    const out = swept();
    expect(out.queries.lastSent('stock')).toEqual({ takenAt: null, refused: null, trouble: null });
    // The platform has this value already, so it is never sent.
    out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    out.accept('product', [{ sku: 10, price: 7 }]);
    out.dispatcher.claim('stock', 9, SEND_ALL);
    const settled = (change: object, state: 'done' | 'rejected' | 'retry', message?: string) => {
      out.accept('stock', [change as never]);
      const { callId, items } = out.dispatcher.claim('stock', 9, SEND_ALL);
      const changeId = items[0]?.changeId ?? 0;
      out.dispatcher.settle(callId ?? 0, [{ changeId, state, ...(message && { message }) }]);
      return changeId;
    };
    expect(out.queries.lastSent('stock').takenAt).toBeNull();
    settled({ externalId: 'B', qty: 4 }, 'done');
    const refused = settled({ externalId: 'B', qty: 5 }, 'rejected', 'no');
    const trouble = settled({ externalId: 'A', qty: 6, subsidiaryId: 's1' }, 'retry', 'lost');
    const at = expect.stringMatching(/^\d{4}-/);
    expect(out.queries.lastSent('stock')).toEqual({
      takenAt: at,
      refused: { changeId: refused, at, message: 'no' },
      trouble: { changeId: trouble, attempts: 1, message: 'lost' },
    });
    expect(out.queries.lastSent('product')).toEqual({ takenAt: null, refused: null, trouble: null });
  });

  it('takes nothing for known of what was refused: it may have arrived with others', () => {
    const out = swept();
    const known = { externalId: 'B', qty: 3 };
    out.accept('stock', [{ ...known, qty: 8 }]);
    const { callId, items } = out.dispatcher.claim('stock', 100, SEND_ALL);
    const changeId = items[0]?.changeId ?? 0;
    out.dispatcher.settle(callId ?? 0, [{ changeId, state: 'rejected', message: 'no' }]);
    out.accept('stock', [known]);
    expect(out.dispatcher.claim('stock', 100, SEND_ALL).items).toHaveLength(1);
  });

  it('ignores a late answer to a call that was reclaimed', () => {
    const out = swept();
    out.accept('stock', [{ externalId: 'B', qty: 8 }]);
    const first = out.dispatcher.claim('stock', 100, SEND_ALL);
    expect(out.dispatcher.reclaim()).toBe(1);
    const second = out.dispatcher.claim('stock', 100, SEND_ALL);
    expect(second.items[0]).toMatchObject({ attempts: 1 });
    expect(out.dispatcher.settle(first.callId ?? 0, done(first.items))).toMatchObject({
      ignored: 1,
      done: 0,
    });
    expect(out.dispatcher.settle(second.callId ?? 0, done(second.items))).toMatchObject({ done: 1 });
  });

  it('puts a failed change back in line beside one for its product that a guard holds', () => {
    const out = swept();
    const [first] = out.accept('product', [{ sku: 10, name: 'x' }]);
    const { callId } = out.dispatcher.claim('product', 9, SEND_ALL);
    const [held] = out.accept('product', [{ sku: 11, price: 1, name: 'y' }], { priceFactorMax: 2 });
    expect(held?.state).toBe('held');
    const changeId = first?.changeId ?? 0;
    out.dispatcher.settle(callId ?? 0, [{ changeId, state: 'retry' }]);
    expect(out.dispatcher.claim('product', 9, SEND_ALL).items).toMatchObject([
      { body: { sku: 10, name: 'x' } },
    ]);
  });

  it('knows again after a reading of the catalogue what an answer that was lost left open', () => {
    const out = swept();
    out.accept('stock', [{ externalId: 'B', qty: 8 }]);
    const { callId, items } = out.dispatcher.claim('stock', 9, SEND_ALL);
    const changeId = items[0]?.changeId ?? 0;
    out.dispatcher.settle(callId ?? 0, [{ changeId, state: 'retry' }]);
    out.admin.discard(changeId);
    out.sweep([TEA]);
    out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    expect(out.dispatcher.claim('stock', 9, SEND_ALL)).toMatchObject({ settled: 1, callId: null });
  });

  it('puts a failed change under a newer one, and says which', () => {
    const out = swept();
    out.accept('product', [{ sku: 10, price: 5, name: 'x' }]);
    const { callId, items } = out.dispatcher.claim('product', 100, SEND_ALL);
    const [newer] = out.accept('product', [{ sku: 10, price: 6 }]);
    const changeId = items[0]?.changeId ?? 0;
    expect(out.dispatcher.settle(callId ?? 0, [{ changeId, state: 'retry' }])).toMatchObject({
      superseded: 1,
    });
    expect(out.queries.get(changeId)).toMatchObject({ state: 'superseded', supersededBy: newer?.changeId });
    expect(out.queries.follow(changeId)).toMatchObject({
      body: { sku: 10, price: 6, name: 'x' },
      state: 'pending',
    });
  });
});
