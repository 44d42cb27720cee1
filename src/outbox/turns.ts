/** Of a hundred places of a call, so many are the most that sold-out stocks take while others wait. */
const SOLD_OUT_OF_100 = 80;
/** Changes of one branch that wait at most, but for what is sold out; whoever hands over more comes back later. */
export const WAITING_MAX = 20_000;
const COME_BACK_MS_PER_BRANCH = 5_000;
const COME_BACK_MS_MAX = 300_000;

/** When to come back with more for a line that is full: when it has got some five hundred places, by turns. */
export function comeBackMs(branchesWaiting: number): number {
  return Math.min(COME_BACK_MS_MAX, COME_BACK_MS_PER_BRANCH * Math.max(1, branchesWaiting));
}

/**
 * Gives what waits branch by branch: in each round every branch that has something gets one turn, so one that hands over
 * ten thousand changes delays the others by one place a round. A place of a call costs the same whoever takes it, so
 * whose turn was last is all that is remembered.
 */
export class Turns {
  readonly #start: number;
  #last: string | undefined;

  /** `start`: where the first round begins, another one after each restart, so that nobody is passed over for ever. */
  constructor(start: number) {
    this.#start = start;
  }

  /** `branches`: sorted, each once; `waiting`: what waits of one, in its order. */
  *of<T>(branches: readonly string[], waiting: (branch: string) => Iterator<T>): Generator<T, undefined> {
    let round = this.#inTurn(branches).map((branch) => ({ branch, line: waiting(branch) }));
    while (round.length > 0) {
      const left: typeof round = [];
      for (const each of round) {
        const { done, value } = each.line.next();
        if (done) continue;
        this.#last = each.branch;
        left.push(each);
        yield value;
      }
      round = left;
    }
    return undefined;
  }

  #inTurn(branches: readonly string[]): string[] {
    const last = this.#last;
    const next =
      last === undefined ? this.#start % branches.length : branches.findIndex((branch) => branch > last);
    return next <= 0 ? [...branches] : [...branches.slice(next), ...branches.slice(0, next)];
  }
}

/** One from each by turns, and what is left of the longer one. */
export function* alternate<T>(a: Iterable<T>, b: Iterable<T>): Generator<T, undefined> {
  const lines = [a[Symbol.iterator](), b[Symbol.iterator]()];
  while (lines.length > 0) {
    for (const line of [...lines]) {
      const { done, value } = line.next();
      if (done) lines.splice(lines.indexOf(line), 1);
      else yield value;
    }
  }
  return undefined;
}

/**
 * Fills the places of a call from two lanes: what is sold out first, but for the places that are kept for others, which
 * it takes only where they have nothing more. `lookMax`: so many are looked at; `take`: whether one needs a place.
 */
export function fillCall<T>(
  lanes: { soldOut: Iterator<T>; others: Iterator<T> },
  { places, lookMax }: { places: number; lookMax: number },
  take: (each: T) => boolean,
): { taken: T[]; looked: number } {
  const soldOut: T[] = [];
  const others: T[] = [];
  let looked = 0;
  const fill = (taken: T[], lane: Iterator<T>, placesMax: number, looksMax: number) => {
    while (soldOut.length + others.length < placesMax && looked < looksMax) {
      const { done, value } = lane.next();
      if (done) return;
      looked += 1;
      if (take(value)) taken.push(value);
    }
  };
  fill(soldOut, lanes.soldOut, ofSoldOut(places), ofSoldOut(lookMax));
  fill(others, lanes.others, places, lookMax);
  fill(soldOut, lanes.soldOut, places, lookMax);
  return { taken: [...soldOut, ...others], looked };
}

function ofSoldOut(count: number): number {
  return Math.ceil((count * SOLD_OUT_OF_100) / 100);
}
