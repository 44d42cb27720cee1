import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import { IS_OPEN } from './order.ts';

/* Orders that are whole and yet look wrong: of no branch that is known, or with sums that do not hold. */

const DAY_MS = 24 * 3_600_000;

export interface OddOrder {
  orderId: string;
  code: number | null;
}

/**
 * Open orders of a day that name no store, or none of `stores`, the newest first. null: a name that nobody knows may be
 * that of a branch.
 */
export function strayOrders(
  db: Database.Database,
  stores: readonly string[] | null,
  nowMs: number,
): (OddOrder & { store: string | null })[] {
  const unknown = stores === null ? 'false' : `store_external_id NOT IN (${stores.map(() => '?')})`;
  const sql = `SELECT order_id AS orderId, code, store_external_id AS store FROM orders
    WHERE ${IS_OPEN} AND created_at > ?
      AND (store_external_id IS NULL OR ${unknown})
    ORDER BY created_at DESC`;
  return sqlOf(db).rows(sql, isoUtc(nowMs - DAY_MS), ...(stores ?? []));
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
