import type { BoardOrder } from '../domain/order/order-board.ts';
import type { FeedEvent } from './answers.ts';
import { stageOf } from './stages.ts';

/** Ended orders that are kept on the board. */
const ENDED_MAX = 30;

/** The orders on the board by id; `fresh`: those that changed while it was looked at. */
export interface Board {
  orders: ReadonlyMap<string, BoardOrder>;
  fresh: ReadonlySet<string>;
}

export function boardOf(orders: readonly BoardOrder[]): Board {
  return { orders: new Map(orders.map((order) => [order.orderId, order])), fresh: new Set() };
}

/** The board after these events of the feed. An event that is older than what is shown changes nothing. */
export function applyEvents(board: Board, events: readonly FeedEvent[]): Board {
  const orders = new Map(board.orders);
  const fresh = new Set<string>();
  for (const { orderId, order } of events) {
    if (order === null) orders.delete(orderId);
    else if ((orders.get(orderId)?.seq ?? 0) < order.seq) {
      orders.set(orderId, order);
      fresh.add(orderId);
    }
  }
  const ended = [...orders.values()]
    .filter(({ status }) => stageOf(status) === 'ended')
    .sort((a, b) => b.seq - a.seq);
  for (const { orderId } of ended.slice(ENDED_MAX)) orders.delete(orderId);
  return { orders, fresh };
}
