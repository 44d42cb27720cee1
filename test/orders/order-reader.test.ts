import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compileSpellings, SPELLABLE_FIELDS } from '../../src/orders/merging/field-aliases.ts';
import type { OrderReading } from '../../src/orders/merging/order.ts';
import { readOrder, readOrderText } from '../../src/orders/merging/order-reader.ts';
import { sampleNotification } from '../support/order-samples.ts';

const known = compileSpellings();

function read(value: unknown, spellings = known): OrderReading {
  const reading = readOrder(value, spellings);
  if ('unreadable' in reading) throw new Error(reading.unreadable);
  return reading;
}

describe('reading the notification of the document', () => {
  it('maps every scalar field', () => {
    const { orderId, fields } = read(
      sampleNotification(7, { isScheduled: true, scheduledDate: '2026-01-11T09:00:00-03:00' }),
    );
    expect(orderId).toBe('65a100000000000000000007');
    expect(fields).toEqual({
      code: 7,
      status: 'pending',
      storeExternalId: 'B1',
      websiteId: 'company-1',
      name: '#7 - Ana Núñez - delivery - Web',
      createdAt: '2026-01-10T12:00:00.000Z',
      deliveryType: 'delivery',
      amountToPay: 15990,
      amount: 12990,
      deliveryFee: 3000,
      couponDiscount: 0,
      deliveryTime: '2026-01-10T13:00:00.000Z',
      isScheduled: true,
      scheduledFor: '2026-01-11T12:00:00.000Z',
      addressLat: -33.4372,
      addressLng: -70.6506,
      addressAddress: 'Av. Uno 742, Santiago',
      addressStreetNumber: '742',
      addressStreetAddress: 'Av. Uno',
      addressCountry: 'Chile',
      addressState: 'RM',
      addressCity: 'Santiago',
      addressZipCode: '8320000',
      addressPhoneNumber: '+56911111111',
      addressDetails: 'depto 12',
      customerFirstName: 'Ana',
      customerLastName: 'Núñez',
      customerEmail: 'ana@example.com',
      customerPhoneNumber: '+56922222222',
    });
  });

  it('maps items, with a row for each option of a modifier and one for a modifier without', () => {
    const { items } = read(sampleNotification(7));
    expect(items).toHaveLength(3);
    expect(items?.[0]).toEqual({
      productExternalId: 'P1',
      productName: 'Product P1',
      quantity: 2,
      comment: '',
      unitPrice: 2500.5,
      baseUnitPrice: 3000,
      productPrice: 5001,
      productBasePrice: 6000,
      modifiers: [],
    });
    const shared = {
      name: 'Sauces',
      shortName: 'Sc',
      description: '["pick two"]',
      modifierExternalId: null,
    };
    expect(items?.[2]?.modifiers).toEqual([
      {
        ...shared,
        optionId: 'm1',
        optionExternalId: 'E1',
        optionName: 'Garlic',
        optionPrice: 300,
        quantity: 2,
      },
      { ...shared, optionId: 'm2', optionExternalId: 'E2', optionName: 'Hot', optionPrice: 200, quantity: 1 },
      {
        modifierExternalId: null,
        name: 'Gift wrap',
        shortName: 'Gw',
        description: '[]',
        optionId: 'g',
        optionExternalId: null,
        optionName: null,
        optionPrice: null,
        quantity: 1,
      },
    ]);
  });

  it('tells what was not sent from what was sent empty', () => {
    const { fields, items } = read({ internalOrderId: 'a', deliveryTime: '', address: null, name: null });
    expect(fields).toEqual({});
    expect(items).toBeUndefined();
    expect(read({ internalOrderId: 'a', items: [] }).items).toEqual([]);
  });
});

