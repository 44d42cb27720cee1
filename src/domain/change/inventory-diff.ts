import { sameNumber } from './verify-applied.ts';

/** What the mirror knows of one stock entry. */
export interface KnownStock {
  qty: number | string | null;
  show: boolean | null;
}

/** One line of a full inventory, with the stock entry it is for. */
export interface CountedStock {
  /** Target key of the stock entry. */
  key: string;
  qty: number;
  show?: boolean;
}

export interface InventoryDiff<T> {
  /** Lines whose value differs from the mirror, or which it does not know; in the order given. */
  changes: T[];
  /** Lines that say what the mirror has. */
  unchanged: number;
  /** Stock entries that the inventory does not name. */
  missing: string[];
}

/**
 * Compares a whole inventory with the mirror. When a stock entry is named twice, its last line counts.
 * Nothing is concluded from absence: `missing` is for a person and for the guard rail.
 */
export function diffInventory<T extends CountedStock>(
  lines: Iterable<T>,
  known: ReadonlyMap<string, KnownStock>,
): InventoryDiff<T> {
  const last = new Map<string, T>();
  for (const line of lines) last.set(line.key, line);
  const changes: T[] = [];
  for (const line of last.values()) if (!saysTheSame(known.get(line.key), line)) changes.push(line);
  const missing: string[] = [];
  for (const key of known.keys()) if (!last.has(key)) missing.push(key);
  return { changes, unchanged: last.size - changes.length, missing };
}

/** Whether a stock entry has the quantity already, and the visibility where the change names one. */
export function saysTheSame(
  known: KnownStock | undefined,
  change: { qty: number; show?: boolean | undefined },
): boolean {
  if (!known || !sameNumber(known.qty, change.qty)) return false;
  return change.show === undefined || known.show === change.show;
}
