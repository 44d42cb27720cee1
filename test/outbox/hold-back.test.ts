import { describe, expect, it } from 'vitest';
import { unsettledStocks } from '../../src/outbox/ledger/stock-ledger.ts';
import { holding, send } from './held-back-steps.ts';
import { order, outgoing, product, tempMirror } from './outbox-fixture.ts';
import { TEA } from './swept-outbox.ts';

describe('a count that nobody can tell the stock of', () => {
  it('is rejected where it names a branch whose id is not known', () => {
    const out = holding();
    const [count] = out.accept('stock', [{ externalId: 'B', subsidiaryExternalId: 'B9', qty: 4 }]);
    expect(count).toMatchObject({ state: 'rejected', candidates: [{ sku: '11', subsidiaryId: 's1' }] });
    expect(count?.message).toContain(
      'The configuration does not say which subsidiaryId branch B9 has; externalId B is',
    );
  });

  it('is looked up at the platform where no branch is configured', () => {
    const out = outgoing(tempMirror(), []);
    out.reservations.begin(true);
    const counts = [
      { externalId: 'B', qty: 4 },
      { externalId: 'B', subsidiaryExternalId: 'B1', qty: 5 },
    ];
    const [plain, named] = out.accept('stock', counts);
    const waiting = out.admin.unresolved('needs-read', { limit: 9 });
    expect(waiting).toHaveLength(2);
    out.store.applyRead(TEA, out.store.readMark());
    for (const each of waiting) out.admin.retarget(each, out.resolve(each, true));
    expect(out.queries.get(named!.changeId)).toMatchObject({ state: 'rejected' });
    expect(send(out)).toEqual([4]);
    expect(out.queries.get(plain!.changeId)?.state).toBe('done');
  });
});

describe('the hold-back', () => {
  it('keeps what a count knew of orders when it is tried again', () => {
    const out = holding();
    const [acc] = out.accept('stock', [{ externalId: 'B', qty: 10 }]);
    expect(send(out, 'rejected')).toEqual([10]);
    order(out, 'o1', 'B1', [['B', 2]]);
    out.reservations.acknowledge(['o1'], 'http');
    out.admin.retry(acc!.changeId);
    expect(send(out)).toEqual([8]);
  });

  it('begins anew when it was switched off: what ended meanwhile is booked', () => {
    const out = holding();
    out.accept('stock', [{ externalId: 'B', qty: 10 }]);
    send(out);
    out.reservations.begin(false);
    // Hold-back is off for a while, and the POS acknowledges nothing.
    order(out, 'o1', 'B1', [['B', 2]]);
    order(out, 'o1', 'B1', [['B', 2]], 'dispatched');
    // Hold-back is switched on again.
    out.reservations.begin(true);
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
  });

  it('leaves out an order that had ended before, however often it is written since', () => {
    const out = outgoing();
    out.sweep([TEA]);
    order(out, 'o1', 'B1', [['B', 2]], 'dispatched');
    send(out);
    order(out, 'o1', 'B1', [['B', 2]], 'dispatched'); // an address was corrected
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    expect(send(out)).toEqual([9]);
  });

  it('holds back an order again that comes back to life before it is forgotten', () => {
    const out = holding();
    order(out, 'o1', 'B1', [['B', 3]]);
    order(out, 'o1', 'B1', [['B', 3]], 'cancel');
    out.reservations.acknowledge(['o1'], 'http');
    out.accept('stock', [{ externalId: 'B', qty: 13 }]);
    expect(send(out)).toEqual([13]);
    order(out, 'o1', 'B1', [['B', 3]], 'inProcess');
    expect(send(out)).toEqual([10]);
  });

  it('does so too when it was cancelled and came back within one look', () => {
    const out = holding();
    order(out, 'o1', 'B1', [['B', 3]]);
    out.accept('stock', [{ externalId: 'B', qty: 10 }]);
    out.reservations.acknowledge(['o1'], 'http');
    send(out);
    out.reservations.collect();
    order(out, 'o1', 'B1', [['B', 3]], 'cancel');
    out.accept('stock', [{ externalId: 'B', qty: 13 }]);
    order(out, 'o1', 'B1', [['B', 3]], 'inProcess');
    expect(send(out)).toEqual([10]);
  });

  it('keeps with a newer count what that knew when an older one finds its stock', () => {
    const out = outgoing();
    out.reservations.begin(true);
    const [old] = out.accept('stock', [{ externalId: 'B', qty: 20 }]);
    out.sweep([TEA]);
    order(out, 'o1', 'B1', [['B', 2]]);
    out.accept('stock', [{ externalId: 'B', qty: 8 }]);
    out.reservations.acknowledge(['o1'], 'http');
    const kept = out.admin.unresolved('as-is', { limit: 9 });
    expect(kept.map((k) => k.changeId)).toEqual([old!.changeId]);
    for (const k of kept) out.admin.retarget(k, out.resolve(k));
    expect(send(out)).toEqual([8]);
  });

  it('keeps a full inventory from passing over what is sold by its name alone', () => {
    const out = outgoing();
    out.sweep([product('p5', 'Pizza', [{ sku: '21', stocks: { s1: ['S', 8] } }])]);
    out.reservations.begin(true);
    order(out, 'o1', 'B1', [[null, 2, 'Pizza']]);
    send(out);
    out.sweep([product('p5', 'Pizza', [{ sku: '21', stocks: { s1: ['S', 6] } }])]);
    expect([...unsettledStocks(out.db)]).toEqual(['sku:21@s1']);
  });
});
