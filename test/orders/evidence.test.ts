/** Tests src/orders/merging/merge.ts and src/orders/merging/held-callbacks.ts in a real mirror: who is believed. */

import { describe, expect, it } from 'vitest';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { heldOrders } from '../../src/orders/merging/held-callbacks.ts';
import { unknownStatuses } from '../../src/orders/merging/incomplete-orders.ts';
import type { OrderSource } from '../../src/orders/merging/order.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { replayOrder } from '../../src/orders/receiving/replay.ts';
import {
  heldNotifications,
  OBSERVED_MS,
  observation,
  openTestMirror,
  poll,
  receive,
  sampleNotification,
} from './open-test-mirror.ts';

type Sent = Record<string, unknown>;

const ID = '65a100000000000000000001';
const MINUTE_MS = 60_000;
const order = (changes: Sent = {}) => sampleNotification(1, { status: 'inProcess', ...changes });
const spellings = compileSpellings();

/** Merges a record or a callback that came at this time, and returns its outcome. */
async function hear(mirror: Mirror, source: OrderSource, sent: Sent, observedAtMs = OBSERVED_MS) {
  const seen = observation(source, sent, {
    observedAtMs,
    ...(source === 'poll' && {
      asOfSeq: mirror.orders.newestSeq(),
      asOfHeldId: mirror.orders.newestHeldId(),
    }),
  });
  const [outcome] = await mirror.save([{ kind: 'order', observation: seen }]);
  return outcome;
}

describe('a guessed name', () => {
  it('fills what nobody said, and changes nothing that was said', async () => {
    const { mirror } = openTestMirror();
    const { couponDiscount: _, ...sent } = order();
    await receive(mirror, sent);
    const before = mirror.orders.get(ID);
    await poll(mirror, [
      {
        _id: ID,
        companyOrderNumber: 1,
        status: 'inProcess',
        total: 5990.5,
        subTotal: 1,
        couponAmount: 500,
        storeId: 'web-77',
        orderType: 'ecommerce',
        shippingCost: 9,
        user: { name: 'Ana Soto' },
        customer: { phone: '+1' },
        orderDate: '2026-01-01T00:00:00.000Z',
        estimatedDelivery: '2026-01-01T00:00:00.000Z',
        items: [
          { product: 'Product P1', amount: 2, price: 1100, title: 'x', note: 'x' },
          { product: 'Product P2', amount: 1, price: 1 },
          { product: 'Combo', amount: 1, price: 1, extras: [{ title: 'none' }] },
        ],
      },
    ]);
    expect(mirror.orders.get(ID)).toEqual({
      ...before,
      couponDiscount: 500,
      seq: 2,
      updatedAt: expect.any(String),
    });
  });

  it('of lines neither adds, removes nor counts any', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order());
    const before = mirror.orders.get(ID)?.items;
    const lists = [
      { products: [{ productName: 'Other', qty: 7 }] },
      { items: [{ productName: 'Product P1', qty: 3 }] },
      { items: [{ product: 'Product P1', amount: 9 }] },
      { details: [{ extId: 'P1', quantity: 5 }] },
    ];
    for (const list of lists) await poll(mirror, [{ _id: ID, status: 'inProcess', ...list }]);
    expect(mirror.orders.get(ID)?.items).toEqual(before);
  });

  it('replaces a guess, until a name of the document says it', async () => {
    const { mirror } = openTestMirror();
    const record = { _id: ID, status: 'inProcess', items: [] };
    await poll(mirror, [{ ...record, total: 1 }]);
    await poll(mirror, [{ ...record, total: 2 }]);
    expect(mirror.orders.get(ID)?.amountToPay).toBe(2);
    await receive(mirror, { internalOrderId: ID, status: 'inProcess', total: 3 });
    await poll(mirror, [{ ...record, total: 4 }]);
    expect(mirror.orders.get(ID)?.amountToPay).toBe(3);
    await poll(mirror, [{ ...record, amountToPay: 5 }]);
    await receive(mirror, { internalOrderId: ID, status: 'inProcess', total: 6 });
    expect(mirror.orders.get(ID)?.amountToPay).toBe(5);
  });

  it('of the configuration is no guess', async () => {
    const { mirror } = openTestMirror({ spellings: { amountToPay: ['total'] } });
    await receive(mirror, order());
    await poll(mirror, [{ _id: ID, status: 'inProcess', total: 5990.5 }]);
    expect(mirror.orders.get(ID)?.amountToPay).toBe(5990.5);
  });

  it('stays a guess over a restart and a replay', async () => {
    const { mirror, path } = openTestMirror();
    await receive(mirror, order());
    await poll(mirror, [{ _id: ID, status: 'inProcess', total: 1, couponAmount: 7 }]);
    await mirror.close();
    const again = openTestMirror({ path }).mirror;
    await poll(again, [{ _id: ID, status: 'inProcess', total: 2, couponAmount: 7 }]);
    const replayed = again.read((db) => replayOrder(db, ID, { spellings, dryRun: true }));
    expect(replayed).toMatchObject({ outcome: 'unchanged' });
    expect(again.orders.get(ID)?.amountToPay).toBe(15990);
  });
});