describe('reading a record whose fields are not shown', () => {
  it('knows other names, in camel and snake case', () => {
    const { orderId, fields, items } = read({
      _id: 65,
      company_order_number: '12',
      order_status: 'ready',
      total: '12.50',
      shippingCost: 2,
      created_at: 1_767_225_600,
      customer: { first_name: 'Eva' },
      products: [{ name: 'Tea', quantity: '1.5' }],
    });
    expect(orderId).toBe('65');
    expect(fields).toEqual({
      code: 12,
      status: 'ready',
      amountToPay: 12.5,
      deliveryFee: 2,
      createdAt: '2026-01-01T00:00:00.000Z',
      customerFirstName: 'Eva',
    });
    expect(items?.[0]).toMatchObject({ productName: 'Tea', quantity: 1.5 });
  });

  it('prefers the better name whatever the order of the names, and a value to an empty one', () => {
    for (const record of [
      { id: 'x', orderId: 'y', status: 'ready', state: 'no', total: 1, amountToPay: 2 },
      { amountToPay: 2, total: 1, state: 'no', status: 'ready', orderId: 'y', id: 'x' },
    ]) {
      expect(read(record)).toEqual({ orderId: 'y', fields: { status: 'ready', amountToPay: 2 } });
    }
    expect(read({ id: 1, state: 'ready', status: null }).fields.status).toBe('ready');
    expect(read({ id: 1, status: null, state: 'ready' }).fields.status).toBe('ready');
  });

  it('puts the names of the config first', () => {
    const spellings = compileSpellings({
      orderId: ['meta.key'],
      amount: ['netAmount'],
      'item.quantity': ['pieces'],
    });
    const { orderId, fields, items } = read(
      { id: 'x', meta: { key: 'k' }, amount: 9, netAmount: 8, items: [{ amount: 1, pieces: 3 }] },
      spellings,
    );
    expect([orderId, fields.amount, items?.[0]?.quantity]).toEqual(['k', 8, 3]);
  });

  it('refuses a configured field that does not exist, naming those that do', () => {
    expect(() => compileSpellings({ price: ['x'] })).toThrowError(
      expect.objectContaining({ code: 'config-invalid', hint: expect.stringContaining('amountToPay') }),
    );
    expect(SPELLABLE_FIELDS).toContain('item.unitPrice');
  });

  it('looks into a wrapper, but not into an order that has an id of the document', () => {
    expect(read({ id: 'event-1', order: { _id: 'o1', status: 'ready' } }).orderId).toBe('o1');
    expect(read({ internalOrderId: 'o2', data: { id: 'z', status: 'x' } }).orderId).toBe('o2');
  });

  it.each([
    ['2026-01-11T09:00:00.123456+05:30', '2026-01-11T03:30:00.123Z'],
    ['2026-01-11 09:00:00Z', '2026-01-11T09:00:00.000Z'],
    ['2026-01-11T09:00-03', '2026-01-11T12:00:00.000Z'],
    [1_767_225_600_000, '2026-01-01T00:00:00.000Z'],
    ['1767225600', '2026-01-01T00:00:00.000Z'],
    ['2026-01-11T09:00:00', '2026-01-11T12:00:00.000Z'],
    ['2026-07-11 9:05', '2026-07-11T13:05:00.000Z'],
    ['23/11/2026 10:00', '2026-11-23T13:00:00.000Z'],
    ['03-04-2026 10:00:30', '2026-04-03T13:00:30.000Z'],
    ['23/11/2026, 09:30 p. m.', '2026-11-24T00:30:00.000Z'],
    ['2026-11-23 12:15 AM', '2026-11-23T03:15:00.000Z'],
    ['23/11/2026 10:00 -03:00', '2026-11-23T13:00:00.000Z'],
    ['Mon Nov 23 2026 10:00:00 GMT-0300 (Chile Summer Time)', '2026-11-23T13:00:00.000Z'],
    ['Mon, 23 Nov 2026 13:00:00 GMT', '2026-11-23T13:00:00.000Z'],
  ])('reads the time %j, on the clock of the shop where it has no zone', (sent, kept) => {
    const inSantiago = compileSpellings({}, 'America/Santiago');
    expect(read({ id: 1, createdAt: sent }, inSantiago).fields.createdAt).toBe(kept);
  });

  it.each([
    ...['tomorrow at nine', '2026-13-45T09:00:00+00:00', '11/23/2026 10:00', '2026-02-31T09:00:00.000Z'],
    ...['2026-02-28T24:00:00.000Z', '2026-13-28T09:00:00.000Z'],
    ...['2026-11-23', '25:00', '2026-11-23 24:30', '2026-11-23 13:00 pm', '30/02/2026 10:00', 7, -1],
  ])('tells that %j is no time', (createdAt) => {
    const reading = read({ id: 1, createdAt, status: 'ready' }, compileSpellings({}, 'America/Santiago'));
    expect(reading.fields).toEqual({ createdAt: null, status: 'ready' });
    expect(reading.incomplete).toEqual(['createdAt cannot be read']);
  });

  it('has no time without a zone where nobody says whose clock it is', () => {
    expect(read({ id: 1, createdAt: '2026-11-23 10:00' }).fields.createdAt).toBeNull();
  });

  it('counts a value of the wrong kind as not sent', () => {
    const wrong = {
      id: 'a',
      code: 'A-1',
      status: {},
      amount: {},
      isScheduled: 'maybe',
      address: 7,
      user: [],
      items: 'x',
    };
    expect(read(wrong)).toEqual({
      orderId: 'a',
      fields: { addressAddress: '7', amount: null },
      incomplete: [
        'code cannot be read',
        'status cannot be read',
        'amount cannot be read',
        'isScheduled cannot be read',
        'items cannot be read',
      ],
    });
    expect(
      read({ id: 'a', items: [null, 3, 'x', { modifiers: [null, { options: [0] }] }] }).items,
    ).toHaveLength(4);
  });
});

