import { whenFree } from '../domain/busy.ts';
import type { OrderEvent } from '../domain/order/order.ts';
import type { Clock } from '../domain/time/clock.ts';

const POLL_MS = 250;
const PAGE = 500;

export interface FeedOptions {
  mirror: { eventsAfter(seq: number, limit: number): OrderEvent[] };
  clock: Clock;
  /** Events with a higher seq come. */
  after: number;
  /** Goes on waiting for new ones until the signal. */
  follow: boolean;
  signal: AbortSignal;
  /** At most this many in all. */
  limit?: number;
}

/** The change feed, in order and without a gap, also while it is being written. */
export async function* feed(options: FeedOptions): AsyncGenerator<OrderEvent> {
  const { mirror, clock, signal } = options;
  let { after } = options;
  let left = options.limit ?? Number.POSITIVE_INFINITY;
  while (!signal.aborted && left > 0) {
    const events = await whenFree(
      clock,
      () => mirror.eventsAfter(after, Math.min(PAGE, left)),
      undefined,
      signal,
    );
    for (const event of events) {
      if (signal.aborted) return;
      yield event;
      after = event.seq;
      left -= 1;
    }
    if (events.length > 0) continue;
    if (!options.follow) return;
    await clock.sleep(POLL_MS, signal);
  }
}

/** One event as a line for a person. */
export function eventLine({ seq, observedAt, source, orderId, status, previousStatus }: OrderEvent): string {
  const change = previousStatus === null ? (status ?? '-') : `${previousStatus} -> ${status ?? '-'}`;
  return `${seq}  ${observedAt}  ${source.padEnd(7)}  ${orderId}  ${change}`;
}
