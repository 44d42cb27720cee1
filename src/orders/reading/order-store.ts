import { mark } from '../../db/marks.ts';
import { sqlOf } from '../../db/sqlite.ts';
import type { MirroredOrder } from '../merging/mirrored-order.ts';
import { IS_OPEN, type OrderEvent, type OrderFilter, type OrderHistory } from '../merging/order.ts';
import { type MirrorFile, newestSeq } from './mirror-file.ts';
import { acknowledgementOf, EVENT, eachOrder, orderById, orderHistory } from './order-queries.ts';

/** Reads orders and their events from the mirror. */
export class OrderStore {
  readonly #file: Pick<MirrorFile, 'read'>;

  constructor(file: Pick<MirrorFile, 'read'>) {
    this.#file = file;
  }

  get(orderId: string): MirroredOrder | undefined {
    return this.#file.read((db) => orderById(db, orderId));
  }

  /** Returns the order's payload, JSON text as received. */
  payload(orderId: string): string | undefined {
    const sql = 'SELECT payload FROM _orders WHERE order_id = ?';
    return this.#file.read((db) => sqlOf(db).value<string>(sql, orderId));
  }

  list(filter: OrderFilter): MirroredOrder[] {
    return this.#file.read((db) => [...eachOrder(db, filter)]);
  }

  acknowledgement(orderId: string): OrderHistory['acknowledged'] {
    return this.#file.read((db) => acknowledgementOf(db, orderId));
  }

  history(orderId: string): OrderHistory {
    return this.#file.read((db) => orderHistory(db, orderId));
  }

  /** Returns the feed's events after `seq`, oldest first. */
  eventsAfter(seq: number, limit: number): OrderEvent[] {
    const sql = `${EVENT} WHERE seq > ? ORDER BY seq LIMIT +?`;
    return this.#file.read((db) => sqlOf(db).rows<OrderEvent>(sql, seq, limit));
  }

  newestSeq(): number {
    return this.#file.read(newestSeq);
  }

  /** Returns the id of the callback that was held last, among those still kept; 0 if there is none. */
  newestHeldId(): number {
    const sql = 'SELECT max(held_id) FROM _held_notifications';
    return this.#file.read((db) => sqlOf(db).value<number | null>(sql)) ?? 0;
  }

  /** Returns the seq up to which old events were deleted; 0 if none were. Each order's newest event is still there. */
  trimmedTo(): number {
    return this.#file.read((db) => mark(db, 'events.trimmed')) ?? 0;
  }

  /** Returns the nearest codes in the mirror below and above a missing code; null if there is none on that side. */
  codesBeside(code: number): { before: number | null; after: number | null } {
    const sql = `SELECT (SELECT max(code) FROM _orders WHERE code < ?) AS before,
      (SELECT min(code) FROM _orders WHERE code > ?) AS after`;
    const none = { before: null, after: null };
    return this.#file.read((db) => sqlOf(db).row<typeof none>(sql, code, code) ?? none);
  }

  codesBetween(min: number, max: number): number[] {
    const sql = 'SELECT code FROM _orders WHERE code BETWEEN ? AND ?';
    return this.#file.read((db) => sqlOf(db).values<number>(sql, min, max));
  }

  /**
   * Returns the creation time of the oldest order that is open or that a held callback may reopen. Returns null if
   * there is none, or none has a readable time.
   */
  oldestOpenMs(): number | null {
    const oldest = (which: string) =>
      `SELECT min(created_at) AS at FROM _orders WHERE ${which} AND ${IS_TIMED}`;
    const sql = `SELECT min(at) FROM (${oldest(IS_OPEN)} UNION ALL ${oldest(IS_HELD)})`;
    return epochMs(this.#file.read((db) => sqlOf(db).value<string | null>(sql)));
  }

  /** Returns the days of creation, in UTC, of the orders that `oldestOpenMs` considers, ascending. */
  openDays(): string[] {
    const days = (which: string) =>
      `SELECT substr(created_at, 1, 10) AS day FROM _orders WHERE ${which} AND ${IS_TIMED}`;
    const sql = `${days(IS_OPEN)} UNION ${days(IS_HELD)} ORDER BY day`;
    return this.#file.read((db) => sqlOf(db).values<string>(sql));
  }
}

const IS_TIMED = "created_at GLOB '[0-9][0-9][0-9][0-9]-*T*Z'";
const IS_HELD = 'order_id IN (SELECT order_id FROM _held_notifications WHERE resolved_at IS NULL)';

function epochMs(iso: string | null | undefined): number | null {
  const ms = iso == null ? Number.NaN : Date.parse(iso);
  return Number.isNaN(ms) ? null : ms;
}
