import { findCodeGaps } from '../domain/order/code-gaps.ts';

const RUN_MAX = 200;
const GAPS_MAX = 50;
const REMEMBERED_MAX = 20_000;

export interface GapWatchOptions {
  /** Every order code that the mirror has between the two, both included. */
  codesBetween: (min: number, max: number) => Iterable<number>;
}

/**
 * Names each order code that is missing between codes the mirror has, once: a reason to look again. A code that
 * stays missing after that was given to something the platform does not show.
 */
export class GapWatch {
  readonly #options: GapWatchOptions;
  readonly #lookedFor = new Set<number>();

  constructor(options: GapWatchOptions) {
    this.#options = options;
  }

  /** Codes newly found missing in the range of a complete poll; null: its records carry no codes. */
  newGaps(codes: { min: number; max: number } | null): number[] {
    if (!codes) return [];
    const gaps = findCodeGaps({
      known: this.#options.codesBetween(codes.min, codes.max),
      lookedFor: this.#lookedFor,
      runMax: RUN_MAX,
      gapsMax: GAPS_MAX,
    });
    const missing = gaps.flatMap(({ from, to }) => Array.from({ length: to - from + 1 }, (_, i) => from + i));
    for (const code of missing) this.#lookedFor.add(code);
    for (const code of this.#lookedFor) {
      if (this.#lookedFor.size <= REMEMBERED_MAX) break;
      this.#lookedFor.delete(code);
    }
    return missing;
  }
}
