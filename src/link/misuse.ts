import type { Clock } from '../core/time.ts';

/** Signs that another machine uses a branch's key. A healthy branch shows none of them. */
export type Misuse = 'questions' | 'length' | 'lives' | 'numbers' | 'twice';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;

/** Limits of each sign: it is reported if it occurs `count` times within `withinMs`. */
const TOLD_FROM: Record<Misuse, { count: number; withinMs: number; says: string }> = {
  questions: { count: 100, withinMs: MINUTE_MS, says: 'asks far more than a branch has reason for' },
  length: { count: 1, withinMs: HOUR_MS, says: 'sends messages that are longer than any of a branch' },
  numbers: { count: 1, withinMs: HOUR_MS, says: 'names numbers that it cannot have given' },
  twice: {
    count: 1,
    withinMs: HOUR_MS,
    says: 'was two machines with one key, and the one that started last has gone: the other is heard again',
  },
  lives: {
    count: 3,
    withinMs: HOUR_MS,
    says: 'says again and again that it heard more than the hub ever said',
  },
};
/** Limit for new streams at the server. No single branch can be blamed for them. */
const PLACES = { count: 3, withinMs: HOUR_MS };
/** Time for which misuse is still reported after its last occurrence. */
const TOLD_FOR_MS = HOUR_MS;

interface Count {
  count: number;
  sinceMs: number;
  toldMs: number;
}

/** Counts the signs of a stolen key for each branch. */
export class MisuseMonitor {
  readonly #clock: Clock;
  readonly #counts = new Map<string, Map<Misuse, Count>>();
  readonly #places = noCount();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(branch: string, misuse: Misuse): void {
    const counts = this.#counts.get(branch) ?? new Map<Misuse, Count>();
    this.#counts.set(branch, counts);
    const count = counts.get(misuse) ?? noCount();
    counts.set(misuse, count);
    this.#add(count, TOLD_FROM[misuse]);
  }

  /** Records that the server has a new stream, for example after its files were deleted. */
  notePlace(): void {
    this.#add(this.#places, PLACES);
  }

  /** Returns one sentence for each branch and sign to report. */
  sentences(): string[] {
    const isTold = ({ toldMs }: Count) => this.#clock.monotonicMs() < toldMs + TOLD_FOR_MS;
    const found = [...this.#counts].flatMap(([branch, counts]) =>
      [...counts]
        .filter(([, count]) => isTold(count))
        .map(([misuse]) => `Branch ${branch} ${TOLD_FROM[misuse].says}.`),
    );
    if (isTold(this.#places)) found.push('The nats-server lost its messages again and again within an hour.');
    return found;
  }

  #add(count: Count, from: { count: number; withinMs: number }): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs >= count.sinceMs + from.withinMs) {
      count.count = 0;
      count.sinceMs = nowMs;
    }
    count.count += 1;
    if (count.count >= from.count) count.toldMs = nowMs;
  }
}

function noCount(): Count {
  return { count: 0, sinceMs: Number.NEGATIVE_INFINITY, toldMs: Number.NEGATIVE_INFINITY };
}
