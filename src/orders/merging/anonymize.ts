import type Database from 'better-sqlite3';
import { sqlOf } from '../../db/sqlite.ts';
import { forgetInFeed } from './branch-feed.ts';
import { PERSONAL_FIELDS, PERSONAL_ITEM_FIELDS, payloadWithoutCustomer } from './customer.ts';
import { ORDER_FIELDS, type OrderSpellings, snakeCase } from './field-aliases.ts';
import { knownOrder } from './order-rows.ts';

/**
 * Name of the mark with the number of removals of personal data since mirror.db was last rewritten. A negative value
 * means that mirror.db was rewritten, but its write-ahead log still has old pages.
 */
export const TO_CLEAN = 'customers.to-clean';

/** Records that bytes of deleted personal data may still be in the file. Runs in the caller's transaction. */
export function noteToClean(db: Database.Database): void {
  const sql =
    'INSERT INTO marks (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = max(value, 0) + 1';
  sqlOf(db).run(sql, TO_CLEAN);
}

/**
 * Returns the ids of orders that ended before this time (ISO 8601 UTC) and still have customer data, earliest end
 * first.
 */
export function customersOf(db: Database.Database, endedBefore: string, limit: number): string[] {
  // An end before 2020 was written by a clock that was never set, so the order's age is unknown.
  const sql = `SELECT order_id FROM _orders WHERE ended_at IS NOT NULL AND forgotten_at IS NULL
      AND ended_at < ? AND ended_at >= '2020' ORDER BY ended_at LIMIT ?`;
  return sqlOf(db).values<string>(sql, endedBefore, limit);
}

/** Tables with an order's other payloads (the newest payload is in `orders`), each with its primary key. */
const PAYLOADS = [
  ['_order_payloads', 'payload_id'],
  ['_held_notifications', 'held_id'],
] as const;

const FORGET_ORDER = `UPDATE _orders SET ${PERSONAL_FIELDS.map((field) => `${snakeCase(field)} = NULL`)},
  payload = ?, forgotten_at = ? WHERE order_id = ?`;
const FORGET_ITEMS = `UPDATE order_items SET ${PERSONAL_ITEM_FIELDS.map((field) => `${field} = NULL`)} WHERE order_id = ?`;

const FORGET_PREPARED = `UPDATE _prepared_orders SET digest = '', content = json_set(content, '$.address', json('[]'),
    '$.lines', json((SELECT json_group_array(json_set(value, '$.comment', NULL)) FROM json_each(content, '$.lines'))))
  WHERE order_id = ?`;

/**
 * Removes the customer from an order and from all its payloads, in the caller's transaction. Returns false if the
 * order is unknown or its customer was removed before.
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
  // With this setting, SQLite overwrites deleted values in place. It may have left copies in other pages when it moved
  // rows; `CustomerStore.clean` removes these copies.
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
  // Who tries addresses or short comments finds the ones of a digest. The lines stay: a kitchen may still work on them.
  sql.run(FORGET_PREPARED, orderId);
  sql.run("UPDATE _preparation_events SET digest = '' WHERE order_id = ?", orderId);
  forgetInFeed(db, orderId, spellings, at);
  noteToClean(db);
  return true;
}

/** Minimum length of an unquoted text to search for; a shorter one would also match entries of other people. */
const NAMED_LENGTH_MIN = 6;
const NAMED_BY = ['customerEmail', 'customerPhoneNumber', 'addressPhoneNumber'] as const;

/**
 * Deletes quarantined entries that name the order or its customer. If a poll's answer is deleted, the next poll brings
 * its other orders again.
 */
export function forgetQuarantined(db: Database.Database, orderId: string): void {
  const values = knownOrder(db, orderId)?.values ?? [];
  const named = NAMED_BY.map((field) => values[ORDER_FIELDS.indexOf(field)])
    .filter((value) => typeof value === 'string')
    .filter((value) => value.length >= NAMED_LENGTH_MIN);
  const texts = [JSON.stringify(orderId), ...(orderId.length >= NAMED_LENGTH_MIN ? [orderId] : []), ...named];
  for (const text of texts) {
    const sql = `DELETE FROM _quarantine
      WHERE source IN ('webhook', 'poll') AND instr(CAST(payload AS TEXT), ?) > 0`;
    const { changes } = sqlOf(db).run(sql, text);
    if (changes > 0) noteToClean(db);
  }
}
