import { hash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { asSent, type SqlValue, sqlOf } from '../db/sqlite.ts';
import { feedOrder } from './branch-feed.ts';
import { withoutCustomer } from './customer.ts';
import { ITEM_SPELLINGS, ORDER_SPELLINGS, type OrderSpellings, snakeCase } from './field-aliases.ts';
import { type MergedOrder, noteIncomplete } from './incomplete-orders.ts';
import { mergeOutcome } from './merge.ts';
import type { OrderItem, OrderModifier, PlacedItem } from './mirrored-order.ts';
import {
  isEnded,
  isToBook,
  type OrderFields,
  type OrderObservation,
  type OrderOutcome,
  type OrderReading,
  type OrderSource,
} from './order.ts';
import { doSumsDiffer, statedNumbers } from './order-reader.ts';
import { channelOf, LinePlaces } from './placed-lines.ts';

/** Names of an order's scalar fields. Each has a column with the same name in snake_case. */
export const ORDER_FIELDS = Object.keys(ORDER_SPELLINGS).filter(
  (name) => name !== 'orderId' && name !== 'items',
) as (keyof OrderFields)[];
/** Names of the scalar fields of items and modifiers, in the order of the tables' columns. */
const ITEM_FIELDS = Object.keys(ITEM_SPELLINGS).filter((name) => name !== 'modifiers') as Exclude<
  keyof OrderItem,
  'modifiers'
>[];
const MODIFIER_FIELDS = [
  'name',
  'shortName',
  'description',
  'optionId',
  'optionExternalId',
  'optionName',
  'optionPrice',
  'quantity',
  'modifierExternalId',
] as const satisfies (keyof OrderModifier)[];

export function columnsAs(fields: readonly string[]): string[] {
  return fields.map((field) => `${snakeCase(field)} AS ${field}`);
}

/** A value that SQLite returns for a column. */
export type Value = string | number | null;

const STATUS_AT = ORDER_FIELDS.indexOf('status');
const NAME_AT = ORDER_FIELDS.indexOf('name');
const STORE_AT = ORDER_FIELDS.indexOf('storeExternalId');
const CREATED_AT = ORDER_FIELDS.indexOf('createdAt');
const IS_SCHEDULED_AT = ORDER_FIELDS.indexOf('isScheduled');
const SCHEDULED_FOR_AT = ORDER_FIELDS.indexOf('scheduledFor');
const AMOUNT_AT = ORDER_FIELDS.indexOf('amount');
const AMOUNT_TO_PAY_AT = ORDER_FIELDS.indexOf('amountToPay');
const DELIVERY_FEE_AT = ORDER_FIELDS.indexOf('deliveryFee');
const COUPON_DISCOUNT_AT = ORDER_FIELDS.indexOf('couponDiscount');

/** Returns the status from a list of values in the order of `ORDER_FIELDS`. */
export function statusIn(values: readonly Value[]): string | null {
  return (values[STATUS_AT] ?? null) as string | null;
}

/**
 * Returns values in the order of `ORDER_FIELDS`. A field that was not sent is copied from `known`, otherwise it is
 * null.
 */
export function fieldValues(fields: OrderFields, known?: readonly Value[]): Value[] {
  const values: Value[] = [];
  for (let i = 0; i < ORDER_FIELDS.length; i++) {
    const sent = fields[ORDER_FIELDS[i] as keyof OrderFields];
    if (sent === undefined) values.push(known?.[i] ?? null);
    else values.push(typeof sent === 'boolean' ? Number(sent) : sent);
  }
  return values;
}

function sameRow(a: readonly Value[], b: readonly Value[]): boolean {
  return a.length === b.length && a.every((value, i) => value === b[i]);
}

/** An order's row in the mirror. */
export interface KnownRow {
  /** Values of the fields, in the order of `ORDER_FIELDS`. */
  values: Value[];
  seq: number;
  /** Seq of the event at which the order's store, or the quantities of its lines, last changed. */
  linesSeq: number;
  eventSource: OrderSource;
  pollDigest: string | null;
  payloadSource: OrderSource;
  payload: string;
  updatedAt: string;
  /** When the payload was received; null if it came with the newest event. */
  payloadAt: string | null;
  endedAt: string | null;
  /** When the customer's data was removed; null if it was not. */
  forgottenAt: string | null;
  /** 1 if the stated sums do not add up, 0 if they do, null if some are missing. */
  sumsDiffer: number | null;
}

const WRITTEN = [
  ...ORDER_FIELDS.map(snakeCase),
  ...[
    'seq',
    'lines_seq',
    'event_source',
    'poll_digest',
    'payload_source',
    'payload',
    'updated_at',
    'ended_at',
    'forgotten_at',
    'sums_differ',
  ],
];
const marks = (count: number) => Array.from({ length: count }, () => '?');

const OWN_FIELDS = [
  ...['seq', 'eventSource', 'pollDigest', 'payloadSource', 'payload'],
  ...['updatedAt', 'payloadAt', 'endedAt', 'forgottenAt', 'sumsDiffer'],
];
const KNOWN = `SELECT ${columnsAs([...ORDER_FIELDS, ...OWN_FIELDS])}, coalesce(lines_seq, seq) AS linesSeq
  FROM orders WHERE order_id = ?`;
const INSERT_ORDER = `INSERT INTO orders (${WRITTEN}, to_book_since, channel, order_id)
  VALUES (${marks(WRITTEN.length + 3)})`;
const UPDATE_ORDER = `UPDATE orders SET ${WRITTEN.map((column) => `${column} = ?`)},
  to_book_since = coalesce(to_book_since, ?), channel = coalesce(?, channel), payload_at = NULL WHERE order_id = ?`;
// No ORDER BY here, because it would make the query three times as slow even with nothing to sort.
const ITEMS = `SELECT line, ${columnsAs(ITEM_FIELDS)} FROM order_items WHERE order_id = ?`;
const PLACED_ITEMS = ITEMS.replace('line,', 'line, sku, product_id AS productId, matched_by AS matchedBy,');
const MODIFIERS = `SELECT line, modifier, ${columnsAs(MODIFIER_FIELDS)} FROM order_item_modifiers
  WHERE order_id = ?`;

interface Inserts {
  columns: number;
  /** SQL texts for one row, two rows, and so on. */
  texts: string[];
}

/** Maximum number of rows per statement. A longer order needs several statements. */
const ROWS_AT_ONCE = 8;

/**
 * Builds INSERT statements. OR FAIL avoids a statement journal, which would cost as much time as another row; on an
 * error, the whole transaction is rolled back anyway.
 */
function insertsOf(table: string, columns: number): Inserts {
  const row = `(${marks(columns)})`;
  const texts = Array.from(
    { length: ROWS_AT_ONCE },
    (_, n) => `INSERT OR FAIL INTO ${table} VALUES ${Array.from({ length: n + 1 }, () => row)}`,
  );
  return { columns, texts };
}

const INSERT_ITEMS = insertsOf('order_items', ITEM_FIELDS.length + 5);
const INSERT_MODIFIERS = insertsOf('order_item_modifiers', MODIFIER_FIELDS.length + 3);

/** Returns an order's code and the digest of its last confirmed poll record; undefined for an unknown order. */
export function polledOrder(
  db: Database.Database,
  orderId: string,
): { pollDigest: string | null; code: number | null } | undefined {
  const sql = 'SELECT poll_digest AS pollDigest, code FROM orders WHERE order_id = ?';
  return sqlOf(db).row<{ pollDigest: string | null; code: number | null }>(sql, orderId);
}

export function knownOrder(db: Database.Database, orderId: string): KnownRow | undefined {
  const row = sqlOf(db).row<KnownRow & Record<keyof OrderFields, Value>>(KNOWN, orderId);
  return row && { ...row, values: ORDER_FIELDS.map((field) => row[field]) };
}

export function updateDigest(db: Database.Database, orderId: string, pollDigest: string | null): void {
  sqlOf(db).run('UPDATE orders SET poll_digest = ? WHERE order_id = ?', pollDigest, orderId);
}

/** Returns the items of an order, in the order of their lines. */
function itemsOf(db: Database.Database, orderId: string): OrderItem[] {
  return itemsBy<OrderItem>(db, ITEMS, orderId);
}

/** Returns the items as `itemsOf` does, each with its product and sku in the catalogue. */
export function placedItemsOf(db: Database.Database, orderId: string): PlacedItem[] {
  return itemsBy<PlacedItem>(db, PLACED_ITEMS, orderId);
}

function itemsBy<Item extends OrderItem>(db: Database.Database, text: string, orderId: string): Item[] {
  const items: Item[] = [];
  for (const { line, ...item } of sqlOf(db).rows<Item & { line: number }>(text, orderId)) {
    items[line - 1] = { ...item, modifiers: [] } as OrderItem as Item;
  }
  const modifiers = sqlOf(db).rows<OrderModifier & { line: number; modifier: number }>(MODIFIERS, orderId);
  for (const { line, modifier, ...rest } of modifiers) {
    const item = items[line - 1];
    if (item) item.modifiers[modifier - 1] = rest;
  }
  return items;
}

/** Returns whether the mirror has exactly these items of the order. */
export function hasItems(db: Database.Database, orderId: string, items: readonly OrderItem[]): boolean {
  const rows = sqlOf(db).rows<OrderItem & { line: number }>(ITEMS, orderId);
  const modifiers = sqlOf(db).rows<OrderModifier & { line: number; modifier: number }>(MODIFIERS, orderId);
  return (
    rows.length === items.length &&
    modifiers.length === items.reduce((sum, item) => sum + item.modifiers.length, 0) &&
    rows.every((row) => {
      const item = items[row.line - 1];
      return item && ITEM_FIELDS.every((field) => row[field] === item[field]);
    }) &&
    modifiers.every((row) => {
      const modifier = items[row.line - 1]?.modifiers[row.modifier - 1];
      return modifier && MODIFIER_FIELDS.every((field) => row[field] === (modifier[field] ?? null));
    })
  );
}

/** Returns whether two lists of items take the same quantities from every stock. Comments and prices may differ. */
function takesTheSame(before: readonly OrderItem[], after: readonly OrderItem[]): boolean {
  const taken = (items: readonly OrderItem[]) =>
    items.map((item) => JSON.stringify([item.productExternalId, item.productName, item.quantity])).sort();
  return sameRow(taken(before), taken(after));
}

/**
 * Adds known details to the lines of a poll's record, which may have fewer details than a notification. Only lines
 * with the same position, product and quantity are completed.
 */
function withKnownLines(known: readonly OrderItem[], { items, isBrief }: OrderReading): OrderItem[] {
  return (items ?? []).map((item, i) => {
    const before = known[i];
    if (!before || !takesTheSame([before], [item])) return item;
    const told = Object.fromEntries(Object.entries(item).filter(([, value]) => value !== null));
    return { ...before, ...told, modifiers: isBrief ? before.modifiers : item.modifiers };
  });
}

function insertItems(
  db: Database.Database,
  orderId: string,
  items: readonly OrderItem[],
  places: LinePlaces,
): void {
  const lines: SqlValue[] = [];
  const options: SqlValue[] = [];
  for (let i = 0; i < items.length; i++) {
    const item = items[i] as OrderItem;
    lines.push(orderId, i + 1);
    for (const field of ITEM_FIELDS) lines.push(asSent(item[field]));
    const { sku, productId, matchedBy } = places.of(item);
    lines.push(sku, productId, matchedBy);
    for (let j = 0; j < item.modifiers.length; j++) {
      options.push(orderId, i + 1, j + 1);
      for (const field of MODIFIER_FIELDS)
        options.push(asSent((item.modifiers[j] as OrderModifier)[field] ?? null));
    }
  }
  insertRows(db, INSERT_ITEMS, lines);
  insertRows(db, INSERT_MODIFIERS, options);
}

/** Inserts rows. `values` has the values of all rows, one row after the other. */
function insertRows(db: Database.Database, { columns, texts }: Inserts, values: readonly SqlValue[]): void {
  const most = columns * ROWS_AT_ONCE;
  for (let from = 0; from < values.length; from += most) {
    const some = values.length <= most ? values : values.slice(from, from + most);
    sqlOf(db).run(texts[some.length / columns - 1] as string, ...some);
  }
}

/** A payload in the table `order_payloads`: it was merged, but is not, or no longer, the one in the order's row. */
export interface EarlierPayload {
  /** Seq of the order's newest event after this payload was merged. */
  seq: number;
  source: OrderSource;
  /** When the payload was received, ISO 8601 UTC. */
  receivedAt: string;
  /** JSON text as received. */
  payload: string;
}

/**
 * Stores a payload. `applied` is true if the payload caused the event `seq`. Otherwise its content was known already,
 * and the same text is stored only once per event, however often it arrives.
 */
export function addPayload(
  db: Database.Database,
  orderId: string,
  { seq, source, receivedAt, payload }: EarlierPayload,
  applied: boolean,
): void {
  const has = 'SELECT 1 FROM order_payloads WHERE order_id = ? AND seq = ? AND payload = ?';
  if (!applied && sqlOf(db).row(has, orderId, seq, payload) !== undefined) return;
  const sql =
    'INSERT INTO order_payloads (order_id, seq, applied, source, received_at, payload) VALUES (?, ?, ?, ?, ?, ?)';
  sqlOf(db).run(sql, orderId, seq, Number(applied), source, receivedAt, payload);
}

/** Returns the earlier payloads of an order in the order of merging, oldest first. */
export function earlierPayloads(db: Database.Database, orderId: string): EarlierPayload[] {
  const sql = `SELECT seq, source, received_at AS receivedAt, payload FROM order_payloads
    WHERE order_id = ? ORDER BY seq, received_at, payload_id`;
  return sqlOf(db).rows<EarlierPayload>(sql, orderId);
}

/** Returns an order's payload from the table `orders`. */
export function newestPayload({
  seq,
  payloadSource,
  payloadAt,
  updatedAt,
  payload,
}: KnownRow): EarlierPayload {
  return { seq, source: payloadSource, receivedAt: payloadAt ?? updatedAt, payload };
}

const HELD_MAX = 1_000;

/** Stores a callback that would set the order back to an earlier status. Only the newest thousand are kept. */
export function holdNotification(
  db: Database.Database,
  { reading, raw, observedAtMs }: Pick<OrderObservation, 'reading' | 'raw' | 'observedAtMs'>,
  knownStatus: string | null,
): void {
  // A held callback that arrives again replaces its row, so that a poll whose request began before does not resolve it.
  const insert = `INSERT OR REPLACE INTO held_notifications
    (order_id, status, known_status, digest, received_at, payload) VALUES (?, ?, ?, ?, ?, ?)`;
  const status = reading.fields.status ?? null;
  sqlOf(db).run(
    insert,
    ...[reading.orderId, status, knownStatus, hash('sha256', raw, 'hex'), isoUtc(observedAtMs), raw],
  );
  // Counts the rows, because a callback that arrives often leaves gaps in the ids.
  const firstOver = 'SELECT held_id FROM held_notifications ORDER BY held_id DESC LIMIT 1 OFFSET ?';
  sqlOf(db).run(`DELETE FROM held_notifications WHERE held_id <= (${firstOver})`, HELD_MAX);
}

/**
 * Resolves the order's held webhooks by the status that a poll reported: confirmed if it is the same, otherwise
 * refuted. Webhooks held after the poll's request began stay, and the next poll reads the order again.
 */
function resolveHeld(
  db: Database.Database,
  status: string | null,
  { reading: { orderId }, observedAtMs, asOfHeldId = Number.MAX_SAFE_INTEGER }: OrderObservation,
): void {
  const waiting = 'SELECT max(held_id) FROM held_notifications WHERE order_id = ? AND resolved_at IS NULL';
  const newest = sqlOf(db).value<number | null>(waiting, orderId) ?? null;
  if (newest === null) return;
  const sql = `UPDATE held_notifications
    SET resolved_at = ?, resolution = iif(status IS ?, 'confirmed', 'refuted')
    WHERE order_id = ? AND resolved_at IS NULL AND held_id <= ?`;
  sqlOf(db).run(sql, isoUtc(observedAtMs), status, orderId, asOfHeldId);
  if (newest > asOfHeldId) updateDigest(db, orderId, null);
}

/**
 * Merges an observation, in the caller's transaction. `pollDigest` identifies the poll's record (see `pollDigests`).
 * `isNew` skips the lookup of an order known to be missing; `places` is shared by the transaction's orders. The data
 * of a removed customer is stored again only if the order had ended and is open again.
 */
export function mergeOrder(
  db: Database.Database,
  received: OrderObservation,
  spellings: OrderSpellings,
  pollDigest: string | null,
  { isNew = false, places = new LinePlaces(db) }: { isNew?: boolean; places?: LinePlaces } = {},
): OrderOutcome {
  const known = isNew ? undefined : knownOrder(db, received.reading.orderId);
  const knownStatus = known ? statusIn(known.values) : null;
  const wasForgotten = known !== undefined && known.forgottenAt !== null;
  const sentStatus = received.reading.fields.status ?? knownStatus;
  const isForgotten = wasForgotten && !(isEnded(knownStatus) && !isEnded(sentStatus));
  const observation = isForgotten ? withoutCustomer(received, spellings) : received;
  const { reading, source, observedAtMs, raw } = observation;
  const { orderId, fields } = reading;
  const values = fieldValues(fields, known?.values);
  const status = statusIn(values);
  const { items, sameItems } = linesOf(db, known, observation);
  const outcome = mergeOutcome(known && { status: knownStatus, seq: known.seq, source: known.eventSource }, {
    source,
    status: fields.status,
    asOfSeq: observation.asOfSeq,
    sameContent: known !== undefined && sameItems && sameRow(values, known.values),
  });
  if (!known || outcome === 'created' || outcome === 'changed') {
    const sql = sqlOf(db);
    const observedAt = isoUtc(observedAtMs);
    const { lastInsertRowid: seq } = sql.run(
      'INSERT INTO order_events (order_id, status, previous_status, source, observed_at) VALUES (?, ?, ?, ?, ?)',
      orderId,
      status,
      knownStatus,
      source,
      observedAt,
    );
    if (known && known.payload !== raw) keepReplacedPayload(db, orderId, known);
    const endedAt = isEnded(status) ? (known?.endedAt ?? observedAt) : null;
    const forgottenAt = isForgotten ? known.forgottenAt : null;
    const toBookSince = isToBook(status) ? observedAt : null;
    const hasSameLines =
      known?.values[STORE_AT] === values[STORE_AT] &&
      (sameItems || !items || takesTheSame(itemsOf(db, orderId), items));
    const linesSeq = known && hasSameLines ? known.linesSeq : Number(seq);
    const row: SqlValue[] = [];
    for (const value of values) row.push(asSent(value));
    row.push(Number(seq), linesSeq, source, pollDigest, source, raw, observedAt);
    const sumsDiffer = sumsOf(values, items, raw) ?? known?.sumsDiffer ?? null;
    row.push(
      endedAt,
      forgottenAt,
      sumsDiffer,
      toBookSince,
      channelOf(values[NAME_AT] as string | null),
      orderId,
    );
    sql.run(known ? UPDATE_ORDER : INSERT_ORDER, ...row);
    if (!known) noteEarlyAcknowledgement(db, orderId, values);
    if (known && !sameItems) {
      sqlOf(db).run('DELETE FROM order_items WHERE order_id = ?', orderId);
      sqlOf(db).run('DELETE FROM order_item_modifiers WHERE order_id = ?', orderId);
    }
    if (items && !(known && sameItems)) insertItems(db, orderId, items, places);
    // The feed gets the whole order, so that a branch that lacks the order needs nothing more.
    feedOrder(db, () => {
      const whole = Object.fromEntries(ORDER_FIELDS.map((field, i) => [field, values[i]])) as OrderFields;
      const all: OrderReading = { orderId, fields: whole, items: items ?? itemsOf(db, orderId) };
      if (reading.incomplete) all.incomplete = reading.incomplete;
      return { source, observedAt, reading: all, raw };
    });
  } else if (outcome === 'confirmed') {
    noteConfirmed(db, observation, known, pollDigest);
  } else if (outcome === 'held') {
    holdNotification(db, wasForgotten ? withoutCustomer(received, spellings) : received, knownStatus);
    // The next poll must read this order again, because it decides between the held webhook and the stored status.
    if (known.pollDigest !== null) updateDigest(db, orderId, null);
  }
  if (outcome !== 'held' && outcome !== 'superseded') {
    noteIncomplete(db, observation, mergedOrder(known === undefined, values));
  }
  if (known && source === 'poll' && outcome !== 'superseded' && !observation.isReplay) {
    resolveHeld(db, status, observation);
  }
  return outcome;
}

/**
 * Returns the lines that the mirror should have, undefined if the observation has no lines, and whether the mirror has
 * them already.
 */
function linesOf(
  db: Database.Database,
  known: KnownRow | undefined,
  { reading, source }: OrderObservation,
): { items: OrderItem[] | undefined; sameItems: boolean } {
  const { orderId, items } = reading;
  if (!known || !items || hasItems(db, orderId, items)) return { items, sameItems: true };
  if (source !== 'poll') return { items, sameItems: false };
  const told = withKnownLines(itemsOf(db, orderId), reading);
  return { items: told, sameItems: hasItems(db, orderId, told) };
}

/** Returns the facts of a merged order that `noteIncomplete` needs. */
function mergedOrder(isNew: boolean, values: readonly Value[]): MergedOrder {
  return {
    isNew,
    status: statusIn(values),
    createdAt: (values[CREATED_AT] ?? null) as string | null,
    isScheduled: values[IS_SCHEDULED_AT] === 1,
    scheduledFor: (values[SCHEDULED_FOR_AT] ?? null) as string | null,
  };
}

/** Returns the value of the column `sums_differ`; null if the observation has no lines. */
function sumsOf(
  values: readonly Value[],
  items: readonly OrderItem[] | undefined,
  raw: string,
): number | null {
  if (items === undefined) return null;
  const sums = {
    amount: values[AMOUNT_AT],
    amountToPay: values[AMOUNT_TO_PAY_AT],
    deliveryFee: values[DELIVERY_FEE_AT],
    couponDiscount: values[COUPON_DISCOUNT_AT],
  } as OrderFields;
  const differ = doSumsDiffer(sums, items, () => statedNumbers(raw));
  return differ === null ? null : Number(differ);
}

/** Records the store of an acknowledgement that arrived before its order, because only the order names the store. */
function noteEarlyAcknowledgement(db: Database.Database, orderId: string, values: readonly Value[]): void {
  // The newest time is not selected by max(), because the query, which runs for every new order, is four times as fast
  // without it.
  const acks = sqlOf(db).values<string>(
    "SELECT acked_at FROM order_acks WHERE order_id = ? AND source <> 'cli'",
    orderId,
  );
  const ackedAt = acks.toSorted().at(-1);
  if (ackedAt === undefined) return;
  const sql =
    'INSERT INTO acknowledging_stores (store, first_at, last_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING';
  sqlOf(db).run(sql, values[STORE_AT] ?? '', ackedAt, ackedAt);
}

/**
 * Stores a payload whose content was known already. A callback's payload is always kept, because it is not sent again.
 * A poll's payload only replaces that of an earlier poll, because polls repeat.
 */
function noteConfirmed(
  db: Database.Database,
  { reading: { orderId }, source, raw, observedAtMs }: OrderObservation,
  known: KnownRow,
  pollDigest: string | null,
): void {
  const digest = source === 'poll' ? pollDigest : known.pollDigest;
  const isOther = known.payload !== raw;
  const receivedAt = isoUtc(observedAtMs);
  if (known.payloadSource === source && isOther) {
    if (source === 'webhook') keepReplacedPayload(db, orderId, known);
    const sql = 'UPDATE orders SET payload = ?, payload_at = ?, poll_digest = ? WHERE order_id = ?';
    sqlOf(db).run(sql, raw, receivedAt, digest, orderId);
  } else if (known.pollDigest !== digest) {
    updateDigest(db, orderId, digest);
  }
  if (source === 'webhook' && known.payloadSource === 'poll' && isOther) {
    addPayload(db, orderId, { seq: known.seq, source, receivedAt, payload: raw }, false);
  }
}

function keepReplacedPayload(db: Database.Database, orderId: string, known: KnownRow): void {
  addPayload(db, orderId, newestPayload(known), known.payloadAt === null);
}
