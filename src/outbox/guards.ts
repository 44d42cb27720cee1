import { formatCommands } from '../core/errors.ts';

/**
 * The guard that holds a change for a person; also the value of `outbox.held_guard`. `restored` holds changes
 * that were unsent in a restored backup.
 */
export type Guard = 'zero-items' | 'price-factor' | 'missing-share' | 'restored';

/** Settings of the config's `[guard]`; 0 switches a guard off. */
export interface GuardSettings {
  /** `guard.zero_items_max`: number of stocks that may go to zero within the window before more are held. */
  zeroItemsMax: number;
  /** `guard.zero_items_window`: length of the window in which zeros are counted. */
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

/** Why a guard holds a change. */
export interface GuardReason {
  guard: Guard;
  /** Reason for the person who decides. */
  message: string;
}

/** With fewer zeros than this, the share is not checked, because the last stocks of a day go to zero one by one. */
const ZERO_SHARE_FROM = 10;

const RELEASE_ZEROS =
  'Let them go with: {tillsync} outbox release --guard zero-items; give them up with: {tillsync} outbox drop --guard zero-items';

function heldZeros(why: string): string {
  return formatCommands(`${why} ${RELEASE_ZEROS}`);
}

/**
 * Holds stocks that go to zero if there are too many: the whole submission if it has too many, or those that exceed
 * the limit together with earlier zeros in the window. A stock that was zero already does not count.
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
 * Returns the number of stocks above zero that a branch needs for `zeros` to be allowed; undefined if any number is
 * enough.
 */
export function aboveZeroNeeded(zeros: number, { zeroShareMax }: GuardSettings): number | undefined {
  if (zeroShareMax === 0 || zeros < ZERO_SHARE_FROM) return undefined;
  return Math.ceil(Number((zeros / zeroShareMax).toFixed(9)));
}

/** Holds a branch's stocks that go to zero if they are too large a share of those above zero. */
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

/** Holds a price that exceeds the allowed factor against the mirror's price. */
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

/** Whether a number, perhaps sent as text, equals `wanted`. */
export function sameNumber(sent: number | string | null, wanted: number | undefined): boolean {
  if (sent === null || wanted === undefined || sent === '') return false;
  return Number(sent) === wanted;
}

/** Holds a full inventory that lacks too large a share of the known stocks. */
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
  /** True if the platform may have another value by now. */
  unsure?: boolean;
}

/** One line of a full inventory, with its stock. */
interface CountedStock {
  /** Target key of the stock. */
  key: string;
  qty: number;
  show?: boolean;
}

interface InventoryDiff<T> {
  /** Lines that differ from the mirror, or whose stock is unknown or unsure, in the given order. */
  changes: T[];
  /** Number of lines that equal an unsure value of the mirror. */
  unsure: number;
  /** Number of lines equal to the mirror. */
  unchanged: number;
  /** Stocks that the inventory does not contain. */
  missing: string[];
}

/**
 * Compares a whole inventory with the mirror. If a stock appears twice, its last line counts: [A=5, A=3] → A=3.
 * Missing stocks are only listed; a person decides about them.
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

/** Whether a stock has the quantity already, and the visibility if the change has one. */
export function saysTheSame(
  known: KnownStock | undefined,
  change: { qty: number; show?: boolean | undefined },
): boolean {
  if (!known || !sameNumber(known.qty, change.qty)) return false;
  return change.show === undefined || known.show === change.show;
}
