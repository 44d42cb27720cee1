import type Database from 'better-sqlite3';
import type { Branch } from '../catalog/product.ts';
import { TillsyncError } from '../core/errors.ts';
import { sqlOf } from '../db/sqlite.ts';
import { IS_OPEN } from '../orders/merging/order.ts';
import { sendWhole } from './feed-pages.ts';
import type { NamedBranch } from './hub-state.ts';

/**
 * Assigns orders to branches. An order belongs to the branch that a person chose for it, otherwise to the
 * branch of its store. Each function works in the caller's transaction.
 */

/** Value of `by_hand` for an earlier id of the branch. An id from the configuration has 0, one from a person 1. */
const FORMER = 2;

type RoutedBranch = Branch & Pick<NamedBranch, 'branch'>;

type Routes = ReadonlyMap<string, string>;

function routes(db: Database.Database): Routes {
  const rows = sqlOf(db).rows<{ store: string; branch: string }>(
    'SELECT store_id AS store, branch FROM _feed_stores',
  );
  return new Map(rows.map(({ store, branch }) => [store, branch]));
}

/**
 * Replaces the routes of stores by those of the configuration, which override a person's assignments. Open
 * orders of a store with a new branch are sent to the new branch; open orders of a removed branch become
 * unassigned. `at`: ISO 8601 UTC.
 */
export function beginRoutes(db: Database.Database, branches: readonly RoutedBranch[], at: string): void {
  const before = routes(db);
  const known = JSON.stringify(branches.map(({ branch }) => branch));
  const isGone = 'branch NOT IN (SELECT value FROM json_each(?))';
  leaveStores(db, isGone, known);
  sqlOf(db).run(`UPDATE _unassigned_orders SET branch = NULL WHERE ${isGone}`, known);
  // Orders may still name a branch's earlier id, so the id stays a route to the branch.
  sqlOf(db).run('UPDATE _feed_stores SET by_hand = ? WHERE by_hand = 0', FORMER);
  for (const { branch, externalId, subsidiaryId } of branches) {
    for (const storeId of [externalId, subsidiaryId]) {
      const route = `INSERT INTO _feed_stores (store_id, branch) VALUES (?, ?)
        ON CONFLICT (store_id) DO UPDATE SET branch = excluded.branch, by_hand = 0 WHERE by_hand <> 0`;
      if (storeId !== null) sqlOf(db).run(route, storeId, branch);
    }
  }
  takeStoresBack(db, known);
  pruneRoutes(db);
  sqlOf(db).run('DELETE FROM _unassigned_orders WHERE order_id NOT IN (SELECT order_id FROM _orders)');
  noteUnassigned(db);
  for (const [store, branch] of routes(db)) {
    // A branch that never connected needs nothing here, because its first snapshot has all its orders.
    const hello = 'SELECT 1 FROM _feed_branches WHERE branch = ? AND line IS NOT NULL';
    if (before.get(store) !== branch && sqlOf(db).row(hello, branch)) sendOpen(db, store, at);
  }
  sendNowKnown(db, at);
}

/**
 * Moves the stores of removed branches to `_left_stores`, from which a branch that is configured again gets
 * them back.
 */
function leaveStores(db: Database.Database, isGone: string, known: string): void {
  const leave = `INSERT OR REPLACE INTO _left_stores (store_id, branch, by_hand)
    SELECT store_id, branch, iif(by_hand = 0, ${FORMER}, by_hand) FROM _feed_stores WHERE ${isGone}`;
  sqlOf(db).run(leave, known);
  sqlOf(db).run(`DELETE FROM _feed_stores WHERE ${isGone}`, known);
}

/**
 * Restores the earlier stores of branches that are configured again, except stores that another branch has by
 * now.
 */
function takeStoresBack(db: Database.Database, known: string): void {
  const isBack = 'branch IN (SELECT value FROM json_each(?))';
  const take = `INSERT INTO _feed_stores (store_id, branch, by_hand)
    SELECT store_id, branch, by_hand FROM _left_stores WHERE ${isBack} ON CONFLICT DO NOTHING`;
  sqlOf(db).run(take, known);
  sqlOf(db).run(`DELETE FROM _left_stores WHERE ${isBack}`, known);
}

