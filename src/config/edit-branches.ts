import { parse } from 'smol-toml';
import type { BranchConfig } from './config-type.ts';
import { headerOf, keyOf, literal, surely, withValue } from './edit-text.ts';

interface Block {
  /** Line of `[[branches]]`. */
  from: number;
  /** The line after the last one that sets a key; comments below belong to what follows. */
  to: number;
  subsidiary_id?: string;
  external_id?: string;
}

const KEYS = ['subsidiary_id', 'external_id'] as const;

/**
 * Makes `[[branches]]` of the text exactly `wanted`, in that set. A branch that stays keeps its lines and comments.
 * Throws `config-invalid` where the text is written in a way that this cannot be done for certain.
 */
export function setBranches(text: string, wanted: readonly BranchConfig[]): string {
  const before = parse(text);
  const tables = wanted.map(tableOf);
  const lines = text.split('\n');
  const blocks = blocksOf(lines, before.branches);
  const kept = new Map<Block, Table>();
  const added = tables.filter((table) => {
    const block = blocks.find((each) => !kept.has(each) && KEYS.some((key) => sharesId(each, table, key)));
    if (block) kept.set(block, table);
    return block === undefined;
  });
  const end = blocks.at(-1)?.to ?? lines.length;
  const fresh = added.flatMap((table) => ['', ...linesOf(table)]);
  if (blocks.length === 0 && (lines[end - 1] ?? '') === '') lines.splice(end - 1, 1, ...fresh, '');
  else lines.splice(end, 0, ...fresh);
  for (const block of blocks.toReversed()) {
    const table = kept.get(block);
    const own = lines.slice(block.from, block.to);
    lines.splice(block.from, block.to - block.from, ...(table === undefined ? [] : edited(own, table)));
  }
  const order = blocks.flatMap((block) => kept.get(block) ?? []).concat(added);
  const { branches: _before, ...rest } = before;
  const result = lines.join('\n').replace(/\n{3,}/g, '\n\n');
  return surely(result, order.length === 0 ? rest : { ...rest, branches: order }, '[[branches]]');
}

type Table = Partial<Record<(typeof KEYS)[number], string>>;

function tableOf({ subsidiaryId, externalId }: BranchConfig): Table {
  return {
    ...(subsidiaryId !== undefined && { subsidiary_id: subsidiaryId }),
    ...(externalId !== undefined && { external_id: externalId }),
  };
}

function sharesId(block: Block, table: Table, key: (typeof KEYS)[number]): boolean {
  return block[key] !== undefined && block[key] === table[key];
}

function linesOf(table: Table): string[] {
  return ['[[branches]]', ...KEYS.flatMap((key) => keyLine(table, key))];
}

function keyLine(table: Table, key: (typeof KEYS)[number]): string[] {
  const value = table[key];
  return value === undefined ? [] : [`${key} = ${literal(value)}`];
}

function edited(lines: readonly string[], table: Table): string[] {
  const there = new Set<string>();
  const result = lines.flatMap((line) => {
    const key = KEYS.find((each) => each === keyOf(line));
    if (key === undefined) return [line];
    there.add(key);
    const value = table[key];
    return value === undefined ? [] : [withValue(line, value)];
  });
  return [...result, ...KEYS.filter((key) => !there.has(key)).flatMap((key) => keyLine(table, key))];
}

function blocksOf(lines: readonly string[], parsed: unknown): Block[] {
  const values: Table[] = Array.isArray(parsed) ? parsed : [];
  const blocks: Block[] = [];
  for (const [from, line] of lines.entries()) {
    const header = headerOf(line);
    if (header?.name !== 'branches' || !header.isList) continue;
    const next = lines.findIndex((other, i) => i > from && headerOf(other) !== undefined);
    const limit = next === -1 ? lines.length : next;
    let to = from + 1;
    for (let i = to; i < limit; i++) if (keyOf(lines[i] ?? '') !== undefined) to = i + 1;
    blocks.push({ from, to, ...values[blocks.length] });
  }
  return blocks;
}
