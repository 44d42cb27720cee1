import { expect, it } from 'vitest';
import { waitingOrders } from '../../src/orders/reading/order-queries.ts';
import { DAY_MS, run, START_MS } from '../orders/retention-rig.ts';
import { type Chain, openChain } from './chain-rig.ts';

const idOf = (number: number) => `65a1${String(number).padStart(20, '0')}`;
const MINUTE_MS = 60_000;

const waitingAt = ({ hub, clock }: Chain) =>
  hub.services.mirror
    .read((db) => waitingOrders(db, clock.nowMs(), 100))
    .map(({ orderId }) => orderId)
    .sort();

it('a branch that only reads orders lets none of them wait, whatever another one acknowledges', async () => {
  const chain = await openChain();
  const { hub, branches, clock, settle } = chain;
  await settle();
  const createdAt = new Date(clock.nowMs()).toISOString();
  for (const [number, store] of [...Array(4).keys()].map((i) => [i + 1, i < 2 ? 'B1' : 'B2'] as const)) {
    await hub.order(number, store, 'payment-approved', createdAt);
  }
  await settle();
  expect(waitingAt(chain)).toEqual([]);
  await branches[0].services.outbox.acknowledge([idOf(1)], 'http');
  await settle();
  await clock.advance(40 * MINUTE_MS);
  // B1's POS acknowledged one order, so B1's other order counts as waiting. B2's POS never acknowledged any.
  expect(waitingAt(chain)).toEqual([idOf(2)]);

  for (const number of [1, 2, 3, 4]) await hub.order(number, number < 3 ? 'B1' : 'B2', 'dispatched');
  // Another order follows, because retention never deletes the newest event of the feed.
  await hub.order(5, 'B2', 'pending');
  await settle();
  // Retention deletes an order 400 days after its end.
  const endDay = (clock.nowMs() - START_MS) / DAY_MS;
  expect((await run(hub.services.mirror, endDay + 399.9)).dropped.orders).toBeUndefined();
  expect((await run(hub.services.mirror, endDay + 400.1)).dropped.orders).toBe(3);
  expect(hub.rows('SELECT order_id FROM orders ORDER BY 1')).toEqual([
    { order_id: idOf(2) },
    { order_id: idOf(5) },
  ]);
  // B1's acknowledged orders are deleted, but the record that B1 acknowledges is kept.
  expect(hub.rows("SELECT name AS store FROM _seen WHERE kind = 'acknowledging-store'")).toEqual([
    { store: 'B1' },
  ]);
});