describe('an empty text of a poll', () => {
  it('takes nothing away, neither of the order nor of its lines', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order());
    const before = mirror.orders.get(ID);
    await poll(mirror, [
      {
        internalOrderId: ID,
        status: 'inProcess',
        name: '',
        deliveryType: ' ',
        user: { firstName: '', lastName: ' ', email: '', phoneNumber: '' },
        address: { address: '', details: '' },
        items: [
          { product: { externalId: 'P1', name: '' }, amount: 2, comment: '' },
          { product: { externalId: 'P2', name: ' ' }, amount: 1 },
          { product: { externalId: '', name: 'Combo' }, amount: 1, comment: '' },
        ],
      },
    ]);
    expect(mirror.orders.get(ID)).toEqual(before);
  });
});

describe('several names of one field in a record', () => {
  const record = { _id: ID, companyOrderNumber: 1, createdAt: '2026-01-15T11:00:00.000Z' };
  const inOrder = (sent: Sent) => [sent, Object.fromEntries(Object.entries(sent).reverse())];

  it('give the lines that are there, not the empty list', async () => {
    for (const names of inOrder({ items: [], products: [{ name: 'Torta', quantity: 2 }] })) {
      const { mirror } = openTestMirror();
      await poll(mirror, [{ ...record, status: 'inProcess', ...names }]);
      expect(mirror.orders.get(ID)?.items).toMatchObject([{ productName: 'Torta', quantity: 2 }]);
    }
  });

  it('give a word of the document, whichever name has it', async () => {
    const words = {
      status: 'LISTO',
      orderStatus: 'ready',
      deliveryType: 'DESPACHO',
      shippingType: 'delivery',
    };
    for (const names of inOrder(words)) {
      const { mirror } = openTestMirror();
      await poll(mirror, [{ ...record, items: [], ...names }]);
      expect(mirror.orders.get(ID)).toMatchObject({ status: 'ready', deliveryType: 'delivery' });
    }
    const { mirror } = openTestMirror();
    await poll(mirror, [{ ...record, items: [], status: { name: 'Listo', key: 'ready' } }]);
    expect(mirror.orders.get(ID)?.status).toBe('ready');
  });

  it('give the filled text', async () => {
    const { mirror } = openTestMirror();
    await poll(mirror, [{ ...record, items: [], user: { firstName: '', name: 'Ana' } }]);
    expect(mirror.orders.get(ID)?.customerFirstName).toBe('Ana');
  });
});

describe('a way of delivery that the document does not name', () => {
  it.each([
    ['delivery', 'DESPACHO'],
    ['pickup', 'RETIRO'],
    ['pickup', 1],
  ])('replaces none that it does: %s by %j', async (deliveryType, word) => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ deliveryType }));
    const before = mirror.orders.get(ID);
    await poll(mirror, [{ internalOrderId: ID, status: 'inProcess', deliveryType: word }]);
    expect(mirror.orders.get(ID)).toEqual(before);
  });
});

