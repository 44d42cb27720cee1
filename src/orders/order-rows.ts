import { hash } from 'node:crypto';
import type Database from 'better-sqlite3';
import { isoUtc } from '../core/time.ts';
import { mergeOutcome } from './merge.ts';
import type {
  OrderFields,
  OrderItem,
  OrderModifier,
  OrderObservation,
  OrderOutcome,
  OrderSource,
} from './order.ts';

/** Every scalar field of an order with its column, in the order in which rows are read and written. */
export const ORDER_COLUMNS: readonly (readonly [field: keyof OrderFields, column: string])[] = [
  ['code', 'code'],
  ['status', 'status'],
  ['storeExternalId', 'store_external_id'],
  ['websiteId', 'website_id'],
  ['name', 'name'],
  ['createdAt', 'created_at'],
  ['deliveryType', 'delivery_type'],
  ['amountToPay', 'amount_to_pay'],
  ['amount', 'amount'],
  ['deliveryFee', 'delivery_fee'],
  ['couponDiscount', 'coupon_discount'],
  ['deliveryTime', 'delivery_time'],
  ['isScheduled', 'is_scheduled'],
  ['scheduledFor', 'scheduled_for'],
  ['addressLat', 'address_lat'],
  ['addressLng', 'address_lng'],
  ['addressAddress', 'address_address'],
  ['addressStreetNumber', 'address_street_number'],
  ['addressStreetAddress', 'address_street_address'],
  ['addressCountry', 'address_country'],
  ['addressState', 'address_state'],
  ['addressCity', 'address_city'],
  ['addressZipCode', 'address_zip_code'],
  ['addressPhoneNumber', 'address_phone_number'],
  ['addressDetails', 'address_details'],
  ['customerFirstName', 'customer_first_name'],
  ['customerLastName', 'customer_last_name'],
  ['customerEmail', 'customer_email'],
  ['customerPhoneNumber', 'customer_phone_number'],
];

export const STATUS_AT = ORDER_COLUMNS.findIndex(([field]) => field === 'status');

/** What SQLite gives back for a column. */
export type Value = string | number | null;

/** The columns' values of what was read; what was not sent comes from `known`, else is null. */
export function fieldValues(fields: OrderFields, known?: readonly Value[]): Value[] {
  const values: Value[] = new Array(ORDER_COLUMNS.length);
  for (let i = 0; i < ORDER_COLUMNS.length; i++) {
    const sent = fields[(ORDER_COLUMNS[i] as (typeof ORDER_COLUMNS)[number])[0]];
    if (sent === undefined) values[i] = known?.[i] ?? null;
    else values[i] = typeof sent === 'boolean' ? Number(sent) : sent;
  }
  return values;
}

export function itemRow(orderId: string, line: number, item: OrderItem): Value[] {
  return [
    orderId,
    line,
    item.productExternalId,
    item.productName,
    item.quantity,
    item.comment,
    item.unitPrice,
    item.baseUnitPrice,
    item.productPrice,
    item.productBasePrice,
  ];
}

export function modifierRow(orderId: string, line: number, modifier: number, sent: OrderModifier): Value[] {
  return [
    orderId,
    line,
    modifier,
    sent.name,
    sent.shortName,
    sent.description,
    sent.optionId,
    sent.optionExternalId,
    sent.optionName,
    sent.optionPrice,
    sent.quantity,
  ];
}

export function sameRow(a: readonly Value[], b: readonly Value[]): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return a.length === b.length;
}

/**
 * For binding, in place: numbers are bound as reals, which a reader in a column without a type would see as
 * `1500.0`.
 */
export function bound(row: (Value | bigint)[]): (Value | bigint)[] {
  for (let i = 0; i < row.length; i++) {
    const value = row[i];
    if (typeof value === 'number' && Number.isSafeInteger(value)) row[i] = BigInt(value);
  }
  return row;
}

