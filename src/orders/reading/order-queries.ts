import type Database from 'better-sqlite3';
import { isoUtc } from '../../core/time.ts';
import { setMark } from '../../db/marks.ts';
import { seen } from '../../db/seen.ts';
import { fromBit, sqlOf } from '../../db/sqlite.ts';
import { ORDER_FIELDS } from '../merging/field-aliases.ts';
import type { BoardOrder, MirroredOrder, OrderToBook, TrendHour } from '../merging/mirrored-order.ts';
import {
  IS_OPEN,
  IS_SCHEDULED,
  IS_TO_BOOK,
  IS_UNACKNOWLEDGED,
  type OrderEvent,
  type OrderFilter,
  type OrderHistory,
  type OrderSource,
  REFUSED_ACKS_OF,
  TOLD_WITHIN_MS,
  type Unreadable,
  type WaitingOrder,
} from '../merging/order.ts';
import { columnsAs, placedItemsOf } from '../merging/order-rows.ts';
import { newestSeq } from './mirror-file.ts';

const COLUMNS = ['orderId', 'seq', 'updatedAt', ...ORDER_FIELDS, 'channel'];
const ORDER = `SELECT ${columnsAs(COLUMNS)} FROM _orders`;
export const EVENT = `SELECT ${columnsAs(['seq', 'orderId', 'status', 'previousStatus', 'source', 'observedAt'])}
  FROM order_events`;

type OrderRow = Omit<MirroredOrder, 'isScheduled' | 'items'> & { isScheduled: number | null };

export function orderById(db: Database.Database, orderId: string): MirroredOrder | undefined {
  const row = sqlOf(db).row<OrderRow>(`${ORDER} WHERE order_id = ?`, orderId);
  return row && withItems(db, row);
}

/** SQL for the phone numbers of an order, one a line. */
const PHONES = 'concat_ws(char(10), customer_phone_number, address_phone_number)';
const CONTACT = [
  ...['customer_phone_number', 'customer_email', 'address_address', 'address_street_address'],
  'address_details',
];
/**
 * SQL for whether an order has `@text` in its id, customer's name, store, items or in these columns; with `inContact`,
 * also in telephone, e-mail and address.
 */
const isFound = (inContact: boolean, ...columns: string[]) => `finds(@text, concat_ws(' ',
  ${[...columns, 'order_id', ...(inContact ? CONTACT : [])].join(', ')},
  customer_first_name, customer_last_name, store_external_id,
  (SELECT group_concat(concat_ws(' ', i.product_external_id, i.product_name, i.sku, i.comment), ' ') FROM order_items i
    WHERE i.order_id = _orders.order_id)), ${inContact ? PHONES : "''"})`;

/** SQL condition for each field of a filter. */
const CONDITIONS: Record<keyof Omit<OrderFilter, 'limit'>, string> = {
  status: 'status = @status',
  open: IS_OPEN,
  due: IS_SCHEDULED,
  after: 'seq > @after',
  createdBefore: 'created_at < @createdBefore',
  createdFrom: 'created_at >= @createdFrom',
  code: 'code = @code',
  stores: 'store_external_id IN (SELECT value FROM json_each(@stores))',
  customer: `finds(@customer, concat_ws(' ', customer_first_name, customer_last_name, customer_phone_number,
    customer_email), ${PHONES})`,
  text: isFound(true, 'code', 'name'),
  unbooked: 'EXISTS (SELECT 1 FROM orders_unbooked u WHERE u.order_id = _orders.order_id)',
};

/** Yields orders one by one, so that a whole year need not fit into memory. */
export function* eachOrder(db: Database.Database, filter: OrderFilter): Generator<MirroredOrder> {
  const { limit, stores, open, due, unbooked, ...values } = filter;
  const wanted = (Object.keys(CONDITIONS) as (keyof typeof CONDITIONS)[]).filter(
    (name) => filter[name] !== undefined && filter[name] !== false,
  );
  const where = ['true', ...wanted.map((name) => CONDITIONS[name])].join(' AND ');
  const order = due ? 'scheduled_for' : filter.after === undefined ? 'created_at DESC' : 'seq';
  const rows = db
    .prepare<[object], OrderRow>(`${ORDER} WHERE ${where} ORDER BY ${order} LIMIT @limit`)
    .iterate({ ...values, limit, stores: JSON.stringify(stores) });
  for (const row of rows) yield withItems(db, row);
}

