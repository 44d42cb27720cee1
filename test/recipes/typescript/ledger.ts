// The till's own ledger, for till.ts, till-stream.ts and till-hook.ts: the stock at the start, the pieces that orders
// and sales took, and the orders whose acknowledgement is owed.
import { appendFileSync, readFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';

const {
  TILL_DIRECTORY,
  TILL_STORE = '',
  TILL_ARTICLES = '',
  TILL_SALES = '',
  TILL_REPORT = '',
  TILL_LEAD = '0',
} = process.env;
const OWN_SKU = '(SELECT CASE count(*) WHEN 1 THEN min(sku) END FROM stock WHERE external_id = ?)';
const TAKES_NOTHING = ['pending', 'payment-pending', 'cancel', 'refund', 'payment-canceled'];

const db = new DatabaseSync(`${TILL_DIRECTORY}/till.db`, { timeout: 5_000 });
db.exec(`PRAGMA synchronous = FULL;
  CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, external_id TEXT, qty REAL, told REAL);
  CREATE TABLE IF NOT EXISTS taken (by TEXT, line INTEGER, sku TEXT, qty REAL, PRIMARY KEY (by, line));
  CREATE INDEX IF NOT EXISTS taken_by_sku ON taken (sku);
  CREATE TABLE IF NOT EXISTS bookings (order_id TEXT PRIMARY KEY, total REAL, due TEXT, prepared INTEGER DEFAULT 0);
  CREATE TABLE IF NOT EXISTS owed (order_id TEXT PRIMARY KEY, seq INTEGER);
  CREATE TABLE IF NOT EXISTS place (seq INTEGER);
  INSERT INTO place SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM place);
  CREATE VIEW IF NOT EXISTS counts AS SELECT * FROM (SELECT external_id AS externalId, told,
    max(0, qty - (SELECT total(qty) FROM taken WHERE taken.sku = stock.sku)) AS qty FROM stock) WHERE qty <> told;`);
export const run = (sql: string, ...values: (string | number | null)[]) => db.prepare(sql).run(...values);
export const all = <T>(sql: string, ...values: string[]) => db.prepare(sql).all(...values) as T[];
export const place = () => all<{ seq: number }>('SELECT seq FROM place')[0]?.seq ?? 0;

const rowsOf = (file: string) =>
  readFileSync(file, 'utf8')
    .split('\n')
    .slice(0, -1)
    .map((line) => line.split('\t'));
for (const [sku = '', id = '', , qty] of rowsOf(TILL_ARTICLES).slice(1))
  run('INSERT OR IGNORE INTO stock VALUES (?, ?, ?, ?)', sku, id, Number(qty), Number(qty));

/** Writes into the till's report that an order was booked, at first or with another total, or that it is to be prepared now. */
const report = (...cells: (string | number | null)[]) => appendFileSync(TILL_REPORT, `${cells.join('\t')}\n`);

/** An event of the feed. `order` is the newest state of the order, or null once the order was deleted. */
export interface Event {
  seq: number;
  orderId: string;
  order: {
    status: string | null;
    storeExternalId: string | null;
    amountToPay: number | null;
    isScheduled: boolean | null;
    scheduledFor: string | null;
    items: { sku: string | null; productExternalId: string | null; quantity: number | null }[];
  } | null;
}

/** Books events in one transaction. What an order takes now replaces what the order took before. */
export function book(events: Event[]) {
  db.exec('BEGIN IMMEDIATE');
  try {
    events.forEach(bookOne);
    db.exec('COMMIT');
  } catch (error) {
    db.exec('ROLLBACK');
    throw error;
  }
}

function bookOne({ seq, orderId, order }: Event) {
  run('DELETE FROM taken WHERE by = ?', orderId);
  if (order?.storeExternalId === TILL_STORE && !TAKES_NOTHING.includes(order.status ?? '')) {
    const [total, due] = [order.amountToPay, order.isScheduled ? order.scheduledFor : null];
    const [known] = all<{ total: number | null }>('SELECT total FROM bookings WHERE order_id = ?', orderId);
    if (known?.total !== total) report('booked', orderId, total);
    run('INSERT OR IGNORE INTO bookings (order_id) VALUES (?)', orderId);
    run('UPDATE bookings SET total = ?, due = ? WHERE order_id = ?', total, due, orderId);
    const take = `INSERT INTO taken VALUES (?, ?, coalesce(?, ${OWN_SKU}), ?)`;
    for (const [line, { sku, productExternalId: id, quantity }] of order.items.entries())
      run(take, orderId, line, sku, id, quantity ?? 0);
    // An order with an unknown article is not acknowledged, so tillsync keeps its pieces back.
    if (all('SELECT 1 FROM taken WHERE by = ? AND sku IS NULL', orderId).length > 0)
      console.error(`A person has to look: ${orderId} has an article that is not known`);
    else run('INSERT OR REPLACE INTO owed VALUES (?, ?)', orderId, seq);
  } else run('DELETE FROM bookings WHERE order_id = ?', orderId);
  run('UPDATE place SET seq = ?', seq);
}

/**
 * Records new sales over the counter, and reports the orders that must be prepared now: TILL_LEAD seconds before their
 * time.
 */
export function sellAndPrepare() {
  for (const [number = '', sku = '', qty] of rowsOf(TILL_SALES))
    run('INSERT OR IGNORE INTO taken VALUES (?, 0, ?, ?)', `sale ${number}`, sku, Number(qty));
  const due = 'SELECT order_id AS id FROM bookings WHERE prepared = 0 AND (due IS NULL OR due <= ?)';
  const latest = new Date(Date.now() + Number(TILL_LEAD) * 1_000).toISOString();
  for (const { id } of all<{ id: string }>(due, latest)) {
    report('prepare', id);
    run('UPDATE bookings SET prepared = 1 WHERE order_id = ?', id);
  }
}
