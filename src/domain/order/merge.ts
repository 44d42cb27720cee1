import type { OrderOutcome, OrderSource } from './order.ts';
import { isBackwards } from './order-status.ts';

/** What the mirror knows of an order before an observation is merged. */
export interface KnownOrder {
  status: string | null;
  /** Sequence of its newest event, and what brought it. */
  seq: number;
  source: OrderSource;
}

/** What of an observation decides whether it is applied. */
export interface MergeInput {
  source: OrderSource;
  /** undefined when the source carries no status. */
  status: string | null | undefined;
  /** Newest seq when a poll's request began. */
  asOfSeq?: number | undefined;
  /** Whether applying it would change nothing that a POS can see. */
  sameContent: boolean;
}

/**
 * The one rule by which webhook and poll meet. Webhooks are hints and arrive in any order, so one that would
 * take the order backwards is held; a poll's word is final unless a webhook was applied after it began.
 */
export function mergeOutcome(known: KnownOrder | undefined, input: MergeInput): OrderOutcome {
  if (!known) return 'created';
  if (input.source === 'poll') {
    const newerWebhook =
      known.source === 'webhook' && input.asOfSeq !== undefined && known.seq > input.asOfSeq;
    if (newerWebhook) return input.sameContent ? 'confirmed' : 'superseded';
  } else if (isBackwards(known.status, input.status)) {
    return 'held';
  }
  return input.sameContent ? 'confirmed' : 'changed';
}
