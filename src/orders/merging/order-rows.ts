import type Database from 'better-sqlite3';
import { isoUtc } from '../../core/time.ts';
import { asSent, type SqlValue, sqlOf } from '../../db/sqlite.ts';
import { feedOrder, isFeeding } from './branch-feed.ts';
import { withoutCustomer } from './customer.ts';
import { ITEM_FIELDS, ORDER_FIELDS, type OrderSpellings, snakeCase } from './field-aliases.ts';
import {
  holdNotification,
  isHeld,
  resolveHeldByCallback,
  resolveHeldByPoll,
  statusHeldBefore,
} from './held-callbacks.ts';
import {
  doSumsDiffer,
  type MergedOrder,
  noteIncomplete,
  noteUnknownStatus,
  statedNumbers,
} from './incomplete-orders.ts';
import {
  asValue,
  contradicts,
  dueMsIn,
  type Known,
  type Merged,
  merge,
  type Value,
  weightsIn,
  weightsText,
} from './merge.ts';
import type { OrderItem, OrderModifier, PlacedItem } from './mirrored-order.ts';
import {
  isEnded,
  isKnownStatus,
  isToBook,
  type OrderFields,
  type OrderObservation,
  type OrderOutcome,
  type OrderReading,
  type OrderSource,
} from './order.ts';
import { channelOf, LinePlaces } from './placed-lines.ts';

/** Names of the scalar fields of modifiers. */
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
  /** Weights of the values, as `weightsText` writes them. */
  evidence: string;
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
    'evidence',
  ],
];
const marks = (count: number) => Array.from({ length: count }, () => '?');

const OWN_FIELDS = [
  ...['seq', 'eventSource', 'pollDigest', 'payloadSource', 'payload'],
  ...['updatedAt', 'payloadAt', 'endedAt', 'forgottenAt', 'sumsDiffer', 'evidence'],
];
const KNOWN = `SELECT ${columnsAs([...ORDER_FIELDS, ...OWN_FIELDS])}, coalesce(lines_seq, seq) AS linesSeq
  FROM _orders WHERE order_id = ?`;
const INSERT_ORDER = `INSERT INTO _orders (${WRITTEN}, to_book_since, channel, listed_at, order_id)
  VALUES (${marks(WRITTEN.length + 4)})`;
/** SQL that takes over when an answer had the order; a callback leaves the time alone. */
const LISTED = 'listed_at = coalesce(?, listed_at)';
const UPDATE_ORDER = `UPDATE _orders SET ${WRITTEN.map((column) => `${column} = ?`)},
  to_book_since = coalesce(to_book_since, ?), channel = coalesce(?, channel), ${LISTED},
  payload_at = NULL WHERE order_id = ?`;
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
function insertsOf(table: string, columns: readonly string[]): Inserts {
  const row = `(${marks(columns.length)})`;
  const texts = Array.from(
    { length: ROWS_AT_ONCE },
    (_, n) => `INSERT OR FAIL INTO ${table} (${columns}) VALUES ${Array.from({ length: n + 1 }, () => row)}`,
  );
  return { columns: columns.length, texts };
}

const INSERT_ITEMS = insertsOf('order_items', [
  ...['order_id', 'line'],
  ...ITEM_FIELDS.map(snakeCase),
  ...['sku', 'product_id', 'matched_by'],
]);
const INSERT_MODIFIERS = insertsOf('order_item_modifiers', [
  ...['order_id', 'line', 'modifier'],
  ...MODIFIER_FIELDS.map(snakeCase),
]);

/** Returns the order whose last confirmed poll record has this digest; undefined if there is none. */
export function polledAs(
  db: Database.Database,
  digest: string,
): { orderId: string; code: number | null } | undefined {
  const sql = 'SELECT order_id AS orderId, code FROM _orders WHERE poll_digest = +?';
  return sqlOf(db).row<{ orderId: string; code: number | null }>(sql, digest);
}

export function isMirrored(db: Database.Database, orderId: string): boolean {
  return sqlOf(db).value('SELECT 1 FROM _orders WHERE order_id = ?', orderId) !== undefined;
}

export function knownOrder(db: Database.Database, orderId: string): KnownRow | undefined {
  const row = sqlOf(db).row<KnownRow & Record<keyof OrderFields, Value>>(KNOWN, orderId);
  return row && { ...row, values: ORDER_FIELDS.map((field) => row[field]) };
}

function updateEvidence(db: Database.Database, orderId: string, evidence: string): void {
  sqlOf(db).run('UPDATE _orders SET evidence = ? WHERE order_id = ?', evidence, orderId);
}