/** Maximum number of events that one read examines for a store's orders, to limit the time. */
const STORE_WINDOW = 5_000;

/**
 * Returns events above seq `after` of a store's orders. No such event up to seq `upTo` is missing, unless it was
 * deleted. `stores` are the store's ids. Orders that the store booked or supplied are included too, so that the store
 * learns if one moves to another store.
 */
export function eventsOfStore(
  db: Database.Database,
  { stores, after, limit }: { stores: readonly string[]; after: number; limit: number },
): { events: OrderEvent[]; upTo: number } {
  // The window is a number of events and not a range of seqs, because seqs may jump by `SEQ_JUMP`, and a range within a
  // jump would have no events.
  const window = 'SELECT max(seq) FROM (SELECT seq FROM order_events WHERE seq > ? ORDER BY seq LIMIT +?)';
  const end = sqlOf(db).value<number | null>(window, after, STORE_WINDOW) ?? after;
  const named = 'IN (SELECT value FROM json_each(@stores))';
  const events = sqlOf(db).rows<OrderEvent>(
    `${EVENT} WHERE seq > @after AND seq <= @end AND (
       EXISTS (SELECT 1 FROM _orders o WHERE o.order_id = order_events.order_id AND o.store_external_id ${named})
       OR EXISTS (SELECT 1 FROM _order_acks a WHERE a.order_id = order_events.order_id AND a.branch ${named})
       OR EXISTS (SELECT 1 FROM _stock_steps s WHERE s.order_id = order_events.order_id AND s.subsidiary_id ${named}))
     ORDER BY seq LIMIT +@limit`,
    { after, end, limit, stores: JSON.stringify(stores) },
  );
  return { events, upTo: events.length < limit ? end : (events.at(-1)?.seq ?? after) };
}

/** Selects among the orders that a POS must book. */
export interface ToBookFilter {
  /** Ids of a store, to get only its orders. */
  stores?: readonly string[] | undefined;
  /** Seq of the last order of the previous page; only orders with a newer event are returned. */
  after: number;
  limit: number;
}

/** Returns the orders that a POS must prepare and book, sorted by the seq of their newest event. */
export function ordersToBook(db: Database.Database, { stores, after, limit }: ToBookFilter): OrderToBook[] {
  const ofStores = stores ? 'AND store_external_id IN (SELECT value FROM json_each(@stores))' : '';
  const rows = sqlOf(db).rows<OrderRow & { ackedAt: string | null }>(
    `SELECT ${columnsAs([...COLUMNS, 'ackedAt'])} FROM orders_to_book
     WHERE seq > @after ${ofStores} ORDER BY seq LIMIT +@limit`,
    { after, limit, ...(stores && { stores: JSON.stringify(stores) }) },
  );
  return rows.map(({ ackedAt, ...row }) => ({ ...withItems(db, row), acknowledgedAt: ackedAt }));
}

function withItems(db: Database.Database, row: OrderRow): MirroredOrder {
  return { ...row, isScheduled: fromBit(row.isScheduled), items: placedItemsOf(db, row.orderId) };
}

/** Returns the history of one order. Reads the whole feed, so it must not be called in loops. */
export function orderHistory(db: Database.Database, orderId: string): OrderHistory {
  const events = db.prepare<[string], OrderEvent>(`${EVENT} WHERE order_id = ? ORDER BY seq`).all(orderId);
  const why = `SELECT refused_at AS at, seq, message FROM refused_acks WHERE ${REFUSED_ACKS_OF}
    ORDER BY refused_at DESC LIMIT 1`;
  const refused = sqlOf(db).row<NonNullable<OrderHistory['refused']>>(why, { orderId }) ?? null;
  return { events, acknowledged: acknowledgementOf(db, orderId), refused };
}

