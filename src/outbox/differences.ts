import type { LedgerStock } from './stock-ledger.ts';

/** What to do if the platform's stock differs from the POS's count: `stock.on_difference`. */
export type OnDifference = 'tell' | 'send';

/** A poll that ended this long after the platform was read has brought every order placed before that. */
export const HEARD_WITHIN_MS = 60_000;

type Compared = Pick<
  LedgerStock,
  'callId' | 'countedQty' | 'safetyQty' | 'wantedQty' | 'expectedQty' | 'confirmedMs' | 'holds'
>;

/** What the platform may have added back for orders that were cut, moved or ended after the count was sent. */
export interface GivenBack {
  /** Whether there is such an order. For an order already over when it first came, the quantity is unknown. */
  isSome: boolean;
  qty: number;
}

/**
 * Whether the platform's number differs from the wanted one. `kept`: it is lower, because the platform kept what
 * ended orders took. Returns undefined if unknown: a call is running, the platform's number is unknown, or a recent
 * order may explain it. Where the branch does not hold back, orders after the count may be in the number or not:
 * counted 10, ordered 2 since → 8, 9 and 10 agree.
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
