import type { LedgerStock } from './stock-ledger.ts';

/** What happens where the platform has another stock than the POS counted: `stock.on_difference`. */
export type OnDifference = 'tell' | 'send';

/** An order that was placed before the platform was looked at has been heard of by a poll that ended so long after it. */
export const HEARD_WITHIN_MS = 60_000;

type Compared = Pick<
  LedgerStock,
  'callId' | 'countedQty' | 'safetyQty' | 'wantedQty' | 'expectedQty' | 'confirmedMs' | 'holds'
>;

/**
 * Whether the platform has another number than the last count wants. Undefined: nobody can tell now, since a call is
 * under way, the platform's number is not known, or an order may have taken it that no poll has brought yet. Where the
 * branch does not hold back, orders that came after the count may be part of the platform's number or not:
 * counted 10, ordered 2 since → 8, 9 and 10 agree.
 */
export function isDifferent(stock: Compared, lastPollOkMs: number | null): boolean | undefined {
  const { callId, countedQty, safetyQty, wantedQty, expectedQty, confirmedMs, holds } = stock;
  if (callId !== null || expectedQty === null) return undefined;
  if (expectedQty === wantedQty) return false;
  if (!holds && expectedQty > wantedQty && expectedQty <= countedQty - safetyQty) return false;
  if (lastPollOkMs === null || lastPollOkMs < confirmedMs + HEARD_WITHIN_MS) return undefined;
  return true;
}
