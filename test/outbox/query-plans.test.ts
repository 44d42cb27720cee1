import { expect, it, vi } from 'vitest';
import { outgoing, tempMirror } from './outbox-fixture.ts';

/** Open orders, read once when the hold-back begins. */
const ONCE = 'FROM orders INDEXED BY orders_open';
/** A table of the catalogue or of orders by its alias, read from end to end; or an index made for one query. */
const READS_ALL =
  /\bSCAN (i|k|s|p|o|e|c|integrations|stocks|skus|products|orders|order_items|order_events)\b|AUTOMATIC/;

it('nothing that runs with each order or change reads the catalogue or the orders from end to end', () => {
  const db = tempMirror();
  const prepare = vi.spyOn(db, 'prepare');
  outgoing(db);
  const statements = [...new Set(prepare.mock.calls.map(([sql]) => sql))];
  prepare.mockRestore();
  expect(statements.length).toBeGreaterThan(50);
  const reading = statements
    .filter((sql) => !sql.includes(ONCE))
    .flatMap((sql) => {
      const explained = `EXPLAIN QUERY PLAN ${sql.replaceAll(/[@:][A-Za-z]+|\?/g, '1')}`;
      const plan = db.prepare<[], { detail: string }>(explained).all();
      return plan.filter(({ detail }) => READS_ALL.test(detail)).map(({ detail }) => `${detail}: ${sql}`);
    });
  expect(reading).toEqual([]);
});