describe('what cannot be read', () => {
  it.each([
    null,
    3,
    'x',
    [],
    {},
    { id: '' },
    { id: {} },
    { id: null },
    { id: 1e21 },
    { __proto__: { id: 'a' } },
  ])('is said of %j', (value) => {
    expect(readOrder(value, known)).toEqual({ unreadable: expect.any(String) });
  });

  it('makes no text of a number that would be another one', () => {
    const sent = '{"id":"a","websiteId":1.5e300,"store":{"externalId":12},"items":[{"externalId":1e300}]}';
    expect(readOrderText(sent, known)).toMatchObject({
      fields: { storeExternalId: '12' },
      items: [{ productExternalId: null }],
    });
    expect(readOrderText(sent, known)).not.toHaveProperty('fields.websiteId');
  });

  it('keeps ids exact that are too large for a number', () => {
    const reading = readOrderText(
      '{"id":12345678901234567890,"status":"ready","total": 12345678901234567.5,"store":{"externalId":9007199254740993},"items":[{"externalId": 98765432109876543210}]}',
      known,
    );
    expect(reading).toMatchObject({
      orderId: '12345678901234567890',
      fields: { storeExternalId: '9007199254740993' },
      items: [{ productExternalId: '98765432109876543210' }],
    });
  });

  it('takes names of prototypes for names', () => {
    const reading = readOrderText(
      '{"__proto__":{"status":"x"},"constructor":{"id":9},"id":"a","toString":1}',
      known,
    );
    expect(reading).toEqual({ orderId: 'a', fields: {} });
  });

  it('never throws, whatever comes', () => {
    const names = fc.constantFrom(
      'id',
      'status',
      'items',
      'address',
      'user',
      'modifiers',
      'options',
      'order',
      '__proto__',
      'countById',
    );
    const { tree } = fc.letrec((tie) => ({
      tree: fc.oneof(
        { maxDepth: 5 },
        fc.jsonValue(),
        fc.array(tie('tree'), { maxLength: 3 }),
        fc.dictionary(names, tie('tree')),
      ),
    }));
    fc.assert(
      fc.property(tree, (value) => {
        expect(readOrder(value, known)).toBeTypeOf('object');
      }),
    );
    const deep = `${'{"order":'.repeat(50_000)}1${'}'.repeat(50_000)}`;
    expect(readOrderText(deep, known)).toHaveProperty('unreadable');
    // A database would store both ids as the same text, and so two orders as one.
    for (const half of ['s\\ud800', 's\\udbff']) {
      expect(readOrderText(`{"internalOrderId":"${half}"}`, known)).toHaveProperty('unreadable');
    }
    const description = `{"id":1,"items":[{"modifiers":[{"name":"m","description":${'['.repeat(50_000)}${']'.repeat(50_000)}}]}]}`;
    expect(readOrderText(description, known)).toMatchObject({ orderId: '1' });
  });
});
