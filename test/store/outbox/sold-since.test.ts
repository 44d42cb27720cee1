import type Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import { CatalogStore } from '../../../src/store/catalog/catalog-store.ts';
import { SoldSince } from '../../../src/store/outbox/sold-since.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { BRANCHES, product, tempMirror } from './outbox-fixture.ts';

function sell(
  db: Database.Database,
  orderId: string,
  item: { externalId: string | null; name: string | null },
) {
  db.prepare(
    `INSERT INTO order_events (order_id, status, previous_status, source, observed_at)
     VALUES (?, 'pending', NULL, 'webhook', '2026-01-15T12:00:00.000Z')`,
  ).run(orderId);
  db.prepare(
    'INSERT INTO order_items (order_id, line, product_external_id, product_name, quantity) VALUES (?, 1, ?, ?, 1)',
  ).run(orderId, item.externalId, item.name);
}

it('knows what an order may have touched, also where its item carries no id', () => {
  const db = tempMirror();
  const catalog = new CatalogStore({ db, clock: new FakeClock() });
  const branch = BRANCHES[0] as (typeof BRANCHES)[number];
  const coffee = product('p1', 'Coffee', [{ sku: '1', stocks: { s1: ['C1', 5] } }]);
  const tea = product('p2', 'Tea', [{ sku: '2', stocks: { s1: ['T1', 5] } }]);
  catalog.applyPage(branch, [coffee, tea], catalog.readMark());
  const sold = new SoldSince(db);
  const untouched = () => {
    sold.catchUp();
    return [sold.isUntouchedSince(0, '1', ['C1']), sold.isUntouchedSince(0, '2', ['T1'])];
  };
  expect(untouched()).toEqual([true, true]);
  sell(db, 'by id', { externalId: 'C1', name: 'Coffee' });
  expect(untouched()).toEqual([false, true]);
  expect(sold.isUntouchedSince(1, '1', ['C1'])).toBe(true);
  sell(db, 'by name, with modifiers', { externalId: null, name: 'Tea' });
  expect(untouched()).toEqual([false, false]);
  expect(sold.isUntouchedSince(1, '1', ['C1'])).toBe(true);
  sell(db, 'by a name nobody knows', { externalId: null, name: 'Yesterday’s name' });
  sold.catchUp();
  expect(sold.isUntouchedSince(2, '1', ['C1'])).toBe(false);
  expect(sold.isUntouchedSince(3, '1', ['C1'])).toBe(true);
});
