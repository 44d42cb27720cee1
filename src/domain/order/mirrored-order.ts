import type { OrderFields, OrderItem } from './order.ts';

/** An order as the mirror has it now; null where nothing is known. */
export type MirroredOrder = { [Field in keyof OrderFields]-?: Exclude<OrderFields[Field], undefined> } & {
  orderId: string;
  /** Of its newest event. */
  seq: number;
  updatedAt: string;
  items: OrderItem[];
};

export interface OrderFilter {
  status?: string;
  /** Only orders whose life has not ended. */
  open?: boolean;
  /** Newest created first, at most this many. */
  limit: number;
  /** Only orders created before this time, ISO 8601 UTC, to page on. */
  createdBefore?: string;
}
