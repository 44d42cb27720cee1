// node till.ts: books online orders over HTTP, hands over the counts, acknowledges. Node 24; its ledger is till.db.
import { appendFileSync, readFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';

const env = process.env as Record<string, string>;
const UNPAID = ['pending', 'payment-pending'];
const UNDONE = ['cancel', 'refund', 'payment-canceled'];
interface Order {
  status: string | null;
  storeExternalId: string | null;
  amountToPay: number | null;
  isScheduled: boolean | null;
  scheduledFor: string | null;
  items: { sku: string | null; quantity: number | null }[];
}
interface Answer {
  events: { seq: number; orderId: string; order: Order | null }[];
  next: number;
  results?: { index: number; state: string; message?: string }[];
  error?: { code: string; message: string };
}

const db = new DatabaseSync(`${env.TILL_DIRECTORY}/till.db`, { timeout: 5_000 });
db.exec(`PRAGMA synchronous = FULL;
  CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, external_id TEXT, qty REAL, told REAL);
  CREATE TABLE IF NOT EXISTS taken (order_id TEXT, sku TEXT, qty REAL, PRIMARY KEY (order_id, sku));
  CREATE TABLE IF NOT EXISTS tickets (order_id TEXT PRIMARY KEY, total, due TEXT, step INTEGER DEFAULT 0);
  CREATE TABLE IF NOT EXISTS owed (order_id TEXT PRIMARY KEY, seq INTEGER);
  CREATE TABLE IF NOT EXISTS place (name TEXT PRIMARY KEY, value INTEGER);
  INSERT OR IGNORE INTO place VALUES ('seq', 0), ('sale', 0);`);
const run = (sql: string, ...values: (string | number | null)[]) => db.prepare(sql).run(...values);
const all = <T>(sql: string, ...values: (string | number)[]) => db.prepare(sql).all(...values) as T[];
const place = (name: string) =>
  all<{ value: number }>('SELECT value FROM place WHERE name = ?', name)[0]?.value ?? 0;
const rowsOf = (file = '') =>
  readFileSync(file, 'utf8')
    .split('\n')
    .slice(0, -1)
    .map((line) => line.split('\t'));
function atOnce(work: () => void) {
  db.exec('BEGIN IMMEDIATE');
  try {
    work();
    db.exec('COMMIT');
  } catch (error) {
    db.exec('ROLLBACK');
    throw error;
  }
}

async function ask(path: string, body?: unknown): Promise<Answer> {
  const headers = { authorization: `Bearer ${env.TILL_KEY}`, 'content-type': 'application/json' };
  const answer = await fetch(env.TILL_URL + path, {
    headers,
    ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
  });
  const given = (await answer.json()) as Answer;
  if (given.results || answer.ok) return given;
  if (given.error?.code === 'feed-restarted') run("UPDATE place SET value = 0 WHERE name = 'seq'");
  throw new Error(`${path}: ${answer.status} ${given.error?.message}`);
}

/** What the order took is given back, what it takes now is taken, and the place noted, in one transaction. */
function book(seq: number, orderId: string, order: Order | null) {
  const isOurs =
    order !== null && order.storeExternalId === env.TILL_STORE && !UNPAID.includes(order.status ?? '');
  for (const { sku, qty } of all<{ sku: string; qty: number }>(
    'SELECT sku, qty FROM taken WHERE order_id = ?',
    orderId,
  ))
    run('UPDATE stock SET qty = qty + ? WHERE sku = ?', qty, sku);
  run('DELETE FROM taken WHERE order_id = ?', orderId);
  if (isOurs && !UNDONE.includes(order.status ?? '')) {
    for (const { sku, quantity } of order.items) {
      if (sku === null) continue; // No article of the catalogue.
      run('UPDATE stock SET qty = qty - ? WHERE sku = ?', quantity ?? 0, sku);
      run(
        'INSERT INTO taken VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET qty = qty + excluded.qty',
        orderId,
        sku,
        quantity ?? 0,
      );
    }
    const due = order.isScheduled ? order.scheduledFor : null;
    run(
      'INSERT INTO tickets (order_id, total, due) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET due = excluded.due',
      orderId,
      order.amountToPay,
      due,
    );
    run('INSERT OR REPLACE INTO owed VALUES (?, ?)', orderId, seq);
  } else run('DELETE FROM tickets WHERE order_id = ?', orderId);
  run("UPDATE place SET value = ? WHERE name = 'seq'", seq);
}

function sell() {
  for (const [number = 0, sku = '', qty = 0] of rowsOf(env.TILL_SALES).filter(
    ([n]) => Number(n) > place('sale'),
  ))
    atOnce(() => {
      run('UPDATE stock SET qty = qty - ? WHERE sku = ?', Number(qty), sku);
      run("UPDATE place SET value = ? WHERE name = 'sale'", Number(number));
    });
}

/** Counts first; an order is acknowledged once every count has an answer, be it taken, held or refused. */
async function handOver() {
  const owed = all<{ orderId: string; seq: number }>('SELECT order_id AS orderId, seq FROM owed LIMIT 1000');
  const counts = all<{ externalId: string; qty: number }>(
    'SELECT external_id AS externalId, max(qty, 0) AS qty FROM stock WHERE max(qty, 0) <> told',
  );
  if (counts.length > 0) {
    const { results = [] } = await ask(
      '/v1/stock',
      counts.map((count) => ({ ...count, subsidiaryExternalId: env.TILL_STORE })),
    );
    for (const { index, state, message } of results) {
      if (state === 'rejected')
        console.error(`refused, a person has to look: ${counts[index]?.externalId}: ${message}`);
      run(
        'UPDATE stock SET told = ? WHERE external_id = ?',
        counts[index]?.qty ?? 0,
        counts[index]?.externalId ?? '',
      );
    }
    if (results.length < counts.length) return;
  }
  if (owed.length === 0) return;
  await ask('/v1/orders/ack', owed);
  for (const { orderId, seq } of owed) run('DELETE FROM owed WHERE order_id = ? AND seq = ?', orderId, seq);
}

/** Prints tickets: each is booked at once, and prepared at its scheduled time. */
function printTickets() {
  for (const { id, total } of all<{ id: string; total: number }>(
    'SELECT order_id AS id, total FROM tickets WHERE step = 0',
  )) {
    appendFileSync(env.TILL_REPORT ?? '', `booked\t${id}\t${total ?? ''}\n`);
    run('UPDATE tickets SET step = 1 WHERE order_id = ?', id);
  }
  for (const { id } of all<{ id: string }>(
    'SELECT order_id AS id FROM tickets WHERE step = 1 AND (due IS NULL OR due <= ?)',
    new Date().toISOString(),
  )) {
    appendFileSync(env.TILL_REPORT ?? '', `prepare\t${id}\n`);
    run('UPDATE tickets SET step = 2 WHERE order_id = ?', id);
  }
}

atOnce(() => {
  for (const [sku = '', externalId = '', , qty] of rowsOf(env.TILL_ARTICLES).slice(1))
    run('INSERT OR IGNORE INTO stock VALUES (?, ?, ?, ?)', sku, externalId, Number(qty), Number(qty));
});
for (;;) {
  try {
    sell();
    const page = await ask(`/v1/orders?after=${place('seq')}&store=${env.TILL_STORE}&wait=1`);
    atOnce(() => {
      for (const { seq, orderId, order } of page.events) book(seq, orderId, order);
    });
    if (page.events.length === 0) run("UPDATE place SET value = ? WHERE name = 'seq'", page.next);
    printTickets();
    await handOver();
  } catch (error) {
    console.error(String(error)); // Later again: what is owed stands in the ledger.
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
