import type Database from 'better-sqlite3';
import { isoUtc } from '../../core/time.ts';
import { countsOf, type FieldNews, fieldsOf, topmost } from '../../core/values.ts';
import { seen } from '../../db/seen.ts';
import { sqlOf } from '../../db/sqlite.ts';
import type { OrderItem } from './mirrored-order.ts';
import { IS_OPEN, isEnded, type OrderFields, type OrderObservation, TOLD_WITHIN_MS } from './order.ts';

/**
 * Orders of which a part could not be read. Such an order has a reason until a later observation is complete or the
 * order ends.
 */

export interface IncompleteOrder {
  orderId: string;
  code: number | null;
  /** When the order became incomplete, ISO 8601 UTC. */
  since: string;
  /** 1 if the order is scheduled but no time was found in it, otherwise 0. */
  lacksTime: number;
}

/** Maximum number of unreadable parts that a message names. */
const PARTS_MAX = 5;

/** Age up to which a new order from a poll is examined. A poll may bring old orders that nobody prepares any more. */
const POLLED_WITHIN_MS = 24 * 3_600_000;

/** Facts about a merged order that decide whether a part of it is missing. */
export interface MergedOrder {
  /** True if the mirror did not have the order before. */
  isNew: boolean;
  status: string | null;
  createdAt: string | null;
  isScheduled: boolean;
  scheduledFor: string | null;
  /** Lines that the observation gave the order; undefined if it says nothing of them. */
  items: readonly OrderItem[] | undefined;
}

/** Records whether a merged observation is incomplete, in the caller's transaction. */
export function noteIncomplete(
  db: Database.Database,
  observation: OrderObservation,
  merged: MergedOrder,
): void {
  const { reading, observedAtMs } = observation;
  const { orderId } = reading;
  const { isNew, status, items } = merged;
  const parts = isEnded(status) ? [] : partsOf(observation, merged);
  if (parts.length === 0) {
    // An observation without items does not prove that an earlier unreadable line is readable now.
    if (!isNew && (items !== undefined || isEnded(status))) endIncomplete(db, orderId);
    return;
  }
  // Keeps the existing reason, because it describes the whole order. This observation has no items and covers only a part.
  if (!isNew && items === undefined && incompleteReason(db, orderId) !== null) return;
  const named = parts.slice(0, PARTS_MAX).join(', ') + (parts.length > PARTS_MAX ? ', …' : '');
  const reason = `Order ${orderId} is incomplete: ${named}. What came is its payload.`;
  if (incompleteReason(db, orderId) === reason) return;
  const sql = 'UPDATE _orders SET incomplete_reason = ?, incomplete_since = ? WHERE order_id = ?';
  sqlOf(db).run(sql, reason, isoUtc(observedAtMs), orderId);
}

