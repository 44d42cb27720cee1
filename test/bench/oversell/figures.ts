import { seededRandom } from '../../support/fake-clock.ts';
import type { DayOutcome } from './shop-floor.ts';

export const sumOf = (days: readonly DayOutcome[], field: keyof DayOutcome): number =>
  days.reduce((sum, day) => sum + day[field], 0);

const RESAMPLES = 1_000;

/**
 * Returns how many more pieces that were not free were sold per day than with `best`: the mean, and the range of the
 * middle 95 % of resampled means.
 */
export function pairedDifference(
  days: readonly DayOutcome[],
  best: readonly DayOutcome[],
): { mean: number; from: number; to: number } {
  const differences = days.map(({ atsale }, day) => atsale - (best[day]?.atsale ?? 0));
  const count = differences.length;
  const random = seededRandom(7);
  const meanOf = (draw: (i: number) => number) => {
    let sum = 0;
    for (let i = 0; i < count; i++) sum += differences[draw(i)] ?? 0;
    return sum / Math.max(1, count);
  };
  const means = Array.from({ length: RESAMPLES }, () => meanOf(() => Math.floor(random.next() * count)));
  means.sort((a, b) => a - b);
  const at = (share: number) => means[Math.floor(share * (RESAMPLES - 1))] ?? 0;
  return { mean: meanOf((i) => i), from: at(0.025), to: at(0.975) };
}
