import type { Random } from '../domain/time/clock.ts';
import { drawFrom } from './draws.ts';

/** Plausible next statuses, likelier ones repeated. The document shows no transitions. */
const NEXT: Record<string, readonly string[]> = {
  pending: ['payment-pending', 'payment-approved', 'picker-pending', 'picker-pending', 'cancel'],
  'payment-pending': ['payment-approved', 'payment-approved', 'payment-approved', 'payment-canceled'],
  'payment-approved': ['picker-pending'],
  'picker-pending': ['inProcess', 'inProcess', 'inProcess', 'inProcess', 'cancel'],
  inProcess: ['ready', 'ready', 'ready', 'ready', 'ready', 'cancel'],
  ready: ['routed', 'routed', 'dispatched'],
  routed: ['dispatched', 'dispatched', 'dispatched', 'dispatched', 'shippingError'],
  shippingError: ['routed', 'cancel'],
  cancel: ['refund'],
};

/** A status that may follow, or undefined at an end of the life cycle. An unknown one goes on to `inProcess`. */
export function nextStatus(random: Random, status: string, deliveryType: string): string | undefined {
  if (status === 'dispatched' || status === 'refund' || status === 'payment-canceled') return undefined;
  if (status === 'ready') return deliveryType === 'delivery' ? 'routed' : 'dispatched';
  return drawFrom(random, NEXT[status] ?? ['inProcess']);
}

/** Whether nothing follows any more in everyday life (a cancelled order may still be refunded). */
export function isOver(status: string): boolean {
  return ['dispatched', 'refund', 'payment-canceled', 'cancel'].includes(status);
}
