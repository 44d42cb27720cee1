/** The order life cycle (document, "States and transitions"); transitions are not shown there. */
export const ORDER_STATUSES = [
  'pending',
  'payment-pending',
  'payment-approved',
  'payment-canceled',
  'picker-pending',
  'inProcess',
  'ready',
  'routed',
  'dispatched',
  'cancel',
  'refund',
  'shippingError',
] as const;
export type OrderStatus = (typeof ORDER_STATUSES)[number];

/** How far along its life an order is. Ends that may follow anything rank above all that precede them. */
const RANK: Record<OrderStatus, number> = {
  pending: 0,
  'payment-pending': 1,
  'payment-approved': 2,
  'picker-pending': 3,
  inProcess: 4,
  ready: 5,
  routed: 6,
  shippingError: 7,
  dispatched: 8,
  'payment-canceled': 9,
  cancel: 9,
  refund: 10,
};

const ENDED: ReadonlySet<string> = new Set(['dispatched', 'payment-canceled', 'cancel', 'refund']);

/** Place of a status in the life cycle; undefined for a status the document does not name. */
export function statusRank(status: string | null | undefined): number | undefined {
  return status == null || !Object.hasOwn(RANK, status) ? undefined : RANK[status as OrderStatus];
}

/** Whether going from one status to the other would be a step back in the life cycle. */
export function isBackwards(from: string | null | undefined, to: string | null | undefined): boolean {
  const a = statusRank(from);
  const b = statusRank(to);
  return a !== undefined && b !== undefined && b < a;
}

/** Whether no further change is expected; an unknown status counts as open. */
export function isEnded(status: string | null | undefined): boolean {
  return status != null && ENDED.has(status);
}

/** Whether the document names it. */
export function isKnownStatus(status: string): status is OrderStatus {
  return Object.hasOwn(RANK, status);
}

const TAKES_NOTHING: ReadonlySet<string> = new Set(['cancel', 'refund', 'payment-canceled']);

/** Whether an order of this status takes nothing of any stock: it was cancelled or paid back. */
export function takesNothing(status: string | null): boolean {
  return status !== null && TAKES_NOTHING.has(status);
}
