import { hash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../../core/time.ts';
import { sqlOf } from '../../db/sqlite.ts';
import { type HeldOrder, type OrderObservation, TOLD_WITHIN_MS } from './order.ts';

export type { HeldOrder };

/** Callbacks that contradict what was known. Each waits until a poll, or a second callback, says which is right. */

const HELD_MAX = 1_000;

/** Stores a callback that contradicts what is known. Only the newest thousand are kept. */
export function holdNotification(
  db: Database.Database,
  { reading, raw, observedAtMs }: Pick<OrderObservation, 'reading' | 'raw' | 'observedAtMs'>,
  knownStatus: string | null,
): void {
  // A held callback that arrives again replaces its row, so that a poll whose request began before does not resolve it.
  const insert = `INSERT OR REPLACE INTO _held_notifications
    (order_id, status, known_status, digest, received_at, payload) VALUES (?, ?, ?, ?, ?, ?)`;
  const status = reading.fields.status ?? null;
  sqlOf(db).run(
    insert,
    ...[reading.orderId, status, knownStatus, hash('sha256', raw, 'hex'), isoUtc(observedAtMs), raw],
  );
  // Counts the rows, because a callback that arrives often leaves gaps in the ids.
  const firstOver = 'SELECT held_id FROM _held_notifications ORDER BY held_id DESC LIMIT 1 OFFSET ?';
  sqlOf(db).run(`DELETE FROM _held_notifications WHERE held_id <= (${firstOver})`, HELD_MAX);
}

/** SQL condition for a callback that still waits. */
const WAITS = 'resolved_at IS NULL';

/**
 * Resolves the order's held callbacks by the status that a poll reported: confirmed if it is the same, otherwise
 * refuted. Callbacks held after the poll's request began stay, and the next poll reads the order again.
 */
export function resolveHeldByPoll(
  db: Database.Database,
  status: string | null,
  { reading: { orderId }, observedAtMs, asOfHeldId = Number.MAX_SAFE_INTEGER }: OrderObservation,
): void {
  const sql = `UPDATE _held_notifications
    SET resolved_at = ?, resolution = iif(status IS ?, 'confirmed', 'refuted')
    WHERE order_id = ? AND ${WAITS} AND held_id <= ?`;
  sqlOf(db).run(sql, isoUtc(observedAtMs), status, orderId, asOfHeldId);
}

/** Resolves the order's held callbacks, because another callback went on from them while no poll came. */
export function resolveHeldByCallback(
  db: Database.Database,
  { reading: { orderId }, observedAtMs }: OrderObservation,
): void {
  const sql = `UPDATE _held_notifications SET resolved_at = ?, resolution = 'believed'
    WHERE order_id = ? AND ${WAITS}`;
  sqlOf(db).run(sql, isoUtc(observedAtMs), orderId);
}

/** Returns whether a callback of the order waits. */
export function isHeld(db: Database.Database, orderId: string): boolean {
  const sql = `SELECT 1 FROM _held_notifications WHERE order_id = ? AND ${WAITS}`;
  return sqlOf(db).row(sql, orderId) !== undefined;
}

/** Returns what the order's newest waiting callback says, and what it contradicts; undefined if none waits. */
export function waitingStatus(
  db: Database.Database,
  orderId: string,
): { status: string | null; known: string | null } | undefined {
  const sql = `SELECT _held_notifications.status AS status, _orders.status AS known
    FROM _held_notifications JOIN _orders USING (order_id) WHERE order_id = ? AND ${WAITS}
    ORDER BY held_id DESC LIMIT 1`;
  return sqlOf(db).row<{ status: string | null; known: string | null }>(sql, orderId);
}

/** Time without a successful poll after which a second callback decides in place of a poll. */
const POLLS_SILENT_MS = 5 * 60_000;
/**
 * Time after which polls that succeed have had the chance to settle what waits: an order of the last days is polled
 * within minutes, an older one within the hour.
 */
const UNSETTLED_MS = 15 * 60_000;
const UNSETTLED_OLD_MS = 75 * 60_000;
const OLD_AFTER_MS = 30 * 24 * 3_600_000;

/** SQL condition for a callback whose very text was merged before: a repetition, which says nothing new. */
const IS_REPETITION = `EXISTS (SELECT 1 FROM _order_payloads p
  WHERE p.order_id = _held_notifications.order_id AND p.payload = _held_notifications.payload)`;

/** Since when the first of an order's callbacks waits, and when the order was placed. */
interface Waiting {
  waitsSince: string;
  createdAt: string | null;
}

/**
 * Returns whether callbacks have to decide about an order: no poll has succeeded for some minutes, or those that
 * succeeded are silent about it, because they lack it or say its status in words that the document does not have.
 */
function arePollsSilent(db: Database.Database, { waitsSince, createdAt }: Waiting, nowMs: number): boolean {
  const createdMs = Date.parse(createdAt ?? '');
  const isOld = !(nowMs - createdMs < OLD_AFTER_MS);
  if (nowMs - Date.parse(waitsSince) >= (isOld ? UNSETTLED_OLD_MS : UNSETTLED_MS)) return true;
  const polledAt = sqlOf(db).value<string | null>(
    "SELECT last_ok_at FROM freshness WHERE subject = 'orders.poll'",
  );
  return polledAt == null || nowMs - Date.parse(polledAt) >= POLLS_SILENT_MS;
}

const WAITING_OF = `SELECT order_id AS orderId, min(received_at) AS waitsSince,
    (SELECT created_at FROM _orders o WHERE o.order_id = _held_notifications.order_id) AS createdAt
  FROM _held_notifications WHERE ${WAITS}`;

/**
 * Returns the status of the callback that was held last for the order, if callbacks have to decide; otherwise null. A
 * repetition is no witness, neither the held one nor this one.
 */
export function statusHeldBefore(
  db: Database.Database,
  { reading: { orderId }, raw, observedAtMs }: OrderObservation,
): string | null {
  const sql = sqlOf(db);
  const waiting = sql.row<Waiting>(`${WAITING_OF} AND order_id = ? GROUP BY order_id`, orderId);
  if (waiting === undefined || !arePollsSilent(db, waiting, observedAtMs)) return null;
  const merged = 'SELECT 1 FROM _order_payloads WHERE order_id = ? AND payload = ?';
  if (sql.row(merged, orderId, raw) !== undefined) return null;
  const newest = `SELECT status FROM _held_notifications WHERE order_id = ? AND ${WAITS} AND NOT ${IS_REPETITION}
    ORDER BY held_id DESC LIMIT 1`;
  return sql.value<string | null>(newest, orderId) ?? null;
}

/** A callback that waits. */
export interface WaitingCallback {
  orderId: string;
  status: string | null;
  /** Known status of the order. */
  known: string | null;
  /** When it was received, ISO 8601 UTC. */
  receivedAt: string;
  /** JSON text as received. */
  payload: string;
}

/**
 * Returns the callbacks that wait where callbacks have to decide, for each order that has more than one, in the order
 * in which they were held.
 */
export function waitingTogether(db: Database.Database, nowMs: number): Map<string, WaitingCallback[]> {
  const silent = sqlOf(db)
    .rows<Waiting & { orderId: string }>(`${WAITING_OF} GROUP BY order_id HAVING count(*) > 1`)
    .filter((waiting) => arePollsSilent(db, waiting, nowMs));
  if (silent.length === 0) return new Map();
  const sql = `SELECT order_id AS orderId, _held_notifications.status AS status, _orders.status AS known,
      received_at AS receivedAt, _held_notifications.payload AS payload
    FROM _held_notifications JOIN _orders USING (order_id) WHERE ${WAITS} AND NOT ${IS_REPETITION}
      AND order_id IN (SELECT value FROM json_each(?)) ORDER BY held_id`;
  const ids = JSON.stringify(silent.map(({ orderId }) => orderId));
  const orders = Map.groupBy(sqlOf(db).rows<WaitingCallback>(sql, ids), ({ orderId }) => orderId);
  return new Map([...orders].filter(([, waiting]) => waiting.length > 1));
}

/** Time for which a callback may be held before people are told; usually a poll settles it sooner. */
const TOLD_AFTER_MS = 3 * 60_000;

/** Returns orders whose callbacks have been held for longer than a poll takes, the first one held first. */
export function heldOrders(db: Database.Database, nowMs: number): HeldOrder[] {
  const sql = `SELECT order_id AS orderId, code, _orders.status AS status, held.status AS heldStatus,
      created_at AS createdAt
    FROM (SELECT order_id, status, min(received_at) AS first_at, max(held_id) FROM _held_notifications
      WHERE ${WAITS} GROUP BY order_id) AS held JOIN _orders USING (order_id)
    WHERE first_at <= ? AND first_at > ? ORDER BY first_at`;
  return sqlOf(db).rows<HeldOrder>(sql, isoUtc(nowMs - TOLD_AFTER_MS), isoUtc(nowMs - TOLD_WITHIN_MS));
}
