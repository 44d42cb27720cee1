import type Database from 'better-sqlite3';
import type { OrderSource } from '../../domain/order/order.ts';

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