export function acknowledgementOf(db: Database.Database, orderId: string): OrderHistory['acknowledged'] {
  const sql = `SELECT acked_at AS at, source, without FROM _order_acks
    WHERE order_id = ? ORDER BY acked_at DESC LIMIT 1`;
  const row = sqlOf(db).row<{ at: string; source: string; without: string | null }>(sql, orderId);
  return row ? { ...row, without: JSON.parse(row.without ?? '[]') as number[] } : null;
}

const BOARD = `SELECT ${columnsAs([
  ...['orderId', 'seq', 'code', 'status', 'storeExternalId', 'customerFirstName', 'customerLastName'],
  ...['deliveryType', 'amountToPay', 'createdAt', 'isScheduled', 'scheduledFor', 'updatedAt'],
])}, (SELECT max(acked_at) FROM _order_acks WHERE _order_acks.order_id = _orders.order_id) AS acknowledgedAt FROM _orders`;
type BoardRow = Omit<BoardOrder, 'isScheduled' | 'waitingSince'> & { isScheduled: number | null };

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Time without an acknowledgement after which a POS is treated as one that does not acknowledge. */
const ACKNOWLEDGES_FOR_MS = 30 * DAY_MS;
/** SQL interval. An order that arrived at most this long before the POS's first acknowledgement also waits for one. */
const BEFORE_FIRST_ACK = '-1 hour';
/** SQL for the stores whose POS has acknowledged an order. */
const ACKNOWLEDGING = seen('acknowledging-store');

/** Returns when a POS last acknowledged an order; null if none ever did. */
export function lastAcknowledgedAt(db: Database.Database): string | null {
  return sqlOf(db).value<string | null>('SELECT max(acked_at) FROM _order_acks') ?? null;
}

/** Maximum number of waiting orders that are counted, to limit the time. */
export const WAITING_MAX = 1_000;

/**
 * Returns open, paid orders that the POS of their store did not acknowledge, longest wait first. Leaves out stores whose
 * POS acknowledged nothing in thirty days, and orders that were created more than a week ago or before the POS began to
 * acknowledge. For a scheduled order, the scheduled time decides instead of the creation time. The wait starts when the
 * order was first seen open and paid, or moved away from a POS that had acknowledged it, but for a scheduled order not
 * earlier than an hour before it is due.
 */
export function waitingOrders(db: Database.Database, nowMs: number, limit: number): WaitingOrder[] {
  const active = isoUtc(nowMs - ACKNOWLEDGES_FOR_MS);
  if (!sqlOf(db).row(`SELECT 1 FROM ${ACKNOWLEDGING} AND last_at >= ?`, active)) return [];
  // An order without a readable creation time may be new, so it is not left out.
  const isOld = "coalesce(created_at, '') GLOB '[0-9]*T*Z' AND created_at < taken_from";
  // `lines_seq` is the move, or a later edit, which restarts the wait.
  const waitsFrom = `CASE WHEN EXISTS (SELECT 1 FROM _order_acks a WHERE a.order_id = _orders.order_id)
    THEN max(to_book_since, coalesce((SELECT e.observed_at FROM order_events e WHERE e.seq = _orders.lines_seq), to_book_since))
    ELSE to_book_since END`;
  const waits = (when: string) => `SELECT order_id AS orderId, code, taken_from,
      CASE WHEN ${IS_SCHEDULED} THEN
        max(${waitsFrom}, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', scheduled_for, '-1 hour'), ''))
      ELSE ${waitsFrom} END AS since
    FROM _orders JOIN acking ON store = coalesce(store_external_id, '')
    WHERE ${when} AND ${IS_OPEN} AND ${IS_TO_BOOK} AND to_book_since IS NOT NULL AND ${IS_UNACKNOWLEDGED}`;
  return sqlOf(db).rows<WaitingOrder>(
    `WITH acking AS (
      SELECT name AS store, max(@from, strftime('%Y-%m-%dT%H:%M:%fZ', first_at, '${BEFORE_FIRST_ACK}')) AS taken_from
      FROM ${ACKNOWLEDGING} AND last_at >= @active)
     SELECT orderId, code, since FROM (
       ${waits(`to_book_since >= @from AND NOT (${isOld})`)} UNION ${waits(`${IS_SCHEDULED} AND scheduled_for >= @from`)})
     WHERE since >= taken_from AND since <= @now ORDER BY since LIMIT @limit`,
    { from: isoUtc(nowMs - TOLD_WITHIN_MS), active, now: isoUtc(nowMs), limit },
  );
}

