import Database from 'better-sqlite3';
import { percentile } from '../../bench/mirror-samples.ts';

/**
 * A POS that follows the feed by SQL, as a separate process. Arguments: mirror.db, milliseconds between two reads,
 * milliseconds for which each read keeps its snapshot (0: not at all). It prints a `ReaderReport` when its standard
 * input ends.
 */
export interface ReaderReport {
  looks: number;
  events: number;
  /** Reads that SQLite refused, such as BUSY. */
  errors: string[];
  /** Number of seqs that came twice or out of order. */
  disorder: number;
  /** Duration of one read: the new events with their orders and items. */
  p50Ms: number;
  p99Ms: number;
  maxMs: number;
}

const [, , path = '', every = '100', hold = '0'] = process.argv;
const db = new Database(path, { readonly: true, timeout: 100 });
const news = db.prepare<[number], { seq: number; items: string }>(`
  SELECT e.seq, e.status, o.code, o.name, o.amount_to_pay, o.payload, (
    SELECT json_group_array(json_object('name', i.product_name, 'quantity', i.quantity))
    FROM order_items i WHERE i.order_id = e.order_id) AS items
  FROM order_events e JOIN orders o ON o.order_id = e.order_id
  WHERE e.seq > ? ORDER BY e.seq LIMIT 500`);
const report: ReaderReport = {
  looks: 0,
  events: 0,
  errors: [],
  disorder: 0,
  p50Ms: 0,
  p99Ms: 0,
  maxMs: 0,
};
const tookMs: number[] = [];
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
let seen = 0;
let isOver = false;
// The reader ends when its standard input closes, which also happens when the test dies.
process.stdin.resume().once('close', () => {
  isOver = true;
});

// The last read begins after standard input has closed, so it sees everything that was in the mirror then.
for (let isLast = false; !isLast; ) {
  isLast = isOver;
  try {
    await look();
  } catch (error) {
    report.errors.push(String(error));
    if (db.inTransaction) db.exec('ROLLBACK');
  }
  if (!isLast) await pause(Number(every));
}
tookMs.sort((a, b) => a - b);
report.p50Ms = percentile(tookMs, 0.5);
report.p99Ms = percentile(tookMs, 0.99);
report.maxMs = tookMs.at(-1) ?? 0;
process.stdout.write(JSON.stringify(report));

async function look(): Promise<void> {
  if (Number(hold) > 0) db.exec('BEGIN');
  const startMs = performance.now();
  const rows = news.all(seen);
  tookMs.push(performance.now() - startMs);
  report.looks += 1;
  for (const { seq } of rows) {
    if (seq <= seen) report.disorder += 1;
    seen = seq;
  }
  report.events += rows.length;
  if (Number(hold) === 0) return;
  for (let ms = 0; ms < Number(hold) && !isOver; ms += 100) await pause(100);
  db.exec('COMMIT');
}
