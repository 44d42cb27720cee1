import type { LedgerStock } from '../ledger/stock-ledger.ts';
import { HEARD_WITHIN_MS } from '../ledger/stock-rule.ts';

/** `stock.on_difference`: the reaction to a stock that differs between the platform and the POS's count. */
export type OnDifference = 'tell' | 'send';

type Compared = Pick<
  LedgerStock,
  'callId' | 'countedQty' | 'safetyQty' | 'wantedQty' | 'expectedQty' | 'confirmedMs' | 'holds'
>;

/** Pieces that the platform may have added back, because orders were reduced, moved or ended after the count. */
export interface GivenBack {
  /**
   * Whether there is such an order. An order that had already ended when it first arrived counts, but adds 0 to `qty`.
   */
  isSome: boolean;
  qty: number;
}

/**
 * Whether the platform's quantity differs from the wanted one; undefined while this cannot be judged. Returns `kept` if
 * it is lower, perhaps because the platform did not add back the pieces of ended orders. In a branch that does not hold
 * back, the platform may or may not have subtracted orders: counted 10, ordered 2 → 8, 9 and 10 do not differ.
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
