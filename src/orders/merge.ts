import { isBackwards, type OrderOutcome, type OrderReading, type OrderSource } from './order.ts';

/** State of an order in the mirror before an observation is merged. */
interface KnownOrder {
  status: string | null;
  /** Sequence number and source of the order's newest event. */
  seq: number;
  source: OrderSource;
}

/** The parts of an observation that decide whether the observation is applied. */
export interface MergeInput {
  source: OrderSource;
  /** Status of the order; undefined if the observation has none. */
  status: string | null | undefined;
  /** Newest seq when the poll's request began; undefined for a webhook. */
  asOfSeq?: number | undefined;
  /** True if applying the observation would change nothing that a POS can read. */
  sameContent: boolean;
}

/**
 * Decides what is done with an observation. Callbacks arrive in any order, so one that would set the order back to an
 * earlier status is held. A poll always decides, unless a callback was applied after the poll's request began.
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

/** One stored observation of an order, read by the present rules. */
export interface ReplayStep {
  source: OrderSource;
  reading: OrderReading;
}

export interface ReplayResult<Step extends ReplayStep> {
  /** Merged content of all observations. */
  reading: OrderReading;
  /** The last observation that was applied; undefined if none was. */
  last: Step | undefined;
  /** Webhooks that would have set the order back to an earlier status. */
  held: Step[];
}

/**
 * Merges all observations of an order again, oldest first: [{status: a, tip: 1}, {status: b}] → {status: b, tip: 1}.
 * Only a poll may set the order back to an earlier status.
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

/** Returns the reading, but without its status if that comes before `status` in the life cycle of an order. */
export function neverBackwards(reading: OrderReading, status: string | null): OrderReading {
  if (!isBackwards(status, reading.fields.status)) return reading;
  const { status: _earlier, ...fields } = reading.fields;
  return { ...reading, fields };
}
