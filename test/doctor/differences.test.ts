/** Tests src/support/diff/differences.ts, src/support/diff/diff.ts and src/cli/diff.ts. */

import { describe, expect, test } from 'vitest';
import type { MirroredProduct } from '../../src/catalog/product.ts';
import type { MirroredOrder } from '../../src/orders/merging/mirrored-order.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';
import { orderDifferences, productDifferences } from '../../src/support/diff/differences.ts';

const mapping = { subsidiaryId: 's1', productIdPosA: null, productCodePosB: null, extId: 'E' };

function record(change: Partial<ProductRecord['children'][number]> = {}): ProductRecord {
  const stocks = [{ subsidiaryId: 's1', qty: 5, show: true }];
  const child = { sku: '1', barcode: null, price: 10, withDiscount: false, discount: 0, show: true };
  return {
    id: 'p',
    name: 'P',
    category: null,
    show: true,
    children: [{ ...child, stocks, integrations: [mapping], ...change }],
    raw: '{}',
  };
}

const mirrored: MirroredProduct = {
  productId: 'p',
  name: 'P',
  category: null,
  show: true,
  vanishedAt: null,
  updatedAt: '',
  skus: [
    {
      sku: '1',
      barcode: null,
      price: 10,
      withDiscount: 0,
      discount: 0,
      show: true,
      stocks: [
        { subsidiaryId: 's1', qty: 5, show: true },
        { subsidiaryId: 's2', qty: 9, show: true },
      ],
      integrations: [mapping],
    },
  ],
};

const brief = (differences: ReturnType<typeof productDifferences>) =>
  differences.map(({ sku, subsidiaryId, field, mirror, platform }) => [
    sku,
    subsidiaryId,
    field,
    mirror,
    platform,
  ]);

describe('a product', () => {
  test('that was sent otherwise and means the same does not differ', () => {
    expect(productDifferences(mirrored, record(), new Set(['s1']))).toEqual([]);
  });

  test('is judged for another branch only by a record that speaks for it', () => {
    expect(brief(productDifferences(mirrored, record()))).toEqual([['1', 's2', 'stock', 9, null]]);
  });

  test('names each value, entry and mapping that differs', () => {
    const other = { ...mapping, extId: 'F' };
    const stocks = [{ subsidiaryId: 's1', qty: 6, show: false }];
    const found = productDifferences(
      mirrored,
      record({ price: 11, stocks, integrations: [other] }),
      new Set(['s1']),
    );
    expect(brief(found)).toEqual([
      ['1', null, 'price', 10, 11],
      ['1', 's1', 'qty', 5, 6],
      ['1', 's1', 'stock.show', true, false],
      ['1', 's1', 'mapping', null, 's1 extId F'],
      ['1', 's1', 'mapping', 's1 extId E', null],
    ]);
    expect(brief(productDifferences(mirrored, record({ sku: '2' }), new Set()))).toEqual([
      ['2', null, 'sku', null, '2'],
      ['1', null, 'sku', '1', null],
    ]);
  });

  test('that the mirror lacks, or took for vanished, is one difference', () => {
    expect(brief(productDifferences(undefined, record()))).toEqual([[null, null, 'product', null, 'P']]);
    const gone = { ...mirrored, vanishedAt: '2026-01-01T00:00:00.000Z' };
    expect(brief(productDifferences(gone, record(), new Set(['s1'])))).toEqual([
      [null, null, 'product', null, 'P'],
    ]);
  });
});

describe('an order', () => {
  const item = { productExternalId: 'E', productName: 'P', quantity: 2, comment: null };
  const prices = { unitPrice: 1, baseUnitPrice: 1, productPrice: 2, productBasePrice: 2 };
  const order: MirroredOrder = {
    orderId: 'o',
    seq: 1,
    updatedAt: '2026-01-01T00:00:00.000Z',
    code: 7,
    status: 'ready',
    storeExternalId: 'B1',
    websiteId: 'w',
    name: 'N',
    createdAt: '2026-01-01T00:00:00.000Z',
    deliveryType: 'delivery',
    amountToPay: 12,
    amount: 10,
    deliveryFee: 2,
    couponDiscount: 0,
    deliveryTime: '30',
    isScheduled: false,
    scheduledFor: null,
    addressLat: -33.4,
    addressLng: -70.6,
    addressAddress: 'A',
    addressStreetNumber: '1',
    addressStreetAddress: 'S',
    addressCountry: 'CL',
    addressState: 'RM',
    addressCity: 'C',
    addressZipCode: '8320000',
    addressPhoneNumber: '+56 2 2345 6789',
    addressDetails: 'D',
    customerFirstName: 'F',
    customerLastName: 'L',
    customerEmail: 'e@shop.test',
    customerPhoneNumber: '+56 9 8123 4567',
    channel: null,
    items: [{ ...item, ...prices, modifiers: [], sku: '1', productId: 'p', matchedBy: 'name' }],
  };
  /** Fields of the mirror that no record of the platform has. */
  const OWN = ['orderId', 'seq', 'updatedAt', 'channel', 'items'];

  test('differs only in what the platform says', () => {
    expect(orderDifferences(order, { orderId: 'o', fields: { status: 'ready', amount: '10' } })).toEqual([]);
    const items = [{ ...prices, ...item, quantity: '2', modifiers: [] }];
    expect(orderDifferences(order, { orderId: 'o', fields: { isScheduled: false }, items })).toEqual([]);
  });

  test.each(Object.keys(order).filter((field) => !OWN.includes(field)))('is compared in %s', (field) => {
    const value = order[field as keyof MirroredOrder] as string | number | boolean | null;
    const other = typeof value === 'boolean' ? !value : typeof value === 'number' ? value + 1 : `${value}x`;
    expect(orderDifferences(order, { orderId: 'o', fields: { [field]: value } })).toEqual([]);
    expect(orderDifferences(order, { orderId: 'o', fields: { [field]: other } })).toEqual([
      { orderId: 'o', field, mirror: value, platform: other },
    ]);
  });

  test('names each field, and its items as a whole', () => {
    const reading = { orderId: 'o', fields: { status: 'cancel', amount: 10 }, items: [] };
    expect(orderDifferences(order, reading)).toEqual([
      { orderId: 'o', field: 'status', mirror: 'ready', platform: 'cancel' },
      { orderId: 'o', field: 'items', mirror: '1 items', platform: '0 items' },
    ]);
    expect(orderDifferences(undefined, reading)).toMatchObject([{ field: 'order', mirror: null }]);
  });
});
