import type Database from 'better-sqlite3';
import { sqlOf } from '../db/sqlite.ts';

/** Stores the newest deliveries of each hook in the mirror. */

/** Number of deliveries kept for each hook. */
export const DELIVERIES_KEPT = 500;

/** One try to deliver an event. */
export interface Try {
  seq: number;
  /** When it was tried, ISO 8601 UTC. */
  at: string;
  taken: boolean;
  /** What the receiver answered, without customer data. */
  answer: string;
}

/** An event that was sent to a hook, with its last try. */
export interface Delivery extends Try {
  hook: string;
  tries: number;
  /** Order of the event; null if the order was deleted. */
  orderId: string | null;
  code: number | null;
  status: string | null;
}

/**
 * Records tries of one hook, in order, in the caller's transaction. A repeated try of the newest event updates its
 * row.
 */
export function noteTries(db: Database.Database, hook: string, tries: readonly Try[]): void {
  const sql = sqlOf(db);
  for (const { taken, ...each } of tries) {
    const values = { hook, ...each, taken: taken ? 1 : 0 };
    const again = `UPDATE hook_deliveries SET tries = tries + 1, at = @at, taken = @taken, answer = @answer
      WHERE delivery_id = (SELECT max(delivery_id) FROM hook_deliveries WHERE hook = @hook) AND seq = @seq AND taken = 0`;
    if (sql.run(again, values).changes > 0) continue;
    const first = `INSERT INTO hook_deliveries (hook, seq, at, tries, taken, answer)
      VALUES (@hook, @seq, @at, 1, @taken, @answer)`;
    sql.run(first, values);
  }
  const trim = `DELETE FROM hook_deliveries WHERE hook = @hook AND delivery_id <= (
    SELECT delivery_id FROM hook_deliveries WHERE hook = @hook ORDER BY delivery_id DESC LIMIT 1 OFFSET @kept)`;
  if (tries.length > 0) sql.run(trim, { hook, kept: DELIVERIES_KEPT });
}

const SELECTED = `SELECT d.hook, d.seq, d.at, d.tries, d.taken, d.answer, e.order_id AS orderId, o.code, e.status
  FROM hook_deliveries d LEFT JOIN order_events e ON e.seq = d.seq LEFT JOIN orders o ON o.order_id = e.order_id`;

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
  return sqlOf(db).rows<Row>(`${SELECTED} WHERE e.order_id = ? ORDER BY d.delivery_id`, orderId).map(ofRow);
}

/** Deletes the deliveries of these hooks, in the caller's transaction. */
export function forgetDeliveries(db: Database.Database, hooks: readonly string[]): void {
  for (const hook of hooks) sqlOf(db).run('DELETE FROM hook_deliveries WHERE hook = ?', hook);
}
