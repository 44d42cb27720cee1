import { describe, expect, it } from 'vitest';
import { incompleteOrders } from '../../src/orders/merging/incomplete-orders.ts';
import { OBSERVED_MS, openTestMirror, poll, receive, sampleNotification } from './open-test-mirror.ts';

const ID = '65a100000000000000000001';
const order = (changes: Record<string, unknown> = {}) => sampleNotification(1, changes);
const line = (name: string) => ({ product: { name, externalId: name }, amount: 1, productPrice: 1000 });

function rig() {
  const { mirror, clock } = openTestMirror();
  return {
    mirror,
    told: () => mirror.read((db) => incompleteOrders(db, clock.nowMs())).map(({ orderId }) => orderId),
    reasons: () =>
      mirror.read((db) =>
        db
          .prepare<[], string>('SELECT incomplete_reason FROM _orders WHERE incomplete_reason IS NOT NULL')
          .pluck()
          .all(),
      ),
    quarantined: () => mirror.quarantine.list(10),
    names: () => mirror.orders.get(ID)?.items.map(({ productName }) => productName),
  };
}

describe('an incomplete order', () => {
  it.each([null, 'x', 3, [], {}])(
    'keeps the place of a line that is %j, until it comes whole',
    async (odd) => {
      const { mirror, told, reasons, quarantined, names } = rig();
      await receive(mirror, order({ items: [line('a'), odd, line('c')] }));
      expect(quarantined()).toEqual([]);
      expect(names()).toEqual(['a', null, 'c']);
      expect(told()).toEqual([ID]);
      expect(reasons()).toEqual([expect.stringContaining(`Order ${ID} is incomplete: item 2`)]);
      await receive(mirror, { internalOrderId: ID, status: 'inProcess' });
      expect(told()).toEqual([ID]);
      await receive(mirror, order({ status: 'inProcess', items: [line('a'), line('b'), line('c')] }));
      expect(names()).toEqual(['a', 'b', 'c']);
      expect([told(), reasons()]).toEqual([[], []]);
    },
  );

  it('is none where its items are a map', async () => {
    const { mirror, told, names } = rig();
    await receive(mirror, order({ items: { 0: line('a'), 1: line('b') } }));
    expect(names()).toEqual(['a', 'b']);
    expect(told()).toEqual([]);
  });

  it.each([undefined, null, 'x', 7])('is one whose items are %j', async (items) => {
    const { mirror, told } = rig();
    await receive(mirror, order({ items }));
    expect(told()).toEqual([ID]);
  });

  it('is one with an amount that is no number, whose words have no value of it', async () => {
    const { mirror, told, reasons } = rig();
    await receive(mirror, order({ amountToPay: '5990,55', deliveryFee: ' 12.50 ' }));
    expect(mirror.orders.get(ID)).toMatchObject({ amountToPay: null, deliveryFee: 12.5 });
    expect(told()).toEqual([ID]);
    expect(reasons().join()).not.toContain('5990,55');
  });

  it('has no amount of before where the new one cannot be read', async () => {
    const { mirror } = rig();
    await receive(mirror, order({ amountToPay: 5990 }), order({ amountToPay: 'abc' }));
    expect(mirror.orders.get(ID)?.amountToPay).toBeNull();
  });

  it('is none with an empty text for a number, or with another value under a guessed name', async () => {
    const { mirror, told } = rig();
    await receive(
      mirror,
      order({ couponDiscount: '', amountToPay: 5990, details: 'ring twice', correlative: {} }),
    );
    expect(mirror.orders.get(ID)).toMatchObject({ couponDiscount: null, amountToPay: 5990 });
    expect(told()).toEqual([]);
  });

  it('is none with a text for an address or a store, which is read, or with an empty list', async () => {
    const { mirror, told } = rig();
    await receive(mirror, order({ address: 'Av. Uno 742', store: 'B1', user: [] }));
    expect(mirror.orders.get(ID)).toMatchObject({ addressAddress: 'Av. Uno 742', storeExternalId: 'B1' });
    expect(told()).toEqual([]);
  });

  it('ends with the order', async () => {
    const { mirror, told, reasons } = rig();
    await receive(mirror, order({ items: [null] }), { internalOrderId: ID, status: 'cancel' });
    expect([told(), reasons()]).toEqual([[], []]);
  });

  it('keeps its status where a later snapshot has none, and reads one in other letters', async () => {
    const { mirror } = rig();
    await receive(mirror, order({ status: ' Ready ' }), order({ status: null }));
    expect(mirror.orders.get(ID)?.status).toBe('ready');
  });

  it('loses its address once it is picked up', async () => {
    const { mirror } = rig();
    await receive(mirror, order(), { internalOrderId: ID, deliveryType: 'pickup', status: 'ready' });
    expect(mirror.orders.get(ID)).toMatchObject({
      addressAddress: null,
      addressLat: null,
      deliveryType: 'pickup',
    });
  });

  it('has a row for each count of a modifier without options', async () => {
    const { mirror } = rig();
    const modifier = { name: 'Extras', countByExternalId: { e1: 1, e2: 2 }, countById: { m1: 1, m2: 2 } };
    await receive(mirror, order({ items: [{ ...line('a'), modifiers: [modifier] }] }));
    const rows = mirror.orders
      .get(ID)
      ?.items[0]?.modifiers.map((row) => [row.optionExternalId, row.quantity]);
    expect(rows).toEqual([
      ['e1', 1],
      ['e2', 2],
    ]);
  });

  it('keeps the id of a modifier beside those of its options', async () => {
    const { mirror } = rig();
    const options = [
      { optionId: 'm1', externalId: 'E1', name: 'Garlic' },
      { optionId: 'm2', name: 'Hot' },
    ];
    const modifier = { name: 'Sauces', externalId: 'M', countById: { m1: 2, m2: 1 }, options };
    await receive(mirror, order({ items: [{ ...line('a'), modifiers: [modifier] }] }));
    const rows = mirror.orders
      .get(ID)
      ?.items[0]?.modifiers.map((row) => [row.optionExternalId, row.quantity, row.modifierExternalId]);
    expect(rows).toEqual([
      ['E1', 2, 'M'],
      [null, 1, 'M'],
    ]);
  });

  it('keeps counts that belong to no option of a modifier', async () => {
    const { mirror } = rig();
    const options = [
      { optionId: 'o1', name: 'Garlic' },
      { optionId: 'o2', name: 'Hot' },
    ];
    const modifier = { name: 'Sauces', countById: { x: 3, y: 1 }, options };
    await receive(mirror, order({ items: [{ ...line('a'), modifiers: [modifier] }] }));
    const rows = mirror.orders.get(ID)?.items[0]?.modifiers.map((row) => [row.optionId, row.quantity]);
    expect(rows).toEqual([
      ['o1', null],
      ['o2', null],
      ['x', 3],
      ['y', 1],
    ]);
  });

  it.each([
    ['a status that cannot be read', { status: { step: 4 } }, 'status cannot be read'],
    ['a text for a customer', { user: 'Ana' }, 'customerFirstName cannot be read'],
    ['a list for an address', { address: ['Av. Uno 742'] }, 'addressLat cannot be read'],
    ['a flag for a store', { store: true }, 'storeExternalId cannot be read'],
    ['no status', { status: undefined }, 'it has no status'],
    ['no time of creation', { createdAt: null }, 'it has no time of creation'],
    ['a creation that is no time', { createdAt: 'yesterday' }, 'createdAt cannot be read'],
    ['a number that is none', { code: 'A-17' }, 'code cannot be read'],
    ['an empty list of items', { items: [] }, 'it has no items'],
    ['a line without a quantity', { items: [{ product: { name: 'a' } }] }, 'item 1 has no quantity'],
    [
      'a line of fewer than none',
      { items: [{ product: { name: 'a' }, amount: -1 }] },
      'item 1 has a quantity below 0',
    ],
    [
      'a modifier whose count cannot be read',
      { items: [{ ...line('a'), modifiers: [{ name: 'm', countById: { a: '2x' } }] }] },
      'a count of a modifier cannot be read',
    ],
    [
      'an option that names nothing',
      { items: [{ ...line('a'), modifiers: [{ name: 'm', options: [{ price: 3 }] }] }] },
      'an option names nothing',
    ],
  ])('is one with %s', async (_title, changes, reason) => {
    const { mirror, told, reasons } = rig();
    await receive(mirror, order(changes));
    expect(told()).toEqual([ID]);
    expect(reasons().join()).toContain(reason);
  });

  it('is none with a time of delivery that is empty, and keeps none of it', async () => {
    const { mirror, told } = rig();
    await receive(mirror, order({ deliveryTime: '' }));
    expect(mirror.orders.get(ID)?.deliveryTime).toBeNull();
    expect(told()).toEqual([]);
  });

  it('reads ids and the way of delivery without the blanks around them', async () => {
    const { mirror, told } = rig();
    const item = { product: { name: 'a', externalId: ' P1 ' }, amount: 1 };
    await receive(mirror, order({ store: { externalId: ' B1 ' }, deliveryType: 'Pickup ', items: [item] }));
    expect(mirror.orders.get(ID)).toMatchObject({
      storeExternalId: 'B1',
      deliveryType: 'pickup',
      addressAddress: null,
      items: [{ productExternalId: 'P1' }],
    });
    expect(told()).toEqual([]);
  });

  it('has no text that ends early for a till', async () => {
    const { mirror } = rig();
    await receive(mirror, order({ items: [{ product: { name: 'Pizza\0 without nuts' }, amount: 1 }] }));
    expect(mirror.orders.get(ID)?.items[0]?.productName).toBe('Pizza\uFFFD without nuts');
  });
});