/** Number of newest events that are searched for ended orders. */
const EVENTS_BACK = 300;

/**
 * Returns the newest open orders, then older ones that are due next or wait for the POS, then the orders that ended
 * last; with `stores`, only orders that name one of these ids. Uses short indexed reads.
 */
export function readBoard(
  db: Database.Database,
  { stores, ...limits }: { open: number; ended: number; stores?: readonly string[] | undefined },
  nowMs: number,
): BoardOrder[] {
  const isHere = stores ? `store_external_id IN (SELECT value FROM json_each(?))` : '? IS NULL';
  const here = stores ? JSON.stringify(stores) : null;
  // The orders of other stores that wait must not take the places of this one's.
  const waiting = waitingOrders(db, nowMs, stores ? WAITING_MAX : limits.open);
  const rows = (rest: string, ...values: (number | string)[]) =>
    sqlOf(db).rows<BoardRow>(`${BOARD} WHERE ${isHere} AND ${rest}`, here, ...values);
  const open = [
    ...rows(`${IS_OPEN} ORDER BY created_at DESC LIMIT ?`, limits.open),
    ...rows(`${IS_SCHEDULED} ORDER BY scheduled_for LIMIT ?`, limits.open),
    ...waiting.flatMap(({ orderId }) => rows('order_id = ?', orderId)),
  ];
  const ended = rows(
    `seq >= coalesce((SELECT seq FROM order_events WHERE seq > 0 ORDER BY seq DESC LIMIT 1 OFFSET ?), 0)
       AND NOT ${IS_OPEN} ORDER BY seq DESC LIMIT ?`,
    ...[EVENTS_BACK - 1, limits.ended],
  );
  const once = new Map([...open, ...ended].map((row) => [row.orderId, row]));
  return boardOrders([...once.values()], waiting);
}

function boardOrders(rows: readonly BoardRow[], waiting: readonly WaitingOrder[]): BoardOrder[] {
  const since = new Map(waiting.map((order) => [order.orderId, order.since]));
  return rows.map((row) => ({
    ...row,
    isScheduled: fromBit(row.isScheduled),
    waitingSince: since.get(row.orderId) ?? null,
  }));
}

interface OrderSearch {
  /** A complete code, or a part of any text in the order. */
  text?: string | undefined;
  /** If true, the customer's telephone, e-mail and address are not searched, because the searcher may not see them. */
  isWithoutContact?: boolean;
  /** Period in which the order was created, ISO 8601 UTC. */
  created?: { from: string; before: string } | undefined;
  limit: number;
}

/** Number of newest orders whose texts are searched, to limit the time. */
const SEARCHED = 5_000;

