import type Database from 'better-sqlite3';
import type { MirroredOrder, OrderFilter, OrderHistory } from '../../domain/order/mirrored-order.ts';
import type { OrderEvent, OrderItem, OrderModifier } from '../../domain/order/order.ts';
import { ORDER_COLUMNS } from './order-columns.ts';

const ORDER = `SELECT order_id AS orderId, seq, updated_at AS updatedAt,
  ${ORDER_COLUMNS.map(([field, column]) => `${column} AS ${field}`)} FROM orders`;
/** Word for word the condition of the index `orders_open`. */
const OPEN = "(status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'))";

const CUSTOMER =
  "coalesce(customer_first_name, '') || ' ' || coalesce(customer_last_name, '') || ' ' || coalesce(customer_phone_number, '') || ' ' || coalesce(customer_email, '')";
const UNBOOKED = `(status IS NULL OR status NOT IN ('pending', 'payment-pending', 'payment-canceled', 'cancel', 'refund'))
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
        `SELECT created_at FROM orders WHERE ${OPEN} AND created_at GLOB '[0-9][0-9][0-9][0-9]-*T*Z'
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
      ...(open ? [OPEN] : []),
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
