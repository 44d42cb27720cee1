import type { OrderReading, OrderSource } from './order.ts';
import { isBackwards } from './order-status.ts';

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