/**
 * Makes `store`, an earlier id of the branch, a route to the branch from the next `beginRoutes` on, because orders still
 * name that id. Until then a renamed branch may have no feed, and new orders for it are unassigned.
 */
export function keepRoute(db: Database.Database, store: string, branch: string): void {
  const route = `INSERT INTO _left_stores (store_id, branch, by_hand) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET branch = excluded.branch, by_hand = excluded.by_hand WHERE branch <> excluded.branch`;
  sqlOf(db).run(route, store, branch, FORMER);
}

/**
 * Throws `config-invalid` while the running hub still has the branch under its earlier name, because it has not read the
 * new configuration. After a rename it would take that name for a new branch, and send its orders there.
 */
export function refuseUnread(db: Database.Database, before: string, branch: string): void {
  const unread = 'SELECT 1 FROM _feed_stores WHERE store_id = ? AND branch = ? AND by_hand = 0';
  if (!sqlOf(db).row(unread, before, branch)) return;
  const message = `The running tillsync still has branch ${before}. Nothing was changed.`;
  throw new TillsyncError('config-invalid', message, {
    hint: 'Have it read the configuration: {restart}, then type this again.',
  });
}

/**
 * Deletes routes of earlier branch ids that no order names any more. Ended orders keep their route, because a late
 * status or acknowledgement still needs it.
 */
export function pruneRoutes(db: Database.Database): void {
  const isNamed = `SELECT 1 FROM _orders
    WHERE store_external_id = _feed_stores.store_id`;
  sqlOf(db).run(`DELETE FROM _feed_stores WHERE by_hand = ${FORMER} AND NOT EXISTS (${isNamed})`);
}

/** Records open orders that have no branch, whether their branch was removed or never known. */
function noteUnassigned(db: Database.Database): void {
  sqlOf(db).run(
    `INSERT INTO _unassigned_orders (order_id)
     SELECT order_id FROM _orders
     WHERE ${IS_OPEN} AND NOT EXISTS (SELECT 1 FROM _feed_stores s WHERE s.store_id = _orders.store_external_id)
     ON CONFLICT DO NOTHING`,
  );
  const moved = `UPDATE _sent_orders SET moved = 1 WHERE moved = 0
    AND order_id IN (SELECT order_id FROM _unassigned_orders WHERE branch IS NULL)`;
  sqlOf(db).run(moved);
}

/** Sends a store's open orders to its present branch, except orders that a person assigned. Returns how many. */
function sendOpen(db: Database.Database, store: string, at: string): number {
  const open = `SELECT o.order_id AS orderId, s.branch FROM _orders o
    JOIN _feed_stores s ON s.store_id = o.store_external_id LEFT JOIN _unassigned_orders u USING (order_id)
    WHERE o.store_external_id = ? AND ${IS_OPEN} AND u.branch IS NULL ORDER BY o.seq`;
  return give(db, sqlOf(db).rows<Owned>(open, store), at);
}

/** Sends unassigned orders whose store has a branch by now. Returns the number of orders sent. */
function sendNowKnown(db: Database.Database, at: string): number {
  const nowKnown = `SELECT o.order_id AS orderId, s.branch FROM _unassigned_orders u JOIN _orders o USING (order_id)
    JOIN _feed_stores s ON s.store_id = o.store_external_id WHERE u.branch IS NULL ORDER BY o.seq`;
  return give(db, sqlOf(db).rows<Owned>(nowKnown), at);
}

interface Owned {
  orderId: string;
  branch: string;
}

function give(db: Database.Database, orders: readonly Owned[], at: string): number {
  for (const { orderId, branch } of orders) {
    sendWhole(db, branch, orderId, at);
    sqlOf(db).run('DELETE FROM _unassigned_orders WHERE order_id = ?', orderId);
    sqlOf(db).run('UPDATE _sent_orders SET moved = (branch <> ?) WHERE order_id = ?', branch, orderId);
  }
  return orders.length;
}

