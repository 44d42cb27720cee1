/** Tests src/platform/schemas.ts. */

import { expect, test } from 'vitest';
import { batchData, envelopeAnswer, readProduct, webhookData } from '../../../src/platform/schemas.ts';

test('a product is read as far as it can be, and kept whole', () => {
  const sent = {
    id: 7,
    name: 'Tea',
    show: 1,
    colour: 'green',
    children: [
      {
        sku: 11,
        price: '1.10',
        withDiscount: { from: 1 },
        discount: 5,
        show: 'false',
        stocks: [{ subsidiaryId: 's', qty: '3', show: true }, { qty: 1 }, 'x'],
        integrations: [{ subsidiaryId: 's', productIdPosA: 9, extId: '' }],
      },
    ],
  };
  expect(readProduct(sent)).toEqual({
    complete: false,
    record: {
      id: '7',
      isPartial: true,
      name: 'Tea',
      category: null,
      show: true,
      raw: JSON.stringify(sent),
      children: [
        {
          sku: '11',
          barcode: null,
          price: 1.1,
          withDiscount: null,
          discount: 5,
          show: false,
          stocks: [{ subsidiaryId: 's', qty: 3, show: true }],
          integrations: [{ subsidiaryId: 's', productIdPosA: '9', productCodePosB: null, extId: null }],
        },
      ],
    },
  });
});

test('without an id it is no product; a child without a sku is told', () => {
  expect(readProduct({ name: 'x' })).toBe(undefined);
  expect(readProduct('x')).toBe(undefined);
  expect(readProduct({ id: 'a', children: [{ price: 1 }] })).toMatchObject({ complete: false });
  expect(readProduct({ id: 'a', children: 'none' })).toMatchObject({
    complete: false,
    record: { children: [] },
  });
});

test.each([
  [{ stocks: [{ qty: 1 }] }, false],
  [{ stocks: [null] }, false],
  [{ stocks: { b1: 1 } }, false],
  [{ integrations: [{ extId: 'A' }] }, false],
  [{ integrations: 'A' }, false],
  [{ stocks: [{ subsidiaryId: 1 }], integrations: [] }, true],
])('a product whose SKU has %j is whole: %j', (entries, complete) => {
  const read = readProduct({ id: 'a', children: [{ sku: 1, ...entries }] });
  expect(read).toMatchObject({ complete, record: { children: [{ sku: '1' }] } });
  expect(read?.record.isPartial).toBe(complete ? undefined : true);
});

test.each([
  { children: null },
  {},
  { children: [{ sku: 1, stocks: null, integrations: [] }] },
  { children: [{ sku: 1, stocks: [] }] },
])('a product with %j is readable, and says not all that it has', (lists) => {
  expect(readProduct({ id: 'a', ...lists })).toMatchObject({ complete: true, record: { isPartial: true } });
});

test('nothing is nested too deeply to be read', () => {
  const deep: unknown = JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`);
  expect(readProduct({ id: 'a', category: deep, children: [{ sku: 1, discount: deep }] })).toBe(undefined);
  expect(batchData.parse({ errors: [{ index: 1, message: deep }] }).errors).toMatchObject([{ index: 1 }]);
});

test('a list of errors that no batch can have is not read one by one', () => {
  const startMs = process.cpuUsage().user / 1_000;
  expect(batchData.safeParse({ errors: Array(500_000).fill({}) }).success).toBe(false);
  expect(process.cpuUsage().user / 1_000 - startMs).toBeLessThan(1_000);
});

test('what a batch discarded is never lost', () => {
  expect(
    batchData.parse({ updated: '2', total: 3, errors: [{ index: 1, sku: 4, message: 'no' }, 'odd', null] }),
  ).toEqual({
    updated: 2,
    total: 3,
    errors: [
      { index: 1, sku: 4, externalId: null, message: 'no' },
      { index: null, sku: null, externalId: null, message: 'odd' },
      { index: null, sku: null, externalId: null, message: 'null' },
    ],
  });
  expect(batchData.parse({})).toEqual({ updated: null, total: null, errors: [] });
  expect(batchData.safeParse({ errors: { '0': 'no' } }).success).toBe(false);
  expect(batchData.parse({ errors: Array(2_000).fill('no') }).errors).toHaveLength(2_000);
});

test('the webhook state never carries the secret on', () => {
  expect(webhookData.parse({ callbackUrl: 'http://a', active: 'true', secret: 's' })).toEqual({
    callbackUrl: 'http://a',
    active: true,
    hasSecret: null,
  });
});

test('an envelope may miss anything', () => {
  expect(envelopeAnswer.parse({ extra: 1 })).toMatchObject({ success: null, message: null, extra: 1 });
  expect(envelopeAnswer.parse({ success: false, message: 'no', data: {} }).success).toBe(false);
  expect(envelopeAnswer.safeParse([]).success).toBe(false);
});
