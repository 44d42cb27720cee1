import { isBackwards, type OrderOutcome, type OrderReading, type OrderSource } from './order.ts';

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

/** One thing that was received of an order, as today's rules read it. */
export interface ReplayStep {
  source: OrderSource;
  reading: OrderReading;
}

export interface ReplayResult<Step extends ReplayStep> {
  /** What all of them together say of the order. */
  reading: OrderReading;
  /** The last that counted; undefined when none did. */
  last: Step | undefined;
  /** Webhooks that would have taken the order back in its life. */
  held: Step[];
}

/**
 * Merges what was received of one order anew, in the order in which it came: what a later one says replaces what an
 * earlier one said, what it does not say stays, and the order goes back in its life only where a poll said so.
 */
export function replay<Step extends ReplayStep>(orderId: string, steps: readonly Step[]): ReplayResult<Step> {
  const reading: OrderReading = { orderId, fields: {} };
  const held: Step[] = [];
  let last: Step | undefined;
  for (const step of steps) {
    const { fields, items } = step.reading;
    if (step.source === 'webhook' && isBackwards(reading.fields.status, fields.status)) {
      held.push(step);
      continue;
    }
    Object.assign(reading.fields, fields);
    if (items) reading.items = items;
    reading.incomplete = step.reading.incomplete ?? (items ? [] : (reading.incomplete ?? []));
    last = step;
  }
  return { reading, last, held };
}

/** The same reading without a status that would take an order of `status` back in its life. */
export function neverBackwards(reading: OrderReading, status: string | null): OrderReading {
  if (!isBackwards(status, reading.fields.status)) return reading;
  const { status: _earlier, ...fields } = reading.fields;
  return { ...reading, fields };
}