export function updateDigest(db: Database.Database, orderId: string, pollDigest: string | null): void {
  sqlOf(db).run('UPDATE _orders SET poll_digest = ? WHERE order_id = ?', pollDigest, orderId);
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
function hasItems(db: Database.Database, orderId: string, items: readonly OrderItem[]): boolean {
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

/** A payload in the table `_order_payloads`: it was merged, but is not, or no longer, the one in the order's row. */
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
  const has = 'SELECT 1 FROM _order_payloads WHERE order_id = ? AND seq = ? AND payload = ?';
  if (!applied && sqlOf(db).row(has, orderId, seq, payload) !== undefined) return;
  const sql =
    'INSERT INTO _order_payloads (order_id, seq, applied, source, received_at, payload) VALUES (?, ?, ?, ?, ?, ?)';
  sqlOf(db).run(sql, orderId, seq, Number(applied), source, receivedAt, payload);
}

export interface MergedPayload extends EarlierPayload {
  /** Status that the order had once this payload was merged; null if it is not known any more. */
  believedStatus: string | null;
}

/** Returns the earlier payloads of an order in the order of merging, oldest first. */
export function earlierPayloads(db: Database.Database, orderId: string): MergedPayload[] {
  const sql = `SELECT seq, source, received_at AS receivedAt, payload,
      (SELECT e.status FROM order_events e WHERE e.seq = p.seq AND p.applied = 1) AS believedStatus
    FROM _order_payloads p WHERE order_id = ? ORDER BY seq, received_at, payload_id`;
  return sqlOf(db).rows<MergedPayload>(sql, orderId);
}

/** Returns an order's payload from the table `orders`. */
export function newestPayload({
  seq,
  payloadSource,
  payloadAt,
  updatedAt,
  payload,
  values,
}: KnownRow): MergedPayload {
  const receivedAt = payloadAt ?? updatedAt;
  return { seq, source: payloadSource, receivedAt, payload, believedStatus: statusIn(values) };
}

export interface MergeOptions {
  /** True to skip the lookup of an order known to be missing. */
  isNew?: boolean;
  /** Shared by the transaction's orders. */
  places?: LinePlaces;
  /** Result of `isFeeding`, if the transaction has asked already. */
  isFed?: boolean;
  /** Status of the callback that was held before this one, if it is known already that callbacks decide. */
  heldBefore?: string | null;
}

/**
 * Merges an observation, in the caller's transaction. `pollDigest` identifies the record of a poll's answer that lists
 * the order (see `pollDigests`); null if it came otherwise.
 * The data of a removed customer is stored again only if the order had ended and is open again.
 */
export function mergeOrder(
  db: Database.Database,
  received: OrderObservation,
  spellings: OrderSpellings,
  pollDigest: string | null,
  { isNew = false, places = new LinePlaces(db), isFed, heldBefore }: MergeOptions = {},
): OrderOutcome {
  const known = isNew ? undefined : knownOrder(db, received.reading.orderId);
  const knownStatus = known ? statusIn(known.values) : null;
  const wasForgotten = known !== undefined && known.forgottenAt !== null;
  const sent = received.reading.fields.status;
  const isBack = isEnded(knownStatus) && sent != null && isKnownStatus(sent) && !isEnded(sent);
  const isForgotten = wasForgotten && !isBack;
  const observation = isForgotten ? withoutCustomer(received, spellings) : received;
  const { reading, source, observedAtMs, raw } = observation;
  const { orderId } = reading;
  const { outcome, values, weights, items, sameItems } = merge(known && rowAs(db, known, orderId), {
    ...observation,
    isDecided: observation.isReplay,
    isSnapshot: observation.isReplay,
    heldBefore: () => heldBefore ?? statusHeldBefore(db, observation),
  });
  const status = statusIn(values);
  const evidence = weightsText(weights);
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
      evidence,
      toBookSince,
      channelOf(values[NAME_AT] as string | null),
      pollDigest === null ? null : observedAt,
      orderId,
    );
    sql.run(known ? UPDATE_ORDER : INSERT_ORDER, ...row);
    if (!known) noteEarlyAcknowledgement(db, orderId, values);
    if (known && !sameItems) {
      sqlOf(db).run('DELETE FROM order_items WHERE order_id = ?', orderId);
      sqlOf(db).run('DELETE FROM order_item_modifiers WHERE order_id = ?', orderId);
    }
    if (items && !(known && sameItems)) insertItems(db, orderId, items, places);
    // The POS may have noted the numbers of lines.
    if (hasSameLines && !sameItems && items)
      sql.run('UPDATE _orders SET numbers_seq = ? WHERE order_id = ?', Number(seq), orderId);
    // The feed gets the whole order, so that a branch that lacks the order needs nothing more.
    if (isFed ?? isFeeding(db)) {
      const whole = Object.fromEntries(ORDER_FIELDS.map((field, i) => [field, values[i]])) as OrderFields;
      const all: OrderReading = { orderId, fields: whole, items: items ?? itemsOf(db, orderId) };
      if (reading.incomplete) all.incomplete = reading.incomplete;
      feedOrder(db, { source, observedAt, reading: all, raw });
    }
  } else if (outcome === 'confirmed') {
    noteConfirmed(db, observation, known, pollDigest);
    if (evidence !== known.evidence) updateEvidence(db, orderId, evidence);
  } else if (outcome === 'held') {
    holdNotification(db, wasForgotten ? withoutCustomer(received, spellings) : received, knownStatus);
    // The next poll must read this order again, because it decides between the held webhook and the stored status.
    if (known.pollDigest !== null) updateDigest(db, orderId, null);
  }
  if (outcome !== 'held' && outcome !== 'superseded') {
    noteIncomplete(db, observation, mergedOrder(known === undefined, values, items));
  }
  noteStatus(db, observation, known, { outcome, status });
  return outcome;
}

