import type { BoardOrder } from '../domain/order/order-board.ts';

/** Where an order is on its way, for the board's columns. */
export const STAGES = ['payment', 'new', 'preparing', 'ready', 'underway', 'ended'] as const;
export type Stage = (typeof STAGES)[number];

const STAGE_OF: Readonly<Record<string, Stage>> = {
  pending: 'payment',
  'payment-pending': 'payment',
  'payment-approved': 'new',
  'picker-pending': 'new',
  inProcess: 'preparing',
  ready: 'ready',
  routed: 'underway',
  shippingError: 'underway',
  dispatched: 'ended',
  'payment-canceled': 'ended',
  cancel: 'ended',
  refund: 'ended',
};

/** A status that is not known yet is shown where somebody looks first. */
export function stageOf(status: string | null): Stage {
  const known = status !== null && Object.hasOwn(STAGE_OF, status) ? STAGE_OF[status] : undefined;
  return known ?? 'new';
}

/** Orders by stage: open ones by creation, ended ones by their last change, newest first. */
export function byStage(orders: Iterable<BoardOrder>): Record<Stage, BoardOrder[]> {
  const stages: Record<Stage, BoardOrder[]> = {
    payment: [],
    new: [],
    preparing: [],
    ready: [],
    underway: [],
    ended: [],
  };
  for (const order of orders) stages[stageOf(order.status)].push(order);
  for (const stage of STAGES) {
    stages[stage].sort(stage === 'ended' ? (a, b) => b.seq - a.seq : newestFirst);
  }
  return stages;
}

function newestFirst(a: BoardOrder, b: BoardOrder): number {
  return (b.createdAt ?? '').localeCompare(a.createdAt ?? '') || b.seq - a.seq;
}
