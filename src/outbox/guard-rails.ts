import { asTyped } from '../core/errors.ts';

/**
 * Which guard rail holds a change back for a person; also the value of `outbox.held_guard`. `restored`: it had not
 * been sent when a backup was made that was restored since.
 */
export type Guard = 'zero-items' | 'price-factor' | 'missing-share' | 'restored';

/** From the config's `[guard]`; 0 switches a rail off. */
export interface GuardSettings {
  /** `guard.zero_items_max`: how many stocks may go to zero within the window before the rest is held. */
  zeroItemsMax: number;
  /** `guard.zero_items_window`: the length of that window. */
  zeroItemsWindowMs: number;
  /** `guard.zero_share_max`: share (0 to 1) of the stocks above zero of a branch that may go to zero within the window. */
  zeroShareMax: number;
  /** `guard.price_factor_max`: how many times higher or lower a price may become at once. */
  priceFactorMax: number;
  /** `guard.missing_share_max`: share (0 to 1) of the known stock that a full inventory may lack. */
  missingShareMax: number;
}

export const GUARDS_OFF: GuardSettings = {
  zeroItemsMax: 0,
  zeroShareMax: 0,
  zeroItemsWindowMs: 600_000,
  priceFactorMax: 0,
  missingShareMax: 0,
};

/** Why a guard rail holds a change. */
export interface GuardReason {
  guard: Guard;
  /** For the person who decides. */
  message: string;
}

/** So few stocks at zero are no share of anything: the last ones of the day go like that. */
export const ZERO_SHARE_FROM = 10;

const RELEASE_ZEROS =
  'Let them go with: {tillsync} outbox release --guard zero-items; give them up with: {tillsync} outbox drop --guard zero-items';

function heldZeros(why: string): string {
  return asTyped(`${why} ${RELEASE_ZEROS}`);
}

/**
 * Holds stocks that go to zero when there are too many: all of a hand-over that brings too many at once, or
 * those that come on top of what went to zero within the window. A stock that was zero already is not counted.
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

/** How many stocks above zero a branch must have for so many zeros to be allowed; undefined: any number is enough. */
export function aboveZeroNeeded(zeros: number, { zeroShareMax }: GuardSettings): number | undefined {
  if (zeroShareMax === 0 || zeros < ZERO_SHARE_FROM) return undefined;
  return Math.ceil(Number((zeros / zeroShareMax).toFixed(9)));
}

/** Holds stocks of a branch that go to zero when they are too large a share of those above zero. */
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

/** Holds a price that is too many times higher or lower than the one the mirror knows. */
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

/** Whether a number as the platform sent it, perhaps as text, is `wanted`. */
export function sameNumber(sent: number | string | null, wanted: number | undefined): boolean {
  if (sent === null || wanted === undefined || sent === '') return false;
  return Number(sent) === wanted;
}

/** Holds a full inventory that does not name too large a share of what the mirror knows. */
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

/** What the mirror knows of one stock entry. */
export interface KnownStock {
  qty: number | string | null;
  show: boolean | null;
  /** The platform may have another value by now. */
  unsure?: boolean;
}

/** One line of a full inventory, with the stock entry it is for. */
export interface CountedStock {
  /** Target key of the stock entry. */
  key: string;
  qty: number;
  show?: boolean;
}

export interface InventoryDiff<T> {
  /** Lines whose value differs from the mirror, or which it does not know or is not sure of; in the order given. */
  changes: T[];
  /** How many of them say what the mirror has. */
  unsure: number;
  /** Lines that say what the mirror has. */
  unchanged: number;
  /** Stock entries that the inventory does not name. */
  missing: string[];
}

/**
 * Compares a whole inventory with the mirror. When a stock entry is named twice, its last line counts.
 * Nothing is concluded from absence: what becomes of `missing` a person says.
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

/** Whether a stock entry has the quantity already, and the visibility where the change names one. */
export function saysTheSame(
  known: KnownStock | undefined,
  change: { qty: number; show?: boolean | undefined },
): boolean {
  if (!known || !sameNumber(known.qty, change.qty)) return false;
  return change.show === undefined || known.show === change.show;
}
