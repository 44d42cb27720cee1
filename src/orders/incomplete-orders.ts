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
  /** 1: it is scheduled, and no field was found that says for when. */
  lacksTime: number;
}

/** So many of its parts are named. */
const PARTS_MAX = 5;
/** Nobody prepares an order of a week ago any more. */
const TOLD_FOR = '-7 days';

/** A poll may find orders of long ago, which nobody prepares any more. */
const POLLED_WITHIN_MS = 24 * 3_600_000;

/** What the mirror has of an order once a snapshot of it was merged. */
export interface MergedOrder {
  /** Nothing was known of it before. */
  isNew: boolean;
  status: string | null;
  createdAt: string | null;
  isScheduled: boolean;
  scheduledFor: string | null;
}

/** Within the caller's transaction, for a snapshot that was merged. */
export function noteIncomplete(
  db: Database.Database,
  observation: OrderObservation,
  merged: MergedOrder,
): void {
  const { reading, source, observedAtMs } = observation;
  const { orderId, items } = reading;
  const { isNew, status } = merged;
  const parts = isEnded(status) ? [] : partsOf(observation, merged);
  if (parts.length === 0) {
    // Without items it says nothing of a line that could not be read before.
    if (!isNew && (items !== undefined || isEnded(status))) endIncomplete(db, orderId);
    return;
  }
  // It says less than what was noted of the whole order.
  if (!isNew && items === undefined && reasonOf(db, orderId) !== undefined) return;
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

function partsOf({ reading, source, observedAtMs }: OrderObservation, merged: MergedOrder): string[] {
  const { items, incomplete = [] } = reading;
  const { isNew, status, createdAt, isScheduled, scheduledFor } = merged;
  const isOld =
    source === 'poll' && !(createdAt !== null && observedAtMs - Date.parse(createdAt) < POLLED_WITHIN_MS);
  if (isOld) return [];
  const parts = [...incomplete];
  if (items === undefined ? isNew : items.length === 0) parts.push('it has no items');
  if (isNew && status === null) parts.push('it has no status');
  if (isNew && createdAt === null) parts.push('it has no time of creation');
  if (isScheduled && scheduledFor === null) {
    parts.push(
      'it is scheduled and says for when in no field that is known, scheduled_for in [orders.fields] names it',
    );
  }
  return parts;
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
  const sql = `SELECT order_id AS orderId, code, since,
    is_scheduled IS 1 AND scheduled_for IS NULL AS lacksTime FROM incomplete_orders JOIN orders USING (order_id)
    WHERE ${IS_OPEN} AND since > strftime('%Y-%m-%dT%H:%M:%fZ', ?, ?) ORDER BY since`;
  return sqlOf(db).rows<IncompleteOrder>(sql, isoUtc(nowMs), TOLD_FOR);
}

/* Orders that are whole and yet look wrong: of no branch that is known, or with sums that do not hold. */

const DAY_MS = 24 * 3_600_000;

export interface OddOrder {
  orderId: string;
  code: number | null;
}

/**
 * Open orders of a day that name no store, or none of `stores`, the newest first; those without a time of creation by
 * when they came. null: a name that nobody knows may be that of a branch.
 */
export function strayOrders(
  db: Database.Database,
  stores: readonly string[] | null,
  nowMs: number,
): (OddOrder & { store: string | null })[] {
  const unknown = stores === null ? 'false' : `store_external_id NOT IN (${stores.map(() => '?')})`;
  const sql = `SELECT order_id AS orderId, code, store_external_id AS store FROM orders
    WHERE ${IS_OPEN} AND (created_at > ? OR (created_at IS NULL AND updated_at > ?))
      AND (store_external_id IS NULL OR ${unknown})
    ORDER BY created_at DESC`;
  const since = isoUtc(nowMs - DAY_MS);
  return sqlOf(db).rows(sql, since, since, ...(stores ?? []));
}

export interface SumsOfOrders {
  /** How many of a day state sums. */
  orders: number;
  /** Those of a day whose sums do not hold, the newest first. */
  odd: readonly OddOrder[];
  /** The same share of the week before, 0 to 1: a shop with tips that no field names has one every day. */
  usualShare: number;
}

/** More are not read: what bounds the time this takes. */
const SUMMED_MAX = 5_000;

export function sumsOfOrders(db: Database.Database, nowMs: number): SumsOfOrders {
  const sql = `SELECT order_id AS orderId, code, sums_differ AS differs FROM orders
    WHERE created_at > ? AND created_at <= ? AND sums_differ IS NOT NULL ORDER BY created_at DESC LIMIT ${SUMMED_MAX}`;
  const between = (fromMs: number, toMs: number) =>
    sqlOf(db).rows<OddOrder & { differs: number }>(sql, isoUtc(fromMs), isoUtc(toMs));
  const isOdd = ({ differs }: { differs: number }) => differs === 1;
  const day = between(nowMs - DAY_MS, nowMs + DAY_MS);
  const week = between(nowMs - 8 * DAY_MS, nowMs - DAY_MS);
  return {
    orders: day.length,
    odd: day.filter(isOdd).map(({ orderId, code }) => ({ orderId, code })),
    usualShare: week.length === 0 ? 0 : week.filter(isOdd).length / week.length,
  };
}
