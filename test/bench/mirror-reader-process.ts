import Database from 'better-sqlite3';
import { percentile } from './mirror-samples.ts';

/**
 * A POS that repeats its two queries. Arguments: database, milliseconds. Prints the 50th and 99th percentile of each
 * query's duration as JSON, in milliseconds.
 */
const [, , path = '', forMs = '1000'] = process.argv;
const db = new Database(path, { readonly: true, timeout: 100 });
const latest = db.prepare(`
  SELECT o.order_id, o.code, o.status, o.name, o.amount_to_pay, (
    SELECT json_group_array(json_object('name', i.product_name, 'quantity', i.quantity, 'price', i.product_price))
    FROM order_items i WHERE i.order_id = o.order_id) AS items
  FROM orders o ORDER BY o.created_at DESC LIMIT 50`);
const changed = db.prepare(`
  SELECT e.seq, o.* FROM order_events e JOIN orders o ON o.order_id = e.order_id
  WHERE e.seq > ? ORDER BY e.seq LIMIT 100`);
const newest = db.prepare('SELECT max(seq) FROM order_events').pluck();

const latestMs: number[] = [];
const changedMs: number[] = [];
const endMs = performance.now() + Number(forMs);
while (performance.now() < endMs) {
  latestMs.push(time(() => latest.all()));
  const seq = (newest.get() as number) - 100;
  changedMs.push(time(() => changed.all(seq)));
  await new Promise((resolve) => setTimeout(resolve, 2));
}
process.stdout.write(
  JSON.stringify([latestMs, changedMs].map((ms) => [percentile(ms, 0.5), percentile(ms, 0.99)])),
);

function time(action: () => void): number {
  const startMs = performance.now();
  action();
  return performance.now() - startMs;
}
