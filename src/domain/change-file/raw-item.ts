import type { ChangeFault } from '../change/change.ts';

/** Where an item stands in its file. */
export interface ItemPlace {
  /** Counts the items from 0; the header is none. */
  index: number;
  /** Counts the lines from 1, where the item begins; null in a JSON array. */
  line: number | null;
  /** What the file does not name; `index` then counts on after its last item. */
  unnamed?: string;
}

/** One item as its format gives it, before it is checked as a change. */
export type RawItem = ItemPlace & ({ value: unknown } | { fault: ChangeFault });

/** Takes a file piece by piece and gives the items that are complete. */
export interface ItemParser {
  push(text: string): RawItem[];
  /** Nothing follows any more. */
  end(): RawItem[];
}

export function badText(message: string): { fault: ChangeFault } {
  return { fault: { code: 'bad-text', column: null, message } };
}

export function cut(message: string): { fault: ChangeFault } {
  return { fault: { code: 'cut', column: null, message } };
}
