import { readFileSync } from 'node:fs';

export const CHAIN = readFileSync('docs/chain.md', 'utf8');

/** Returns the code block of docs/chain.md that begins with `first`. */
export function recipe(first: string): string {
  const from = CHAIN.indexOf(first);
  if (from < 0) throw new Error(`docs/chain.md has no recipe that begins with: ${first}`);
  const lines = CHAIN.slice(from, CHAIN.indexOf('```', from)).split('\n');
  return lines.map((line) => line.replace(/^ {3}/, '')).join('\n');
}

/** Returns the commands of the block that begins with `first`, without the comments behind them. */
export function commandsOf(first: string): string[] {
  return recipe(first)
    .trimEnd()
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .map((line) => line.replace(/\s+#.*/, ''));
}