describe('a status that the document does not name', () => {
  it.each(['PENDIENTE', 1, 'in-process'])('replaces none that it does: %j', async (status) => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: 'pending' }));
    await poll(mirror, [{ _id: ID, status, amountToPay: 7 }]);
    await receive(mirror, order({ status, amountToPay: 8 }));
    expect(mirror.orders.get(ID)).toMatchObject({ status: 'pending', amountToPay: 8 });
    const words = mirror.read((db) => unknownStatuses(db, OBSERVED_MS + MINUTE_MS));
    expect(words).toEqual([{ word: String(status), orderId: ID, code: 1 }]);
    expect(mirror.read((db) => unknownStatuses(db, OBSERVED_MS + 2 * 24 * 60 * MINUTE_MS))).toEqual([]);
  });

  it('is the status of an order that never had another, and gives way to one of the document', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: 'nuevo' }), order({ status: 'visto' }));
    expect(mirror.orders.get(ID)?.status).toBe('visto');
    await poll(mirror, [{ _id: ID, orderStatus: 'pending' }]);
    expect(mirror.orders.get(ID)?.status).toBe('pending');
  });

  it('is read as the configuration says', async () => {
    const { mirror } = openTestMirror({ statuses: { Lista: 'ready' } });
    await receive(mirror, order());
    await poll(mirror, [{ _id: ID, status: ' LISTA ' }]);
    expect(mirror.orders.get(ID)?.status).toBe('ready');
    expect(mirror.read((db) => unknownStatuses(db, OBSERVED_MS))).toEqual([]);
  });

  it('decides nothing of a held callback', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: 'dispatched' }), order({ status: 'inProcess' }));
    await poll(mirror, [order({ status: 'ENTREGADO' })]);
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: null }]);
  });
});

it.each(['items', 'products', 'orderItems', 'lines', 'lineItems', 'orderLines', 'orderProducts', 'details'])(
  'an empty list of a poll says nothing: %s',
  async (name) => {
    const { mirror } = openTestMirror();
    await receive(mirror, order());
    await poll(mirror, [{ internalOrderId: ID, status: 'ready', [name]: [] }]);
    expect(mirror.orders.get(ID)).toMatchObject({ status: 'ready' });
    expect(mirror.orders.get(ID)?.items).toHaveLength(3);
    expect(
      mirror.read((db) => db.prepare('SELECT 1 FROM _orders WHERE incomplete_reason IS NOT NULL').all()),
    ).toEqual([]);
  },
);

it('a line that moves up when another is removed keeps what was said of it', async () => {
  const { mirror } = openTestMirror();
  await receive(mirror, order());
  const before = mirror.orders.get(ID)?.items ?? [];
  const items = [
    { product: { name: 'Product P2' }, amount: 1, price: 1 },
    { product: { name: 'Combo' }, amount: 1 },
  ];
  await poll(mirror, [{ _id: ID, status: 'inProcess', items }]);
  expect(mirror.orders.get(ID)?.items).toEqual(before.slice(1));
});

describe('a line of a poll', () => {
  const said = {
    product: { externalId: 'ABC', name: 'Queso' },
    ...{ amount: 2, comment: 'sin sal', unitPrice: 50, productPrice: 100, productBasePrice: 120 },
  };
  const known = {
    ...{ productExternalId: 'ABC', productName: 'Queso', quantity: 2, comment: 'sin sal', unitPrice: 50 },
    ...{ productPrice: 100, productBasePrice: 120 },
  };
  const bread = { product: { externalId: 'BRD', name: 'Bread' }, amount: 1 };

  /** Returns the lines of an order after a callback and a poll with these. */
  async function linesAfter(callback: Sent[], record: Sent[]) {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ items: callback }));
    await poll(mirror, [{ _id: ID, status: 'inProcess', items: record }]);
    return mirror.orders.get(ID)?.items;
  }

  it('with a guessed id is the line with the same name, and keeps what was said of it', async () => {
    const line = { product: { name: 'Queso' }, externalId: '65f0', amount: 2 };
    expect(await linesAfter([said], [line])).toMatchObject([known]);
    expect(await linesAfter([bread, said], [line])).toMatchObject([known]);
  });

  it('with a guessed name is the line with the same id', async () => {
    expect(
      await linesAfter([said], [{ product: { externalId: 'ABC' }, title: 'Cheese', amount: 2 }]),
    ).toMatchObject([known]);
  });

  it('with another quantity keeps what was said of it, but no price of the whole line', async () => {
    expect(
      await linesAfter([bread, said], [{ product: { name: 'Queso' }, amount: 1, price: 40 }]),
    ).toMatchObject([{ ...known, quantity: 1, productPrice: null, productBasePrice: 40 }]);
  });

  it('with the same quantity goes before one with another', async () => {
    const small = { ...said, amount: 1, comment: 'con sal' };
    const line = (amount: number) => ({ product: { name: 'Queso' }, amount });
    expect(await linesAfter([said, small], [line(1), line(3)])).toMatchObject([
      { quantity: 1, comment: 'con sal' },
      { quantity: 3, comment: 'sin sal' },
    ]);
  });

  it('with another id of the same rank is another line', async () => {
    const other = { product: { externalId: 'XYZ', name: 'Queso' }, amount: 2 };
    expect(await linesAfter([said], [other])).toMatchObject([
      { productExternalId: 'XYZ', comment: null, unitPrice: null },
    ]);
  });
});

