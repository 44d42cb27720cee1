import type { LedgerStock } from './stock-ledger.ts';

/** `stock.on_difference`: the reaction to a stock that differs between the platform and the POS's count. */
export type OnDifference = 'tell' | 'send';

/** A poll that ended this long after the platform was read has brought every order placed before the reading. */
export const HEARD_WITHIN_MS = 60_000;

type Compared = Pick<
  LedgerStock,
  'callId' | 'countedQty' | 'safetyQty' | 'wantedQty' | 'expectedQty' | 'confirmedMs' | 'holds'
>;

/** Pieces that the platform may have added back, for orders that were cut, moved or ended after the count was sent. */
export interface GivenBack {
  /**
   * Whether there is such an order. An order that had already ended when it first came counts here, but adds 0 to
   * `qty`.
   */
  isSome: boolean;
  qty: number;
}

/**
 * Whether the platform's quantity differs from the wanted one. Returns `kept` if the platform's is lower because it
 * did not add back what ended orders took. Returns undefined while a call is running, the platform's quantity is
 * unknown, or a recent order may explain the difference. In a branch that does not hold back, the platform may have
 * subtracted orders after the count: counted 10, ordered 2 → 8, 9 and 10 agree.
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
