/** Tests src/outbox/sending/outbox-admin.ts and src/outbox/intake/intake.ts. */

import { describe, expect, it } from 'vitest';
import { hasCode } from '../../src/core/errors.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { BRANCHES, outgoing, product, SEND_ALL, tempMirror } from './outbox-fixture.ts';
import { done, many, swept, TEA } from './swept-outbox.ts';

describe('guards', () => {
  it('hold all of a hand-over that sets too much to zero, and let it go on a word', () => {
    const out = swept(many);
    const zeros = many.slice(0, 20).map((_, i) => ({ externalId: `M${i}`, qty: 0 }));
    const answers = out.accept('stock', [...zeros, { externalId: 'M50', qty: 4 }], { zeroItemsMax: 10 });
    expect(answers.filter((each) => each.state === 'held')).toHaveLength(20);
    expect(answers[0]?.message).toContain('20 stocks');
    expect(out.dispatcher.claim('stock', 100, SEND_ALL).items).toHaveLength(1);
    out.accept('stock', [{ externalId: 'M3', qty: 6 }], { zeroItemsMax: 10 });
    expect(out.queries.counts()).toMatchObject({ held: 19, pending: 1 });
    expect(out.admin.release({ guard: 'zero-items' })).toBe(19);
    expect(out.dispatcher.claim('stock', 100, SEND_ALL).items).toHaveLength(20);
  });

  it('hold a share of a small shop, told with both numbers and what releases and drops', () => {
    const out = swept(many.slice(0, 20));
    const guards = { zeroItemsMax: 100, zeroShareMax: 0.3, zeroItemsWindowMs: 60_000 };
    const zeros = (from: number, to: number) =>
      out.accept(
        'stock',
        many.slice(from, to).map((_, i) => ({ externalId: `M${from + i}`, qty: 0 })),
        guards,
      );
    expect(zeros(0, 9).map(({ state }) => state)).toEqual(Array(9).fill('pending'));
    const { callId, items } = out.dispatcher.claim('stock', 100, SEND_ALL);
    out.dispatcher.settle(callId ?? 0, done(items));
    const [held] = zeros(9, 10);
    expect(held).toMatchObject({ state: 'held' });
    expect(held?.message).toContain('10 of 20 stocks above zero in branch s1');
    expect(held?.message).toContain('30 % are allowed (guard.zero_share_max)');
    expect(held?.message).toContain('outbox release --guard zero-items');
    const ofGuard = { guard: 'zero-items' } as const;
    expect(out.admin.discardStill(out.admin.idsOf(ofGuard), ofGuard)).toBe(1);
    expect(out.queries.counts()).toMatchObject({ held: 0, pending: 0 });
    out.clock.jumpWall(60_001);
    // Nine zeros are fewer than the ten from which the share is checked.
    expect(zeros(9, 18).map(({ state }) => state)).toEqual(Array(9).fill('pending'));
  });

  it('judge the share of each branch by itself', () => {
    const shelf = (branch: string, n: number) =>
      Array.from({ length: n }, (_, i) =>
        product(`${branch}${i}`, `${branch} ${i}`, [
          { sku: `${branch === 's1' ? 1 : 2}${i}`, stocks: { [branch]: [`${branch}-${i}`, 5] } },
        ]),
      );
    const out = swept([...shelf('s1', 12), ...shelf('s2', 60)]);
    const zeros = ['s1', 's2'].flatMap((branch) =>
      Array.from({ length: 12 }, (_, i) => ({ externalId: `${branch}-${i}`, qty: 0 })),
    );
    const states = out.accept('stock', zeros, { zeroShareMax: 0.3 }).map(({ state }) => state);
    expect(states).toEqual([...Array(12).fill('held'), ...Array(12).fill('pending')]);
  });

  it('count a trickle of zeros within the window, but none twice and none that is zero already', () => {
    const out = swept(many);
    const guards = { zeroItemsMax: 2, zeroItemsWindowMs: 60_000 };
    const zero = (i: number) => out.accept('stock', [{ externalId: `M${i}`, qty: 0 }], guards)[0]?.state;
    expect([zero(0), zero(0), zero(1), zero(1)]).toEqual(['pending', 'pending', 'pending', 'pending']);
    const { callId, items } = out.dispatcher.claim('stock', 100, SEND_ALL);
    expect(zero(1)).toBe('pending');
    out.dispatcher.settle(callId ?? 0, done(items));
    expect(zero(0)).toBe('pending');
    expect(zero(2)).toBe('held');
    out.clock.jumpWall(60_001);
    expect(zero(3)).toBe('pending');
  });

  it('do not count the zeros that never arrived: those that a person dropped or the platform refused', () => {
    const out = swept(many);
    const guards = { zeroItemsMax: 2, zeroItemsWindowMs: 60_000 };
    const zero = (...ids: number[]) => {
      const zeros = ids.map((id) => ({ externalId: `M${id}`, qty: 0 }));
      return out.accept('stock', zeros, guards).map(({ state, changeId }) => ({ state, changeId }));
    };
    for (const { changeId } of zero(0, 1, 2)) out.admin.discard(changeId);
    expect(zero(3)).toMatchObject([{ state: 'pending' }]);
    const { callId, items } = out.dispatcher.claim('stock', 100, SEND_ALL);
    const refused = items.map(({ changeId }) => ({ changeId, state: 'rejected' as const, message: 'no' }));
    out.dispatcher.settle(callId ?? 0, refused);
    expect(zero(4, 5)).toMatchObject([{ state: 'pending' }, { state: 'pending' }]);
    expect(zero(6)).toMatchObject([{ state: 'held' }]);
  });

  it('count what a branch with a tillsync of its own sells out apart from all others', () => {
    const out = swept([...many, TEA]);
    const guards = { ...GUARDS_OFF, zeroItemsMax: 2, zeroItemsWindowMs: 60_000 };
    const zero = (externalId: string, branch: string) => {
      const change = { externalId, qty: 0, subsidiaryId: branch };
      return out.intake.accept([{ kind: 'stock', change }], { source: 'branch', guards, branch })[0]?.state;
    };
    expect([zero('M0', 's1'), zero('M1', 's1'), zero('M2', 's1')]).toEqual(['pending', 'pending', 'held']);
    expect(zero('A', 's2')).toBe('pending');
  });

  it('count no zero of what the mirror does not know, which may not be sold online, until it is found', () => {
    const guards = { zeroItemsMax: 2, zeroItemsWindowMs: 60_000 };
    const out = outgoing(tempMirror(), BRANCHES, { ...GUARDS_OFF, ...guards });
    out.sweep(many.slice(0, 1));
    const ofTill = Array.from({ length: 9 }, (_, i) => ({ externalId: `TILL-${i}`, qty: 0 }));
    const early = [1, 2, 3].map((i) => ({ externalId: `M${i}`, qty: 0 }));
    const answers = out.accept('stock', [...ofTill, ...early, { externalId: 'M0', qty: 0 }], guards);
    expect(answers.map(({ state }) => state)).toEqual(Array(13).fill('pending'));
    expect(out.dispatcher.claim('stock', 100, SEND_ALL).items).toMatchObject([{ body: { qty: 0 } }]);
    out.sweep(many.slice(0, 9));
    for (const each of out.admin.unresolved('needs-read', { limit: 99 }))
      out.admin.retarget(each, out.resolve(each, true));
    expect(out.queries.counts()).toMatchObject({ sending: 1, pending: 1, held: 2, rejected: 9 });
    expect(out.queries.list({ state: 'held', limit: 9 })[0]?.message).toContain('3 stocks would go to zero');
  });

  it('hold a price whose product is found late, unless a newer one waits', () => {
    const out = outgoing(tempMirror(), BRANCHES, { ...GUARDS_OFF, priceFactorMax: 2 });
    const early = out.accept('product', [
      { externalId: 'A', price: 100_000 },
      { sku: 11, price: 200_000, name: 'x' },
    ]);
    expect(early).toMatchObject([{ state: 'pending' }, { state: 'pending' }]);
    out.sweep([TEA]);
    const [newer] = out.accept('product', [{ externalId: 'B', price: 2100 }]);
    for (const each of out.admin.unresolved('as-is', { limit: 9 }))
      out.admin.retarget(each, out.resolve(each));
    expect(out.queries.list({ state: 'held', limit: 9 })).toMatchObject([
      { target: 'sku:10', heldGuard: 'price-factor', body: { sku: 10, price: 100_000 } },
    ]);
    expect(out.queries.get(early[0]!.changeId)?.message).toContain('from 1000 to 100000');
    const { callId, items } = out.dispatcher.claim('product', 9, SEND_ALL);
    expect(items.map(({ body }) => body)).toEqual([{ sku: 11, price: 2100, name: 'x' }]);
    out.dispatcher.settle(callId ?? 0, done(items));
    expect(out.queries.follow(newer!.changeId)?.changeId).toBe(early[1]!.changeId);
    out.admin.release({ changeId: early[0]!.changeId });
    expect(out.dispatcher.claim('product', 9, SEND_ALL).items).toMatchObject([{ body: { price: 100_000 } }]);
  });

  it('hold a price beyond its factor beside what waits, until it is dropped or overruled', () => {
    const out = swept();
    out.accept('product', [{ sku: 10, price: 1100 }], { priceFactorMax: 2 });
    const [held] = out.accept('product', [{ sku: 10, price: 10, name: 'x' }], { priceFactorMax: 2 });
    expect(held).toMatchObject({ state: 'held' });
    expect(out.queries.list({ state: 'held', limit: 9 })).toMatchObject([{ heldGuard: 'price-factor' }]);
    expect(out.queries.list({ state: 'waiting', limit: 1 })).toMatchObject([{ heldGuard: null }]);
    out.accept('product', [{ sku: 10, price: 1200 }], { priceFactorMax: 2 });
    expect(out.queries.get(held?.changeId ?? 0)?.body).toEqual({ sku: 10, name: 'x' });
    out.admin.release({ changeId: held?.changeId ?? 0 });
    expect(out.dispatcher.claim('product', 9, SEND_ALL).items.map((each) => each.body)).toEqual([
      { sku: 10, price: 1200, name: 'x' },
    ]);
    expect(out.queries.list({ state: 'waiting', limit: 9 })).toMatchObject([{ state: 'sending' }]);
  });
});