/** Records what an observation's status says of statuses that are unknown, and of callbacks that are held. */
function noteStatus(
  db: Database.Database,
  observation: OrderObservation,
  known: KnownRow | undefined,
  { outcome, status }: { outcome: OrderOutcome; status: string | null },
): void {
  const { reading, source, observedAtMs, isReplay, isWhole } = observation;
  const { orderId } = reading;
  const sent = reading.fields.status;
  if (isReplay || isWhole || sent == null) return;
  if (!isKnownStatus(sent)) noteUnknownStatus(db, observation, sent);
  // A status that is not believed decides nothing.
  if (!known || sent !== status) return;
  if (source === 'poll' && outcome !== 'superseded' && isHeld(db, orderId)) {
    resolveHeldByPoll(db, status, observation);
    if (isHeld(db, orderId)) updateDigest(db, orderId, null);
  }
  const before = { status: statusIn(known.values), dueMs: dueMsIn(known.values) };
  if (source === 'webhook' && outcome === 'changed' && contradicts(before, status, observedAtMs)) {
    resolveHeldByCallback(db, observation);
  }
}

/** Returns the known order as the rule of the merge reads it. */
function rowAs(
  db: Database.Database,
  { values, evidence, seq, eventSource }: KnownRow,
  orderId: string,
): Known {
  const lines = {
    items: () => itemsOf(db, orderId),
    has: (items: readonly OrderItem[]) => hasItems(db, orderId, items),
  };
  return { values, weights: weightsIn(evidence), lines, seq, source: eventSource };
}

/** Returns the part of a poll's reading that would be believed. */
export function believedPartOf(db: Database.Database, reading: OrderReading): OrderReading {
  const known = knownOrder(db, reading.orderId);
  if (known === undefined) return reading;
  const { values, items } = merge(rowAs(db, known, reading.orderId), { source: 'poll', reading });
  const fields = Object.entries(reading.fields).filter(
    ([name, value]) => values[ORDER_FIELDS.indexOf(name as keyof OrderFields)] === asValue(value),
  );
  const { items: _said, ...rest } = reading;
  return { ...rest, fields: Object.fromEntries(fields), ...(items && { items }) };
}

/** Returns what a replayed reading would make of the order. */
export function previewOf(
  db: Database.Database,
  known: KnownRow | undefined,
  reading: OrderReading,
): Pick<Merged, 'values' | 'items' | 'sameItems'> {
  const asReplay = { source: 'poll', isDecided: true, isSnapshot: true } as const;
  return merge(known && rowAs(db, known, reading.orderId), { ...asReplay, reading });
}

/** Returns the facts of a merged order that `noteIncomplete` needs. */
function mergedOrder(isNew: boolean, values: readonly Value[], items: MergedOrder['items']): MergedOrder {
  return {
    isNew,
    status: statusIn(values),
    createdAt: (values[CREATED_AT] ?? null) as string | null,
    isScheduled: values[IS_SCHEDULED_AT] === 1,
    scheduledFor: (values[SCHEDULED_FOR_AT] ?? null) as string | null,
    items,
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
    "SELECT acked_at FROM _order_acks WHERE order_id = ? AND source <> 'cli'",
    orderId,
  );
  const ackedAt = acks.toSorted().at(-1);
  if (ackedAt === undefined) return;
  const sql =
    "INSERT INTO _seen (kind, name, first_at, last_at) VALUES ('acknowledging-store', ?, ?, ?) ON CONFLICT DO NOTHING";
  sqlOf(db).run(sql, values[STORE_AT] ?? '', ackedAt, ackedAt);
}

/**
 * Stores a payload whose content was known already. A callback's payload is always kept, because it is not sent again.
 * A poll's payload only replaces that of an earlier poll that brought nothing either, because polls repeat.
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
  const listedAt = pollDigest === null ? null : receivedAt;
  if (known.payloadSource === source && isOther) {
    if (source === 'webhook' || known.payloadAt === null) keepReplacedPayload(db, orderId, known);
    const sql = `UPDATE _orders SET payload = ?, payload_at = ?, poll_digest = ?, ${LISTED} WHERE order_id = ?`;
    sqlOf(db).run(sql, raw, receivedAt, digest, listedAt, orderId);
  } else if (known.pollDigest !== digest) {
    sqlOf(db).run(
      `UPDATE _orders SET poll_digest = ?, ${LISTED} WHERE order_id = ?`,
      digest,
      listedAt,
      orderId,
    );
  }
  if (source === 'webhook' && known.payloadSource === 'poll' && isOther) {
    addPayload(db, orderId, { seq: known.seq, source, receivedAt, payload: raw }, false);
  }
}

function keepReplacedPayload(db: Database.Database, orderId: string, known: KnownRow): void {
  addPayload(db, orderId, newestPayload(known), known.payloadAt === null);
}
