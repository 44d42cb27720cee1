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

/** What one page may hold; a single event is given whatever its size. */
const PAGE_CHARACTERS_MAX = 8 * 1024 * 1024;

/** Up to `limit` events after `seq` as JSON texts joined by commas, and where the next page begins. */
export function feedText(source: OrderSource, seq: number, limit: number): { events: string; next: number } {
  const texts: string[] = [];
  let [characters, next] = [0, seq];
  while (texts.length < limit && characters < PAGE_CHARACTERS_MAX) {
    // Orders with all their items are large, so that few are held at once.
    const some = readFeed(source, next, Math.min(limit - texts.length, PART));
    for (const event of some) {
      const text = JSON.stringify(event);
      if (texts.length > 0 && characters + text.length > PAGE_CHARACTERS_MAX)
        return { events: texts.join(), next };
      texts.push(text);
      characters += text.length;
      next = event.seq;
    }
    if (some.length < PART) break;
  }
  return { events: texts.join(), next };
}

const PART = 25;

/**
 * Throws `feed-restarted` when a reader is ahead of the feed: the mirror was made anew, so waiting for higher numbers
 * would miss everything until then.
 */
export function refuseAheadOf(source: OrderSource, after: number): number {
  const newest = source.newestSeq();
  if (after <= newest) return newest;
  throw new TillsyncError(
    'feed-restarted',
    `The newest event is ${newest}, so nothing can come after ${after}.`,
    {
      hint: 'The mirror was made anew. Start again with after=0; orders you know come again.',
    },
  );
}
