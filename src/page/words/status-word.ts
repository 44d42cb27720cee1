import type { OrderStatus } from '../../domain/order/order-status.ts';
import type { Speech } from './language.ts';

const KNOWN: Record<OrderStatus, `status.${OrderStatus}`> = {
  pending: 'status.pending',
  'payment-pending': 'status.payment-pending',
  'payment-approved': 'status.payment-approved',
  'payment-canceled': 'status.payment-canceled',
  'picker-pending': 'status.picker-pending',
  inProcess: 'status.inProcess',
  ready: 'status.ready',
  routed: 'status.routed',
  dispatched: 'status.dispatched',
  cancel: 'status.cancel',
  refund: 'status.refund',
  shippingError: 'status.shippingError',
};

/** A status in words; one that nobody knows as it is. */
export function statusWord(status: string | null, { say }: Speech): string {
  if (status === null) return say('status.none');
  return Object.hasOwn(KNOWN, status) ? say(KNOWN[status as OrderStatus]) : status;
}
