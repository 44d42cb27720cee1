import type Database from 'better-sqlite3';
import type { BoardOrder } from '../../domain/order/order-board.ts';

/** Word for word the condition of the index `orders_open`. */
const OPEN = "(status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'))";
const COLUMNS = `order_id AS orderId, seq, code, status, store_external_id AS storeExternalId,
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
      `SELECT ${COLUMNS} FROM orders WHERE ${OPEN} ORDER BY created_at DESC LIMIT ?`,
    )
    .all(limits.open);
  const ended = db
    .prepare<[number, number], BoardOrder>(
      `SELECT ${COLUMNS} FROM orders
       WHERE seq > coalesce((SELECT max(seq) FROM order_events), 0) - ? AND NOT ${OPEN}
       ORDER BY seq DESC LIMIT ?`,
    )
    .all(EVENTS_BACK, limits.ended);
  return [...open, ...ended];
}
