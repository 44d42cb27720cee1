import { TillsyncError } from '../domain/errors.ts';
import type { MirroredOrder } from '../domain/order/mirrored-order.ts';
import type { OrderEvent } from '../domain/order/order.ts';

/** What the feed reads of the mirror; each a short read that may throw `storage-…`. */
export interface OrderSource {
  /** The change feed after `seq`, oldest first. */
  eventsAfter(seq: number, limit: number): OrderEvent[];
  newestSeq(): number;
  /** Up to this seq events were deleted for their age, never the newest of an order; 0: none. */
  trimmedTo(): number;
  order(orderId: string): MirroredOrder | undefined;
  /** JSON text as received. */
  orderPayload(orderId: string): string | undefined;
}

export interface FeedEvent extends OrderEvent {
  /** As it is now; null when it is no longer kept. */
  order: MirroredOrder | null;
}

/** Events after `seq`, each with its order. */
export function readFeed(source: OrderSource, seq: number, limit: number): FeedEvent[] {
  const orders = new Map<string, MirroredOrder | null>();
  return source.eventsAfter(seq, limit).map((event) => {
    const { orderId } = event;
    const order = orders.get(orderId) ?? source.order(orderId) ?? null;
    orders.set(orderId, order);
    return { ...event, order };
  });
}

/**
 * Throws `usage` when a reader is ahead of the feed: the mirror was made anew, so waiting for higher numbers
 * would miss everything until then.
 */
export function refuseAheadOf(source: OrderSource, after: number): number {
  const newest = source.newestSeq();
  if (after <= newest) return newest;
  throw new TillsyncError('usage', `The newest event is ${newest}, so nothing can come after ${after}.`, {
    hint: 'The mirror was made anew. Start again with after=0; orders you know come again.',
  });
}
