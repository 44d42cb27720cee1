import type { Freshness } from '../domain/freshness.ts';
import type { MirroredOrder, OrderFilter } from '../domain/mirrored-order.ts';
import type { OrderEvent, Unreadable } from '../domain/order.ts';

/** What commands read of the mirror. */
export interface MirrorReader {
  order(orderId: string): MirroredOrder | undefined;
  /** JSON text as received. */
  payload(orderId: string): string | undefined;
  orders(filter: OrderFilter): MirroredOrder[];
  /** Oldest first. */
  eventsAfter(seq: number, limit: number): OrderEvent[];
  newestSeq(): number;
}

/** How the flows fare, for `status`. */
export interface BoardReader {
  freshness(): Freshness[];
  alarms(): { key: string; message: string; raisedAt: string }[];
}

export interface QuarantineEntry {
  quarantineId: number;
  source: Unreadable['source'];
  receivedAt: string;
  reason: string;
  seen: number;
  bytes: number;
}
