import type { LedgerStock } from './stock-ledger.ts';

/** What happens where the platform has another stock than the POS counted: `stock.on_difference`. */
export type OnDifference = 'tell' | 'send';

/** An order that was placed before the platform was looked at has been heard of by a poll that ended so long after it. */
export const HEARD_WITHIN_MS = 60_000;

type Compared = Pick<
  LedgerStock,
  'callId' | 'countedQty' | 'safetyQty' | 'wantedQty' | 'expectedQty' | 'confirmedMs' | 'holds'
>;

/** What orders that were cut, moved or ended since the count was sent may have given back to the platform, or not. */
export interface GivenBack {
  /** Whether there is such an order: of one that was over when it was first heard of, nobody knows how much. */
  isSome: boolean;
  qty: number;
}

/**
 * Whether the platform has another number than the last count wants; `kept`: it has less, which orders explain that are
 * over and that it kept. Undefined: nobody can tell now, since a call is under way, the platform's number is not known, or
 * an order may have taken it that no poll has brought yet. Where the branch does not hold back, what orders took and gave
 * back after the count may be part of the platform's number or not: counted 10, ordered 2 since → 8, 9 and 10 agree.
 */
export function isDifferent(
  stock: Compared,
  lastPollOkMs: number | null,
  givenBack: () => GivenBack,
): boolean | 'kept' | undefined {
  const { callId, countedQty, safetyQty, wantedQty, expectedQty, confirmedMs, holds } = stock;
  if (callId !== null || expectedQty === null) return undefined;
  if (expectedQty === wantedQty) return false;
  const back = holds ? { isSome: false, qty: 0 } : givenBack();
  if (!holds && expectedQty > wantedQty && expectedQty <= countedQty - safetyQty + back.qty) return false;
  if (lastPollOkMs === null || lastPollOkMs < confirmedMs + HEARD_WITHIN_MS) return undefined;
  return back.isSome && expectedQty < wantedQty ? 'kept' : true;
}
