/** Orders in these states take no stock. */
const TAKES_NOTHING: ReadonlySet<string> = new Set(['cancel', 'refund', 'payment-canceled']);

/** What one mirrored order took of one product in one branch. */
export interface Taking {
  quantity: number;
  status: string | null;
  acknowledged: boolean;
  /** Sequence of the event with which the order first came into the feed. */
  firstSeq: number;
}

/** A quantity that a POS handed over. */
export interface Count {
  qty: number;
  /** Newest sequence of the feed when it was handed over: orders after that cannot be part of it. */
  asOfSeq: number;
}

export interface SellableStock {
  /** What is sent to the platform. */
  qty: number;
  /** How much of the count was held back; `count.qty - qty` unless more was sold than counted. */
  heldBack: number;
}

/**
 * What the platform may still sell, when a POS counted its stock without the online orders it has not booked.
 *
 * The rule for POS vendors: *acknowledging an order says that the last count you handed over, and every later
 * one, has that order taken off already.* So hand over the new counts first, or in the same transaction, then
 * acknowledge. Until then each count is reduced by what unacknowledged orders of the branch took, except
 * orders that are cancelled, refunded or whose payment was cancelled. A count that was handed over before an
 * order came into the feed cannot include it, acknowledged or not.
 *
 * Example: ten pieces are on the shelf. An online order for two arrives; the platform has eight left. The
 * POS, which has not booked it, hands over 10: tillsync sends 8. The cashier books the order, the POS hands
 * over 8 and acknowledges: tillsync sends 8. Had it acknowledged a count of 10 (two pieces came back from
 * repair, say), tillsync would correct the platform to 10. Were the order cancelled instead, it would
 * send 10 as well.
 */
export function sellableStock(count: Count, takings: Iterable<Taking>): SellableStock {
  let heldBack = 0;
  for (const taking of takings) if (isHeldBack(taking, count)) heldBack += taking.quantity;
  return { qty: Math.max(0, exact(count.qty - heldBack)), heldBack: exact(heldBack) };
}

/** Whether an order of this status takes nothing of any stock: it was cancelled or paid back. */
export function takesNothing(status: string | null): boolean {
  return status !== null && TAKES_NOTHING.has(status);
}

/** Whether what an order took is not yet part of a count. */
export function isHeldBack(taking: Taking, count: Count): boolean {
  if (takesNothing(taking.status)) return false;
  return !taking.acknowledged || taking.firstSeq > count.asOfSeq;
}

/** Sums of decimal fractions (weights) without the noise of binary ones: 0.3 - 0.1 is 0.2. */
function exact(quantity: number): number {
  return Number(quantity.toFixed(9));
}