/** An unassigned order. `store` is the store id in the order, or null. */
export interface UnassignedOrder {
  orderId: string;
  store: string | null;
}

/**
 * Counts open unassigned orders and returns up to five of the store ids in them. Works in the caller's
 * transaction.
 */
export function unassigned(db: Database.Database): { orders: number; stores: (string | null)[] } {
  const open = `FROM _unassigned_orders u JOIN _orders USING (order_id) WHERE u.branch IS NULL AND ${IS_OPEN}`;
  const orders = sqlOf(db).value<number>(`SELECT count(*) ${open}`) ?? 0;
  const names = `SELECT DISTINCT store_external_id ${open} ORDER BY 1 LIMIT 5`;
  return { orders, stores: orders === 0 ? [] : sqlOf(db).values<string | null>(names) };
}

/** Returns open unassigned orders, oldest first. */
export function unassignedOrders(db: Database.Database, limit: number): UnassignedOrder[] {
  const sql = `SELECT order_id AS orderId, store_external_id AS store FROM _unassigned_orders u
    JOIN _orders o USING (order_id) WHERE u.branch IS NULL AND ${IS_OPEN} ORDER BY o.seq LIMIT ?`;
  return sqlOf(db).rows<UnassignedOrder>(sql, limit);
}

/**
 * Assigns the open and all later orders of a store to the branch, and returns how many orders are sent now. `at`: ISO
 * 8601 UTC. Throws `usage` for a store that the configuration assigns, `config-invalid` for an unknown branch.
 */
export function assignStore(db: Database.Database, store: string, branch: string, at: string): number {
  refuseUnknown(db, branch);
  const own = sqlOf(db).value<string>(
    'SELECT branch FROM _feed_stores WHERE store_id = ? AND by_hand = 0',
    store,
  );
  if (own !== undefined) {
    throw new TillsyncError('usage', `The configuration says that ${store} is branch ${own}.`, {
      hint: 'Change [[branches]] there, then: {restart}',
    });
  }
  sqlOf(db).run(
    `INSERT INTO _feed_stores (store_id, branch, by_hand) VALUES (?, ?, 1)
     ON CONFLICT (store_id) DO UPDATE SET branch = excluded.branch, by_hand = 1`,
    ...[store, branch],
  );
  return sendOpen(db, store, at) + sendNowKnown(db, at);
}

/**
 * Assigns one order to the branch. Returns false if the order had this branch already. Throws `not-found`, `usage` if
 * the order has another branch, `config-invalid` for an unknown branch.
 */
export function assignOrder(db: Database.Database, orderId: string, branch: string, at: string): boolean {
  refuseUnknown(db, branch);
  const row = sqlOf(db).row<{ noted: number; assigned: string | null; named: string | null }>(
    `SELECT u.order_id IS NOT NULL AS noted, u.branch AS assigned, s.branch AS named FROM _orders o
     LEFT JOIN _unassigned_orders u USING (order_id) LEFT JOIN _feed_stores s ON s.store_id = o.store_external_id
     WHERE o.order_id = ?`,
    orderId,
  );
  if (!row) throw new TillsyncError('not-found', `There is no order ${orderId} in the mirror.`);
  const of = row.assigned ?? (row.noted === 1 ? null : row.named);
  if (of === branch) return false;
  if (of !== null) {
    // Another branch has received the order already, so two branches would prepare it.
    throw new TillsyncError('usage', `Order ${orderId} is of branch ${of} already.`);
  }
  const assign = `INSERT INTO _unassigned_orders (order_id, branch) VALUES (?, ?)
    ON CONFLICT (order_id) DO UPDATE SET branch = excluded.branch`;
  sqlOf(db).run(assign, orderId, branch);
  sendWhole(db, branch, orderId, at);
  return true;
}

function refuseUnknown(db: Database.Database, branch: string): void {
  if (sqlOf(db).row('SELECT 1 FROM _feed_branches WHERE branch = ?', branch)) return;
  throw new TillsyncError('config-invalid', `The running tillsync does not know branch ${branch} yet.`, {
    hint: 'Have it read the configuration: {restart}',
  });
}
