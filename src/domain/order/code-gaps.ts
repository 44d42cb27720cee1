export interface CodeGap {
  /** First and last missing code. */
  from: number;
  to: number;
}

export interface CodeGapSearch {
  /** Codes the mirror has in the range, in any order, perhaps repeated. */
  known: Iterable<number>;
  /** Codes looked for before and not found: numbers the platform gave to nothing we can see. */
  lookedFor: ReadonlySet<number>;
  /** Longest run of missing codes still taken for missing orders; longer ones are another numbering. */
  runMax: number;
  gapsMax: number;
}

/**
 * `code` is sequential for the company (document, "Order notification"), so a number missing between two known
 * ones hints at an order that was missed. Newest gaps come first, since their orders matter most. A code looked
 * for before splits or ends a gap, so that a number that was never used is asked for once.
 */
export function findCodeGaps(search: CodeGapSearch): CodeGap[] {
  const known = [...new Set(search.known)].filter(Number.isSafeInteger).sort((a, b) => b - a);
  const gaps: CodeGap[] = [];
  for (let i = 1; i < known.length && gaps.length < search.gapsMax; i++) {
    const above = known[i - 1] as number;
    const below = known[i] as number;
    if (above - below - 1 > search.runMax) continue;
    let to: number | undefined;
    for (let code = above - 1; code >= below && gaps.length < search.gapsMax; code--) {
      if (code > below && !search.lookedFor.has(code)) to ??= code;
      else if (to !== undefined) {
        gaps.push({ from: code + 1, to });
        to = undefined;
      }
    }
  }
  return gaps;
}
