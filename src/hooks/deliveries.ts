import type Database from 'better-sqlite3';
import type { EventName } from '../core/values.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { CursorKey } from './hook.ts';

/** Stores the newest deliveries of each hook in the mirror. */

/** Number of deliveries kept for each hook and kind of event. */
export const DELIVERIES_KEPT = 500;

/** One try to deliver an event. */
export interface Try {
  seq: number;
  /** When it was tried, ISO 8601 UTC. */
  at: string;
  taken: boolean;
  /** What the receiver answered, without customer data. */
  answer: string;
  /** Id of the rejected change; null for an event of an order. */
  changeId: number | null;
}

/** An event that was sent to a hook, with its last try. */
export interface Delivery extends Try {
  hook: string;
  event: EventName;
  tries: number;
  /** Id of the order that the event is about; null if that order was deleted, or for an event of a change. */
  orderId: string | null;
  code: number | null;
  status: string | null;
}

/**
 * Records tries of one hook in one feed, oldest first, in the caller's transaction. If the newest recorded try failed,
 * a further try of the same event updates its row instead of adding one.
 */
export function noteTries(db: Database.Database, { name, event }: CursorKey, tries: readonly Try[]): void {
  const sql = sqlOf(db);
  for (const { taken, ...each } of tries) {
    const values = { hook: name, event, ...each, taken: taken ? 1 : 0 };
    const again = `UPDATE _hook_deliveries SET tries = tries + 1, at = @at, taken = @taken, answer = @answer
      WHERE delivery_id = (SELECT max(delivery_id) FROM _hook_deliveries WHERE hook = @hook AND event = @event)
        AND seq = @seq AND taken = 0`;
    if (sql.run(again, values).changes > 0) continue;
    const first = `INSERT INTO _hook_deliveries (hook, event, seq, at, tries, taken, answer, change_id)
      VALUES (@hook, @event, @seq, @at, 1, @taken, @answer, @changeId)`;
    sql.run(first, values);
  }
  const trim = `DELETE FROM _hook_deliveries WHERE hook = @name AND event = @event AND delivery_id <= (
    SELECT delivery_id FROM _hook_deliveries WHERE hook = @name AND event = @event
    ORDER BY delivery_id DESC LIMIT 1 OFFSET @kept)`;
  if (tries.length > 0) sql.run(trim, { name, event, kept: DELIVERIES_KEPT });
}

const SELECTED = `SELECT d.hook, coalesce(p.event, d.event) AS event, d.seq, d.at, d.tries, d.taken, d.answer,
    coalesce(e.order_id, p.order_id) AS orderId, o.code, e.status, d.change_id AS changeId
  FROM _hook_deliveries d LEFT JOIN order_events e ON d.event = 'order' AND e.seq = d.seq
  LEFT JOIN _preparation_events p ON d.event = 'order.prepare' AND p.hook = d.hook AND p.seq = d.seq
  LEFT JOIN _orders o ON o.order_id = coalesce(e.order_id, p.order_id)`;

type Row = Omit<Delivery, 'taken'> & { taken: number };

const ofRow = ({ taken, ...row }: Row): Delivery => ({ ...row, taken: taken === 1 });

/** Returns a hook's deliveries, newest first; with `failed`, only those with a failed try. */
export function deliveriesOf(
  db: Database.Database,
  hook: string,
  { failed, limit }: { failed: boolean; limit: number },
): Delivery[] {
  const which = failed ? 'AND (d.taken = 0 OR d.tries > 1)' : '';
  const text = `${SELECTED} WHERE d.hook = ? ${which} ORDER BY d.delivery_id DESC LIMIT ?`;
  return sqlOf(db).rows<Row>(text, hook, limit).map(ofRow);
}

/** Returns the deliveries of an order's events to all hooks. */
export function deliveriesOfOrder(db: Database.Database, orderId: string): Delivery[] {
  return sqlOf(db)
    .rows<Row>(`${SELECTED} WHERE coalesce(e.order_id, p.order_id) = ? ORDER BY d.delivery_id`, orderId)
    .map(ofRow);
}

/** Deletes the deliveries of these cursors, in the caller's transaction. */
export function forgetDeliveries(db: Database.Database, keys: readonly CursorKey[]): void {
  const sql = 'DELETE FROM _hook_deliveries WHERE hook = ? AND event = ?';
  for (const { name, event } of keys) sqlOf(db).run(sql, name, event);
}