/** Returns the orders that match a person's search, newest first. */
export function searchOrders(db: Database.Database, search: OrderSearch, nowMs: number): BoardOrder[] {
  const { text = '', created, limit, isWithoutContact = false } = search;
  const when = created ? 'created_at >= @from AND created_at < @before' : 'true';
  const newest = `SELECT order_id FROM _orders WHERE ${when} ORDER BY created_at DESC LIMIT ${SEARCHED}`;
  const found = `order_id IN (SELECT order_id FROM _orders WHERE order_id IN (${newest}) AND ${isFound(!isWithoutContact)}
    UNION SELECT order_id FROM _orders WHERE code = @code)`;
  const values = { ...created, text, code: /^#?\d{1,15}$/.test(text) ? Number(text.replace('#', '')) : null };
  const rows = sqlOf(db).rows<BoardRow>(
    `${BOARD} WHERE ${when} AND ${text === '' ? 'true' : found} ORDER BY created_at DESC LIMIT @limit`,
    { ...values, limit },
  );
  return boardOrders(rows, waitingOrders(db, nowMs, WAITING_MAX));
}

/** Maximum number of settled changes that are read for each hour of the trends, newest first, to limit the time. */
const SAMPLE = 500;
const SETTLED = 'SELECT count(*) FROM _outbox WHERE settled_at >= ? AND settled_at < ?';
const CREATED = 'SELECT count(*) FROM _orders WHERE created_at >= ? AND created_at < ?';

/**
 * Returns the numbers of orders and pushed changes of the last hours, oldest hour first. Uses indexes on the times.
 */
export function readTrends(db: Database.Database, nowMs: number, hours: number): TrendHour[] {
  const sql = sqlOf(db);
  const presentMs = Math.floor(nowMs / HOUR_MS) * HOUR_MS;
  return Array.from({ length: hours }, (_, i) => {
    const fromMs = presentMs - (hours - 1 - i) * HOUR_MS;
    const from = isoUtc(fromMs);
    const to = isoUtc(fromMs + HOUR_MS);
    const sample = sql.rows<{ state: string; createdAt: string; settledAt: string }>(
      `SELECT state, created_at AS createdAt, settled_at AS settledAt FROM _outbox
       WHERE settled_at >= ? AND settled_at < ? ORDER BY settled_at DESC LIMIT ?`,
      ...[from, to, SAMPLE],
    );
    const delays = sample
      .filter(({ state }) => state === 'done')
      .map(({ createdAt, settledAt }) => Math.max(Date.parse(settledAt) - Date.parse(createdAt), 0));
    // If the hour has more changes than the sample, the number of sent ones is estimated from their share in the
    // sample.
    const all = sample.length < SAMPLE ? sample.length : (sql.value(SETTLED, from, to) ?? 0);
    const pushed = sample.length === 0 ? 0 : Math.round((delays.length / sample.length) * all);
    const [pushMedianMs, pushP95Ms] = [quantile(delays, 0.5), quantile(delays, 0.95)];
    return { from, orders: sql.value(CREATED, from, to) ?? 0, pushed, pushMedianMs, pushP95Ms };
  });
}

/** Returns the quantile by nearest rank; `share` is 0 to 1. Returns null if there are no values. */
function quantile(values: readonly number[], share: number): number | null {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(Math.ceil(share * sorted.length) - 1, 0)] ?? null;
}

/** Maximum number of open orders that are counted, to limit the time if a store never closes its orders. */
const OPEN_MAX = 500;

/** Counts the newest open orders by status, in one indexed read. */
export function openOrdersByStatus(db: Database.Database): { status: string | null; orders: number }[] {
  const sql = `SELECT status, count(*) AS orders FROM
      (SELECT status FROM _orders WHERE ${IS_OPEN} ORDER BY created_at DESC LIMIT ?)
    GROUP BY status`;
  return sqlOf(db).rows<{ status: string | null; orders: number }>(sql, OPEN_MAX);
}

/**
 * Counts quarantined entries by source. It reads all entries, so callers cache the result until `quarantineMark`
 * changes.
 */
export function quarantineBySource(db: Database.Database): { source: string; entries: number }[] {
  const sql = 'SELECT source, count(*) AS entries FROM _quarantine GROUP BY source';
  return sqlOf(db).rows<{ source: string; entries: number }>(sql);
}

export function quarantineEntries(db: Database.Database): number {
  return sqlOf(db).value('SELECT count(*) FROM _quarantine') ?? 0;
}

/** Returns the newest quarantined entry of this source, or undefined if there is none. */
export function newestQuarantined(
  db: Database.Database,
  source: string,
): { reason: string; receivedAt: string } | undefined {
  const sql = `SELECT reason, received_at AS receivedAt FROM _quarantine WHERE source = ?
    ORDER BY quarantine_id DESC LIMIT 1`;
  return sqlOf(db).row<{ reason: string; receivedAt: string }>(sql, source);
}