describe('what was refused', () => {
  it('is what is wrong now: a newer change for the same target takes its place once it has ended', () => {
    const out = outgoing();
    const tea = product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 5] } }]);
    out.sweep([tea]);
    const ambiguous = () => out.accept('stock', [{ externalId: 'E', qty: 1 }])[0]?.changeId ?? 0;
    const refusals = () => out.queries.list({ state: 'rejected', limit: 9 }).map(({ changeId }) => changeId);
    out.sweep([tea, product('p2', 'Coffee', [{ sku: '11', stocks: { s1: ['E', 1], s2: ['E', 1] } }])]);
    const first = ambiguous();
    const second = ambiguous();
    expect(refusals()).toEqual([second]);
    expect(out.queries.get(first)).toMatchObject({ state: 'superseded', supersededBy: second });

    const send = (kind: 'stock' | 'product', state: 'done' | 'rejected') => {
      const { callId, items } = out.dispatcher.claim(kind, 9, SEND_ALL);
      out.dispatcher.settle(
        callId ?? 0,
        items.map(({ changeId }) => ({ changeId, state, message: 'no' })),
      );
      return items[0]?.changeId ?? 0;
    };
    out.accept('stock', [{ externalId: 'A', qty: 9 }]);
    const refused = send('stock', 'rejected');
    out.accept('stock', [{ externalId: 'A', qty: 8 }]);
    expect(refusals()).toEqual([refused, second]);
    send('stock', 'done');
    expect(refusals()).toEqual([second]);

    out.accept('product', [{ sku: 10, price: 1100, name: 'Tee' }]);
    const both = send('product', 'rejected');
    out.accept('product', [{ sku: 10, price: 1200 }]);
    send('product', 'done');
    expect(refusals()).toEqual([both, second]);
    expect(out.queries.counts().rejected).toBe(2);
  });
});

