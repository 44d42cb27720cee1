import { expect, it } from 'vitest';
import { eachOrder, ordersToBook } from '../../src/orders/reading/order-queries.ts';
import { BRANCHES, order, outgoing, product } from './outbox-fixture.ts';

const HOLDING = { skipUnchanged: true, holdBack: true, sendAsIs: false, trustMs: 600_000 };
type Outgoing = ReturnType<typeof outgoing>;

const TEA = product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B', 5], s2: ['B', 5] } }]);
const CUP = product('p2', 'Cup', [{ sku: '12', stocks: { s1: ['C', 5] } }]);

/** Sends until no change is left; returns the quantities by stock. */
function send(out: Outgoing): Record<string, number> {
  const sent: Record<string, number> = {};
  for (;;) {
    const { callId, items } = out.dispatcher.claim('stock', 100, HOLDING);
    if (callId === null) return sent;
    for (const { target, body } of items) sent[target] = 'qty' in body ? body.qty : Number.NaN;
    out.dispatcher.settle(
      callId,
      items.map(({ changeId }) => ({ changeId, state: 'done' })),
    );
  }
}

function holding(records = [TEA, CUP]): Outgoing {
  const out = outgoing();
  out.sweep(records);
  out.reservations.begin(true);
  send(out);
  return out;
}

const count = (out: Outgoing, externalId: string, qty: number, subsidiaryId = 's1') =>
  out.accept('stock', [{ externalId, qty, subsidiaryId }]);
const booked = (out: Outgoing, seq?: number) =>
  out.reservations.acknowledge([{ orderId: 'o1', seq }], 'http')[0]?.state;

it('stock: an order is taken off the count that brings its product into the mirror', () => {
  const out = holding([CUP]);
  order(out, 'o1', 'B1', [['B', 2]]);
  expect(send(out)).toEqual({});
  const [taken] = count(out, 'B', 10);
  const [kept] = out.admin.unresolved('needs-read', { limit: 9 });
  out.store.applyRead(TEA, out.store.readMark());
  if (kept) out.admin.retarget(kept, out.resolve(kept, true));
  expect(taken).toBeDefined();
  expect(send(out)).toEqual({ 'sku:11@s1': 8 });
});

it.each([
  ['another id', 'B', product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B2', 8] } }])],
  ['another name', null, product('p1', 'Green tea', [{ sku: '11', stocks: { s1: ['B', 8] } }])],
])('stock: a product that gets %s leaves what an order took of it', (_what, id, renamed) => {
  const out = holding();
  order(out, 'o1', 'B1', [[id, 2, 'Tea']]);
  count(out, 'B', 10);
  expect(send(out)).toEqual({ 'sku:11@s1': 8 });
  out.sweep([renamed, CUP]);
  expect(send(out)).toEqual({});
  order(out, 'o1', 'B1', [[id, 2, 'Tea']], 'inProcess');
  expect(send(out)).toEqual({});
});

it('stock: a branch whose id is corrected keeps what an order of the old one took', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  count(out, 'B', 10);
  expect(send(out)).toEqual({ 'sku:11@s1': 8 });
  const corrected = outgoing(out.db, [{ subsidiaryId: 's1', externalId: 'North' }, BRANCHES[1]!]);
  corrected.sweep([product('p1', 'Tea', [{ sku: '11', stocks: { s1: ['B', 8] } }])]);
  expect(send(corrected)).toEqual({});
});

it('stock: an order goes with the id of its store when the configuration had two branches the wrong way round', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]], 'payment-approved');
  count(out, 'B', 10);
  count(out, 'B', 20, 's2');
  expect(send(out)).toEqual({ 'sku:11@s1': 8, 'sku:11@s2': 20 });
  const swapped = [
    { subsidiaryId: 's1', externalId: 'B2' },
    { subsidiaryId: 's2', externalId: 'B1' },
  ];
  const corrected = outgoing(out.db, swapped);
  expect(send(corrected)).toEqual({ 'sku:11@s1': 10, 'sku:11@s2': 18 });
  corrected.restart();
  expect(send(corrected)).toEqual({});
  expect(corrected.reservations.acknowledge(['o1'], 'http')).toMatchObject([{ state: 'new' }]);
  count(corrected, 'B', 17, 's2');
  expect(send(corrected)).toEqual({ 'sku:11@s2': 17 });
});

