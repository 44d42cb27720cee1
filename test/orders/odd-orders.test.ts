import { expect, it } from 'vitest';
import { strayOrders, sumsOfOrders } from '../../src/orders/merging/incomplete-orders.ts';
import { OBSERVED_MS, openTestMirror, receive, sampleNotification } from './open-test-mirror.ts';

const NOW_MS = Date.UTC(2026, 0, 10, 13);
const line = (productPrice: number) => ({ product: { name: 'a' }, amount: 1, productPrice });

it('strays are the open orders of a day that name no branch, or one that is not known', async () => {
  const { mirror } = openTestMirror();
  await receive(
    mirror,
    sampleNotification(1),
    sampleNotification(2, { store: null }),
    sampleNotification(3, { store: { externalId: 'B9' }, createdAt: '2026-01-10T11:00:00Z' }),
    sampleNotification(4, { store: null, status: 'cancel' }),
    sampleNotification(5, { store: null, createdAt: '2026-01-08T12:00:00Z' }),
    sampleNotification(6, { store: { externalId: 'sub-2' } }),
  );
  const found = mirror.read((db) => strayOrders(db, ['B1', 'sub-2'], NOW_MS));
  expect(found.map(({ code, store }) => [code, store])).toEqual([
    [2, null],
    [3, 'B9'],
  ]);
  // `null` means that one branch's external id is unknown, so any name may be that branch's.
  const nameless = mirror.read((db) => strayOrders(db, null, NOW_MS));
  expect(nameless.map(({ code }) => code)).toEqual([2]);
});

it('strays are also those without a time of creation, for a day after their last change', async () => {
  const { mirror } = openTestMirror();
  await receive(mirror, sampleNotification(1, { store: null, createdAt: null }));
  const strays = (nowMs: number) => mirror.read((db) => strayOrders(db, null, nowMs)).map(({ code }) => code);
  expect(strays(OBSERVED_MS)).toEqual([1]);
  expect(strays(OBSERVED_MS + 25 * 3_600_000)).toEqual([]);
});

it('sums are judged by the orders of a day that state them, beside those of the week before', async () => {
  const { mirror } = openTestMirror();
  const short = { items: [line(9_000)] };
  await receive(
    mirror,
    sampleNotification(1),
    sampleNotification(2, short),
    sampleNotification(3, { ...short, amount: null }),
    sampleNotification(4, { ...short, createdAt: '2026-01-05T12:00:00Z' }),
    sampleNotification(5, { createdAt: '2026-01-05T12:00:00Z' }),
  );
  const judged = () => mirror.read((db) => sumsOfOrders(db, NOW_MS));
  expect(judged()).toMatchObject({ orders: 2, odd: [{ code: 2 }], usualShare: 0.5 });
  await receive(mirror, sampleNotification(2, { status: 'ready' }));
  expect(judged().odd).toEqual([]);
});