describe('a callback that contradicts what is known', () => {
  const end = (status: string) => order({ status, items: [], amountToPay: 0 });

  it.each([
    ['dispatched', 'payment-canceled'],
    ['dispatched', 'cancel'],
    ['dispatched', 'refund'],
    ['inProcess', 'payment-canceled'],
    ['payment-approved', 'payment-canceled'],
  ])('%s → %s waits whole, and a poll decides', async (known, said) => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: known }));
    const before = mirror.orders.get(ID);
    expect(await receive(mirror, end(said))).toEqual(['held']);
    expect(mirror.orders.get(ID)).toEqual(before);
    expect(mirror.orders.oldestOpenMs()).not.toBeNull();
    await poll(mirror, [{ _id: ID, status: said }]);
    expect(mirror.orders.get(ID)).toMatchObject({ status: said, items: before?.items, amountToPay: 15990 });
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: 'confirmed' }]);
  });

  it.each([
    ['inProcess', 'cancel'],
    ['routed', 'refund'],
    ['cancel', 'refund'],
    ['payment-pending', 'cancel'],
    ['routed', 'dispatched'],
  ])('%s → %s contradicts nothing', async (known, said) => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: known }));
    expect(await receive(mirror, order({ status: said }))).toEqual(['changed']);
  });

  it.each([
    [{ createdAt: '2026-01-15T11:00:00.000Z' }, 'changed'],
    [{ createdAt: '2026-01-10T12:00:00.000Z' }, 'held'],
    [{ isScheduled: true, scheduledDate: '2026-01-15T20:00:00.000Z' }, 'changed'],
  ])('is a failed payment of an old order: %j → %s', async (changes, outcome) => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: 'pending', ...changes }));
    expect(await receive(mirror, order({ status: 'payment-canceled', ...changes }))).toEqual([outcome]);
  });

  it('is named until it is decided, once a poll should have come', async () => {
    const { mirror } = openTestMirror();
    await receive(mirror, order({ status: 'dispatched' }), end('payment-canceled'));
    const told = (minutes: number) =>
      mirror.read((db) => heldOrders(db, OBSERVED_MS + minutes * MINUTE_MS).map(({ code }) => code));
    expect([told(2), told(4), told(9 * 24 * 60)]).toEqual([[], [1], []]);
    await poll(mirror, [order({ status: 'dispatched' })]);
    expect(told(4)).toEqual([]);
  });
});