function partsOf({ reading, source, observedAtMs }: OrderObservation, merged: MergedOrder): string[] {
  const { incomplete = [] } = reading;
  const { isNew, status, createdAt, isScheduled, scheduledFor, items } = merged;
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

/** Returns which part of an order could not be read; null if it is complete. */
export function incompleteReason(db: Database.Database, orderId: string): string | null {
  const sql = 'SELECT incomplete_reason FROM _orders WHERE order_id = ?';
  return sqlOf(db).value<string | null>(sql, orderId) ?? null;
}

function endIncomplete(db: Database.Database, orderId: string): void {
  // A row is rewritten with its payload, so a complete order is left alone.
  const sql = `UPDATE _orders SET incomplete_reason = NULL, incomplete_since = NULL
    WHERE order_id = ? AND incomplete_since IS NOT NULL`;
  sqlOf(db).run(sql, orderId);
}

/** Returns incomplete orders that are still to be prepared, oldest first. */
export function incompleteOrders(db: Database.Database, nowMs: number): IncompleteOrder[] {
  const sql = `SELECT order_id AS orderId, code, incomplete_since AS since,
      is_scheduled IS 1 AND scheduled_for IS NULL AS lacksTime
    FROM _orders WHERE ${IS_OPEN} AND incomplete_since > ? ORDER BY incomplete_since`;
  return sqlOf(db).rows<IncompleteOrder>(sql, isoUtc(nowMs - TOLD_WITHIN_MS));
}

/**
 * Finds orders that are complete but look wrong: an unknown branch, sums that do not add up, missing order numbers.
 */

const DAY_MS = 24 * 3_600_000;

export interface OddOrder {
  orderId: string;
  code: number | null;
}

/**
 * Returns open orders of the last day, newest first, without a store or with one that is not in `stores` (null: any
 * store is accepted). For an order without a creation time, the time of its last change decides.
 */
export function strayOrders(
  db: Database.Database,
  stores: readonly string[] | null,
  nowMs: number,
): (OddOrder & { store: string | null })[] {
  const unknown = stores === null ? 'false' : `store_external_id NOT IN (${stores.map(() => '?')})`;
  const sql = `SELECT order_id AS orderId, code, store_external_id AS store FROM _orders
    WHERE ${IS_OPEN} AND (created_at > ? OR (created_at IS NULL AND updated_at > ?))
      AND (store_external_id IS NULL OR ${unknown})
    ORDER BY created_at DESC`;
  const since = isoUtc(nowMs - DAY_MS);
  return sqlOf(db).rows(sql, since, since, ...(stores ?? []));
}

export interface SumsOfOrders {
  /** Number of the day's orders that state sums. */
  orders: number;
  /** The day's orders whose sums do not add up, newest first. */
  odd: readonly OddOrder[];
  /**
   * Share of orders in the week before whose sums do not add up, 0 to 1. It is high if, for example, a shop has tips
   * that no field states.
   */
  usualShare: number;
}

/** Maximum number of orders that are read for the day and for the week before, to limit the time. */
const SUMMED_MAX = 5_000;

export function sumsOfOrders(db: Database.Database, nowMs: number): SumsOfOrders {
  const sql = `SELECT order_id AS orderId, code, sums_differ AS differs FROM _orders
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

export interface MissingCodes {
  /** Missing order numbers, highest first. */
  missing: readonly number[];
  /** Number of order numbers from the day's first to its last, including missing ones. */
  codes: number;
  /**
   * Share of missing numbers in the week before, 0 to 1. It may be above 0 although no order was lost, because the
   * platform may also number orders that nobody paid.
   */
  usualShare: number;
}

/** Longest run of missing numbers that counts as missing orders; a longer run is a change of numbering. */
const RUN_MAX = 200;
/** Age from which an order must be in a poll's answer. Younger orders may not be visible yet. */
const SETTLED_AFTER_MS = 5 * 60_000;
/** Minimum number of order numbers in the week before; with fewer, the usual share is unknown and counts as 1. */
const USUAL_MIN = 10;

/**
 * Returns the order numbers of the last day that no order has: #4, #5, #7 → #6. `lookedMs` is the time of the last
 * poll back to the oldest open order, on the platform's clock; null if there was none. Only orders before that poll
 * are examined.
 */
export function missingCodes(db: Database.Database, nowMs: number, lookedMs: number | null): MissingCodes {
  const untilMs = Math.min(nowMs + DAY_MS, (lookedMs ?? 0) - SETTLED_AFTER_MS);
  const range = (fromMs: number, toMs: number) => {
    const sql = `SELECT min(code) AS min, max(code) AS max FROM (SELECT code FROM _orders
      WHERE created_at > ? AND created_at <= ? AND code IS NOT NULL ORDER BY created_at DESC LIMIT ${SUMMED_MAX})`;
    const found = sqlOf(db).row<{ min: number | null; max: number | null }>(
      sql,
      isoUtc(fromMs),
      isoUtc(toMs),
    );
    return found?.min == null || found.max === null ? undefined : { min: found.min, max: found.max };
  };
  const between = (found: { min: number; max: number } | undefined) =>
    found ? gapsIn(sqlOf(db).values<number>(CODES_BETWEEN, found.min, found.max)) : { missing: [], codes: 0 };
  const weekFrom = range(nowMs - 8 * DAY_MS, nowMs - DAY_MS);
  const dayFrom = range(nowMs - DAY_MS, Math.max(untilMs, 0));
  const week = between(weekFrom);
  // The day's numbers begin with the week's last number, so that a gap between week and day is found too.
  const day = between(
    dayFrom && { min: Math.min(dayFrom.min, weekFrom?.max ?? dayFrom.min), max: dayFrom.max },
  );
  const isUsualKnown = week.codes >= USUAL_MIN;
  return { ...day, usualShare: isUsualKnown ? week.missing.length / week.codes : 1 };
}

const CODES_BETWEEN = 'SELECT code FROM _orders WHERE code BETWEEN ? AND ?';

/** Returns the numbers missing between `codes`, highest first: [4, 5, 7] → [6]. */
function gapsIn(codes: readonly number[]): { missing: number[]; codes: number } {
  const known = [...new Set(codes.filter(Number.isSafeInteger))].sort((a, b) => b - a);
  const missing: number[] = [];
  for (const [i, below] of known.entries()) {
    const above = known[i - 1] ?? below;
    if (above - below - 1 > RUN_MAX) continue;
    for (let code = above - 1; code > below; code--) missing.push(code);
  }
  return { missing, codes: known.length + missing.length };
}

/** Maximum and minimum numbers of orders to compare: of the newest ones of the day, and of the two weeks before. */
const NEWEST_READ = 20;
const NEWEST_MIN = 5;
const EARLIER_READ = 200;
const EARLIER_MIN = 20;
const EARLIER_DAYS = 14;
const ADDED_SHARE = 0.8;

/**
 * Returns how the fields of payloads changed. `added`: in at least 80 % of the newest orders and in no earlier one.
 * `gone`: in all earlier orders and in no newest one. Orders of different kinds are not compared, because a pickup
 * order, for example, has no address.
 */
export function fieldNews(db: Database.Database, nowMs: number): FieldNews {
  const kind = ['payload_source', 'delivery_type', 'is_scheduled'];
  const kinds = `SELECT DISTINCT ${kind} FROM _orders WHERE created_at > ? AND created_at <= ?`;
  const payloads = `SELECT payload FROM _orders WHERE created_at > ? AND created_at <= ?
    AND (${kind.map((column) => `${column} IS ?`).join(' AND ')}) AND forgotten_at IS NULL
    ORDER BY created_at DESC LIMIT ?`;
  const [dayFrom, dayTo] = [isoUtc(nowMs - DAY_MS), isoUtc(nowMs + DAY_MS)];
  const from = isoUtc(nowMs - EARLIER_DAYS * DAY_MS);
  const [added, gone] = [new Set<string>(), new Set<string>()];
  for (const each of sqlOf(db).rows<Record<string, unknown>>(kinds, dayFrom, dayTo)) {
    const values = Object.values(each);
    const newest = sqlOf(db).values<string>(payloads, dayFrom, dayTo, ...values, NEWEST_READ);
    if (newest.length < NEWEST_MIN) continue;
    const earlier = sqlOf(db).values<string>(payloads, from, dayFrom, ...values, EARLIER_READ);
    if (earlier.length < EARLIER_MIN) continue;
    const [now, before] = [countsOf(newest.map(fieldsOf)), countsOf(earlier.map(fieldsOf))];
    for (const [name, count] of now)
      if (count >= ADDED_SHARE * newest.length && !before.has(name)) added.add(name);
    for (const [name, count] of before) if (count === earlier.length && !now.has(name)) gone.add(name);
  }
  return { added: topmost(added), gone: topmost(gone) };
}

/** Statuses that the platform says and its document does not name. */

export interface StatusWord {
  word: string;
  /** Order that had it last. */
  orderId: string;
  code: number | null;
}

const WORDS_MAX = 100;
const WORD_LENGTH_MAX = 100;
const TOLD_FOR_MS = 24 * 3_600_000;

/** Records a status that the document does not name, in the caller's transaction. */
export function noteUnknownStatus(
  db: Database.Database,
  { reading: { orderId }, observedAtMs }: Pick<OrderObservation, 'reading' | 'observedAtMs'>,
  word: string,
): void {
  const sql = sqlOf(db);
  const note = `INSERT INTO _seen (kind, name, first_at, last_at, order_id) VALUES ('unknown-status', @word, @at, @at, @orderId)
    ON CONFLICT (kind, name) DO UPDATE SET order_id = excluded.order_id, last_at = excluded.last_at`;
  sql.run(note, { word: word.slice(0, WORD_LENGTH_MAX), at: isoUtc(observedAtMs), orderId });
  const words = seen('unknown-status');
  const firstOver = `SELECT last_at FROM ${words} ORDER BY last_at DESC LIMIT 1 OFFSET ?`;
  sql.run(`DELETE FROM ${words} AND last_at <= (${firstOver})`, WORDS_MAX);
}

/** Returns the unknown statuses of the last day, the newest first. */
export function unknownStatuses(db: Database.Database, nowMs: number): StatusWord[] {
  const sql = `SELECT s.name AS word, s.order_id AS orderId, o.code FROM _seen s LEFT JOIN _orders o USING (order_id)
    WHERE s.kind = 'unknown-status' AND s.last_at > ? ORDER BY s.last_at DESC, s.name`;
  return sqlOf(db).rows<StatusWord>(sql, isoUtc(nowMs - TOLD_FOR_MS));
}

/** Checks an order's sums. A difference that nothing explains reveals a line that was left out or sent twice. */

type Sums = Pick<OrderFields, 'amount' | 'amountToPay' | 'deliveryFee' | 'couponDiscount'>;

/** Largest difference that rounding to whole coins explains: this share of the sum, or this amount if larger. */
const ROUNDED_SHARE = 0.01;
const ROUNDED_MIN = 0.05;

/**
 * Returns whether the sums differ; null if a sum is missing. `stated` returns all numbers in the order, and is called
 * only if the sums differ.
 */
export function doSumsDiffer(
  fields: Sums,
  items: readonly OrderItem[],
  stated: () => readonly number[],
): boolean | null {
  const amount = numberOf(fields.amount);
  if (amount === null) return null;
  const coupon = Math.abs(numberOf(fields.couponDiscount) ?? 0);
  const rounded = Math.max(Math.abs(amount) * ROUNDED_SHARE, ROUNDED_MIN);
  const isNone = (difference: number) => Math.abs(difference) <= rounded;
  const isExplained = (difference: number) =>
    isNone(difference) || stated().some((number) => isNone(Math.abs(difference) - Math.abs(number)));

  const toPay = numberOf(fields.amountToPay);
  const fee = numberOf(fields.deliveryFee);
  const rest = toPay === null || fee === null ? null : toPay - fee - amount;
  if (rest !== null && !isExplained(rest)) return true;

  const sums = lineSums(items);
  const [paid] = sums;
  if (paid === undefined) return rest === null ? null : false;
  if (sums.some((sum) => sum >= amount - rounded && sum <= amount + coupon + rounded)) return false;
  if (paid < amount) return !sums.some((sum) => sum < amount && isExplained(amount - sum));
  // Lines worth more than the order mean an unnamed discount, unless a line is there twice.
  return isNone(paid - amount - priceOfTwins(items));
}

/** Returns the total of the lines for each way to read their prices. A way is left out if a line has no such price. */
function lineSums(items: readonly OrderItem[]): number[] {
  const readings = [
    (item: OrderItem) => numberOf(item.productPrice),
    (item: OrderItem) => times(item.productPrice, item.quantity),
    (item: OrderItem) => times(item.unitPrice, item.quantity),
    (item: OrderItem) => numberOf(item.productBasePrice),
  ];
  if (items.length === 0) return [];
  return readings.flatMap((read) => {
    let sum = 0;
    for (const item of items) {
      const price = read(item);
      if (price === null) return [];
      sum += price;
    }
    return [sum];
  });
}

/** Returns the price of the lines that repeat an earlier line. */
function priceOfTwins(items: readonly OrderItem[]): number {
  const seen = new Set<string>();
  let price = 0;
  for (const item of items) {
    const text = JSON.stringify(item);
    if (seen.has(text)) price += numberOf(item.productPrice) ?? 0;
    seen.add(text);
  }
  return price;
}

function times(price: unknown, quantity: unknown): number | null {
  const [each, pieces] = [numberOf(price), numberOf(quantity)];
  return each === null || pieces === null ? null : each * pieces;
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

/** Returns the numbers in a payload and in the objects inside it, but not those in lists. */
export function statedNumbers(payload: string): number[] {
  let value: unknown;
  try {
    value = JSON.parse(payload);
  } catch {
    return [];
  }
  const numbers: number[] = [];
  const walk = (part: unknown, depth: number) => {
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return;
    for (const each of Object.values(part)) {
      const number = typeof each === 'string' && each.trim() !== '' ? Number(each) : each;
      if (typeof number === 'number' && Number.isFinite(number) && number !== 0) numbers.push(number);
      else if (depth < STATED_DEPTH) walk(each, depth + 1);
    }
  };
  walk(value, 0);
  return numbers;
}

/** Maximum depth of nested objects: the order may be in a wrapper, and its totals in an object of the order. */
const STATED_DEPTH = 2;
