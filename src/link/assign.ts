import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import { sqlOf } from '../db/sqlite.ts';
import { sendWhole } from './feed-pages.ts';
import { sendNowKnown } from './hub-feed.ts';

/** An order that nobody has assigned yet; `store`: by which it names its store, null: it names none. */
export interface UnassignedOrder {
  orderId: string;
  store: string | null;
}

/** Orders that name no branch: how many, and the first few stores that they name. Within the caller's transaction. */
export function unassigned(db: Database.Database): { orders: number; stores: (string | null)[] } {
  const count =
    'SELECT count(*) FROM unassigned_orders u JOIN orders USING (order_id) WHERE u.branch IS NULL';
  const orders = sqlOf(db).value<number>(count) ?? 0;
  const names = `SELECT DISTINCT store_external_id FROM unassigned_orders u JOIN orders USING (order_id)
    WHERE u.branch IS NULL ORDER BY 1 LIMIT 5`;
  return { orders, stores: orders === 0 ? [] : sqlOf(db).values<string | null>(names) };
}

/** The oldest of them first. */
export function unassignedOrders(db: Database.Database, limit: number): UnassignedOrder[] {
  const sql = `SELECT order_id AS orderId, store_external_id AS store FROM unassigned_orders u
    JOIN orders o USING (order_id) WHERE u.branch IS NULL ORDER BY o.seq LIMIT ?`;
  return sqlOf(db).rows<UnassignedOrder>(sql, limit);
}

/**
 * All orders that name this store are of the branch from now on, those of before too. `at`: ISO 8601 UTC. Gives how many
 * of them go down now. Within the caller's transaction. Throws `usage` for a store of the configuration, `config-invalid`.
 */
export function assignStore(db: Database.Database, store: string, branch: string, at: string): number {
  refuseUnknown(db, branch);
  const own = sqlOf(db).value<string>(
    'SELECT branch FROM feed_stores WHERE store_id = ? AND by_hand = 0',
    store,
  );
  if (own !== undefined) {
    throw new TillsyncError('usage', `The configuration says that ${store} is branch ${own}.`, {
      hint: 'Change [[branches]] there, then: {restart}',
    });
  }
  sqlOf(db).run(
    `INSERT INTO feed_stores (store_id, branch, by_hand) VALUES (?, ?, 1)
     ON CONFLICT (store_id) DO UPDATE SET branch = excluded.branch`,
    ...[store, branch],
  );
  return sendNowKnown(db, at);
}

/**
 * One order is of the branch from now on. Gives whether that is new. Within the caller's transaction. Throws
 * `not-found`, `usage` for an order of a branch, `config-invalid`.
 */
export function assignOrder(db: Database.Database, orderId: string, branch: string, at: string): boolean {
  refuseUnknown(db, branch);
  const row = sqlOf(db).row<{ noted: number; assigned: string | null; named: string | null }>(
    `SELECT u.order_id IS NOT NULL AS noted, u.branch AS assigned, s.branch AS named FROM orders o
     LEFT JOIN unassigned_orders u USING (order_id) LEFT JOIN feed_stores s ON s.store_id = o.store_external_id
     WHERE o.order_id = ?`,
    orderId,
  );
  if (!row) throw new TillsyncError('not-found', `There is no order ${orderId} in the mirror.`);
  const of = row.assigned ?? (row.noted === 1 ? null : row.named);
  if (of === branch) return false;
  if (of !== null) {
    // What went down to a branch stays there, and two would prepare it.
    throw new TillsyncError('usage', `Order ${orderId} is of branch ${of} already.`);
  }
  const assign = `INSERT INTO unassigned_orders (order_id, branch) VALUES (?, ?)
    ON CONFLICT (order_id) DO UPDATE SET branch = excluded.branch`;
  sqlOf(db).run(assign, orderId, branch);
  sendWhole(db, branch, orderId, at);
  return true;
}

function refuseUnknown(db: Database.Database, branch: string): void {
  if (sqlOf(db).row('SELECT 1 FROM feed_branches WHERE branch = ?', branch)) return;
  throw new TillsyncError('config-invalid', `The running tillsync does not know branch ${branch} yet.`, {
    hint: 'Have it read the configuration: {restart}',
  });
}
