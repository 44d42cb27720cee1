import { describe, expect, it } from 'vitest';
import { incompleteOrders } from '../../src/orders/incomplete-orders.ts';
import { openTestMirror, receive, sampleNotification } from './open-test-mirror.ts';

const ID = '65a100000000000000000001';
const order = (changes: Record<string, unknown> = {}) => sampleNotification(1, changes);
const line = (name: string) => ({ product: { name, externalId: name }, amount: 1, productPrice: 1000 });

function rig() {
  const { mirror, clock } = openTestMirror();
  return {
    mirror,
    told: () => mirror.read((db) => incompleteOrders(db, clock.nowMs())).map(({ orderId }) => orderId),
    reasons: () => mirror.quarantineList(10).map(({ reason }) => reason),
    names: () => mirror.order(ID)?.items.map(({ productName }) => productName),
  };
}

describe('an incomplete order', () => {
  it.each([null, 'x', 3, [], {}])(
    'keeps the place of a line that is %j, until it comes whole',
    async (odd) => {
      const { mirror, told, reasons, names } = rig();
      await receive(mirror, order({ items: [line('a'), odd, line('c')] }));
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
    expect(mirror.order(ID)).toMatchObject({ amountToPay: null, deliveryFee: 12.5 });
    expect(told()).toEqual([ID]);
    expect(reasons().join()).not.toContain('5990,55');
  });

  it('has no amount of before where the new one cannot be read', async () => {
    const { mirror } = rig();
    await receive(mirror, order({ amountToPay: 5990 }), order({ amountToPay: 'abc' }));
    expect(mirror.order(ID)?.amountToPay).toBeNull();
  });

  it('is none with an empty text for a number, or with another value under a guessed name', async () => {
    const { mirror, told } = rig();
    await receive(
      mirror,
      order({ couponDiscount: '', amountToPay: 5990, details: 'ring twice', correlative: {} }),
    );
    expect(mirror.order(ID)).toMatchObject({ couponDiscount: null, amountToPay: 5990 });
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
    expect(mirror.order(ID)?.status).toBe('ready');
  });

  it('loses its address once it is picked up', async () => {
    const { mirror } = rig();
    await receive(mirror, order(), { internalOrderId: ID, deliveryType: 'pickup', status: 'ready' });
    expect(mirror.order(ID)).toMatchObject({
      addressAddress: null,
      addressLat: null,
      deliveryType: 'pickup',
    });
  });

  it('has a row for each count of a modifier without options', async () => {
    const { mirror } = rig();
    const modifier = { name: 'Extras', countByExternalId: { e1: 1, e2: 2 }, countById: { m1: 1, m2: 2 } };
    await receive(mirror, order({ items: [{ ...line('a'), modifiers: [modifier] }] }));
    const rows = mirror.order(ID)?.items[0]?.modifiers.map((row) => [row.optionExternalId, row.quantity]);
    expect(rows).toEqual([
      ['e1', 1],
      ['e2', 2],
    ]);
  });
});
