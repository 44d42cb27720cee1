import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { waitingOrders } from '../../src/orders/order-queries.ts';
import { oldStockMirror } from '../orders/old-stock-mirror.ts';
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
  expect(hub.rows('SELECT store FROM acknowledging_stores')).toEqual([{ store: 'B1' }]);
});

/** Makes a mirror of an older version with these rows, and migrates it. */
function upgraded(rows: string): Database.Database {
  const file = path.join(mkdtempSync(path.join(tmpdir(), 'tillsync-old-acks-')), 'mirror.db');
  oldStockMirror(file, 6);
  const old = new Database(file);
  old.exec(rows);
  old.close();
  const db = openConnection({ path: file, readonly: false, group: undefined });
  onTestFinished(() => {
    db.close();
  });
  return db;
}

it('a mirror of an older version keeps whose POS acknowledges', () => {
  const db = upgraded(`
    UPDATE orders SET store_external_id = NULL WHERE order_id = 'o10';
    UPDATE orders SET store_external_id = 'B2' WHERE order_id = 'o11';
    DELETE FROM order_acks;
    INSERT INTO order_acks VALUES ('o10', '2026-01-02T00:00:00.000Z', 'http'),
      ('o12', '2026-01-03T00:00:00.000Z', 'http'), ('o13', '2026-01-05T00:00:00.000Z', 'http'),
      ('o99', '2026-01-06T00:00:00.000Z', 'http');`);
  expect(db.prepare('SELECT * FROM acknowledging_stores ORDER BY store').all()).toEqual([
    { store: '', first_at: '2026-01-02T00:00:00.000Z', last_at: '2026-01-02T00:00:00.000Z' },
    { store: 'B1', first_at: '2026-01-03T00:00:00.000Z', last_at: '2026-01-05T00:00:00.000Z' },
  ]);
});

it('a store of an older version of which all acknowledgements were typed is none that acknowledges', () => {
  const db = upgraded(`
    UPDATE orders SET store_external_id = 'B2' WHERE order_id = 'o11';
    DELETE FROM order_acks;
    INSERT INTO order_acks VALUES ('o11', '2026-01-02T00:00:00.000Z', 'cli'),
      ('o12', '2026-01-03T00:00:00.000Z', 'cli'), ('o13', '2026-01-05T00:00:00.000Z', 'http');`);
  expect(db.prepare('SELECT * FROM acknowledging_stores').all()).toEqual([
    { store: 'B1', first_at: '2026-01-05T00:00:00.000Z', last_at: '2026-01-05T00:00:00.000Z' },
  ]);
});

it('a mirror whose acknowledged orders are all gone takes every store for one that acknowledges', () => {
  const db = upgraded("DELETE FROM order_acks; UPDATE marks SET value = 1 WHERE name = 'acks.used'");
  expect(db.prepare('SELECT store FROM acknowledging_stores').pluck().all()).toEqual(['B1']);
  expect(waitingOrders(db, Date.parse('2026-01-02T00:00:00.000Z'), 10)).toEqual([]);
});
