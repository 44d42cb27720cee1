import { createHash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import {
  type BoardOrder,
  HOUR_MS,
  IS_OPEN,
  IS_TO_BOOK,
  lastHours,
  type MirroredOrder,
  type OrderEvent,
  type OrderFilter,
  type OrderHistory,
  type OrderItem,
  type OrderModifier,
  type OrderSource,
  quantile,
  type TrendHour,
  type Unreadable,
} from './order.ts';
import { ORDER_COLUMNS } from './order-rows.ts';

const ORDER = `SELECT order_id AS orderId, seq, updated_at AS updatedAt,
  ${ORDER_COLUMNS.map(([field, column]) => `${column} AS ${field}`)} FROM orders`;
const CUSTOMER =
  "coalesce(customer_first_name, '') || ' ' || coalesce(customer_last_name, '') || ' ' || coalesce(customer_phone_number, '') || ' ' || coalesce(customer_email, '')";
const UNBOOKED = `${IS_TO_BOOK}
  AND NOT EXISTS (SELECT 1 FROM order_acks WHERE order_acks.order_id = orders.order_id)`;
const EVENT = `SELECT seq, order_id AS orderId, status, previous_status AS previousStatus, source,
  observed_at AS observedAt FROM order_events`;

type OrderRow = Omit<MirroredOrder, 'isScheduled' | 'items'> & { isScheduled: number | null };
type ItemRow = Omit<OrderItem, 'modifiers'> & { line: number };
type ModifierRow = OrderModifier & { line: number };

/** What is read of the orders and the feed; each method is one or a few short reads. */
export class OrderQueries {
  readonly #db: Database.Database;
  readonly #one: Database.Statement<[string], OrderRow>;
  readonly #payload: Database.Statement<[string], string>;
  readonly #items: Database.Statement<[string], ItemRow>;
  readonly #modifiers: Database.Statement<[string], ModifierRow>;
  readonly #events: Database.Statement<[number, number], OrderEvent>;
  readonly #newestSeq: Database.Statement<[], number>;
  readonly #trimmedTo: Database.Statement<[], number>;
  readonly #codes: Database.Statement<[number, number], number>;
  readonly #oldestOpen: Database.Statement<[], string>;

  constructor(db: Database.Database) {
    this.#db = db;
    this.#one = db.prepare(`${ORDER} WHERE order_id = ?`);
    this.#payload = db.prepare<[string], string>('SELECT payload FROM orders WHERE order_id = ?').pluck();
    this.#items = db.prepare(`
      SELECT line, product_external_id AS productExternalId, product_name AS productName, quantity, comment,
        unit_price AS unitPrice, base_unit_price AS baseUnitPrice, product_price AS productPrice,
        product_base_price AS productBasePrice
      FROM order_items WHERE order_id = ? ORDER BY line`);
    this.#modifiers = db.prepare(`
      SELECT line, name, short_name AS shortName, description, option_id AS optionId,
        option_external_id AS optionExternalId, option_name AS optionName, option_price AS optionPrice, quantity
      FROM order_item_modifiers WHERE order_id = ? ORDER BY line, modifier`);
    this.#events = db.prepare(`${EVENT} WHERE seq > ? ORDER BY seq LIMIT ?`);
    this.#newestSeq = db
      .prepare<[], number>(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0)",
      )
      .pluck();
    this.#trimmedTo = db.prepare<[], number>("SELECT value FROM marks WHERE name = 'events.trimmed'").pluck();
    this.#codes = db
      .prepare<[number, number], number>('SELECT code FROM orders WHERE code BETWEEN ? AND ?')
      .pluck();
    this.#oldestOpen = db
      .prepare<[], string>(
        `SELECT created_at FROM orders WHERE ${IS_OPEN} AND created_at GLOB '[0-9][0-9][0-9][0-9]-*T*Z'
         ORDER BY created_at LIMIT 1`,
      )
      .pluck();
  }

  order(orderId: string): MirroredOrder | undefined {
    const row = this.#one.get(orderId);
    return row && this.#whole(row);
  }

  /** JSON text as received. */
  payload(orderId: string): string | undefined {
    return this.#payload.get(orderId);
  }

  orders(filter: OrderFilter): MirroredOrder[] {
    const { status, open, limit, createdBefore, createdFrom, code, stores, customer, unbooked } = filter;
    const conditions = [
      ...(status === undefined ? [] : ['status = @status']),
      ...(open ? [IS_OPEN] : []),
      ...(createdBefore === undefined ? [] : ['created_at < @createdBefore']),
      ...(createdFrom === undefined ? [] : ['created_at >= @createdFrom']),
      ...(code === undefined ? [] : ['code = @code']),
      ...(stores === undefined ? [] : ['store_external_id IN (SELECT value FROM json_each(@stores))']),
      ...(customer === undefined ? [] : [`instr(lower(${CUSTOMER}), lower(@customer)) > 0`]),
      ...(unbooked ? [UNBOOKED] : []),
    ];
    const where = conditions.length > 0 ? `WHERE ${conditions.join(' AND ')}` : '';
    const statement = this.#db.prepare<[object], OrderRow>(
      `${ORDER} ${where} ORDER BY created_at DESC LIMIT @limit`,
    );
    const values = { limit, status, createdBefore, createdFrom, code, customer };
    return statement.all({ ...values, stores: JSON.stringify(stores) }).map((row) => this.#whole(row));
  }

  /** Reads the whole feed for the events of one order: for a person, not for a loop. */
  history(orderId: string): OrderHistory {
    const events = this.#db
      .prepare<[string], OrderEvent>(`${EVENT} WHERE order_id = ? ORDER BY seq`)
      .all(orderId);
    const acknowledged = this.#db
      .prepare<[string], { at: string; source: string }>(
        'SELECT acked_at AS at, source FROM order_acks WHERE order_id = ?',
      )
      .get(orderId);
    return { events, acknowledged: acknowledged ?? null };
  }

  #whole(row: OrderRow): MirroredOrder {
    const items: OrderItem[] = [];
    const lines = new Map<number, OrderItem>();
    for (const { line, ...item } of this.#items.all(row.orderId)) {
      const whole = { ...item, modifiers: [] };
      lines.set(line, whole);
      items.push(whole);
    }
    for (const { line, ...modifier } of this.#modifiers.all(row.orderId))
      lines.get(line)?.modifiers.push(modifier);
    return { ...row, isScheduled: row.isScheduled === null ? null : row.isScheduled !== 0, items };
  }

  /** The change feed after `seq`, oldest first. */
  eventsAfter(seq: number, limit: number): OrderEvent[] {
    return this.#events.all(seq, limit);
  }

  /** The highest seq ever given, also when its event is gone; 0 when there was none. */
  newestSeq(): number {
    return this.#newestSeq.get() ?? 0;
  }

  /** The highest seq of an event that was deleted for its age; 0: none was. */
  trimmedTo(): number {
    return this.#trimmedTo.get() ?? 0;
  }

  codesBetween(min: number, max: number): number[] {
    return this.#codes.all(min, max);
  }

  /** Creation of the oldest order whose life has not ended; null: none, or none whose time could be read. */
  oldestOpenOrderCreatedAt(): string | null {
    return this.#oldestOpen.get() ?? null;
  }
}

const BOARD_COLUMNS = `order_id AS orderId, seq, code, status, store_external_id AS storeExternalId,
  customer_first_name AS customerFirstName, customer_last_name AS customerLastName,
  delivery_type AS deliveryType, amount_to_pay AS amountToPay, created_at AS createdAt, updated_at AS updatedAt`;

/** Newest events among which orders that have ended are looked for. */
const EVENTS_BACK = 300;

export interface BoardLimits {
  open: number;
  ended: number;
}

/** The newest open orders, by creation, then those that ended last. Two short indexed reads. */
export function readBoard(db: Database.Database, limits: BoardLimits): BoardOrder[] {
  const open = db
    .prepare<[number], BoardOrder>(
      `SELECT ${BOARD_COLUMNS} FROM orders WHERE ${IS_OPEN} ORDER BY created_at DESC LIMIT ?`,
    )
    .all(limits.open);
  const ended = db
    .prepare<[number, number], BoardOrder>(
      `SELECT ${BOARD_COLUMNS} FROM orders
       WHERE seq > coalesce((SELECT max(seq) FROM order_events), 0) - ? AND NOT ${IS_OPEN}
       ORDER BY seq DESC LIMIT ?`,
    )
    .all(EVENTS_BACK, limits.ended);
  return [...open, ...ended];
}

/** Settled changes of one hour that are looked at, newest first: what bounds the time this takes. */
const SAMPLE = 500;

interface Settled {
  createdAt: string;
  settledAt: string;
}

/** Orders and pushed changes of the last hours, oldest first: reads by the indexes on their times. */
export function readTrends(db: Database.Database, nowMs: number, hours: number): TrendHour[] {
  const orders = db.prepare<[string, string], number>(
    'SELECT count(*) FROM orders WHERE created_at >= ? AND created_at < ?',
  );
  const settled = db.prepare<[string, string, number], Settled & { state: string }>(
    `SELECT state, created_at AS createdAt, settled_at AS settledAt FROM outbox
     WHERE settled_at >= ? AND settled_at < ? ORDER BY settled_at DESC LIMIT ?`,
  );
  const settledCount = db.prepare<[string, string], number>(
    'SELECT count(*) FROM outbox WHERE settled_at >= ? AND settled_at < ?',
  );
  return lastHours(nowMs, hours).map((fromMs) => {
    const from = isoUtc(fromMs);
    const to = isoUtc(fromMs + HOUR_MS);
    const sample = settled.all(from, to, SAMPLE);
    const delays = sample.filter(({ state }) => state === 'done').map(delayMs);
    // Of more than the sample, its share of sent ones speaks for all.
    const all = sample.length < SAMPLE ? sample.length : (settledCount.pluck().get(from, to) ?? 0);
    const pushed = sample.length === 0 ? 0 : Math.round((delays.length / sample.length) * all);
    const [pushMedianMs, pushP95Ms] = [quantile(delays, 0.5), quantile(delays, 0.95)];
    return { from, orders: orders.pluck().get(from, to) ?? 0, pushed, pushMedianMs, pushP95Ms };
  });
}

function delayMs({ createdAt, settledAt }: Settled): number {
  return Math.max(Date.parse(settledAt) - Date.parse(createdAt), 0);
}

/** Bounds the time this takes where orders are never closed. */
const OPEN_MAX = 500;

/** Of the newest open orders, how many have each status; one indexed read. */
export function openOrdersByStatus(db: Database.Database): { status: string | null; orders: number }[] {
  return db
    .prepare<[number], { status: string | null; orders: number }>(
      `SELECT status, count(*) AS orders FROM
         (SELECT status FROM orders INDEXED BY orders_open WHERE ${IS_OPEN} ORDER BY created_at DESC LIMIT ?)
       GROUP BY status`,
    )
    .all(OPEN_MAX);
}

/**
 * Entries in quarantine by where they came from. Reads all of them, so ask again only once `quarantineMark` has changed: every
 * entry that comes or goes changes it.
 */
export function quarantineBySource(db: Database.Database): { source: string; entries: number }[] {
  return db
    .prepare<[], { source: string; entries: number }>(
      'SELECT source, count(*) AS entries FROM quarantine GROUP BY source',
    )
    .all();
}

export function quarantineMark(db: Database.Database): string {
  return (
    db
      .prepare<[], string>(
        `SELECT (SELECT count(*) FROM quarantine) || '/' ||
           coalesce((SELECT max(quarantine_id) FROM quarantine), 0)`,
      )
      .pluck()
      .get() ?? ''
  );
}

/** Which of what was received is meant; what is left out does not restrict. */
export interface ReceivedFilter {
  orderId?: string | undefined;
  /** ISO 8601 UTC; received at or after it. */
  since?: string | undefined;
  /** Received before it. */
  until?: string | undefined;
  source?: OrderSource | undefined;
}

/**
 * - `newest`: the order's payload as the mirror has it
 * - `earlier`: merged, and replaced or confirmed since
 * - `held`: a webhook that would take the order back, noted and not merged
 * - `quarantined`: could not be read
 */
export type ReceivedState = 'newest' | 'earlier' | 'held' | 'quarantined';

export interface ReceivedEntry {
  /** Names it for `get`: a letter for where it is kept, and a number. */
  id: string;
  state: ReceivedState;
  /** null: in quarantine nobody knows. */
  orderId: string | null;
  source: OrderSource;
  receivedAt: string;
  /** Status of the order at its event, or as a held webhook had it; null where it brought none. */
  status: string | null;
}

export interface ReceivedDetail extends ReceivedEntry {
  payload: string | Uint8Array;
}

const NEWEST_TIME = 'coalesce(o.payload_at, o.updated_at)';

const matches = (order: string, time: string, source: string) =>
  `(@orderId IS NULL OR ${order} = @orderId) AND (@since IS NULL OR ${time} >= @since)
   AND (@until IS NULL OR ${time} < @until) AND (@source IS NULL OR ${source} = @source)`;

const columns = (letter: string, number: string, state: ReceivedState) =>
  `'${letter}' || ${number} AS id, '${state}' AS state`;

const NEWEST = `SELECT ${columns('o', 'o.seq', 'newest')}, o.order_id AS orderId, o.payload_source AS source,
  ${NEWEST_TIME} AS receivedAt, o.status FROM orders o`;
const EARLIER = `SELECT ${columns('p', 'p.payload_id', 'earlier')}, p.order_id AS orderId, p.source,
  p.received_at AS receivedAt,
  (SELECT e.status FROM order_events e WHERE e.seq = p.seq AND p.applied = 1) AS status FROM order_payloads p`;
const HELD = `SELECT ${columns('h', 'h.held_id', 'held')}, h.order_id AS orderId, 'webhook' AS source,
  h.received_at AS receivedAt, h.status FROM held_notifications h`;
const QUARANTINED = `SELECT ${columns('q', 'q.quarantine_id', 'quarantined')}, NULL AS orderId, q.source,
  q.received_at AS receivedAt, NULL AS status FROM quarantine q`;
const OF_ORDERS = "q.source IN ('webhook', 'poll')";

const LIST_QUARANTINED = `${QUARANTINED} WHERE ${OF_ORDERS} AND ${matches('NULL', 'q.received_at', 'q.source')}`;
const LIST_ALL = `${NEWEST} WHERE ${matches('o.order_id', NEWEST_TIME, 'o.payload_source')}
  UNION ALL ${EARLIER} WHERE ${matches('p.order_id', 'p.received_at', 'p.source')}
  UNION ALL ${HELD} WHERE ${matches('h.order_id', 'h.received_at', "'webhook'")}
  UNION ALL ${LIST_QUARANTINED}`;

/** Where each kind of id is looked up; the payload is read for one row only. */
const BY_ID: Record<string, string> = {
  o: `${NEWEST.replace(' FROM', ', o.payload FROM')} WHERE o.seq = ?`,
  p: `${EARLIER.replace(' FROM order_payloads', ', p.payload FROM order_payloads')} WHERE p.payload_id = ?`,
  h: `${HELD.replace(' FROM', ', h.payload FROM')} WHERE h.held_id = ?`,
  q: `${QUARANTINED.replace(' FROM', ', q.payload FROM')} WHERE q.quarantine_id = ?`,
};

/** Newest first. Without an order it goes over all that is kept, so it is for people, not for loops. */
export function listReceived(
  db: Database.Database,
  filter: ReceivedFilter,
  options: { limit: number; quarantinedOnly: boolean },
): ReceivedEntry[] {
  const parts = options.quarantinedOnly ? LIST_QUARANTINED : LIST_ALL;
  return db
    .prepare<[object], ReceivedEntry>(`${parts} ORDER BY receivedAt DESC, id DESC LIMIT @limit`)
    .all({ ...bindings(filter), limit: options.limit });
}

/** undefined: nothing has this id, or no longer. */
export function getReceived(db: Database.Database, id: string): ReceivedDetail | undefined {
  const match = /^([ophq])(\d{1,15})$/.exec(id);
  const sql = BY_ID[match?.[1] ?? ''];
  return sql === undefined ? undefined : db.prepare<[number], ReceivedDetail>(sql).get(Number(match?.[2]));
}

/** Orders of which something that matches was received, by pages: those after the row `after`. */
export function ordersReceived(
  db: Database.Database,
  filter: ReceivedFilter,
  page: { after: number; limit: number },
): { row: number; orderId: string }[] {
  return db
    .prepare<[object], { row: number; orderId: string }>(
      `SELECT o.rowid AS row, o.order_id AS orderId FROM orders o
       WHERE o.rowid > @after AND (@orderId IS NULL OR o.order_id = @orderId)
         AND (${matches('o.order_id', NEWEST_TIME, 'o.payload_source')} OR EXISTS (
           SELECT 1 FROM order_payloads p
           WHERE p.order_id = o.order_id AND ${matches('p.order_id', 'p.received_at', 'p.source')}))
       ORDER BY o.rowid LIMIT @limit`,
    )
    .all({ ...bindings(filter), ...page });
}

/** Quarantined payloads of orders that match, the oldest first. */
export function quarantinedOrders(db: Database.Database, filter: ReceivedFilter): number[] {
  return db
    .prepare<[object], number>(
      `SELECT quarantine_id FROM quarantine q
       WHERE ${OF_ORDERS} AND ${matches('NULL', 'q.received_at', 'q.source')} ORDER BY quarantine_id`,
    )
    .pluck()
    .all(bindings(filter));
}

function bindings({ orderId = null, since = null, until = null, source = null }: Partial<Nullable>) {
  return { orderId, since, until, source };
}

type Nullable = { [Key in keyof ReceivedFilter]: ReceivedFilter[Key] | null };

export interface QuarantineEntry {
  quarantineId: number;
  source: Unreadable['source'];
  receivedAt: string;
  reason: string;
  /** How often it came; polls see the same again and again and do not count. */
  seen: number;
  bytes: number;
}

export interface QuarantineDetail extends QuarantineEntry {
  payload: string | Uint8Array;
}

/** Larger payloads are cut, the reason says so: one answer of a platform gone mad must not fill the disk. */
const PAYLOAD_BYTES_MAX = 32 * 1024 * 1024;
const TOTAL_BYTES_MAX = 128 * 1024 * 1024;
const ROWS_MAX = 10_000;

const QUARANTINE_COLUMNS =
  'quarantine_id AS quarantineId, source, received_at AS receivedAt, reason, seen, bytes';

/** Statements on `quarantine`: what nobody could read, once each, the oldest dropped when there is too much. */
export class QuarantineRows {
  readonly #seen: Database.Statement<[string], { id: number }>;
  readonly #count: Database.Statement<[number]>;
  readonly #insert: Database.Statement;
  readonly #totals: Database.Statement<[], { rows: number; bytes: number }>;
  readonly #oldest: Database.Statement<[], { id: number; bytes: number }>;
  readonly #remove: Database.Statement<[number]>;
  readonly #list: Database.Statement<[number], QuarantineEntry>;
  readonly #get: Database.Statement<[number], QuarantineDetail>;

  constructor(db: Database.Database) {
    this.#seen = db.prepare<[string], { id: number }>(
      'SELECT quarantine_id AS id FROM quarantine WHERE digest = ?',
    );
    this.#count = db.prepare<[number]>('UPDATE quarantine SET seen = seen + 1 WHERE quarantine_id = ?');
    this.#insert = db.prepare(
      'INSERT INTO quarantine (source, received_at, reason, digest, bytes, payload) VALUES (?, ?, ?, ?, ?, ?)',
    );
    this.#totals = db.prepare('SELECT count(*) AS rows, coalesce(sum(bytes), 0) AS bytes FROM quarantine');
    this.#oldest = db.prepare(
      'SELECT quarantine_id AS id, bytes FROM quarantine ORDER BY quarantine_id LIMIT 1000',
    );
    this.#remove = db.prepare('DELETE FROM quarantine WHERE quarantine_id = ?');
    this.#list = db.prepare(
      `SELECT ${QUARANTINE_COLUMNS} FROM quarantine ORDER BY quarantine_id DESC LIMIT ?`,
    );
    this.#get = db.prepare(`SELECT ${QUARANTINE_COLUMNS}, payload FROM quarantine WHERE quarantine_id = ?`);
  }

  /** Whether exactly this is in quarantine already. */
  has(unreadable: Unreadable): boolean {
    return this.#seen.get(digestOf(unreadable)) !== undefined;
  }

  add(unreadable: Unreadable): void {
    const digest = digestOf(unreadable);
    const before = this.#seen.get(digest);
    if (before) {
      if (unreadable.source !== 'poll') this.#count.run(before.id);
      return;
    }
    const bytes = Buffer.byteLength(unreadable.payload);
    const cut = bytes > PAYLOAD_BYTES_MAX;
    const payload = cut ? Buffer.from(unreadable.payload).subarray(0, PAYLOAD_BYTES_MAX) : unreadable.payload;
    const reason = cut
      ? `${unreadable.reason} Only the first of its ${bytes} bytes are kept.`
      : unreadable.reason;
    const kept = Math.min(bytes, PAYLOAD_BYTES_MAX);
    this.#insert.run(unreadable.source, isoUtc(unreadable.receivedAtMs), reason, digest, kept, payload);
    this.#trim();
  }

  #trim(): void {
    let { rows, bytes } = this.#totals.get() ?? { rows: 0, bytes: 0 };
    if (rows <= ROWS_MAX && bytes <= TOTAL_BYTES_MAX) return;
    for (const oldest of this.#oldest.all()) {
      if (rows <= ROWS_MAX * 0.9 && bytes <= TOTAL_BYTES_MAX * 0.9) return;
      this.#remove.run(oldest.id);
      rows -= 1;
      bytes -= oldest.bytes;
    }
  }

  /** Whether there was something to remove. */
  remove(quarantineId: number): boolean {
    return this.#remove.run(quarantineId).changes > 0;
  }

  /** Newest first. */
  list(limit: number): QuarantineEntry[] {
    return this.#list.all(limit);
  }

  get(quarantineId: number): QuarantineDetail | undefined {
    return this.#get.get(quarantineId);
  }
}

function digestOf({ source, payload }: Unreadable): string {
  return createHash('sha256').update(source).update('\0').update(payload).digest('hex');
}
