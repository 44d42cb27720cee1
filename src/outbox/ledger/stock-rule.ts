/**
 * The rule of a stock: which quantity the platform should have (`wanted`), and which it has by its own calculation
 * (`expected`; unknown if something happened that nobody can calculate).
 *
 * | what happened, in this order                                    | wanted | expected |
 * | ----------------------------------------------------------------- | --: | --: |
 * | count 10                                                          |  10 | unknown |
 * | count 10, sent                                                    |  10 |  10 |
 * | count 10, sent, A takes 2                                         |   8 |   8 |
 * | count 10, sent, A takes 2, A is changed by +1                     |   7 | unknown |
 * | count 10, sent, A takes 2, A is changed by -2                     |  10 | unknown |
 * | count 2, sent, A takes 3                                          |   0 | unknown |
 * | A takes 2, count 10                                               |   8 | unknown |
 * | count 10, A takes 2, A is booked                                  |   8 | unknown |
 * | A takes 2, count 10, A is booked                                  |  10 | unknown |
 * | A takes 2, count 10, another count is held, A is booked           |   8 | unknown |
 * | A takes 2, A is booked, count 8                                   |   8 | unknown |
 * | A takes 2, count 10, A is booked, count 8                         |   8 | unknown |
 * | A takes 2, A is booked, count 8, A is changed by +3               |   5 | unknown |
 * | A takes 5, A is booked, count 5, A is changed by -2               |   5 | unknown |
 * | A takes 5, count 10, A is changed by -3                           |   8 | unknown |
 * | A takes 5, A is changed by -3, count 10                           |   8 | unknown |
 * | A takes 2, noted, A is booked, count 10 as noted                  |   8 | unknown |
 * | A takes 2, A is booked, A is changed by +1, count 7               |   6 | unknown |
 * | A takes 2, A is booked, A is changed by +1, half an hour, count 7 |   7 | unknown |
 * | A takes 5, A is booked but for 2, count 7                         |   5 | unknown |
 * | A takes 2, B takes 3, A is booked, count 8                        |   5 | unknown |
 * | keep back 3, count 10                                             |   7 | unknown |
 * | count 10, sent, keep back 3                                       |   7 |  10 |
 * | count 10, sent, 1 is missing                                      |   9 |  10 |
 * | count 10, sent, 1 is missing, A takes 1                           |   9 |   9 |
 * | count -2                                                          |   0 | unknown |
 * | hold nothing back, A takes 2, count 10                            |  10 | unknown |
 * | hold nothing back, count 10, sent, A takes 2                      |   8 |   8 |
 *
 * A count contains a step that was heard before it once the step is booked, and only if it is the newest count that was
 * handed over when the POS said so, or a newer one. The view `_stock_ledger` computes the same in SQL, because many stocks are asked for at once.
 */

/**
 * A poll that ended at least this long after a read of the platform has brought every order placed before the read.
 */
export const HEARD_WITHIN_MS = 60_000;

/** What an event of an order takes from a stock (above 0), or gives back. */
export interface Step {
  orderId: string;
  /** Event of the order feed. */
  seq: number;
  qty: number;
  /** Above 0: pieces that an acknowledgement left out, because the POS does not know the line yet. */
  part: number;
  /** Version of the newest hand-over of the stock when the step was acknowledged; null if it was not. */
  bookedVersion: number | null;
  bookedMs: number;
  /** A count made after this time contains the step although nobody acknowledged it; null if none does. */
  heldUntilMs: number | null;
  /** The order's first event, whose pieces the platform subtracts by itself. */
  isFirst: boolean;
  /** Earliest time at which the order may have been placed, by this machine's clock. */
  placedMs: number;
}

/** The last count of a stock. */
export interface Counted {
  countedQty: number;
  /** Newest event of the order feed when it was counted, and the version of the hand-over. */
  countedSeq: number;
  countedVersion: number;
  /** When it was counted, and when it was handed over. */
  countedMs: number;
  handedMs: number;
}

/** All that the rule needs to know of a stock. */
export interface StockFacts {
  count: Counted;
  /** The steps of orders, the first heard of first. */
  steps: readonly Step[];
  /** Whether pieces of orders that nobody booked are subtracted from a count of this branch. */
  holds: boolean;
  safetyQty: number;
  /** Pieces that the platform lacked, and the newest event at that time. */
  missing: { qty: number; seq: number };
  /** The platform's quantity when it was last confirmed; null if it is unknown. */
  believedQty: number | null;
  confirmedSeq: number;
  confirmedMs: number;
  isUnderWay: boolean;
  /** Newest event of an order with a line of an unknown product, which may be any. */
  unplacedSeq: number;
}

