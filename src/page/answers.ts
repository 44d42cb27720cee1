import type { Finding } from '../domain/health/finding.ts';
import type { Freshness } from '../domain/health/freshness.ts';
import type { TrendHour } from '../domain/health/trends.ts';
import type { TypedWords } from '../domain/installation.ts';
import type { MirroredOrder } from '../domain/order/mirrored-order.ts';
import type { OrderEvent } from '../domain/order/order.ts';
import type { BoardOrder } from '../domain/order/order-board.ts';
import type { MirroredProduct } from '../domain/product/mirrored-product.ts';

/** Of the local API's answers what the page reads. */
export interface StatusAnswer {
  at: string;
  shop: string;
  commands: TypedWords;
  verdict: { level: 'green' | 'amber' | 'red'; findings: Finding[] };
  versions: { tillsync: string; node: string };
  freshness: Freshness[];
  tokens: { refreshExpiresInMs: number | null } | null;
  counts: { orders: number; openOrders: number; quarantine: number; products: number };
  outbox: { pending: number; held: number; sending: number; rejected: number };
}

export interface BoardAnswer {
  newest: number;
  orders: BoardOrder[];
}

export interface TrendsAnswer {
  hours: TrendHour[];
}

export interface FeedEvent extends OrderEvent {
  order: MirroredOrder | null;
}

export interface OrderAnswer {
  order: MirroredOrder;
}

export interface Change {
  changeId: number;
  kind: 'product' | 'stock';
  target: string;
  body: Record<string, unknown>;
  state: 'pending' | 'sending' | 'done' | 'rejected' | 'superseded';
  attempts: number;
  message: string | null;
  createdAt: string;
  settledAt: string | null;
  heldGuard: string | null;
}

export interface OutboxAnswer {
  changes: Change[];
  before: number | null;
}

export interface ProductsAnswer {
  products: MirroredProduct[];
  next: string | null;
}
