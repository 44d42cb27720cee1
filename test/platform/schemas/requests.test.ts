import { expect, test } from 'vitest';
import {
  orderAllQuery,
  productBatchRequest,
  productChangeItem,
  productGetQuery,
  productListQuery,
  stockBatchRequest,
  stockChangeItem,
  webhookPutRequest,
} from '../../../src/platform/schemas.ts';

const takes = (schema: { safeParse(value: unknown): { success: boolean } }, value: unknown) =>
  schema.safeParse(value).success;

test('a product change names a product and at least one field', () => {
  expect(takes(productChangeItem, { sku: 1, price: 0 })).toBe(true);
  expect(takes(productChangeItem, { externalId: 'a', description: '' })).toBe(true);
  for (const bad of [
    { price: 1 },
    { sku: 1 },
    { sku: '1', price: 1 },
    { sku: 1, price: '1' },
    { sku: 1, price: Number.POSITIVE_INFINITY },
    { sku: 1, price: 1, prize: 2 },
    { externalId: '', price: 1 },
  ]) {
    expect(takes(productChangeItem, bad), JSON.stringify(bad)).toBe(false);
  }
});

test('a stock change carries the integration id and a number', () => {
  expect(takes(stockChangeItem, { externalId: 'a', qty: 0.5, show: false, subsidiaryId: 's' })).toBe(true);
  for (const bad of [
    { externalId: 'a' },
    { qty: 1 },
    { externalId: 'a', qty: Number.NaN },
    { externalId: 'a', qty: '1' },
  ]) {
    expect(takes(stockChangeItem, bad), JSON.stringify(bad)).toBe(false);
  }
});

test('a batch has 1 to 100 items', () => {
  const products = (n: number) => Array.from({ length: n }, () => ({ sku: 1, show: true }));
  expect([0, 1, 100, 101].map((n) => takes(productBatchRequest, { products: products(n) }))).toEqual([
    false,
    true,
    true,
    false,
  ]);
  expect(takes(stockBatchRequest, { products: [] })).toBe(false);
});

test('queries say exactly one of two', () => {
  expect(productListQuery.parse({ externalId: 'b', page: '3' })).toEqual({
    externalId: 'b',
    page: 3,
    limit: 20,
    order: 'desc',
    orderBy: 'CreatedDate',
  });
  expect(takes(productListQuery, {})).toBe(false);
  expect(takes(productListQuery, { externalId: 'b', subsidiaryId: 's' })).toBe(false);
  expect(takes(productListQuery, { externalId: 'b', page: 0 })).toBe(false);
  expect(takes(productGetQuery, { sku: '1', externalId: 'a' })).toBe(false);
  expect(takes(orderAllQuery, { startDate: '2026-02-30', endDate: '2026-03-01' })).toBe(false);
  expect(takes(orderAllQuery, { startDate: '2026-03-02', endDate: '2026-03-01' })).toBe(false);
  expect(takes(orderAllQuery, { startDate: '2026-03-01', endDate: '2026-03-01', page: '2' })).toBe(true);
});

test('the webhook enable flag has the configured name only', () => {
  const request = webhookPutRequest('enabled');
  expect(takes(request, { callbackUrl: 'http://localhost:1/x', enabled: true, secret: '' })).toBe(true);
  expect(takes(request, { callbackUrl: 'http://localhost:1/x', active: true })).toBe(false);
  expect(takes(request, { callbackUrl: 'ftp://localhost/x' })).toBe(false);
});
