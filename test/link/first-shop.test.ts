/** Tests what a branch learns of the time when its store had no hub: src/link/feed-pages.ts and src/link/hub-hello.ts. */

import { expect, it } from 'vitest';
import { SEQ_JUMP } from '../../src/orders/merging/order.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { type BranchStore, type HubStore, openChain } from './chain-rig.ts';

const newestOf = (store: HubStore | BranchStore) =>
  store.rows<{ seq: number }>('SELECT coalesce(max(seq), 0) AS seq FROM order_events')[0]?.seq ?? 0;
const toBook = (branch: BranchStore) =>
  branch.rows<{ code: number; acked_at: string | null }>(
    'SELECT code, acked_at FROM orders_to_book ORDER BY code',
  );
const idOf = (number: number) => String(sampleNotification(number).internalOrderId);
const ackedAtHub = (hub: HubStore) =>
  hub.rows('SELECT order_id, branch, acked_at, source, seq FROM order_acks ORDER BY order_id');

/** Makes a store whose POS acknowledged orders 1 and 2, and line 2 of order 3 not, before it had branches. */
async function storeOfYesterday() {
  const chain = await openChain();
  const { hub, clock } = chain;
  for (const number of [1, 2, 3, 4]) await hub.order(number, 'B1', 'payment-approved');
  await hub.services.stores.write(({ reservations }) => {
    reservations.begin('auto');
    reservations.acknowledge([idOf(1), idOf(2)], 'inbox');
    reservations.acknowledge([{ orderId: idOf(3), without: [2] }], 'http');
  });
  await clock.advance(60_000);
  return chain;
}

it('a new branch numbers its events far above those of the hub, and knows what its POS acknowledged there', async () => {
  const { hub, branches, settle } = await storeOfYesterday();
  const [branch] = branches;
  const before = ackedAtHub(hub);
  const read = newestOf(hub);
  await settle();

  const seqs = branch.rows<{ seq: number }>('SELECT seq FROM order_events').map(({ seq }) => seq);
  expect(seqs).toHaveLength(4);
  expect(Math.min(...seqs)).toBeGreaterThan(read + SEQ_JUMP);
  expect(toBook(branch).map(({ code }) => code)).toEqual([3, 4]);
  expect(branch.rows(`SELECT without FROM order_acks WHERE order_id = '${idOf(3)}'`)).toEqual([
    { without: '[2]' },
  ]);
  // Nothing of it goes up again, and the hub has what it had.
  expect(branch.rows('SELECT order_id FROM _up_acks UNION SELECT body FROM _up_items')).toEqual([]);
  expect(ackedAtHub(hub)).toEqual(before);

  // The POS goes on: it acknowledges the rest.
  await branch.services.stores.write(({ reservations }) => {
    reservations.acknowledge([idOf(3), idOf(4)], 'inbox');
  });
  await settle();
  expect(toBook(branch)).toEqual([]);
  expect(hub.rows('SELECT order_id FROM orders_to_book')).toEqual([]);
});

it('a branch that lost its mirror is not handed what it acknowledged, and gets no number twice', async () => {
  const { hub, branches, settle } = await storeOfYesterday();
  const [branch] = branches;
  await settle();
  await branch.services.stores.write(({ reservations }) => {
    reservations.acknowledge([idOf(4)], 'inbox');
  });
  await settle();
  const read = newestOf(branch);
  await branch.stop();
  branch.loseMirror();
  await branch.start();
  await settle();
  expect(toBook(branch).map(({ code }) => code)).toEqual([3]);
  const [first] = branch.rows<{ seq: number }>('SELECT min(seq) AS seq FROM order_events');
  expect(first?.seq).toBeGreaterThan(read);
  expect(ackedAtHub(hub)).toHaveLength(4);
});

it('an order that was edited after it was acknowledged is to be acknowledged again, at the branch too', async () => {
  const { hub, branches, clock, settle } = await openChain();
  const [branch] = branches;
  await hub.sweep([product('p1', 'Product P1', [{ sku: '1001', stocks: { 'sub-1': ['P1', 50] } }])]);
  await hub.services.stores.write(({ reservations }) => void reservations.catchUp('auto'));
  await hub.order(1, 'B1', 'payment-approved');
  await hub.services.stores.write(({ reservations }) => void reservations.acknowledge([idOf(1)], 'inbox'));
  await clock.advance(60_000);
  const sent = sampleNotification(1, { status: 'payment-approved' });
  const items = (sent.items as object[]).map((item, i) => (i === 0 ? { ...item, amount: 5 } : item));
  await hub.save({ ...sent, items }, 'poll');
  await hub.services.stores.write(({ reservations }) => void reservations.catchUp('auto'));
  const unbooked = 'SELECT code, acked_at IS NOT NULL AS again FROM orders_to_book';
  expect(hub.rows(unbooked)).toEqual([{ code: 1, again: 1 }]);

  const ledger = () => branch.services.stores.write(({ reservations }) => void reservations.catchUp(false));
  await ledger();
  await settle();
  await ledger();
  expect(branch.rows(unbooked)).toEqual([{ code: 1, again: 1 }]);
  // That acknowledgement is not taken for one of the edit.
  expect(hub.rows(unbooked)).toEqual([{ code: 1, again: 1 }]);
  await branch.services.outbox.acknowledge([idOf(1)], 'http');
  await settle();
  expect(hub.rows(unbooked)).toEqual([]);
  expect(branch.rows(unbooked)).toEqual([]);
});
