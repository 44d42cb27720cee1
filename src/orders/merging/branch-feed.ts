import type Database from 'better-sqlite3';
import { hasRole } from '../../db/marks.ts';
import { sqlOf } from '../../db/sqlite.ts';
import { withoutCustomer } from './customer.ts';
import type { OrderSpellings } from './field-aliases.ts';
import type { OrderReading, OrderSource } from './order.ts';

/** An order as the hub merged it. It is sent to a branch, which merges it in the same way. */
export interface SentOrder {
  source: OrderSource;
  /** When the hub observed the order, ISO 8601 UTC. */
  observedAt: string;
  reading: OrderReading;
  /** The order's payload, JSON text as the platform sent it. */
  raw: string;
  /** True for the whole order as the hub has it, missing for a single observation. */
  isWhole?: true;
  /** True if the customer was removed before the order was sent to the branch. */
  isForgotten?: true;
  /** True for a branch to which the order does not belong any more. */
  isAway?: true;
  /** That the branch's POS acknowledged the whole order, for a mirror that does not have it. */
  acked?: KnownAck;
}

/** An acknowledgement as the hub has it. */
export interface KnownAck {
  /** ISO 8601 UTC. */
  at: string;
  source: string;
  /** JSON array of the lines that the POS left out; null: none. */
  without: string | null;
  /** True if an edit since has to be acknowledged again. */
  isEdited?: true;
}

type FeedKind = 'order' | 'forget' | 'result' | 'catalog' | 'snapshot-begin' | 'snapshot-end';

/**
 * Adds a merged order to the feed of its branch, in the transaction of the merge. Must be called only if `isFeeding`.
 * Branches that had the order before get it too, so that they learn that it moved or ended. An order of no known branch
 * is recorded as unassigned.
 */
export function feedOrder(db: Database.Database, order: SentOrder): void {
  const { orderId } = order.reading;
  const branch = branchOf(db, orderId);
  if (branch !== undefined) {
    noteSent(db, branch, orderId);
    // The order's store is known now, so the order is no longer unassigned. A row with a branch is a person's
    // assignment and is kept.
    sqlOf(db).run('DELETE FROM _unassigned_orders WHERE order_id = ? AND branch IS NULL', orderId);
  } else {
    const note = 'INSERT INTO _unassigned_orders (order_id) VALUES (?) ON CONFLICT DO NOTHING';
    sqlOf(db).run(note, orderId);
  }
  const move = `UPDATE _sent_orders SET moved = (branch IS NOT @branch)
    WHERE order_id = @orderId AND moved <> (branch IS NOT @branch)`;
  sqlOf(db).run(move, { orderId, branch: branch ?? null });
  for (const each of sentTo(db, orderId)) {
    const sent: SentOrder = each === branch ? order : { ...order, isAway: true };
    addToFeed(db, each, 'order', sent, { at: order.observedAt, orderId });
  }
}

/** Records that an order was sent to a branch. */
export function noteSent(db: Database.Database, branch: string, orderId: string): void {
  const note = 'INSERT INTO _sent_orders (order_id, branch) VALUES (?, ?) ON CONFLICT DO NOTHING';
  sqlOf(db).run(note, orderId, branch);
}

/** Returns the configured branches to which the order was sent. */
function sentTo(db: Database.Database, orderId: string): string[] {
  const sql = `SELECT branch FROM _sent_orders JOIN _feed_branches USING (branch)
    WHERE order_id = ? AND catalog_key NOT NULL`;
  return sqlOf(db).values<string>(sql, orderId);
}

/** Returns the branch of an order: the branch that a person assigned, otherwise the branch of the order's store. */
function branchOf(db: Database.Database, orderId: string): string | undefined {
  const sql = `SELECT coalesce(u.branch, s.branch) FROM _orders o LEFT JOIN _unassigned_orders u USING (order_id)
    LEFT JOIN _feed_stores s ON s.store_id = o.store_external_id WHERE o.order_id = ?`;
  return sqlOf(db).value<string | null>(sql, orderId) ?? undefined;
}

/**
 * Adds an entry under the branch's next number, in the caller's transaction. Does nothing for an unknown branch.
 * `body` is null if the content is only read when the entry is sent.
 */
export function addToFeed(
  db: Database.Database,
  branch: string,
  kind: FeedKind,
  body: object | null,
  { at, orderId = null }: { at: string; orderId?: string | null },
): void {
  const sql = `INSERT INTO _feed (branch, n, kind, order_id, body, written_at)
    SELECT branch, last_n + 1, ?, ?, ?, ? FROM _feed_branches WHERE branch = ?`;
  const { changes } = sqlOf(db).run(
    sql,
    kind,
    orderId,
    body === null ? '' : JSON.stringify(body),
    at,
    branch,
  );
  if (changes === 0) return;
  sqlOf(db).run('UPDATE _feed_branches SET last_n = last_n + 1 WHERE branch = ?', branch);
}

/**
 * Removes an order's customer from the stored feed entries. Adds an entry for each branch that had the order, so that
 * the branch removes the customer too.
 */
export function forgetInFeed(
  db: Database.Database,
  orderId: string,
  spellings: OrderSpellings,
  at: string,
): void {
  if (!hasRole(db, 'hub')) return;
  const kept =
    "SELECT feed_id AS feedId, branch, body FROM _feed WHERE order_id = ? AND kind = 'order' AND body <> ''";
  const rows = sqlOf(db).rows<{ feedId: number; branch: string; body: string }>(kept, orderId);
  for (const { feedId, body } of rows) {
    const { observedAt, ...sent } = JSON.parse(body) as SentOrder;
    const { source, reading, raw } = withoutCustomer({ ...sent, observedAtMs: 0 }, spellings);
    const without: SentOrder = { source, observedAt, reading, raw, isForgotten: true };
    sqlOf(db).run('UPDATE _feed SET body = ? WHERE feed_id = ?', JSON.stringify(without), feedId);
  }
  // A closed branch also gets the entry, because its machine still has the customer when the branch is opened again.
  const hadOrder = sqlOf(db).values<string>('SELECT branch FROM _sent_orders WHERE order_id = ?', orderId);
  for (const branch of hadOrder) addToFeed(db, branch, 'forget', { orderId }, { at, orderId });
}

/** Returns whether this tillsync is a hub that sends orders to branches. */
export function isFeeding(db: Database.Database): boolean {
  return hasRole(db, 'hub') && sqlOf(db).row('SELECT 1 FROM _hub') !== undefined;
}

/** Deletes the hub's feeds. Called when this tillsync is no longer a hub. */
export function endFeeding(db: Database.Database): void {
  sqlOf(db).run('DROP INDEX IF EXISTS orders_by_store');
  for (const table of [
    '_hub',
    '_feed',
    '_feed_branches',
    '_feed_stores',
    '_unassigned_orders',
    '_sent_orders',
    '_handed_up',
    '_catalog_news',
    '_waiting_acks',
  ]) {
    sqlOf(db).run(`DELETE FROM ${table}`);
  }
}