describe('what was refused and what was not', () => {
  it('ends when the platform turns out to have a newer value already', () => {
    const out = swept();
    out.accept('stock', [{ externalId: 'B', qty: 9 }]);
    const { callId, items } = out.dispatcher.claim('stock', 9, SEND_ALL);
    const changeId = items[0]?.changeId ?? 0;
    out.dispatcher.settle(callId ?? 0, [{ changeId, state: 'rejected', message: 'no' }]);
    out.sweep([TEA]);
    out.accept('stock', [{ externalId: 'B', qty: 3 }]);
    expect(out.dispatcher.claim('stock', 9, SEND_ALL)).toMatchObject({ settled: 1 });
    expect(out.queries.counts().rejected).toBe(0);
  });

  it('is not hidden by an older change that arrives later', () => {
    const out = outgoing();
    out.accept('stock', [{ externalId: 'E', qty: 1 }]);
    const { callId, items } = out.dispatcher.claim('stock', 9, SEND_ALL);
    out.sweep([product('p2', 'Coffee', [{ sku: '11', stocks: { s1: ['E', 1], s2: ['E', 1] } }])]);
    const [refused] = out.accept('stock', [{ externalId: 'E', qty: 2 }]);
    expect(refused?.state).toBe('rejected');
    out.dispatcher.settle(callId ?? 0, done(items));
    expect(out.queries.get(refused?.changeId ?? 0)?.state).toBe('rejected');
  });
});

