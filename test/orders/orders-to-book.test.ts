import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { sqlOf } from '../../src/db/sqlite.ts';
import { ORDER_STATUSES } from '../../src/orders/merging/order.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { eachOrder, ordersToBook } from '../../src/orders/reading/order-queries.ts';
import { openTestMirror, receive, sampleNotification } from './open-test-mirror.ts';

const toBook = (mirror: Mirror) =>
  mirror.read((db) => sqlOf(db).values<number>('SELECT code FROM orders_to_book ORDER BY seq'));

function acknowledge(mirror: Mirror, number: number, branch: string): Promise<unknown> {
  const orderId = sampleNotification(number).internalOrderId as string;
  return mirror.write((db) =>
    sqlOf(db).run(
      'INSERT INTO _order_acks (order_id, branch, acked_at, source, seq) VALUES (?, ?, ?, ?, 1)',
      ...[orderId, branch, '2026-01-15T12:00:00.000Z', 'http'],
    ),
  );
}

/**
 * Returns for each status whether the POS must book orders with it, as a table in a file of docs/ says. `yes` is the
 * table's word for "must book".
 */
function told(file: string, yes: string): Map<string, boolean> {
  const text = readFileSync(new URL(`../../docs/${file}`, import.meta.url), 'utf8');
  const table = text.split('<!-- table: statuses -->\n')[1]?.split('\n\n')[0] ?? '';
  const rows = table.split('\n').slice(2);
  return new Map(rows.map((row) => [/`([\w-]+)`/.exec(row)?.[1] ?? 'other', row.endsWith(`| ${yes} |`)]));
}

it.each([
  ['pos.md', 'yes'],
  ['pos.es.md', 'sí'],
])('%s says of each status whether the POS is to book it, as the view has it', async (file, yes) => {
  const { mirror } = openTestMirror();
  const statuses = [...ORDER_STATUSES, 'other'];
  await receive(mirror, ...statuses.map((status, i) => sampleNotification(i, { status })));
  const booked = toBook(mirror).map((code) => statuses[code]);
  const said = told(file, yes);
  expect([...said.keys()].sort()).toEqual([...statuses].sort());
  expect(
    [...said]
      .filter(([, isToBook]) => isToBook)
      .map(([status]) => status)
      .sort(),
  ).toEqual(booked.sort());
});

it('has an order without a status, and none that the POS of its own store acknowledged', async () => {
  const { mirror } = openTestMirror();
  const at = (number: number, store: string | null, status: string | undefined = 'ready') =>
    sampleNotification(number, { status, store: { externalId: store } });
  await receive(mirror, at(1, 'B1'), at(2, 'B1'), at(3, 'B2'), at(4, null), at(5, 'B1'));
  await receive(mirror, sampleNotification(6, { status: undefined, store: { externalId: 'B1' } }));
  await acknowledge(mirror, 1, 'B1');
  // B2 acknowledges an order of B1, as if the order had been moved from B2 to B1.
  await acknowledge(mirror, 2, 'B2');
  await acknowledge(mirror, 3, 'B2');
  await acknowledge(mirror, 4, '');
  expect(toBook(mirror)).toEqual([2, 5, 6]);
  const listed = mirror.read((db) => [...eachOrder(db, { unbooked: true, open: true, limit: 9 })]);
  expect(listed.map(({ code }) => code).sort()).toEqual([2, 5, 6]);
});

it('gives pages of a store by the newest event, with their lines', async () => {
  const { mirror } = openTestMirror();
  for (const number of [1, 2, 3, 4]) {
    const store = { externalId: number === 2 ? 'B2' : 'B1' };
    await receive(mirror, sampleNotification(number, { status: 'inProcess', store }));
  }
  const page = (after: number, limit: number) =>
    mirror.read((db) => ordersToBook(db, { stores: ['B1', 'sub-1'], after, limit }));
  const first = page(0, 2);
  expect(first).toMatchObject([
    { code: 1, acknowledgedAt: null },
    { code: 3, acknowledgedAt: null },
  ]);
  expect(first[0]?.items.length).toBeGreaterThan(0);
  expect(page(first.at(-1)?.seq ?? 0, 2)).toMatchObject([{ code: 4 }]);
});

it.each(['orders_to_book', 'orders_to_book WHERE seq > 5'])('reads %s by the open orders alone', (from) => {
  const { mirror } = openTestMirror();
  const plan = mirror.read((db) =>
    sqlOf(db).rows<{ detail: string }>(`EXPLAIN QUERY PLAN SELECT order_id FROM ${from} ORDER BY created_at`),
  );
  expect(plan[0]?.detail).toContain('orders_open');
});
