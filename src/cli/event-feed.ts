import { whenFree } from '../core/loop.ts';
import type { Clock } from '../core/time.ts';
import type { OrderEvent } from '../orders/merging/order.ts';

const POLL_MS = 250;

const PAGE = 500;

interface FeedOptions {
  mirror: { orders: { eventsAfter(seq: number, limit: number): OrderEvent[] } };
  clock: Clock;
  /** Only events with a higher `seq` are yielded. */
  after: number;
  /** Whether to wait for new events until the signal aborts. */
  follow: boolean;
  signal: AbortSignal;
  /** Number of events after which the feed ends. */
  limit?: number | undefined;
}

/** Yields the events of the feed in order, without gaps, even while new ones are written. */
export async function* feed(options: FeedOptions): AsyncGenerator<OrderEvent> {
  const { mirror, clock, signal, follow } = options;
  let { after, limit: left = Number.POSITIVE_INFINITY } = options;
  while (!signal.aborted && left > 0) {
    const page = () => mirror.orders.eventsAfter(after, Math.min(PAGE, left));
    const events = await whenFree(clock, page, undefined, signal);
    for (const event of events) {
      if (signal.aborted) return;
      yield event;
      after = event.seq;
      left -= 1;
    }
    if (events.length > 0) continue;
    if (!follow) return;
    await clock.sleep(POLL_MS, signal);
  }
}

/** Returns one event as a line for a person. */
export function eventLine({ seq, observedAt, source, orderId, status, previousStatus }: OrderEvent): string {
  const change = previousStatus === null ? (status ?? '-') : `${previousStatus} -> ${status ?? '-'}`;
  return `${seq}  ${observedAt}  ${source.padEnd(7)}  ${orderId}  ${change}`;
}