describe('a scheduled order', () => {
  const scheduled = (changes: Record<string, unknown>) => order({ isScheduled: true, ...changes });

  it.each([
    [{ when: '2026-01-11T09:00:00Z' }],
    [{ when: '2026-01-11T09:00:00Z', updatedAt: '2026-01-10T12:01:00Z', paidAt: '2026-01-10T12:02:00Z' }],
    [{ date: '2026-01-11T09:00:00Z', orderedBy: 'Ana', phone: 56911111111 }],
  ])('is due at the one time that stands under no known name: %j', async (changes) => {
    const { mirror, told } = rig();
    await receive(mirror, scheduled(changes));
    expect(mirror.orders.get(ID)?.scheduledFor).toBe('2026-01-11T09:00:00.000Z');
    expect(told()).toEqual([]);
  });

  it.each([
    [{}],
    [{ when: '2026-01-11T09:00:00Z', until: '2026-01-11T10:00:00Z' }],
    [{ updatedAt: '2026-01-10T12:01:00Z' }],
    [{ when: '2026-01-09T09:00:00Z' }],
    [{ scheduledDate: 'at noon' }],
  ])('without a time is told with the key that names its field: %j', async (changes) => {
    const { mirror, reasons } = rig();
    await receive(mirror, scheduled(changes));
    expect(mirror.orders.get(ID)?.scheduledFor).toBeNull();
    const nowMs = Date.UTC(2026, 0, 15, 13);
    expect(mirror.read((db) => incompleteOrders(db, nowMs))).toMatchObject([{ orderId: ID, lacksTime: 1 }]);
    expect(reasons().join()).toContain('scheduled_for in [orders.fields]');
  });

  it('that is none any more needs no time', async () => {
    const { mirror, told } = rig();
    await receive(mirror, scheduled({}), order({ isScheduled: false, status: 'ready' }));
    expect(told()).toEqual([]);
  });
});

