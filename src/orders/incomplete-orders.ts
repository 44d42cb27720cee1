import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { IS_OPEN, isEnded, type OrderObservation } from './order.ts';
import { quarantine, quarantinedAs, removeFromQuarantine } from './quarantine.ts';

/*
 * Orders of which a part could not be read. One row for each, until a later snapshot of the order is whole or the order
 * has ended.
 */

export interface IncompleteOrder {
  orderId: string;
  code: number | null;
  /** ISO 8601 UTC. */
  since: string;
}

/** A record of a poll may have a number of items where a notification lists them. */
const ITEMS_UNREAD = 'items cannot be read';
/** So many of its parts are named. */
const PARTS_MAX = 5;
/** Nobody prepares an order of a week ago any more. */
const TOLD_FOR = '-7 days';

/** Within the caller's transaction, for a snapshot that was merged. `isNew`: nothing was known of the order. */
export function noteIncomplete(
  db: Database.Database,
  { reading, source, observedAtMs }: OrderObservation,
  { isNew, status }: { isNew: boolean; status: string | null },
): void {
  const { orderId, items } = reading;
  // What a poll's record has in it is not shown in the document; a notification has items.
  const parts = (reading.incomplete ?? []).filter((part) => source === 'webhook' || part !== ITEMS_UNREAD);
  if (items === undefined && isNew && source === 'webhook') parts.push('it has no list of items');
  if (parts.length === 0 || isEnded(status)) {
    // Without items it says nothing of a line that could not be read before.
    if (!isNew && (items !== undefined || isEnded(status))) endIncomplete(db, orderId);
    return;
  }
  const named = parts.slice(0, PARTS_MAX).join(', ') + (parts.length > PARTS_MAX ? ', …' : '');
  const reason = `Order ${orderId} is incomplete: ${named}. What came is its payload.`;
  if (reasonOf(db, orderId) === reason) return;
  endIncomplete(db, orderId);
  // No copy of the order: its payload has the customer in it, and is kept with the order.
  const entry = { source, receivedAtMs: observedAtMs, reason, payload: reason };
  quarantine(db, entry);
  sqlOf(db).run(
    'INSERT INTO incomplete_orders (order_id, reason, since, quarantine_id) VALUES (?, ?, ?, ?)',
    orderId,
    reason,
    isoUtc(observedAtMs),
    quarantinedAs(db, entry) ?? null,
  );
}

function reasonOf(db: Database.Database, orderId: string): string | undefined {
  return sqlOf(db).value<string>('SELECT reason FROM incomplete_orders WHERE order_id = ?', orderId);
}

function endIncomplete(db: Database.Database, orderId: string): void {
  const sql = 'SELECT quarantine_id AS quarantineId FROM incomplete_orders WHERE order_id = ?';
  const row = sqlOf(db).row<{ quarantineId: number | null }>(sql, orderId);
  if (row === undefined) return;
  if (row.quarantineId !== null) removeFromQuarantine(db, row.quarantineId);
  sqlOf(db).run('DELETE FROM incomplete_orders WHERE order_id = ?', orderId);
}

/** Those that are still to be prepared, the oldest first. */
export function incompleteOrders(db: Database.Database, nowMs: number): IncompleteOrder[] {
  const sql = `SELECT order_id AS orderId, code, since FROM incomplete_orders JOIN orders USING (order_id)
    WHERE ${IS_OPEN} AND since > strftime('%Y-%m-%dT%H:%M:%fZ', ?, ?) ORDER BY since`;
  return sqlOf(db).rows<IncompleteOrder>(sql, isoUtc(nowMs), TOLD_FOR);
}
