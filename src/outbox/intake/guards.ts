import { formatCommands } from '../../core/errors.ts';

/**
 * Name of the guard that holds a change for a person; also the value of `outbox.held_guard`. `restored` holds changes
 * that were not sent yet in a restored backup.
 */
export type Guard = 'zero-items' | 'price-factor' | 'missing-share' | 'restored';

/** Settings of `[guard]` in the configuration. 0 switches a guard off. */
export interface GuardSettings {
  /** `guard.zero_items_max`: number of stocks that may go to zero within the window before more are held. */
  zeroItemsMax: number;
  /** Length of the window in which zeros are counted. */
  zeroItemsWindowMs: number;
  /** `guard.zero_share_max`: share (0 to 1) of a branch's stocks above zero that may go to zero within the window. */
  zeroShareMax: number;
  /** `guard.price_factor_max`: factor by which a price may rise or fall at once. */
  priceFactorMax: number;
  /** `guard.missing_share_max`: share (0 to 1) of the known stocks that a full inventory may lack. */
  missingShareMax: number;
}

export const GUARDS_OFF: GuardSettings = {
  zeroItemsMax: 0,
  zeroShareMax: 0,
  zeroItemsWindowMs: 600_000,
  priceFactorMax: 0,
  missingShareMax: 0,
};

/** Whether a count makes its stock zero on the platform, which gets 0 for a count below zero too. */
export function goesToZero(qty: number | undefined): boolean {
  return qty !== undefined && qty <= 0;
}

/** Reason why a guard holds a change. */
export interface GuardReason {
  guard: Guard;
  /** Reason in words, for the person who decides. */
  message: string;
}

/** Below this number of zeros the share is not checked, because the last stocks of a day go to zero one by one. */
const ZERO_SHARE_FROM = 10;

const RELEASE_ZEROS =
  'Let them go with: {tillsync} outbox release --guard zero-items; discard them with: {tillsync} outbox discard --guard zero-items';

function heldZeros(why: string): string {
  return formatCommands(`${why} ${RELEASE_ZEROS}`);
}

/**
 * Returns a reason to hold the stocks of a submission that go to zero, if they and the earlier zeros of the window
 * exceed the limit. A stock that was zero before does not count.
 */
export function guardZeroItems(
  counts: { inHandOver: number; withinWindow: number },
  settings: GuardSettings,
): GuardReason | undefined {
  const { zeroItemsMax } = settings;
  const total = counts.inHandOver + counts.withinWindow;
  if (zeroItemsMax === 0 || total <= zeroItemsMax) return undefined;
  return {
    guard: 'zero-items',
    message: heldZeros(
      `${total} stocks would go to zero at once; ${zeroItemsMax} are allowed (guard.zero_items_max).`,
    ),
  };
}

/**
 * Returns how many stocks above zero a branch needs so that `zeros` are allowed; undefined if there is no such limit.
 */
export function aboveZeroNeeded(zeros: number, { zeroShareMax }: GuardSettings): number | undefined {
  if (zeroShareMax === 0 || zeros < ZERO_SHARE_FROM) return undefined;
  return Math.ceil(Number((zeros / zeroShareMax).toFixed(9)));
}

/**
 * Returns a reason to hold a branch's stocks that go to zero, if they are too large a share of its stocks above zero.
 */
export function guardZeroShare(
  { branch, zeros, aboveZero }: { branch: string; zeros: number; aboveZero: number },
  settings: GuardSettings,
): GuardReason | undefined {
  const needed = aboveZeroNeeded(zeros, settings);
  if (needed === undefined || aboveZero >= needed) return undefined;
  const percent = Number((100 * settings.zeroShareMax).toFixed(2));
  return {
    guard: 'zero-items',
    message: heldZeros(
      `${zeros} of ${aboveZero} stocks above zero in branch ${branch} would go to zero at once; ${percent} % are allowed (guard.zero_share_max).`,
    ),
  };
}

/** Returns a reason to hold a price, if it differs from the mirror's price by more than the allowed factor. */
export function guardPrice(
  known: number | string | null | undefined,
  price: number,
  settings: GuardSettings,
): GuardReason | undefined {
  const { priceFactorMax } = settings;
  const before = known === null || known === undefined || known === '' ? Number.NaN : Number(known);
  if (priceFactorMax === 0 || !Number.isFinite(before) || before <= 0 || sameNumber(known ?? null, price)) {
    return undefined;
  }
  const factor = price > before ? price / before : before / price;
  if (factor <= priceFactorMax) return undefined;
  return {
    guard: 'price-factor',
    message: `The price would go from ${before} to ${price}; a factor of ${priceFactorMax} is allowed (guard.price_factor_max).`,
  };
}

/** Whether a number of the platform, perhaps as text, equals `wanted`. */
export function sameNumber(sent: number | string | null, wanted: number | undefined): boolean {
  if (sent === null || wanted === undefined || sent === '') return false;
  return Number(sent) === wanted;
}

/** Returns a reason to hold a full inventory, if it lacks too large a share of the known stocks. */
export function guardMissing(
  counts: { known: number; missing: number },
  settings: GuardSettings,
): GuardReason | undefined {
  const { missingShareMax } = settings;
  if (missingShareMax === 0 || counts.known === 0 || counts.missing / counts.known <= missingShareMax) {
    return undefined;
  }
  const percent = Math.round((100 * counts.missing) / counts.known);
  return {
    guard: 'missing-share',
    message: `The inventory lacks ${counts.missing} of ${counts.known} known stocks (${percent} %); ${100 * missingShareMax} % are allowed (guard.missing_share_max).`,
  };
}

/** The mirror's values of one stock. */
export interface KnownStock {
  qty: number | string | null;
  show: boolean | null;
  /** True if the platform may have another value now. */
  unsure?: boolean;
}

/** One line of a full inventory, with the key of its stock. */
interface CountedStock {
  /** Target key of the stock. */
  key: string;
  qty: number;
  show?: boolean;
}

interface InventoryDiff<T> {
  /** Lines that differ from the mirror or have an unknown or unsure stock, in the given order. */
  changes: T[];
  /** Number of lines that equal the mirror's value, where the platform may have another one. */
  unsure: number;
  /** Number of lines that equal the mirror. */
  unchanged: number;
  /** Target keys of stocks that the inventory does not contain. */
  missing: string[];
}

/**
 * Compares a whole inventory with the mirror. If a stock has several lines, the last one counts: [A=5, A=3] → A=3.
 * Missing stocks are only listed.
 */
export function diffInventory<T extends CountedStock>(
  lines: Iterable<T>,
  known: ReadonlyMap<string, KnownStock>,
): InventoryDiff<T> {
  const last = new Map<string, T>();
  for (const line of lines) last.set(line.key, line);
  const changes: T[] = [];
  let unsure = 0;
  for (const line of last.values()) {
    const stock = known.get(line.key);
    const isSame = saysTheSame(stock, line);
    if (isSame && stock?.unsure !== true) continue;
    if (isSame) unsure += 1;
    changes.push(line);
  }
  const missing: string[] = [];
  for (const key of known.keys()) if (!last.has(key)) missing.push(key);
  return { changes, unsure, unchanged: last.size - changes.length, missing };
}

/** Whether the stock already has the quantity, and the visibility if the change sets one. */
export function saysTheSame(
  known: KnownStock | undefined,
  change: { qty: number; show?: boolean | undefined },
): boolean {
  if (!known || !sameNumber(known.qty, change.qty)) return false;
  return change.show === undefined || known.show === change.show;
}