it('stock: an order whose branch is renamed at the platform keeps what it took, before and after the configuration', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  count(out, 'B', 10);
  expect(send(out)).toEqual({ 'sku:11@s1': 8 });
  order(out, 'o1', 'Norte', [['B', 2]], 'inProcess');
  expect(send(out)).toEqual({});
  order(out, 'o1', 'Norte', [
    ['B', 3],
    ['C', 1],
  ]);
  count(out, 'C', 5);
  expect(send(out)).toEqual({ 'sku:11@s1': 7, 'sku:12@s1': 4 });
  const followed = outgoing(out.db, [{ subsidiaryId: 's1', externalId: 'Norte' }, BRANCHES[1]!]);
  expect(send(followed)).toEqual({});
  order(followed, 'o1', 'B2', [['B', 3]]);
  expect(send(followed)).toEqual({ 'sku:11@s1': 10, 'sku:12@s1': 5 });
});

it('stock: an order that moved to a branch the configuration gets later is taken off that branch then', () => {
  const out = outgoing(undefined, [BRANCHES[0]!]);
  out.sweep([TEA]);
  out.reservations.begin(true);
  order(out, 'o1', 'B1', [['B', 2]]);
  count(out, 'B', 10);
  expect(send(out)).toEqual({ 'sku:11@s1': 8 });
  order(out, 'o1', 'B2', [['B', 2]], 'inProcess');
  expect(send(out)).toEqual({});
  const both = outgoing(out.db);
  count(both, 'B', 20, 's2');
  expect(send(both)).toEqual({ 'sku:11@s1': 10, 'sku:11@s2': 18 });
});

const NORTE = [{ subsidiaryId: 's1', externalId: 'Norte' }, BRANCHES[1]!];

it.each([
  ['before the configuration follows', BRANCHES],
  ['after the configuration followed', NORTE],
])(
  'stock: an order that is acknowledged, and whose branch is renamed %s, is not to book again',
  (_when, branches) => {
    const out = holding();
    const toBook = () => ordersToBook(out.db, { after: 0, limit: 9 }).map(({ orderId }) => orderId);
    order(out, 'o1', 'B1', [['B', 2]], 'payment-approved');
    expect(booked(out)).toBe('new');
    const later = outgoing(out.db, branches);
    order(later, 'o1', 'Norte', [['B', 2]], 'inProcess');
    expect(send(later)).toEqual({});
    expect(toBook()).toEqual([]);
    // An edit under the new name still counts as one of an acknowledged order.
    order(later, 'o1', 'Norte', [['B', 3]], 'inProcess');
    send(later);
    expect(ordersToBook(out.db, { after: 0, limit: 9 })).toMatchObject([
      { acknowledgedAt: expect.any(String) },
    ]);
    expect(booked(later)).toBe('new');
    expect(toBook()).toEqual([]);
  },
);

it.each([
  ['gets its external id', 's1', 'B1', 'auto'],
  ['loses its external id', 'B1', 's1', 'auto'],
  ['gets its external id though nothing is held back', 's1', 'B1', false],
] as const)(
  'stock: an order that is acknowledged, and whose branch %s at the platform, is not to book again',
  (_what, before, after, holdBack) => {
    const out = outgoing();
    // The second product is unknown to the catalogue, so its order takes from no stock.
    out.sweep([TEA]);
    const toBook = () => ordersToBook(out.db, { after: 0, limit: 9 }).map(({ orderId }) => orderId);
    const follow = () => {
      while (out.dispatcher.catchUp({ holdBack }));
    };
    follow();
    order(out, 'o1', before, [['B', 2]], 'payment-approved');
    order(out, 'o2', before, [['unknown', 1]], 'payment-approved');
    out.reservations.acknowledge(['o1', 'o2'], 'http');
    expect(toBook()).toEqual([]);
    order(out, 'o1', after, [['B', 2]], 'inProcess');
    order(out, 'o2', after, [['unknown', 1]], 'inProcess');
    follow();
    expect(toBook()).toEqual([]);
    // Another branch's POS acknowledges an order that moved there for itself.
    order(out, 'o1', 'B2', [['B', 2]], 'inProcess');
    follow();
    expect(toBook()).toEqual(['o1']);
  },
);