describe('where polls fail', () => {
  const at = (minutes: number) => OBSERVED_MS + minutes * MINUTE_MS;

  /** Opens a mirror of an order whose payment failed, with a poll that succeeded at OBSERVED_MS. */
  async function failed() {
    const { mirror, clock } = openTestMirror();
    expect(clock.nowMs()).toBe(OBSERVED_MS);
    mirror.health.ok('orders.poll');
    await mirror.health.flush();
    await hear(mirror, 'webhook', order({ status: 'pending', createdAt: '2026-01-15T11:00:00.000Z' }));
    await hear(
      mirror,
      'webhook',
      order({ status: 'payment-canceled', createdAt: '2026-01-15T11:00:00.000Z' }),
    );
    return { mirror, clock };
  }

  it('two callbacks that go on from each other open an order again', async () => {
    const { mirror } = await failed();
    expect(await hear(mirror, 'webhook', order({ status: 'payment-approved' }), at(6))).toBe('held');
    expect(await hear(mirror, 'webhook', order({ status: 'picker-pending' }), at(7))).toBe('changed');
    expect(await hear(mirror, 'webhook', order({ status: 'inProcess' }), at(8))).toBe('changed');
    expect(mirror.orders.get(ID)).toMatchObject({ status: 'inProcess' });
    expect(mirror.read((db) => db.prepare('SELECT order_id FROM orders_to_book').pluck().all())).toEqual([
      ID,
    ]);
    expect(heldNotifications(mirror)).toMatchObject([{ resolution: 'believed' }]);
    expect(mirror.read((db) => replayOrder(db, ID, { spellings, dryRun: true })).outcome).toBe('unchanged');
  });

  it('two that waited for a poll are judged again once polls are silent, and what came behind them', async () => {
    const { mirror, clock } = await failed();
    for (const status of ['payment-approved', 'picker-pending', 'inProcess'])
      expect(await hear(mirror, 'webhook', order({ status }), at(1))).toBe('held');
    await clock.advance(4 * MINUTE_MS);
    expect(await mirror.judgeHeldAgain()).toEqual([]);
    expect(mirror.orders.get(ID)?.status).toBe('payment-canceled');
    await clock.advance(MINUTE_MS);
    expect(await mirror.judgeHeldAgain()).toEqual([ID]);
    expect(mirror.orders.get(ID)?.status).toBe('inProcess');
    expect(heldNotifications(mirror).map(({ resolution }) => resolution)).toEqual([
      'believed',
      'believed',
      'believed',
    ]);
    expect(await mirror.judgeHeldAgain()).toEqual([]);
  });

  it('two that waited a quarter of an hour are believed, if polls say of the order no status of the document', async () => {
    const { mirror, clock } = await failed();
    const polled = async () => {
      await hear(mirror, 'poll', { ...order({ status: 'PENDIENTE' }) });
      mirror.health.ok('orders.poll');
      await mirror.health.flush();
    };
    for (const status of ['payment-approved', 'picker-pending'])
      expect(await hear(mirror, 'webhook', order({ status }), clock.nowMs())).toBe('held');
    for (let minutes = 0; minutes < 14; minutes += 2) {
      await clock.advance(2 * MINUTE_MS);
      await polled();
      expect(await mirror.judgeHeldAgain()).toEqual([]);
    }
    expect(mirror.orders.get(ID)?.status).toBe('payment-canceled');
    await clock.advance(MINUTE_MS);
    await polled();
    expect(await mirror.judgeHeldAgain()).toEqual([ID]);
    expect(mirror.orders.get(ID)?.status).toBe('picker-pending');
  });

  it('one that waits, or two that contradict each other, are not believed however long polls are silent', async () => {
    const { mirror, clock } = await failed();
    await hear(mirror, 'webhook', order({ status: 'picker-pending' }), at(1));
    await clock.advance(60 * MINUTE_MS);
    expect(await mirror.judgeHeldAgain()).toEqual([]);
    await hear(mirror, 'webhook', order({ status: 'payment-approved' }), at(60));
    expect(await mirror.judgeHeldAgain()).toEqual([]);
    expect(mirror.orders.get(ID)?.status).toBe('payment-canceled');
  });

  it('a repetition of what was merged is no witness, the first no more than the second', async () => {
    const { mirror } = openTestMirror();
    const [paid, next] = [order({ status: 'payment-approved' }), order({ status: 'picker-pending' })];
    await receive(mirror, paid, order({ status: 'cancel' }));
    expect(await hear(mirror, 'webhook', paid, at(6))).toBe('held');
    expect(await hear(mirror, 'webhook', next, at(7))).toBe('held');
    expect(await mirror.judgeHeldAgain()).toEqual([]);
    expect(mirror.orders.get(ID)?.status).toBe('cancel');
  });

  it('one alone, a repetition and a step back do not', async () => {
    const { mirror } = await failed();
    for (const status of ['picker-pending', 'picker-pending', 'payment-approved', 'pending']) {
      expect(await hear(mirror, 'webhook', order({ status }), at(6))).toBe('held');
    }
    const merged = order({ status: 'pending', createdAt: '2026-01-15T11:00:00.000Z' });
    expect(await hear(mirror, 'webhook', merged, at(7))).toBe('held');
    expect(mirror.orders.get(ID)?.status).toBe('payment-canceled');
  });

  it('callbacks wait for the poll that came some minutes ago', async () => {
    const { mirror } = await failed();
    expect(await hear(mirror, 'webhook', order({ status: 'payment-approved' }), at(1))).toBe('held');
    expect(await hear(mirror, 'webhook', order({ status: 'picker-pending' }), at(2))).toBe('held');
  });

  it('two late callbacks of an order that lives open nothing and take nothing back', async () => {
    const { mirror } = await failed();
    await hear(mirror, 'poll', order({ status: 'ready' }));
    expect(await hear(mirror, 'webhook', order({ status: 'payment-approved' }), at(6))).toBe('held');
    expect(await hear(mirror, 'webhook', order({ status: 'picker-pending' }), at(7))).toBe('held');
  });
});