interface StockVerdict {
  /** Pieces of orders that the count cannot contain. */
  reservedQty: number;
  /** The orders with such pieces, by the first time that they were heard. */
  reservedBy: string[];
  /** Pieces of orders that have not arrived yet. */
  unheardQty: number;
  wantedQty: number;
  /** Pieces ordered since the platform's quantity was confirmed. */
  orderedQty: number;
  expectedQty: number | null;
}

export function judgeStock(facts: StockFacts): StockVerdict {
  const { count, steps, missing, believedQty, confirmedSeq, confirmedMs } = facts;
  const reserved = reservedByOrder(facts);
  const reservedQty = sum(reserved.values());
  const since = (seq: number) => steps.filter((step) => step.seq > seq);
  const heardOf = sum(since(missing.seq).map(({ qty }) => Math.max(0, qty)));
  const unheardQty = Math.max(0, rounded(missing.qty - heardOf));
  const orderedQty = sum(since(confirmedSeq).map(({ qty }) => qty));
  // Pieces placed before the confirmation may be in it or not, and what a platform does at a change is unknown.
  const isMoved = since(confirmedSeq).some(({ isFirst, placedMs }) => !isFirst || placedMs <= confirmedMs);
  const isKnown = !facts.isUnderWay && !isMoved && facts.unplacedSeq <= confirmedSeq;
  // Nobody knows whether a platform that sold more than it had goes below zero.
  const isEnough = orderedQty === 0 || (believedQty ?? 0) >= orderedQty;
  return {
    reservedQty,
    reservedBy: [...reserved].flatMap(([orderId, qty]) => (qty > 0 ? [orderId] : [])),
    unheardQty,
    wantedQty: lessSafety(count.countedQty - reservedQty - unheardQty, facts.safetyQty),
    orderedQty,
    expectedQty: believedQty !== null && isKnown && isEnough ? rounded(believedQty - orderedQty) : null,
  };
}

/** Returns how many pieces each order takes that the count cannot contain; never more than it takes now. */
function reservedByOrder({ count, steps, holds }: StockFacts): Map<string, number> {
  const reserved = new Map<string, number>();
  for (const [orderId, own] of Map.groupBy(steps, (step) => step.orderId)) {
    if (!holds) {
      // Without acknowledgements, a count contains all that was heard before it.
      reserved.set(orderId, Math.max(0, sum(own.map(({ seq, qty }) => (seq > count.countedSeq ? qty : 0)))));
      continue;
    }
    const openIn = (some: readonly Step[]) => sum(some.map((step) => openOf(step, count)));
    const { leftOut = [], others = [] } = Object.groupBy(own, ({ part }) =>
      part > 0 ? 'leftOut' : 'others',
    );
    const live = sum(own.map(({ qty }) => qty));
    // A cut of lines that the count contains does not make up for lines that it does not contain.
    reserved.set(orderId, Math.max(0, Math.min(live, Math.max(0, openIn(others)) + openIn(leftOut))));
  }
  return reserved;
}

/** Returns how many pieces of a step the count does not contain. */
function openOf(step: Step, count: Counted): number {
  const isAfter = step.seq > count.countedSeq;
  if (
    !isAfter &&
    (isBookedIn(step, count) || (step.heldUntilMs ?? Number.POSITIVE_INFINITY) <= count.countedMs)
  ) {
    return 0;
  }
  // The count may contain an earlier cut already, so that gives nothing back.
  return step.qty > 0 || isAfter ? step.qty : 0;
}

/** Whether the POS has booked the step and no count is newer that it may mean; a count made before that lacks it. */
function isBookedIn(
  { bookedVersion, bookedMs }: Step,
  { countedVersion, countedMs, handedMs }: Counted,
): boolean {
  const isBetween = bookedMs > countedMs && bookedMs < handedMs;
  return bookedVersion !== null && bookedVersion <= countedVersion && !isBetween;
}

/**
 * Returns the quantity to send for a count. Where nothing is held back, that is all that was counted, less the safety
 * stock and pieces of orders that have not arrived yet.
 */
export function qtyToSend({
  holds,
  countedQty,
  unheardQty,
  safetyQty,
  wantedQty,
}: Pick<StockFacts, 'holds' | 'safetyQty'> &
  Pick<StockVerdict, 'unheardQty' | 'wantedQty'> & { countedQty: number }): number {
  return holds ? wantedQty : lessSafety(countedQty - unheardQty, safetyQty);
}

/** Returns the quantity less the safety stock, at least 0. */
export function lessSafety(qty: number, safetyQty: number): number {
  return Math.max(0, rounded(qty - safetyQty));
}

/** Rounds decimal fractions (weights), as the view `_stock_ledger` does. */
function rounded(qty: number): number {
  return Number(qty.toFixed(9));
}

function sum(quantities: Iterable<number>): number {
  return rounded([...quantities].reduce((all, qty) => all + qty, 0));
}
