import { sameNumber } from './verify-applied.ts';

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
