import type Database from 'better-sqlite3';
import { sqlOf } from '../db/sqlite.ts';
import { withoutCustomer } from './customer.ts';
import type { OrderReading, OrderSource } from './order.ts';
import type { OrderSpellings } from './spellings.ts';

/** What goes down to a branch of one order: as it was merged here, for the same merge there. */
export interface SentOrder {
  source: OrderSource;
  /** ISO 8601 UTC. */
  observedAt: string;
  reading: OrderReading;
  /** JSON text as received. */
  raw: string;
  /** The order as the hub has it, not a step of it. */
  isWhole?: true;
  /** The customer was forgotten here before it went down. */
  isForgotten?: true;
}

export type FeedKind = 'order' | 'forget' | 'result' | 'catalog' | 'snapshot-begin' | 'snapshot-end';

/**
 * In the transaction of a merge that brought an event: at a hub the order goes into the feed of its branch, and of those
 * that had it before: they see whose it is now, and its end. An order of no known branch is noted.
 */
export function feedOrder(db: Database.Database, merged: () => SentOrder): void {
  if (!isFeeding(db)) return;
  const order = merged();
  const { orderId } = order.reading;
  const branch = branchOf(db, orderId);
  if (branch !== undefined) {
    noteSent(db, branch, orderId);
    // It names its store by now.
    sqlOf(db).run('DELETE FROM unassigned_orders WHERE order_id = ? AND branch IS NULL', orderId);
  } else {
    const note = 'INSERT INTO unassigned_orders (order_id) VALUES (?) ON CONFLICT DO NOTHING';
    sqlOf(db).run(note, orderId);
  }
  const move = `UPDATE sent_orders SET moved = (branch IS NOT @branch)
    WHERE order_id = @orderId AND moved <> (branch IS NOT @branch)`;
  sqlOf(db).run(move, { orderId, branch: branch ?? null });
  for (const each of sentTo(db, orderId))
    addToFeed(db, each, 'order', order, { at: order.observedAt, orderId });
}

/** That an order goes down to a branch. */
export function noteSent(db: Database.Database, branch: string, orderId: string): void {
  const note = 'INSERT INTO sent_orders (order_id, branch) VALUES (?, ?) ON CONFLICT DO NOTHING';
  sqlOf(db).run(note, orderId, branch);
}

/** The branches that the order went down to and that the configuration still has. */
function sentTo(db: Database.Database, orderId: string): string[] {
  const sql = `SELECT branch FROM sent_orders JOIN feed_branches USING (branch)
    WHERE order_id = ? AND catalog_key NOT NULL`;
  return sqlOf(db).values<string>(sql, orderId);
}

/** The branch of an order: the one that a person assigned it to, else that of the store it names. */
function branchOf(db: Database.Database, orderId: string): string | undefined {
  const sql = `SELECT coalesce(u.branch, s.branch) FROM orders o LEFT JOIN unassigned_orders u USING (order_id)
    LEFT JOIN feed_stores s ON s.store_id = o.store_external_id WHERE o.order_id = ?`;
  return sqlOf(db).value<string | null>(sql, orderId) ?? undefined;
}

/**
 * Gives it the next number of the branch; nothing where the branch is not known. Within the caller's transaction. `body`:
 * null where it is made when it leaves.
 */
export function addToFeed(
  db: Database.Database,
  branch: string,
  kind: FeedKind,
  body: object | null,
  { at, orderId = null }: { at: string; orderId?: string | null },
): void {
  const sql = `INSERT INTO feed (branch, n, kind, order_id, body, written_at)
    SELECT branch, last_n + 1, ?, ?, ?, ? FROM feed_branches WHERE branch = ?`;
  const { changes } = sqlOf(db).run(
    sql,
    kind,
    orderId,
    body === null ? '' : JSON.stringify(body),
    at,
    branch,
  );
  if (changes === 0) return;
  sqlOf(db).run('UPDATE feed_branches SET last_n = last_n + 1 WHERE branch = ?', branch);
}

/** The customer of an order is forgotten here: in what waits to go down, and then at each branch that had it. */
export function forgetInFeed(
  db: Database.Database,
  orderId: string,
  spellings: OrderSpellings,
  at: string,
): void {
  const kept =
    "SELECT feed_id AS feedId, branch, body FROM feed WHERE order_id = ? AND kind = 'order' AND body <> ''";
  const rows = sqlOf(db).rows<{ feedId: number; branch: string; body: string }>(kept, orderId);
  for (const { feedId, body } of rows) {
    const { observedAt, ...sent } = JSON.parse(body) as SentOrder;
    const { source, reading, raw } = withoutCustomer({ ...sent, observedAtMs: 0 }, spellings);
    const without: SentOrder = { source, observedAt, reading, raw, isForgotten: true };
    sqlOf(db).run('UPDATE feed SET body = ? WHERE feed_id = ?', JSON.stringify(without), feedId);
  }
  for (const branch of sentTo(db, orderId)) addToFeed(db, branch, 'forget', { orderId }, { at, orderId });
}

/** Whether orders go down to branches from here. */
export function isFeeding(db: Database.Database): boolean {
  return sqlOf(db).row('SELECT 1 FROM hub') !== undefined;
}

/** A store that is no hub any more feeds nobody. */
export function endFeeding(db: Database.Database): void {
  sqlOf(db).run('DROP INDEX IF EXISTS orders_by_store');
  for (const table of [
    'hub',
    'feed',
    'feed_branches',
    'feed_stores',
    'unassigned_orders',
    'sent_orders',
    'handed_up',
    'catalog_news',
    'waiting_acks',
  ]) {
    sqlOf(db).run(`DELETE FROM ${table}`);
  }
}