export function quarantineMark(db: Database.Database): string {
  const sql = `SELECT (SELECT count(*) FROM _quarantine) || '/' ||
    coalesce((SELECT max(quarantine_id) FROM _quarantine), 0)`;
  return sqlOf(db).value<string>(sql) ?? '';
}

/** Conditions on received observations. A field that is left out restricts nothing. */
export interface ReceivedFilter {
  orderId?: string | undefined;
  /** Earliest time of receipt, inclusive, ISO 8601 UTC. */
  since?: string | undefined;
  /** Latest time of receipt, exclusive, ISO 8601 UTC. */
  until?: string | undefined;
  source?: OrderSource | undefined;
  /** Texts of which the payload must contain at least one. */
  containing?: readonly string[] | undefined;
}

/**
 * - `newest`: the payload in the order's row of `orders`
 * - `earlier`: another merged payload of the order; a newer one replaced it, or its content was known already
 * - `held`: a callback that would set the order back to an earlier status; stored but not merged
 * - `quarantined`: could not be read
 */
type ReceivedState = 'newest' | 'earlier' | 'held' | 'quarantined';

export interface ReceivedEntry {
  /** Id for `getReceived`: a letter for the table, then a number, such as `h12`. */
  id: string;
  state: ReceivedState;
  /** null for a quarantined entry, whose order is unknown. */
  orderId: string | null;
  source: OrderSource;
  receivedAt: string;
  /** Status that the payload brought; null if it had none. */
  status: string | null;
}

export interface ReceivedDetail extends ReceivedEntry {
  payload: string | Uint8Array;
}

/** Tables with payloads, by the letter that begins the ids of their entries, each with the SQL of its columns. */
const KEPT = {
  o: {
    table: '_orders',
    state: 'newest',
    number: 'seq',
    orderId: 'order_id',
    source: 'payload_source',
    receivedAt: 'coalesce(payload_at, updated_at)',
    status: 'status',
  },
  p: {
    table: '_order_payloads AS p',
    state: 'earlier',
    number: 'payload_id',
    orderId: 'order_id',
    source: 'source',
    receivedAt: 'received_at',
    status: '(SELECT e.status FROM order_events e WHERE e.seq = p.seq AND p.applied = 1)',
  },
  h: {
    table: '_held_notifications',
    state: 'held',
    number: 'held_id',
    orderId: 'order_id',
    source: "'webhook'",
    receivedAt: 'received_at',
    status: 'status',
  },
  q: {
    table: '_quarantine',
    state: 'quarantined',
    number: 'quarantine_id',
    orderId: 'NULL',
    source: 'source',
    receivedAt: 'received_at',
    status: 'NULL',
  },
} satisfies Record<string, { state: ReceivedState } & Record<string, string>>;
type Letter = keyof typeof KEPT;

function selectKept(letter: Letter, more = ''): string {
  const { table, state, number, orderId, source, receivedAt, status } = KEPT[letter];
  return `SELECT '${letter}' || ${number} AS id, '${state}' AS state, ${orderId} AS orderId, ${source} AS source,
    ${receivedAt} AS receivedAt, ${status} AS status ${more} FROM ${table}`;
}

function matches(letter: Letter): string {
  const { orderId, receivedAt, source } = KEPT[letter];
  return `(@orderId IS NULL OR ${orderId} = @orderId) AND (@source IS NULL OR ${source} = @source)
    AND (@since IS NULL OR ${receivedAt} >= @since) AND (@until IS NULL OR ${receivedAt} < @until)
    AND (@containing IS NULL OR EXISTS (
      SELECT 1 FROM json_each(@containing) WHERE instr(CAST(payload AS TEXT), value) > 0))
    ${letter === 'q' ? "AND source IN ('webhook', 'poll')" : ''}`;
}

/** Lists payloads, newest first. Without an order id it reads all payloads, so it must not be called in loops. */
export function listReceived(
  db: Database.Database,
  filter: ReceivedFilter,
  { limit, quarantinedOnly }: { limit: number; quarantinedOnly: boolean },
): ReceivedEntry[] {
  const letters: Letter[] = quarantinedOnly ? ['q'] : ['o', 'p', 'h', 'q'];
  const parts = letters.map((letter) => `${selectKept(letter)} WHERE ${matches(letter)}`);
  const sql = `${parts.join(' UNION ALL ')} ORDER BY receivedAt DESC, id DESC LIMIT @limit`;
  return sqlOf(db).rows<ReceivedEntry>(sql, { ...bindings(filter), limit });
}

