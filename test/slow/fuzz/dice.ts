import { seededRandom } from '../../support/fake-clock.ts';

export { SEED } from '../../support/seed.ts';

const FACTOR = Number(process.env.TILLSYNC_FUZZ_RUNS ?? 1);

/** Returns the number of rounds: `usual` times `TILLSYNC_FUZZ_RUNS`. */
export function rounds(usual: number): number {
  return Math.max(1, Math.round(usual * FACTOR));
}

/** Draws at random, from a seed. */
export class Dice {
  readonly #next: () => number;

  constructor(seed: number) {
    const random = seededRandom(seed);
    this.#next = () => random.next();
  }

  /** Returns a number from 0 up to, but not including, 1. */
  share(): number {
    return this.#next();
  }

  /** Returns a whole number from 0 to `below - 1`. */
  below(below: number): number {
    return Math.floor(this.#next() * below);
  }

  chance(share: number): boolean {
    return this.#next() < share;
  }

  pick<T>(from: readonly T[]): T {
    if (from.length === 0) throw new RangeError('There is nothing to pick from.');
    return from[this.below(from.length)] as T;
  }
}
