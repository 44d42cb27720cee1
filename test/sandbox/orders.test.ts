import { describe, expect, it } from 'vitest';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { ORDER_STATUSES, type OrderReading } from '../../src/orders/merging/order.ts';
import { readOrder } from '../../src/orders/merging/order-reader.ts';
import type { OrderSnapshot } from '../../src/sandbox/orders.ts';
import { sandboxSettings } from '../../src/sandbox/settings.ts';
import { rig } from './fixture.ts';

const { envelope: ENVELOPE, record: RECORD } = sandboxSettings.shape.shape.shape;

const TODAY = '/order/all?startDate=2026-01-15&endDate=2026-01-15';

describe('orders', () => {
  it('count their code up and carry the whole field set of the notification', async () => {
    const { sandbox } = await rig({ company: 'shop-9' });
    const delivery = sandbox.control.createOrder({
      deliveryType: 'delivery',
      isScheduled: true,
      subsidiaryId: 'sub-2',
    });
    const pickup = sandbox.control.createOrder({
      deliveryType: 'pickup',
      isScheduled: false,
      subsidiaryId: 'sub-3',
    });
    expect([delivery.code, pickup.code]).toEqual([1, 2]);
    expect(delivery).toMatchObject({
      store: { externalId: 'B2' },
      websiteId: 'shop-9',
      status: 'pending',
      createdAt: '2026-01-15T12:00:00.000Z',
      deliveryType: 'delivery',
    });
    expect(delivery.name).toBe(
      `#1 - ${delivery.user.firstName} ${delivery.user.lastName} - delivery - ${delivery.name.split(' - ')[3]}`,
    );
    expect(Object.keys(delivery.address ?? {})).toHaveLength(11);
    expect(delivery.scheduledDate).toBeDefined();
    expect(delivery.amountToPay).toBe(delivery.amount + delivery.deliveryFee);
    expect(pickup.store.externalId).toBe('sub-3');
    expect(pickup).not.toHaveProperty('address');
    expect(pickup).not.toHaveProperty('scheduledDate');
    expect(pickup).toMatchObject({ deliveryFee: 0, deliveryTime: '' });
  });

  it('are listed as they are now, newest first, in the shape that is asked for now', async () => {
    const { sandbox, later } = await rig();
    const [first, second] = [sandbox.control.createOrder(), sandbox.control.createOrder()];
    const listed = async () => (await later('GET', TODAY)).json.data.docs;
    expect(await listed()).toMatchObject([{ code: second.code }, first]);
    sandbox.control.advanceOrder(first.internalOrderId, 'ready');
    expect(await listed()).toMatchObject([{ code: second.code }, { code: first.code, status: 'ready' }]);
    sandbox.control.configure({ shape: { envelope: 'docs', record: 'snake', pageSize: null } });
    expect(await listed()).toMatchObject([{ amount_to_pay: second.amountToPay }, { status: 'ready' }]);
  });

  it('name an item by its integration id in the branch, and by null when it has modifiers', async () => {
    const { sandbox } = await rig();
    const order = sandbox.control.createOrder({
      subsidiaryId: 'sub-2',
      items: [
        { sku: 1001, qty: 2 },
        { sku: 1002, qty: 1, withModifier: true },
      ],
    });
    const [plain, extra] = order.items;
    expect(plain).toMatchObject({ product: { externalId: 'A-1001-2' }, amount: 2, modifiers: [] });
    expect(plain?.productPrice).toBe((plain?.unitPrice ?? 0) * 2);
    expect(extra?.product.externalId).toBeNull();
    expect(extra?.modifiers[0]).toMatchObject({ externalId: null, options: [{ price: 500 }] });
    expect(extra?.productPrice).toBe((extra?.unitPrice ?? 0) + 500);
  });

  it('take from the stock, and an oversell is noted', async () => {
    const { sandbox } = await rig();
    const { control } = sandbox;
    const had = control.stockOf(1001, 'sub-1') as number;
    control.createOrder({ subsidiaryId: 'sub-1', items: [{ sku: 1001, qty: had - 1 }] });
    expect(control.stockOf(1001, 'sub-1')).toBe(1);
    expect(control.oversells()).toEqual([]);
    const order = control.createOrder({ subsidiaryId: 'sub-1', items: [{ sku: 1001, qty: 3 }] });
    expect(control.stockOf(1001, 'sub-1')).toBe(0);
    expect(control.oversells()).toEqual([
      { orderId: order.internalOrderId, sku: 1001, subsidiaryId: 'sub-1', short: 2 },
    ]);
  });

  it('walk through statuses of the document to an end, or to any that is named', async () => {
    const { sandbox } = await rig();
    const seen = new Set<string>();
    for (let n = 0; n < 60; n++) {
      const { internalOrderId } = sandbox.control.createOrder();
      let at: OrderSnapshot | undefined = sandbox.control.order(internalOrderId);
      for (let steps = 0; at; steps++) {
        seen.add(at.status);
        expect(steps).toBeLessThan(40);
        at = sandbox.control.advanceOrder(internalOrderId);
      }
    }
    expect([...seen].sort()).toEqual([...ORDER_STATUSES].sort());
    const { internalOrderId } = sandbox.control.createOrder();
    expect(sandbox.control.advanceOrder(internalOrderId, 'teleported')?.status).toBe('teleported');
  });

  it('are listed by the date of their creation in the calendar of the company', async () => {
    const { call, later, sandbox } = await rig({ timeZone: 'America/Santiago' });
    // Santiago is three hours behind UTC in January.
    const create = (time: string) => sandbox.control.createOrder({ createdAtMs: Date.parse(time) }).code;
    create('2026-01-14T02:59:59Z');
    const inside = [
      create('2026-01-14T03:00:00Z'),
      create('2026-01-15T12:00:00Z'),
      create('2026-01-16T02:59:59Z'),
    ];
    create('2026-01-16T03:00:00Z');
    const { data } = (await call('GET', '/order/all?startDate=2026-01-14&endDate=2026-01-15')).json;
    expect(data.docs.map((order: OrderSnapshot) => order.code)).toEqual(inside.reverse());
    expect((await later('GET', '/order/all?startDate=2026-01-14')).status).toBe(400);
    expect((await later('GET', '/order/all?startDate=14.1.2026&endDate=2026-01-15')).status).toBe(400);
  });

  it.each(ENVELOPE.options)('come in the envelope %s', async (envelope) => {
    const { call, sandbox } = await rig({ shape: { envelope } });
    const order = sandbox.control.createOrder();
    const { json } = await call('GET', TODAY);
    const list = { array: json, data: json.data, docs: json.data?.docs, orders: json.orders }[envelope];
    expect(list).toEqual([order]);
  });

  it('come in pages when told to', async () => {
    const { call, later, sandbox } = await rig({ shape: { envelope: 'docs', pageSize: 2 } });
    for (let n = 0; n < 3; n++) sandbox.control.createOrder();
    expect((await call('GET', TODAY)).json.data).toMatchObject({
      docs: [{ code: 3 }, { code: 2 }],
      totalDocs: 3,
      limit: 2,
      page: 1,
      totalPages: 2,
      hasNextPage: true,
      hasPrevPage: false,
    });
    expect((await later('GET', `${TODAY}&page=2`)).json.data).toMatchObject({
      docs: [{ code: 1 }],
      hasNextPage: false,
    });
  });

  it.each(RECORD.options)('come in the spelling %s', async (record) => {
    const { call, sandbox } = await rig({ shape: { envelope: 'array', record } });
    const order = sandbox.control.createOrder({ subsidiaryId: 'sub-1', items: [{ sku: 1001, qty: 2 }] });
    sandbox.control.changeOrder(order.internalOrderId, { status: 'ready' });
    const [read] = (await call('GET', TODAY)).json;
    const { internalOrderId, code } = order;
    expect(read).toMatchObject(
      {
        notification: {
          internalOrderId,
          code,
          status: 'ready',
          items: [{ product: { externalId: 'A-1001-1' } }],
        },
        internal: {
          _id: internalOrderId,
          companyOrderNumber: code,
          orderStatus: 'ready',
          products: [{ quantity: 2 }],
        },
        snake: {
          internal_order_id: internalOrderId,
          code,
          status: 'ready',
          items: [{ product: { external_id: 'A-1001-1' } }],
        },
      }[record],
    );
  });

  it('say the same in every spelling', async () => {
    const { sandbox, call, later } = await rig({ shape: { envelope: 'array' } });
    for (const deliveryType of ['delivery', 'pickup'] as const) {
      sandbox.control.createOrder({
        deliveryType,
        isScheduled: true,
        items: [{ sku: 1001, qty: 2, withModifier: true }],
      });
    }
    const readings = async (answer: ReturnType<typeof call>) =>
      (await answer).json.map((record: unknown) => {
        // How much a value weighs depends on its spelling.
        const {
          weights: _w,
          lineWeights: _l,
          ...said
        } = readOrder(record, compileSpellings()) as OrderReading;
        return said;
      });
    const told = await readings(call('GET', TODAY));
    for (const record of RECORD.options) {
      sandbox.control.configure({ shape: { envelope: 'array', record, pageSize: null } });
      const read = await readings(later('GET', TODAY));
      expect(read).toHaveLength(2);
      expect(read).toEqual(told);
    }
  });
});
