import Database from 'better-sqlite3';
import { expect, it, vi } from 'vitest';
import { seededRandom } from '../support/fake-clock.ts';
import { outgoing, SEND_ALL, tempMirror } from './outbox-fixture.ts';
import { StockModel } from './stock-model.ts';
import { TEA } from './swept-outbox.ts';

/**
 * Statements that may read a whole table: they run once when a branch starts to hold back, once a sweep, once for each
 * state of the catalogue, or end at their LIMIT.
 */
const ONCE =
  /FROM _orders INDEXED BY orders_open|expected_qty IS NOT wanted_qty|FROM _products WHERE vanished_at IS NULL(?: ORDER BY rowid DESC LIMIT|$)|INDEXED BY integrations_by_pos_b WHERE|UPDATE _stock_(?:counts|steps) SET [\s\S]*@(?:sku|key) IN \(''/;
/**
 * Step of a query plan that reads a whole table of the catalogue, of orders, of changes or of counts (by name or
 * alias), or that makes an index for one query. A scan of a partial index reads only what waits.
 */
const READS_ALL =
  /\bSCAN (i|k|s|p|o|e|c|integrations|_stocks|_skus|_products|_orders|order_items|order_events)\b|\bSCAN (_outbox|w|_stock_counts|_stock_steps)(?! USING)\b|AUTOMATIC/;

it('nothing that runs with each order or change reads the catalogue, the orders or the changes from end to end', async () => {
  const db = tempMirror();
  const prepare = vi.spyOn(Database.prototype, 'prepare');
  const model = new StockModel(seededRandom(1), 'takes-off');
  for (let step = 0; step < 400; step++) await model.act();
  await model.rest();
  const out = outgoing(db);
  out.sweep([TEA]);
  const changes = [
    { externalId: 'B', name: 'Mint', price: 5 },
    { externalId: 'B', show: false },
    { externalId: 'unknown', price: 3 },
  ];
  for (const each of changes) out.accept('product', [each]);
  const { callId, items } = out.dispatcher.claim('product', 9, SEND_ALL);
  out.accept('product', [{ externalId: 'B', name: 'Green' }]);
  const answers = items.map(({ changeId }) => ({ changeId, state: 'retry' as const }));
  out.dispatcher.settle(callId ?? 0, answers);
  out.dispatcher.claim('product', 9, SEND_ALL);
  out.dispatcher.reclaim();
  out.admin.unresolved('needs-read', { limit: 9 });
  out.admin.prune(0);
  out.accept('stock', [{ externalId: 'later', qty: 3 }]);
  for (const each of out.admin.unresolved('needs-read', { limit: 9 })) {
    out.admin.retarget(each, out.resolve({ kind: 'stock', change: { externalId: 'B', qty: 3 } }));
  }
  const [unwanted] = out.accept('stock', [{ externalId: 'B', qty: 4 }]);
  out.admin.discard(unwanted?.changeId ?? 0);
  out.reservations.collect();
  const statements = [...new Set(prepare.mock.calls.map(([sql]) => sql))];
  prepare.mockRestore();
  expect(statements.length).toBeGreaterThan(70);
  const reading = statements
    .filter((sql) => !/^\s*(INSERT INTO|CREATE|PRAGMA)/.test(sql) || sql.includes('SELECT'))
    .filter((sql) => !ONCE.test(sql))
    .flatMap((sql) => {
      const explained = `EXPLAIN QUERY PLAN ${sql.replaceAll(/[@:]kind\b/g, "'stock'").replaceAll(/[@:][A-Za-z]+|\?/g, '1')}`;
      const plan = db.prepare<[], { detail: string }>(explained).all();
      return plan.filter(({ detail }) => READS_ALL.test(detail)).map(({ detail }) => `${detail}: ${sql}`);
    });
  expect(reading).toEqual([]);
});
