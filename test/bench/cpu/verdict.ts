import type { CpuFigure } from './measure.ts';

/** Stored ratios by the measures' names. */
export type Kept = Record<string, number>;

/** A ratio that differs from the stored one by less than this factor is taken as equal, because machines are noisy. */
const ROOM = 1.15;

export type Comparison = 'as kept' | 'slower' | 'faster' | 'not kept yet';

export function comparisonOf(ratio: number, kept: number | undefined): Comparison {
  if (kept === undefined) return 'not kept yet';
  if (ratio > kept * ROOM) return 'slower';
  return ratio * ROOM < kept ? 'faster' : 'as kept';
}

/** Returns the verdict in a sentence for a person. */
export function sentenceOf(
  name: string,
  { ratio }: Pick<CpuFigure, 'ratio'>,
  kept: number | undefined,
): string {
  const seen = ratio.toFixed(2);
  const before = kept?.toFixed(2);
  switch (comparisonOf(ratio, kept)) {
    case 'slower':
      return `${name}: ${seen} times its bare loop, and ${before} is kept: ${percent(ratio, kept)} % more processor time. Find what it does more, or write it down with npm run test:speed -- --keep "${name}".`;
    case 'faster':
      return `${name}: ${seen} times its bare loop, and ${before} is kept: better. To keep it, run npm run test:speed -- --keep "${name}".`;
    case 'not kept yet':
      return `${name}: ${seen} times its bare loop. To keep it, run npm run test:speed -- --keep "${name}".`;
    default:
      return `${name}: ${seen} times its bare loop, ${before} is kept.`;
  }
}

function percent(ratio: number, kept = ratio): number {
  return Math.round((ratio / kept - 1) * 100);
}