describe("a person's decisions", () => {
  it('let a change go once, and not what it has overruled', () => {
    const out = swept();
    const hold = { guard: 'missing-share' as const, message: 'too much is missing' };
    const held = ([10, 11] as const).map((sku) => {
      const change = { sku: String(sku), name: `by ${sku}` };
      const options = { source: 'cli' as const, guards: GUARDS_OFF, hold };
      return out.intake.accept([{ kind: 'product', change }], options)[0]?.changeId ?? 0;
    });
    expect(out.queries.counts().held).toBe(2);
    expect(out.admin.release({ guard: null })).toBe(1);
    const { items } = out.dispatcher.claim('product', 9, SEND_ALL);
    expect(items).toHaveLength(1);
    expect(held.map((changeId) => out.queries.get(changeId)?.state).sort()).toEqual([
      'sending',
      'superseded',
    ]);
  });

  it('do not let go by a retry what a guard holds', () => {
    const out = swept();
    out.accept('stock', [{ externalId: 'B', qty: 4, show: true }]);
    const { callId, items } = out.dispatcher.claim('stock', 9, SEND_ALL);
    const changeId = items[0]?.changeId ?? 0;
    out.dispatcher.settle(callId ?? 0, [{ changeId, state: 'rejected', message: 'no' }]);
    const guards = { zeroItemsMax: 1 };
    const zeros = [
      { externalId: 'B', qty: 0 },
      { externalId: 'A', subsidiaryId: 's1', qty: 0 },
    ];
    expect(out.accept('stock', zeros, guards).map(({ state }) => state)).toEqual(['held', 'held']);
    const failure = catchError(() => out.admin.retry(changeId));
    expect(hasCode(failure, 'conflict') && failure.message).toContain('older than change');
    expect(out.queries.counts()).toMatchObject({ held: 2, pending: 0 });
  });

  it('retry a rejected change, but never over a newer one', () => {
    const out = outgoing();
    out.sweep([TEA]);
    const [rejected] = out.accept('stock', [{ externalId: 'A', qty: 1 }]);
    const id = rejected?.changeId ?? 0;
    expect(out.admin.retry(id)).toMatchObject({ state: 'rejected' });
    const [again] = out.queries.list({ state: 'rejected', limit: 1 });
    out.sweep([product('p1', 'Tea', [{ sku: '10', stocks: { s1: ['A', 5] } }])]);
    const retried = out.admin.retry(again?.changeId ?? 0);
    expect(retried).toMatchObject({ state: 'pending' });
    expect(out.queries.follow(id)).toMatchObject({ changeId: retried.changeId });

    const { callId, items } = out.dispatcher.claim('stock', 9, SEND_ALL);
    out.dispatcher.settle(callId ?? 0, [
      { changeId: items[0]?.changeId ?? 0, state: 'rejected', message: 'no' },
    ]);
    out.accept('stock', [{ externalId: 'A', qty: 2 }]);
    const failure = catchError(() => out.admin.retry(retried.changeId));
    expect(hasCode(failure, 'conflict') && failure.message).toContain('older than change');
  });

  it.each([
    ['the sku', { sku: '2', subsidiaryId: 's1' }, '2'],
    ['its id', { externalId: 'X-2' }, '3'],
  ])('retry a refused count by %s as the count of what that names', (_, name, sku) => {
    const shelves = (two: string, three: string) => [
      product('p2', 'Two', [{ sku: '2', stocks: { s1: [two, 1] } }]),
      product('p3', 'Three', [{ sku: '3', stocks: { s1: [three, 1] } }]),
    ];
    const out = swept(shelves('X-2', 'X-3'));
    out.accept('stock', [{ ...name, qty: 5 }]);
    const { callId, items } = out.dispatcher.claim('stock', 100, SEND_ALL);
    const changeId = items[0]?.changeId ?? 0;
    out.dispatcher.settle(callId ?? 0, [{ changeId, state: 'rejected', message: 'No.' }]);
    out.sweep(shelves('X-3', 'X-2'));
    const again = out.queries.get(out.admin.retry(changeId).changeId);
    expect(again).toMatchObject({
      target: `sku:${sku}@s1`,
      body: { externalId: sku === '2' ? 'X-3' : 'X-2', qty: 5 },
    });
  });

  it('retry of a rejected change what no newer one has overruled', () => {
    const out = swept();
    const send = (kind: 'stock' | 'product', change: object, state: 'done' | 'rejected') => {
      const [taken] = out.accept(kind, [change as never]);
      const { callId, items } = out.dispatcher.claim(kind, 9, SEND_ALL);
      const ends = items.map(({ changeId }) => ({ changeId, state, message: 'no' }));
      out.dispatcher.settle(callId ?? 0, ends);
      return taken?.changeId ?? 0;
    };
    const retry = (id: number) => out.admin.retry(id).changeId ?? 0;
    const older = send('product', { sku: 10, price: 7, name: 'x' }, 'rejected');
    send('product', { sku: 10, price: 8 }, 'done');
    expect(out.queries.get(retry(older))).toMatchObject({ state: 'pending', body: { sku: 10, name: 'x' } });

    // If two changes were refused, the quantity of the newer one is used. `show` is sent only with a quantity.
    const shown = send('stock', { externalId: 'B', qty: 0, show: true }, 'rejected');
    send('stock', { externalId: 'B', qty: 5 }, 'done');
    const counted = send('stock', { externalId: 'B', qty: 6 }, 'rejected');
    const again = retry(shown);
    expect(out.queries.get(again)?.body).toMatchObject({ externalId: 'B', qty: 6, show: true });
    const failure = catchError(() => retry(counted));
    expect(hasCode(failure, 'conflict') && failure.message).toContain(`older than change ${again}`);

    const name = send('product', { sku: 10, name: 'y' }, 'rejected');
    const sibling = send('product', { sku: 11, name: 'z' }, 'rejected');
    const outdated = catchError(() => retry(name));
    expect(hasCode(outdated, 'conflict') && outdated.message).toContain(`older than change ${sibling}`);
  });

  it('retry no rejected change that cannot be read', () => {
    const out = swept();
    const [unreadable] = out.accept('stock', [{ externalId: 'B', qty: -1e300 }]);
    expect(unreadable).toMatchObject({ state: 'rejected' });
    const failure = catchError(() => out.admin.retry(unreadable?.changeId ?? 0));
    expect(hasCode(failure, 'conflict') && failure.message).toContain('cannot be read; hand it over again');
    expect(out.queries.counts()).toMatchObject({ rejected: 1, pending: 0 });
  });

  it('cannot drop what is under way, nor decide on what is not there', () => {
    const out = swept();
    const [change] = out.accept('stock', [{ externalId: 'B', qty: 1 }]);
    out.dispatcher.claim('stock', 9, SEND_ALL);
    expect(
      hasCode(
        catchError(() => out.admin.discard(change?.changeId ?? 0)),
        'conflict',
      ),
    ).toBe(true);
    expect(
      hasCode(
        catchError(() => out.admin.discard(99)),
        'not-found',
      ),
    ).toBe(true);
    expect(
      hasCode(
        catchError(() => out.admin.release({ changeId: change?.changeId ?? 0 })),
        'conflict',
      ),
    ).toBe(true);
  });
});

