import type { Tier } from './tiers.ts';

/** A turn that has ended. */
export interface Done {
  tier: string;
  seconds: number;
}

/**
 * The tier whose turn it is: of those that fit into what is left, the one with the fewest turns. A tier is expected
 * to take as long as its last turn did. Where none fits from the start, the shortest is taken.
 */
export function nextTier(
  tiers: readonly Tier[],
  done: readonly Done[],
  leftSeconds: number,
  slowness: number,
): Tier | undefined {
  const open = tiers
    .map((tier) => ({ tier, turns: done.filter((each) => each.tier === tier.name) }))
    .filter(({ tier, turns }) => !(tier.once && turns.length > 0));
  const fitting = open
    .filter(({ tier, turns }) => (turns.at(-1)?.seconds ?? tier.seconds * slowness) <= leftSeconds)
    .sort((a, b) => a.turns.length - b.turns.length);
  if (fitting.length > 0 || done.length > 0) return fitting[0]?.tier;
  return tiers.toSorted((a, b) => a.seconds - b.seconds)[0];
}

/** Reads `--minutes N`; throws with what is allowed. */
export function readMinutes(words: readonly string[]): number {
  const [option, value, ...more] = words;
  if (option === undefined) return 10;
  const minutes = Number(value);
  if (option === '--minutes' && more.length === 0 && value !== '' && minutes > 0 && minutes <= 100_000)
    return minutes;
  throw new RangeError(`npm run prove: found ${words.join(' ')}; allowed: -- --minutes N, such as 60.`);
}