/** What the mirror has of an order. */
export interface KnownRow {
  /** In the order of ORDER_COLUMNS. */
  values: Value[];
  seq: number;
  eventSource: OrderSource;
  pollDigest: string | null;
  payloadSource: OrderSource;
  payload: string;
  updatedAt: string;
  /** When the payload came, where that was after the newest event. */
  payloadAt: string | null;
}

export interface OrderWrite {
  orderId: string;
  values: Value[];
  seq: number;
  source: OrderSource;
  updatedAt: string;
  pollDigest: string | null;
  payload: string;
}

const FIELD_COLUMNS = ORDER_COLUMNS.map(([, column]) => column);
const OWN_COLUMNS = ['seq', 'event_source', 'poll_digest', 'payload_source', 'payload'];
const WRITTEN = [...FIELD_COLUMNS, ...OWN_COLUMNS, 'updated_at'];
const READ = [...WRITTEN, 'payload_at'];
/** Where the rows of items and modifiers have what counts them, from 1. */
const [LINE_AT, MODIFIER_AT] = [1, 2];

/** Statements on `orders` and the rows below it. Transactions are the caller's. */
export class OrderRows {
  readonly #digest: Database.Statement<[string], [string | null, number | null]>;
  readonly #known: Database.Statement<[string], unknown[]>;
  readonly #insert: Database.Statement;
  readonly #update: Database.Statement;
  readonly #updatePayload: Database.Statement;
  readonly #updateDigest: Database.Statement;
  readonly #items: Database.Statement<[string], Value[]>;
  readonly #modifiers: Database.Statement<[string], Value[]>;
  readonly #insertItem: Database.Statement;
  readonly #insertModifier: Database.Statement;
  readonly #deleteItems: Database.Statement;
  readonly #deleteModifiers: Database.Statement;

  constructor(db: Database.Database) {
    this.#digest = db
      .prepare<[string], [string | null, number | null]>(
        'SELECT poll_digest, code FROM orders WHERE order_id = ?',
      )
      .raw();
    this.#known = db.prepare<[string], unknown[]>(`SELECT ${READ} FROM orders WHERE order_id = ?`).raw();
    this.#insert = db.prepare(
      `INSERT INTO orders (${WRITTEN}, order_id) VALUES (${WRITTEN.map(() => '?')}, ?)`,
    );
    this.#update = db.prepare(
      `UPDATE orders SET ${WRITTEN.map((column) => `${column} = ?`)}, payload_at = NULL WHERE order_id = ?`,
    );
    this.#updatePayload = db.prepare(
      'UPDATE orders SET payload = ?, payload_at = ?, poll_digest = ? WHERE order_id = ?',
    );
    this.#updateDigest = db.prepare('UPDATE orders SET poll_digest = ? WHERE order_id = ?');
    // In no order: ORDER BY makes so small a query three times as long, even where there is nothing to sort.
    this.#items = db.prepare<[string], Value[]>('SELECT * FROM order_items WHERE order_id = ?').raw();
    this.#modifiers = db
      .prepare<[string], Value[]>('SELECT * FROM order_item_modifiers WHERE order_id = ?')
      .raw();
    const marks = (count: number) => Array.from({ length: count }, () => '?');
    this.#insertItem = db.prepare(`INSERT INTO order_items VALUES (${marks(10)})`);
    this.#insertModifier = db.prepare(`INSERT INTO order_item_modifiers VALUES (${marks(11)})`);
    this.#deleteItems = db.prepare('DELETE FROM order_items WHERE order_id = ?');
    this.#deleteModifiers = db.prepare('DELETE FROM order_item_modifiers WHERE order_id = ?');
  }

  /** Digest of the poll's record last confirmed, and the code; undefined when the order is not known. */
  digestOf(orderId: string): { pollDigest: string | null; code: number | null } | undefined {
    const row = this.#digest.get(orderId);
    return row && { pollDigest: row[0], code: row[1] };
  }

  known(orderId: string): KnownRow | undefined {
    const row = this.#known.get(orderId);
    if (!row) return undefined;
    const own = row.splice(FIELD_COLUMNS.length);
    const [seq, eventSource, pollDigest, payloadSource, payload, updatedAt, payloadAt] = own;
    return {
      values: row,
      ...{ seq, eventSource, pollDigest, payloadSource, payload, updatedAt, payloadAt },
    } as KnownRow;
  }

  insert(order: OrderWrite): void {
    this.#insert.run(...written(order));
  }

  update(order: OrderWrite): void {
    this.#update.run(...written(order));
  }

  updatePayload(orderId: string, payload: string, receivedAt: string, pollDigest: string | null): void {
    this.#updatePayload.run(payload, receivedAt, pollDigest, orderId);
  }

  updateDigest(orderId: string, pollDigest: string | null): void {
    this.#updateDigest.run(pollDigest, orderId);
  }

  /** Whether the mirror has just these items of the order. */
  hasItems(orderId: string, items: readonly OrderItem[]): boolean {
    const rows = this.#items.all(orderId);
    if (rows.length !== items.length) return false;
    for (const row of rows) {
      const line = row[LINE_AT] as number;
      const item = items[line - 1];
      if (!item || !sameRow(row, itemRow(orderId, line, item))) return false;
    }
    const modifiers = this.#modifiers.all(orderId);
    if (modifiers.length !== items.reduce((sum, item) => sum + item.modifiers.length, 0)) return false;
    for (const row of modifiers) {
      const [line, number] = [row[LINE_AT] as number, row[MODIFIER_AT] as number];
      const modifier = items[line - 1]?.modifiers[number - 1];
      if (!modifier || !sameRow(row, modifierRow(orderId, line, number, modifier))) return false;
    }
    return true;
  }

  insertItems(orderId: string, items: readonly OrderItem[]): void {
    for (let i = 0; i < items.length; i++) {
      const item = items[i] as OrderItem;
      this.#insertItem.run(...bound(itemRow(orderId, i + 1, item)));
      for (let j = 0; j < item.modifiers.length; j++) {
        const modifier = item.modifiers[j] as OrderItem['modifiers'][number];
        this.#insertModifier.run(...bound(modifierRow(orderId, i + 1, j + 1, modifier)));
      }
    }
  }

  replaceItems(orderId: string, items: readonly OrderItem[]): void {
    this.#deleteItems.run(orderId);
    this.#deleteModifiers.run(orderId);
    this.insertItems(orderId, items);
  }
}

