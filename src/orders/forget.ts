import type Database from 'better-sqlite3';
import { sqlOf } from '../db/sqlite.ts';
import { forgetInFeed } from './branch-feed.ts';
import { PERSONAL_FIELDS, PERSONAL_ITEM_FIELDS, payloadWithoutCustomer } from './customer.ts';
import { knownOrder, ORDER_FIELDS } from './order-rows.ts';
import { type OrderSpellings, snakeCase } from './spellings.ts';

/**
 * The mark that counts customers who were forgotten since the file was last written anew; below zero: it is, and its log
 * still holds pages of before.
 */
export const TO_CLEAN = 'customers.to-clean';

/** Something of a customer was deleted, of which bytes may be left in the file. The caller's transaction. */
export function noteToClean(db: Database.Database): void {
  const sql =
    'INSERT INTO marks (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = max(value, 0) + 1';
  sqlOf(db).run(sql, TO_CLEAN);
}

/** Orders that ended before this time, ISO 8601 UTC, whose customers are still known; the first that ended first. */
export function customersOf(db: Database.Database, endedBefore: string, limit: number): string[] {
  // A clock that shows less was never set.
  const sql = `SELECT order_id FROM orders WHERE ended_at IS NOT NULL AND forgotten_at IS NULL
      AND ended_at < ? AND ended_at >= '2020' ORDER BY ended_at LIMIT ?`;
  return sqlOf(db).values<string>(sql, endedBefore, limit);
}

/** Payloads of an order, beside the one that `orders` has: table and key. */
const PAYLOADS = [
  ['order_payloads', 'payload_id'],
  ['held_notifications', 'held_id'],
] as const;

const FORGET_ORDER = `UPDATE orders SET ${PERSONAL_FIELDS.map((field) => `${snakeCase(field)} = NULL`)},
  payload = ?, forgotten_at = ? WHERE order_id = ?`;
const FORGET_ITEMS = `UPDATE order_items SET ${PERSONAL_ITEM_FIELDS.map((field) => `${field} = NULL`)} WHERE order_id = ?`;

/**
 * Takes the customer out of an order and of all that was received of it, within the caller's transaction. False: there
 * is no such order, or its customer is forgotten already.
 */
export function forgetCustomer(
  db: Database.Database,
  orderId: string,
  spellings: OrderSpellings,
  at: string,
): boolean {
  const sql = sqlOf(db);
  const known = knownOrder(db, orderId);
  if (known === undefined || known.forgottenAt !== null) return false;
  // What is written over here is gone from the pages at once; copies that moving rows left in others, by `clean`.
  db.pragma('secure_delete = 1');
  sql.run(FORGET_ORDER, payloadWithoutCustomer(known.payload, spellings), at, orderId);
  sql.run(FORGET_ITEMS, orderId);
  for (const [table, key] of PAYLOADS) {
    const kept = `SELECT ${key} AS id, payload FROM ${table} WHERE order_id = ?`;
    for (const { id, payload } of sql.rows<{ id: number; payload: string }>(kept, orderId)) {
      const update = `UPDATE ${table} SET payload = ? WHERE ${key} = ?`;
      sql.run(update, payloadWithoutCustomer(payload, spellings), id);
    }
  }
  forgetInFeed(db, orderId, spellings, at);
  noteToClean(db);
  return true;
}

/** Shorter texts would be found in what is of others. */
const NAMED_LENGTH_MIN = 6;
const NAMED_BY = ['customerEmail', 'customerPhoneNumber', 'addressPhoneNumber'] as const;

/**
 * Drops what lies in quarantine and names the order or its customer: a notification that could not be read, or a whole
 * answer of a poll, which comes again with the next one.
 */
export function forgetQuarantined(db: Database.Database, orderId: string): void {
  const values = knownOrder(db, orderId)?.values ?? [];
  const named = NAMED_BY.map((field) => values[ORDER_FIELDS.indexOf(field)])
    .filter((value) => typeof value === 'string')
    .filter((value) => value.length >= NAMED_LENGTH_MIN);
  const texts = [JSON.stringify(orderId), ...(orderId.length >= NAMED_LENGTH_MIN ? [orderId] : []), ...named];
  for (const text of texts) {
    const sql = `DELETE FROM quarantine
      WHERE source IN ('webhook', 'poll') AND instr(CAST(payload AS TEXT), ?) > 0`;
    const { changes } = sqlOf(db).run(sql, text);
    if (changes > 0) noteToClean(db);
  }
}