describe("a poll's record", () => {
  const createdAt = new Date(OBSERVED_MS - 3_600_000).toISOString();

  it('never takes lines, comments, modifiers or amounts away that a notification told', async () => {
    const { mirror, told } = rig();
    await receive(mirror, order({ createdAt }));
    const before = mirror.orders.get(ID);
    const items = (before?.items ?? []).map(({ productExternalId, productName, quantity }) => ({
      product: { externalId: productExternalId, name: productName },
      quantity,
    }));
    const records = [
      order({ createdAt, items: ['65a1', '65a2', '65a3'] }),
      order({ createdAt, items: items.map(({ product }) => ({ product })) }),
      order({ createdAt, items, amount: { value: 12990 }, createdBy: 1 }),
      order({ createdAt: 'yesterday', items: 3 }),
    ];
    for (const record of records) await poll(mirror, [record]);
    expect(mirror.orders.get(ID)).toEqual(before);
    expect(told()).toEqual([]);
  });

  it('takes a modifier away where it speaks of modifiers', async () => {
    const { mirror } = rig();
    const items = [
      { ...line('a'), modifiers: [{ name: 'no onions' }] },
      { ...line('b'), modifiers: [] },
    ];
    await receive(mirror, order({ createdAt, items }));
    await poll(mirror, [order({ createdAt, items: [{ ...line('a'), modifiers: [] }, line('b')] })]);
    expect(mirror.orders.get(ID)?.items.map(({ modifiers }) => modifiers)).toEqual([[], []]);
  });

  it('is told where the order is new and has no items, until they come', async () => {
    const { mirror, told } = rig();
    const { items, ...bare } = order({ createdAt });
    await poll(mirror, [bare, { ...bare, internalOrderId: 'old', createdAt: '2026-01-10T12:00:00Z' }]);
    expect(told()).toEqual([ID]);
    await receive(mirror, { ...bare, items });
    expect(told()).toEqual([]);
  });
});