describe('an older change whose stock or product has a newer one under another id', () => {
  const HOLD = { guard: 'missing-share' as const, message: 'too much is missing' };
  const LABELLED = product('p1', 'Tea', [
    { sku: '10', price: 1000, stocks: { s1: ['A', 5], s2: ['A', 7] } },
    { sku: '11', price: 2000, stocks: { s1: ['B9', 3] } },
  ]);
  const ALWAYS = { ...SEND_ALL, skipUnchanged: false };

  for (const mapping of LABELLED.children[1]?.integrations ?? []) mapping.productIdPosA = 'B';

  /** Makes a shop in which product B gets the id B9 too by `found`, and whose POS uses both. */
  function relabelled() {
    const out = swept();
    const held = (change: { externalId: string; qty: number }) =>
      out.intake.accept([{ kind: 'stock', change }], { source: 'cli', guards: GUARDS_OFF, hold: HOLD })[0]
        ?.changeId ?? 0;
    const found = () => {
      out.store.applyRead(LABELLED, out.store.readMark());
      for (const each of out.admin.unresolved('needs-read', { limit: 9 }))
        out.admin.retarget(each, out.resolve(each, true));
    };
    const send = (kind: 'stock' | 'product', state: 'done' | 'rejected' = 'done') => {
      const { callId, items } = out.dispatcher.claim(kind, 9, ALWAYS);
      const answers = items.map(({ changeId }) => ({ changeId, state, message: 'no' }));
      if (callId !== null) out.dispatcher.settle(callId, answers);
      return items.map(({ body }) => ('qty' in body ? body.qty : 'price' in body ? body.price : undefined));
    };
    const calls = () => out.db.prepare('SELECT call_id FROM _stock_counts').pluck().all();
    return { ...out, held, found, send, underWay: calls };
  }

  it('is overruled when the newer one is found to be of its stock', () => {
    const shop = relabelled();
    const held = shop.held({ externalId: 'B', qty: 12 });
    shop.accept('stock', [{ externalId: 'B9', qty: 7 }]);
    shop.found();
    expect(shop.queries.get(held)).toMatchObject({ state: 'superseded' });
    expect(shop.send('stock')).toEqual([7]);
    expect(shop.admin.release({ guard: 'missing-share' })).toBe(0);
    expect(shop.send('stock')).toEqual([]);
  });

  it('stays held when what is found is older, or sets other fields', () => {
    const shop = relabelled();
    shop.accept('stock', [{ externalId: 'B9', qty: 7 }]);
    const held = shop.held({ externalId: 'B', qty: 12 });
    const [price] = shop.accept('product', [{ sku: 11, price: 9, name: 'x' }], { priceFactorMax: 2 });
    shop.accept('product', [{ externalId: 'B9', name: 'y' }]);
    shop.found();
    expect(shop.queries.get(held)).toMatchObject({ state: 'pending', heldGuard: 'missing-share' });
    expect(shop.queries.get(price?.changeId ?? 0)).toMatchObject({
      heldGuard: 'price-factor',
      body: { sku: 11, price: 9 },
    });
  });

  it('is overruled if the newer one was sent before it was found', () => {
    const shop = relabelled();
    const [held] = shop.accept('product', [{ sku: 11, price: 10 }], { priceFactorMax: 2 });
    shop.accept('product', [{ externalId: 'B9', price: 2100 }]);
    shop.found();
    expect(shop.send('product')).toEqual([2100]);
    shop.admin.release({ guard: 'price-factor' });
    expect(shop.send('product')).toEqual([]);
    expect(shop.queries.get(held?.changeId ?? 0)).toMatchObject({ state: 'superseded' });
  });

  it('is not sent on release once the newer one was sent', () => {
    const shop = relabelled();
    const held = shop.held({ externalId: 'B9', qty: 12 });
    const [newer] = shop.accept('stock', [{ externalId: 'B', qty: 7 }]);
    shop.found();
    expect(shop.send('stock')).toEqual([7]);
    expect(shop.admin.release({ guard: 'missing-share' })).toBe(0);
    expect(shop.queries.get(held)).toMatchObject({ state: 'superseded', supersededBy: newer?.changeId });
    expect(shop.send('stock')).toEqual([]);
  });

  it('is not sent where the platform refused the newer one', () => {
    const shop = relabelled();
    const [older] = shop.accept('stock', [{ externalId: 'B9', qty: 12 }]);
    const [newer] = shop.accept('stock', [{ externalId: 'B', qty: 7 }]);
    expect(shop.send('stock', 'rejected')).toEqual([7]);
    shop.found();
    expect(shop.queries.get(older?.changeId ?? 0)).toMatchObject({ supersededBy: newer?.changeId });
    expect(shop.send('stock')).toEqual([]);
  });

  it('ends its call even if the newer one is known to the ledger alone', () => {
    const shop = relabelled();
    shop.held({ externalId: 'B9', qty: 12 });
    shop.accept('stock', [{ externalId: 'B', qty: 7 }]);
    shop.send('stock');
    expect(shop.admin.prune(shop.clock.nowMs() + 1)).toBe(1);
    shop.found();
    expect(shop.admin.release({ guard: 'missing-share' })).toBe(1);
    expect(shop.send('stock')).toEqual([7]);
    expect(shop.underWay()).toEqual([null]);
    shop.accept('stock', [{ externalId: 'B9', qty: 4 }]);
    expect(shop.send('stock')).toEqual([4]);
  });
});

function catchError(action: () => unknown): unknown {
  try {
    action();
    return undefined;
  } catch (error) {
    return error;
  }
}
