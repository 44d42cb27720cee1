import type { Tier } from './tiers.ts';

/** A turn that has ended. */
export interface Done {
  tier: string;
  seconds: number;
}

/**
 * Returns the tier with the fewest turns among those that fit into the time left. A tier is expected to take as long as
 * its last turn, or `seconds` times `slowness` at first. If no tier fits before the first turn, returns the shortest.
 */
export function nextTier(
  tiers: readonly Tier[],
  done: readonly Done[],
  leftSeconds: number,
  slowness: number,
): Tier | undefined {
  const open = tiers
    .map((tier) => ({ tier, turns: done.filter((each) => each.tier === tier.name) }))
    .filter(({ tier, turns }) => turns.length < (tier.most ?? Number.POSITIVE_INFINITY));
  const fitting = open
    .filter(({ tier, turns }) => (turns.at(-1)?.seconds ?? tier.seconds * slowness) <= leftSeconds)
    .sort((a, b) => a.turns.length - b.turns.length);
  if (fitting.length > 0 || done.length > 0) return fitting[0]?.tier;
  return tiers.toSorted((a, b) => a.seconds - b.seconds)[0];
}

/** What the command line asks for. */
export interface Wish {
  minutes: number;
  /** Names of tiers, or parts of them; empty for all. */
  only: readonly string[];
}

const HELP =
  'npm run prove [-- --minutes N] [--only NAME …], such as -- --minutes 60 --only killed --only power';

/** Reads `--minutes N` and each `--only NAME`; throws an error that names the allowed values. */
export function readWish(words: readonly string[], names: readonly string[]): Wish {
  const wish = { minutes: 10, only: [] as string[] };
  for (let at = 0; at < words.length; at += 2) {
    const [option, value = ''] = words.slice(at, at + 2);
    if (option === '--minutes' && value !== '' && Number(value) > 0 && Number(value) <= 100_000)
      wish.minutes = Number(value);
    else if (option === '--only' && value !== '' && names.some((name) => name.includes(value)))
      wish.only.push(value);
    else if (option === '--only')
      throw new RangeError(`--only: found "${value}"; allowed: a part of ${names.join('; ')}.`);
    else throw new RangeError(`npm run prove: found ${words.join(' ')}; allowed: ${HELP}.`);
  }
  return wish;
}
