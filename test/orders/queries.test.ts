/** Tests src/orders/reading/order-queries.ts. */

import { expect, it } from 'vitest';
import { openTestMirror, receive, sampleNotification } from './open-test-mirror.ts';

async function someOrders() {
  const { mirror } = openTestMirror();
  await receive(
    mirror,
    sampleNotification(1, { status: 'ready', createdAt: '2026-01-03T00:00:00.000Z' }),
    sampleNotification(2, { status: 'dispatched', createdAt: '2026-01-01T00:00:00.000Z' }),
    sampleNotification(5, { status: 'unheard-of', createdAt: '2026-01-02T00:00:00.000Z' }),
    sampleNotification(6, { status: null, createdAt: 'yesterday' }),
  );
  return mirror;
}

it('orders come newest first, by status, open ones, and page by page', async () => {
  const mirror = await someOrders();
  const codes = (filter: Parameters<typeof mirror.orders.list>[0]) =>
    mirror.orders.list(filter).map(({ code }) => code);
  expect(codes({ limit: 9 })).toEqual([1, 5, 2, 6]);
  expect(codes({ limit: 2, createdBefore: '2026-01-03T00:00:00.000Z' })).toEqual([5, 2]);
  expect(codes({ limit: 9, status: 'ready' })).toEqual([1]);
  expect(codes({ limit: 9, open: true })).toEqual([1, 5, 6]);
});

it('the oldest open order is one whose life has not ended and whose time can be read', async () => {
  const mirror = await someOrders();
  expect(mirror.orders.oldestOpenMs()).toBe(Date.UTC(2026, 0, 2));
  await receive(mirror, sampleNotification(5, { status: 'cancel', createdAt: '2026-01-02T00:00:00.000Z' }));
  expect(mirror.orders.oldestOpenMs()).toBe(Date.UTC(2026, 0, 3));
  expect(openTestMirror().mirror.orders.oldestOpenMs()).toBeNull();
});

it('codes in a range are found', async () => {
  const mirror = await someOrders();
  expect(mirror.orders.codesBetween(2, 5).sort()).toEqual([2, 5]);
});

it.each([
  ['SELECT * FROM orders ORDER BY created_at DESC LIMIT 50', 'orders_by_created_at'],
  ['SELECT * FROM orders WHERE seq > 5 ORDER BY seq LIMIT 100', 'orders_by_seq'],
  ['SELECT * FROM orders WHERE code = 5', 'orders_by_code'],
  [
    "SELECT * FROM orders WHERE status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund') ORDER BY created_at",
    'orders_open',
  ],
])('%s uses an index', (sql, index) => {
  const { mirror } = openTestMirror();
  const plan = mirror.read((db) => db.prepare<[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`).all());
  expect(plan.map(({ detail }) => detail).join()).toContain(`INDEX ${index}`);
  expect(plan.map(({ detail }) => detail).join()).not.toContain('TEMP B-TREE');
});