/** Returns one payload with its details, or undefined if the entry does not exist or was deleted. */
export function getReceived(db: Database.Database, id: string): ReceivedDetail | undefined {
  const [, letter, number] = /^([ophq])(\d{1,15})$/.exec(id) ?? [];
  if (letter === undefined) return undefined;
  const sql = `${selectKept(letter as Letter, ', payload')} WHERE ${KEPT[letter as Letter].number} = ?`;
  return sqlOf(db).row<ReceivedDetail>(sql, Number(number));
}

/** Returns one page of the orders with a matching payload. The page begins after the order with row number `after`. */
export function ordersReceived(
  db: Database.Database,
  filter: ReceivedFilter,
  page: { after: number; limit: number },
): { row: number; orderId: string }[] {
  const sql = `SELECT _orders.rowid AS row, order_id AS orderId FROM _orders
    WHERE _orders.rowid > @after AND (@orderId IS NULL OR order_id = @orderId) AND (${matches('o')} OR EXISTS (
      SELECT 1 FROM _order_payloads p WHERE p.order_id = _orders.order_id AND ${matches('p')}))
    ORDER BY _orders.rowid LIMIT @limit`;
  return sqlOf(db).rows<{ row: number; orderId: string }>(sql, { ...bindings(filter), ...page });
}

/** Returns the ids of matching quarantined payloads of orders, oldest first. */
export function quarantinedOrders(db: Database.Database, filter: ReceivedFilter): number[] {
  const sql = `SELECT quarantine_id FROM _quarantine WHERE ${matches('q')} ORDER BY quarantine_id`;
  return sqlOf(db).values<number>(sql, bindings(filter));
}

function bindings({ orderId, since, until, source, containing }: ReceivedFilter) {
  return {
    orderId: orderId ?? null,
    since: since ?? null,
    until: until ?? null,
    source: source ?? null,
    containing: containing ? JSON.stringify(containing) : null,
  };
}

export interface QuarantineEntry {
  quarantineId: number;
  source: Unreadable['source'];
  receivedAt: string;
  reason: string;
  /** How often the payload was received. Repetitions in polls are not counted, because each poll repeats them. */
  seen: number;
  bytes: number;
}

export interface QuarantineDetail extends QuarantineEntry {
  payload: string | Uint8Array;
}

export const QUARANTINE = columnsAs(['quarantineId', 'source', 'receivedAt', 'reason', 'seen', 'bytes']);

/** The company (`websiteId` in the document) of the oldest and of the newest order in the mirror. */
export interface OrderCompanies {
  oldest: string;
  newest: string;
}

/** Number of oldest and of newest orders that are searched for a company, because some orders name none. */
const LOOKED_AT = 20;

function companyAt(db: Database.Database, order: 'ASC' | 'DESC'): string | undefined {
  const sql = `SELECT website_id FROM (SELECT website_id FROM _orders
      WHERE seq > coalesce((SELECT value FROM marks WHERE name = 'orders.company-from'), 0)
      ORDER BY seq ${order} LIMIT ${LOOKED_AT})
    WHERE website_id IS NOT NULL LIMIT 1`;
  return sqlOf(db).value<string>(sql);
}

/** Returns the companies of the orders, or undefined if no order names a company. */
export function orderCompanies(db: Database.Database): OrderCompanies | undefined {
  const [oldest, newest] = [companyAt(db, 'ASC'), companyAt(db, 'DESC')];
  return oldest === undefined || newest === undefined ? undefined : { oldest, newest };
}

/**
 * Records that this mirror's store belongs to another company from now on, so that earlier orders are ignored when the
 * store's company is determined.
 */
export function beginOtherCompany(db: Database.Database): void {
  setMark(db, 'orders.company-from', newestSeq(db));
}