function written(order: OrderWrite): unknown[] {
  const { values, seq, source, pollDigest, payload, updatedAt, orderId } = order;
  return bound([...values, seq, source, pollDigest, source, payload, updatedAt, orderId]);
}

/** One payload of an order that is not, or no longer, the one in `orders`. */
export interface EarlierPayload {
  orderId: string;
  /** The order's newest event once this was merged. */
  seq: number;
  /** Whether it brought that event; else it said what was known. */
  applied: boolean;
  source: OrderSource;
  /** ISO 8601 UTC. */
  receivedAt: string;
  /** JSON text as received. */
  payload: string;
}

/** Statements on `order_payloads`. Transactions are the caller's. */
export class PayloadRows {
  readonly #has: Database.Statement<[string, number, string], number>;
  readonly #insert: Database.Statement;
  readonly #ofOrder: Database.Statement<[string], Omit<EarlierPayload, 'applied'> & { applied: number }>;

  constructor(db: Database.Database) {
    this.#has = db
      .prepare<[string, number, string], number>(
        'SELECT 1 FROM order_payloads WHERE order_id = ? AND seq = ? AND payload = ?',
      )
      .pluck();
    this.#insert = db.prepare(
      'INSERT INTO order_payloads (order_id, seq, applied, source, received_at, payload) VALUES (?, ?, ?, ?, ?, ?)',
    );
    this.#ofOrder = db.prepare(`
      SELECT order_id AS orderId, seq, applied, source, received_at AS receivedAt, payload
      FROM order_payloads WHERE order_id = ? ORDER BY seq, received_at, payload_id`);
  }

  /** The same text beside the same event is kept once, however often it is delivered. */
  add({ orderId, seq, applied, source, receivedAt, payload }: EarlierPayload): void {
    if (!applied && this.#has.get(orderId, seq, payload) !== undefined) return;
    this.#insert.run(orderId, seq, Number(applied), source, receivedAt, payload);
  }

  /** As they were merged, the oldest first. */
  ofOrder(orderId: string): EarlierPayload[] {
    return this.#ofOrder.all(orderId).map((row) => ({ ...row, applied: row.applied === 1 }));
  }
}

/** A webhook that was noted and not applied. */
export interface HeldNotification {
  heldId: number;
  orderId: string;
  /** The status it carried, and the one the mirror had. */
  status: string | null;
  knownStatus: string | null;
  receivedAt: string;
  /** null while no poll has said what is true. */
  resolvedAt: string | null;
  /** `confirmed`: a poll took the order to the held status; `refuted`: it did not. */
  resolution: 'confirmed' | 'refuted' | null;
  payload: string;
}

const KEPT_MAX = 1_000;

/** Statements on `held_notifications`, of which the newest thousand are kept. */
export class HeldRows {
  readonly #insert: Database.Statement;
  readonly #trim: Database.Statement;
  readonly #resolve: Database.Statement;
  readonly #list: Database.Statement<[string | null, number], HeldNotification>;

  constructor(db: Database.Database) {
    // The same webhook held again after a poll resolved it is open again.
    this.#insert = db.prepare(`
      INSERT INTO held_notifications (order_id, status, known_status, digest, received_at, payload)
      VALUES (?, ?, ?, ?, ?, ?)
      ON CONFLICT (order_id, digest) DO UPDATE
        SET resolved_at = NULL, resolution = NULL, known_status = excluded.known_status
        WHERE resolved_at IS NOT NULL`);
    this.#trim = db.prepare('DELETE FROM held_notifications WHERE held_id <= ?');
    this.#resolve = db.prepare(`
      UPDATE held_notifications SET resolved_at = ?, resolution = iif(status IS ?, 'confirmed', 'refuted')
      WHERE order_id = ? AND resolved_at IS NULL`);
    this.#list = db.prepare(`
      SELECT held_id AS heldId, order_id AS orderId, status, known_status AS knownStatus,
        received_at AS receivedAt, resolved_at AS resolvedAt, resolution, payload
      FROM held_notifications WHERE order_id = coalesce(?, order_id)
      ORDER BY held_id DESC LIMIT ?`);
  }

  hold(observation: OrderObservation, knownStatus: string | null): void {
    const { reading, raw, observedAtMs } = observation;
    const digest = hash('sha256', raw, 'hex');
    const status = reading.fields.status ?? null;
    const { lastInsertRowid, changes } = this.#insert.run(
      reading.orderId,
      status,
      knownStatus,
      digest,
      isoUtc(observedAtMs),
      raw,
    );
    if (changes > 0) this.#trim.run(Number(lastInsertRowid) - KEPT_MAX);
  }

  /** A poll said that the order has `status`. */
  resolve(orderId: string, status: string | null, atMs: number): void {
    this.#resolve.run(isoUtc(atMs), status, orderId);
  }

  /** Newest first. */
  list(limit: number, orderId?: string): HeldNotification[] {
    return this.#list.all(orderId ?? null, limit);
  }
}

/** Applies observations to the mirror's order tables by the merge rule, within the caller's transaction. */
export class OrderMerge {
  readonly rows: OrderRows;
  readonly held: HeldRows;
  readonly payloads: PayloadRows;
  readonly #addEvent: Database.Statement;
  #lastIso = { epochMs: Number.NaN, text: '' };

  constructor(db: Database.Database) {
    this.rows = new OrderRows(db);
    this.held = new HeldRows(db);
    this.payloads = new PayloadRows(db);
    this.#addEvent = db.prepare(
      'INSERT INTO order_events (order_id, status, previous_status, source, observed_at) VALUES (?, ?, ?, ?, ?)',
    );
  }

  /**
   * `pollDigest` names the record a poll read, under the rules it was read by; see `PollDigests`. `isNew` spares the look for an order
   * that this transaction has already looked for in vain.
   */
  apply(observation: OrderObservation, pollDigest: string | null, isNew = false): OrderOutcome {
    const { reading, source } = observation;
    const known = isNew ? undefined : this.rows.known(reading.orderId);
    const values = fieldValues(reading.fields, known?.values);
    const sameItems = !known || !reading.items || this.rows.hasItems(reading.orderId, reading.items);
    const outcome = mergeOutcome(known && mergeView(known), {
      source,
      status: reading.fields.status,
      asOfSeq: observation.asOfSeq,
      sameContent: known !== undefined && sameItems && sameRow(values, known.values),
    });
    if (!known || outcome === 'created' || outcome === 'changed') {
      const previousStatus = known ? known.values[STATUS_AT] : null;
      const status = values[STATUS_AT] as string | null;
      const observedAt = this.#iso(observation.observedAtMs);
      const { lastInsertRowid } = this.#addEvent.run(
        reading.orderId,
        status,
        previousStatus,
        source,
        observedAt,
      );
      const order = {
        orderId: reading.orderId,
        values,
        seq: Number(lastInsertRowid),
        source,
        updatedAt: observedAt,
        pollDigest,
        payload: observation.raw,
      };
      if (!known) {
        this.rows.insert(order);
        if (reading.items) this.rows.insertItems(reading.orderId, reading.items);
      } else {
        if (known.payload !== observation.raw) this.#keepPayload(reading.orderId, known);
        this.rows.update(order);
        if (!sameItems && reading.items) this.rows.replaceItems(reading.orderId, reading.items);
      }
    } else if (outcome === 'confirmed') {
      this.#noteConfirmed(observation, known, pollDigest);
    } else if (outcome === 'held') {
      this.held.hold(observation, known.values[STATUS_AT] as string | null);
      // The next poll has to read this order again to say which of the two is true.
      if (known.pollDigest !== null) this.rows.updateDigest(reading.orderId, null);
    }
    if (known && source === 'poll' && outcome !== 'superseded' && !observation.isReplay) {
      this.held.resolve(reading.orderId, values[STATUS_AT] as string | null, observation.observedAtMs);
    }
    return outcome;
  }

  /** All records of a poll have the same time. */
  #iso(epochMs: number): string {
    if (epochMs !== this.#lastIso.epochMs) this.#lastIso = { epochMs, text: isoUtc(epochMs) };
    return this.#lastIso.text;
  }

  /**
   * Same content: another spelling of it is kept when it comes from where the payload came from. Of polls only the
   * last, for they repeat themselves; of webhooks all, for nobody sends them again.
   */
  #noteConfirmed(
    { reading, source, raw, observedAtMs }: OrderObservation,
    known: KnownRow,
    pollDigest: string | null,
  ): void {
    const { orderId } = reading;
    const digest = source === 'poll' ? pollDigest : known.pollDigest;
    if (known.payloadSource === source && known.payload !== raw) {
      if (source === 'webhook') this.#keepPayload(orderId, known);
      this.rows.updatePayload(orderId, raw, this.#iso(observedAtMs), digest);
    } else if (known.pollDigest !== digest) {
      this.rows.updateDigest(orderId, digest);
    }
    if (source === 'webhook' && known.payloadSource === 'poll' && known.payload !== raw) {
      const receivedAt = this.#iso(observedAtMs);
      this.payloads.add({ orderId, seq: known.seq, applied: false, source, receivedAt, payload: raw });
    }
  }

  /** Keeps the payload that another is about to replace. */
  #keepPayload(orderId: string, known: KnownRow): void {
    const { seq, payload, payloadSource: source, payloadAt, updatedAt } = known;
    const receivedAt = payloadAt ?? updatedAt;
    this.payloads.add({ orderId, seq, applied: payloadAt === null, source, receivedAt, payload });
  }
}

function mergeView(known: KnownRow) {
  return { status: known.values[STATUS_AT] as string | null, seq: known.seq, source: known.eventSource };
}
