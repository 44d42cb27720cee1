import type Database from 'better-sqlite3';
import { sqlOf } from '../db/sqlite.ts';

/** The newest deliveries of each hook, in the mirror. */

/** Deliveries that are kept of each hook. */
export const DELIVERIES_KEPT = 500;

/** One try of an event. */
export interface Try {
  seq: number;
  /** ISO 8601 UTC. */
  at: string;
  taken: boolean;
  /** What the receiver said; it never names the customer. */
  answer: string;
}

/** An event that a hook was sent, with its newest try. */
export interface Delivery extends Try {
  hook: string;
  tries: number;
  /** Of the event; null if it is no longer kept. */
  orderId: string | null;
  code: number | null;
  status: string | null;
}

/** Records tries of one hook, in order, in the caller's transaction. A further try of the newest event joins its row. */
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

/** Returns a hook's deliveries, the newest first; with `failed` only those of which a try failed. */
export function deliveriesOf(
  db: Database.Database,
  hook: string,
  { failed, limit }: { failed: boolean; limit: number },
): Delivery[] {
  const which = failed ? 'AND (d.taken = 0 OR d.tries > 1)' : '';
  const text = `${SELECTED} WHERE d.hook = ? ${which} ORDER BY d.delivery_id DESC LIMIT ?`;
  return sqlOf(db).rows<Row>(text, hook, limit).map(ofRow);
}

/** Returns what hooks were sent of an order. */
export function deliveriesOfOrder(db: Database.Database, orderId: string): Delivery[] {
  return sqlOf(db).rows<Row>(`${SELECTED} WHERE e.order_id = ? ORDER BY d.delivery_id`, orderId).map(ofRow);
}

/** Deletes the deliveries of hooks, in the caller's transaction. */
export function forgetDeliveries(db: Database.Database, hooks: readonly string[]): void {
  for (const hook of hooks) sqlOf(db).run('DELETE FROM hook_deliveries WHERE hook = ?', hook);
}