it('stock: an acknowledgement between the rename of a branch and that of the configuration counts under the new name', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]], 'payment-approved');
  send(out);
  order(out, 'o1', 'Norte', [['B', 2]], 'inProcess');
  expect(booked(out, 1)).toBe('new');
  send(out);
  expect(ordersToBook(out.db, { after: 0, limit: 9 })).toEqual([]);
});

it('stock: an edit of an acknowledged order is kept back until it is acknowledged again', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  count(out, 'B', 8);
  expect(booked(out)).toBe('new');
  expect(send(out)).toEqual({ 'sku:11@s1': 8 });
  order(out, 'o1', 'B1', [['B', 5]]);
  expect(send(out)).toEqual({ 'sku:11@s1': 5 });
  // One more piece was sold over the counter, and the POS has not read the edit.
  count(out, 'B', 7);
  expect(send(out)).toEqual({ 'sku:11@s1': 4 });
  count(out, 'B', 4);
  expect(send(out)).toEqual({ 'sku:11@s1': 1 });
  expect(booked(out, 1)).toBe('known');
  expect(send(out)).toEqual({});
  expect(booked(out)).toBe('new');
  expect(booked(out)).toBe('known');
  expect(send(out)).toEqual({ 'sku:11@s1': 4 });
});

it('stock: an edit that nobody acknowledges again is part of counts from half an hour on', async () => {
  const out = holding();
  const unbooked = () => [...eachOrder(out.db, { unbooked: true, limit: 9 })].map(({ orderId }) => orderId);
  order(out, 'o1', 'B1', [['B', 2]], 'payment-approved');
  expect(unbooked()).toEqual(['o1']);
  count(out, 'B', 18);
  booked(out);
  send(out);
  expect(unbooked()).toEqual([]);
  order(out, 'o1', 'B1', [['B', 5]], 'payment-approved');
  send(out);
  count(out, 'B', 17);
  expect(send(out)).toEqual({ 'sku:11@s1': 14 });
  await out.clock.advance(31 * 60_000);
  expect(send(out)).toEqual({});
  expect(unbooked()).toEqual(['o1']);
  count(out, 'B', 14);
  send(out);
  expect(out.db.prepare('SELECT wanted_qty FROM _stock_ledger').pluck().get()).toBe(14);
  expect(unbooked()).toEqual([]);
});

it('stock: a line that an acknowledged order gets is taken off the count of its product', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  count(out, 'B', 8);
  booked(out);
  order(out, 'o1', 'B1', [
    ['B', 2],
    ['C', 4],
  ]);
  count(out, 'C', 20);
  expect(send(out)).toMatchObject({ 'sku:12@s1': 16 });
});

it.each([
  ['cut to nothing', 'B1', [['B', 0]]],
  ['removed', 'B1', []],
  ['moved to another store', 'B2', [['B', 1]]],
] as const)('stock: a line that is %s gives its pieces back', (_what, store, lines) => {
  const out = holding();
  count(out, 'B', 40);
  send(out);
  order(out, 'o1', 'B1', [['B', 1]]);
  send(out);
  order(
    out,
    'o1',
    store,
    lines.map(([id, qty]) => [id, qty]),
    'pending',
    // An empty list of a poll says nothing.
    { source: lines.length === 0 ? 'webhook' : 'poll' },
  );
  expect(send(out)).toEqual({ 'sku:11@s1': 40 });
});

