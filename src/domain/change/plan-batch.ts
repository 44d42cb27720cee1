import { BATCH_ITEMS_MAX } from '../platform/limits.ts';

/** Place of a change in the line: lower first. */
export const PRIORITY_SOLD_OUT = 0;
export const PRIORITY_NORMAL = 1;

/** A product that nobody may buy any more goes ahead of everything else. */
export function priorityOf(body: object): number {
  return 'qty' in body && body.qty === 0 ? PRIORITY_SOLD_OUT : PRIORITY_NORMAL;
}

export interface Waiting {
  priority: number;
  /** Rises with the time since when the change waits. */
  queueSeq: number;
}

/** The order of the line: sold out first, then oldest. */
export function compareWaiting(a: Waiting, b: Waiting): number {
  return a.priority - b.priority || a.queueSeq - b.queueSeq;
}

/**
 * - `take`: send it in this call
 * - `settle`: the platform has this value already; no call is needed
 * - `leave`: something it conflicts with is under way; its turn comes later
 */
export type Verdict = 'take' | 'settle' | 'leave';

export interface BatchPlan<T> {
  take: T[];
  settle: T[];
  /** Whether more may be waiting behind what was looked at. */
  more: boolean;
}

/**
 * Fills one call from the line. Looks at no more than `lookMax` changes, so that a long line of changes that
 * need no call cannot hold up the event loop.
 */
export function planBatch<T>(
  line: Iterable<T>,
  judge: (change: T) => Verdict,
  options: { max?: number; lookMax?: number } = {},
): BatchPlan<T> {
  const { max = BATCH_ITEMS_MAX, lookMax = 20 * BATCH_ITEMS_MAX } = options;
  const plan: BatchPlan<T> = { take: [], settle: [], more: false };
  let looked = 0;
  for (const change of line) {
    if (plan.take.length === max || looked === lookMax) {
      plan.more = true;
      break;
    }
    looked += 1;
    const verdict = judge(change);
    if (verdict === 'take') plan.take.push(change);
    else if (verdict === 'settle') plan.settle.push(change);
  }
  return plan;
}

export interface LaneOutlook {
  /** Changes that could leave now. */
  waiting: number;
  /** Whether the first of them is sold out. */
  urgent: boolean;
  /** How long until each of the two endpoints may be called. */
  batchFreeInMs: number;
  singleFreeInMs: number;
}

/**
 * Which endpoint carries the next call. A batch takes everything, so it goes wherever it is not slower; the
 * single endpoint serves a lone change, or a sold-out one at the head of a line, when its slot is free sooner.
 */
export function chooseLane(outlook: LaneOutlook): 'batch' | 'single' | 'none' {
  if (outlook.waiting === 0) return 'none';
  const suits = outlook.waiting === 1 || outlook.urgent;
  return suits && outlook.singleFreeInMs < outlook.batchFreeInMs ? 'single' : 'batch';
}
