import { isRecord } from './sent-value.ts';
import type { SpellingNode, SpellingTree } from './spelling-tree.ts';

/**
 * Finds every field of a tree in one walk over the names that the object itself has. Gives their values in the
 * order of `tree.fields`, undefined for what was not sent.
 */
export function readValues(value: Record<string, unknown>, tree: SpellingTree): unknown[] {
  const values = tree.empty.slice();
  walk(value, tree.names, values, { ranks: undefined });
  return values;
}

/** Values that were sent by the names of their fields, from the slot `from` on. */
export function nameValues(values: unknown[], tree: SpellingTree, from: number): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (let slot = from; slot < values.length; slot++) {
    if (values[slot] !== undefined) found[tree.fields[slot] as string] = values[slot];
  }
  return found;
}

/** Ranks of what was found, kept only from the first field that was not found under its best name. */
interface Ranks {
  ranks: number[] | undefined;
}

function walk(
  value: Record<string, unknown>,
  names: ReadonlyMap<string, SpellingNode>,
  values: unknown[],
  kept: Ranks,
): void {
  for (const name of Object.keys(value)) {
    const node = names.get(name);
    if (node === undefined) continue;
    const sent = value[name];
    for (let i = 0; i < node.hits.length; i++) {
      const { slot, rank, read } = node.hits[i] as SpellingNode['hits'][number];
      const before = values[slot];
      if (before !== undefined && !isBetter(before, sent, rank, kept.ranks?.[slot] ?? 0)) continue;
      const now = read(sent);
      if (now === undefined) continue;
      values[slot] = now;
      if (rank > 0 || kept.ranks !== undefined) {
        kept.ranks ??= [];
        kept.ranks[slot] = rank;
      }
    }
    if (node.inside !== undefined && isRecord(sent)) walk(sent, node.inside, values, kept);
  }
}

/** A value beats an empty one; between two of a kind the better name wins. */
function isBetter(before: unknown, sent: unknown, rank: number, rankBefore: number): boolean {
  if ((before === null) !== (sent === null)) return before === null;
  return rank < rankBefore;
}