it('stock: an acknowledgement raises nothing while the count that contains it is held', () => {
  const out = holding();
  count(out, 'B', 5);
  send(out);
  order(out, 'o1', 'B1', [['B', 2]]);
  // The POS has not read the order yet.
  count(out, 'B', 5);
  expect(send(out)).toEqual({ 'sku:11@s1': 3 });
  count(out, 'C', 5);
  send(out);
  const zeros = ['B', 'C'].map((externalId) => ({ externalId, qty: 0, subsidiaryId: 's1' }));
  const held = out.accept('stock', zeros, { zeroItemsMax: 1, zeroItemsWindowMs: 60_000 });
  expect(held.map(({ state }) => state)).toEqual(['held', 'held']);
  expect(booked(out)).toBe('new');
  expect(send(out)).toEqual({});
  for (const { changeId } of out.queries.list({ state: 'held', limit: 9 })) out.admin.discard(changeId);
  expect(send(out)).toEqual({});
  count(out, 'B', 3);
  const ledger = (column: string) =>
    out.db.prepare(`SELECT ${column} FROM _stock_ledger WHERE sku = '11'`).pluck().get();
  expect(ledger('reserved_qty')).toBe(2);
  send(out);
  expect(ledger('wanted_qty')).toBe(3);
});

it('stock: an acknowledgement raises nothing where the count that contains it was refused', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  count(out, 'B', 10);
  expect(send(out)).toEqual({ 'sku:11@s1': 8 });
  count(out, 'nobody knows', 8);
  for (const kept of out.admin.unresolved('needs-read', { limit: 9 })) {
    out.admin.retarget(kept, out.resolve(kept, true));
  }
  expect(out.queries.list({ state: 'rejected', limit: 9 })).toHaveLength(1);
  booked(out);
  expect(send(out)).toEqual({});
});

it('stock: a name that was refused before the last count of a product is not taken for one of it', () => {
  const out = holding();
  const refuse = () => {
    count(out, 'nobody knows', 8);
    for (const kept of out.admin.unresolved('needs-read', { limit: 9 })) {
      out.admin.retarget(kept, out.resolve(kept, true));
    }
  };
  refuse();
  order(out, 'o1', 'B1', [['B', 2]]);
  count(out, 'B', 10);
  refuse();
  expect(send(out)).toEqual({ 'sku:11@s1': 8 });
  expect(booked(out)).toBe('new');
  expect(send(out)).toEqual({ 'sku:11@s1': 10 });
});

it.each([
  ['nothing that it takes changed', 2, 'inProcess', 8],
  // The first quantity of the order is unknown by now, so all of it waits for the acknowledgement of the
  // edit.
  ['it took one more', 3, 'inProcess', 5],
  // The returned pieces are not added: the POS's count contains them once it has booked the return.
  ['it was cancelled', 2, 'cancel', 8],
])(
  'stock: two events heard in one breath, the first booked, after which %s',
  (_what, qty, status, wanted) => {
    const out = holding();
    order(out, 'o1', 'B1', [['B', 2]]);
    order(out, 'o1', 'B1', [['B', qty]], status);
    booked(out, 1);
    count(out, 'B', 8);
    send(out);
    expect(out.db.prepare('SELECT wanted_qty FROM _stock_ledger').pluck().get()).toBe(wanted);
  },
);

it('stock: an order that moves is taken off the other branch, whatever the first one acknowledged', () => {
  const out = holding();
  count(out, 'B', 30, 's2');
  order(out, 'o1', 'B1', [['B', 4]]);
  count(out, 'B', 36, 's1');
  booked(out);
  expect(send(out)).toMatchObject({ 'sku:11@s2': 30, 'sku:11@s1': 36 });
  order(out, 'o1', 'B2', [['B', 4]]);
  expect(send(out)).toMatchObject({ 'sku:11@s2': 26 });
});

it('stock: an acknowledgement of what is not there is refused by name, and the others are taken', () => {
  const out = holding();
  order(out, 'o1', 'B1', [['B', 2]]);
  order(out, 'o2', 'B1', [['B', 2]]);
  expect(
    out.reservations.acknowledge([{ orderId: 'o1', seq: 9 }, { orderId: 'o2', seq: 1 }, 'o2'], 'http'),
  ).toEqual([
    { orderId: 'o1', state: 'rejected', message: 'Event 9 lies ahead: the newest event of the feed is 2.' },
    {
      orderId: 'o2',
      state: 'rejected',
      message: 'The order was first heard of with event 2, after event 1.',
    },
    { orderId: 'o2', state: 'new' },
  ]);
});
