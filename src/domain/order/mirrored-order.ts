import type { OrderEvent, OrderFields, OrderItem } from './order.ts';

/** An order as the mirror has it now; null where nothing is known. */
export type MirroredOrder = { [Field in keyof OrderFields]-?: Exclude<OrderFields[Field], undefined> } & {
  orderId: string;
  /** Of its newest event. */
  seq: number;
  updatedAt: string;
  items: OrderItem[];
};

export interface OrderFilter {
  status?: string | undefined;
  /** Only orders whose life has not ended. */
  open?: boolean | undefined;
  /** Newest created first, at most this many. */
  limit: number;
  /** Only orders created before this time, ISO 8601 UTC, to page on. */
  createdBefore?: string | undefined;
  /** Only orders created then or later, ISO 8601 UTC. */
  createdFrom?: string | undefined;
  /** Only orders with this number, as people say it. */
  code?: number | undefined;
  /** Only orders of a branch, by any of these ids. */
  stores?: readonly string[] | undefined;
  /** Only orders whose customer's name, phone number or e-mail address has this text in it. */
  customer?: string | undefined;
  /** Only orders that were not cancelled and that no POS acknowledged. */
  unbooked?: boolean | undefined;
}

/** How an order came to be as it is. */
export interface OrderHistory {
  /** Oldest first; the oldest of a long-lived order may be deleted by now. */
  events: OrderEvent[];
  /** When a POS acknowledged that it has it, and how that came in; null: none did. */
  acknowledged: { at: string; source: string } | null;
}
