import type { Dice } from './dice.ts';

/** A tree of JSON text. Unlike in a JavaScript value, a key may occur twice and a number may have any digits. */
export type JsonNode =
  | { text: string }
  | { items: JsonNode[] }
  | { entries: [key: string, value: JsonNode][] };

export function nodeOf(value: unknown): JsonNode {
  if (Array.isArray(value)) return { items: value.map(nodeOf) };
  if (typeof value === 'object' && value !== null) {
    return { entries: Object.entries(value).map(([key, inner]) => [key, nodeOf(inner)]) };
  }
  return { text: JSON.stringify(value) };
}

export function write(node: JsonNode): string {
  if ('text' in node) return node.text;
  if ('items' in node) return `[${node.items.map(write).join(',')}]`;
  return `{${node.entries.map(([key, value]) => `${JSON.stringify(key)}:${write(value)}`).join(',')}}`;
}

const DEEP = 50_000;
/** Values of every kind for a field; they contain no other field's name. */
const HOSTILE_VALUES: readonly string[] = [
  'null',
  'true',
  '0',
  '-0',
  '1e999',
  '-1e999',
  '1e-400',
  '9007199254740993',
  '12345678901234567890123',
  '0.1000000000000000055511151231257827',
  '1e21',
  '""',
  '" "',
  '"\\u0000"',
  '"\\ud800"',
  '"a\\udc00b"',
  '"\u2028\u202e"',
  '"NaN"',
  '"1,5"',
  '"2026-02-30T25:61:00Z"',
  `"${'x'.repeat(600)}"`,
  `"${'☕'.repeat(20_000)}"`,
  '[]',
  '{}',
  '[[],{},null]',
  '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}',
  '"\'; DROP TABLE _orders; --"',
  `${'['.repeat(DEEP)}${']'.repeat(DEEP)}`,
  `${'{"a":'.repeat(DEEP)}1${'}'.repeat(DEEP)}`,
];
/** Names that no field has. */
const HOSTILE_KEYS: readonly string[] = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '',
  ' ',
  '\0',
  '\u202e',
  'a.b',
  'k'.repeat(5_000),
];

/** Makes one to three changes anywhere in a copy of the tree. */
export function mutateJson(root: JsonNode, dice: Dice): JsonNode {
  const mutant = structuredClone(root);
  for (let changes = 1 + dice.below(3); changes > 0; changes--) change(mutant, dice);
  return mutant;
}

export function hostileValue(dice: Dice): JsonNode {
  return { text: dice.pick(HOSTILE_VALUES) };
}

function change(root: JsonNode, dice: Dice): void {
  const inner = dice.pick(containers(root));
  if ('items' in inner) {
    const at = dice.below(inner.items.length + 1);
    if (dice.chance(0.3)) inner.items.splice(at, 1);
    else if (dice.chance(0.5)) inner.items.splice(at, 0, hostileValue(dice));
    else if (at < inner.items.length) inner.items[at] = hostileValue(dice);
    return;
  }
  const at = dice.below(inner.entries.length);
  const entry = inner.entries[at];
  switch (dice.below(5)) {
    case 0:
      inner.entries.splice(at, 1);
      return;
    case 1:
      if (entry) inner.entries[at] = [dice.pick(HOSTILE_KEYS), entry[1]];
      return;
    case 2:
      inner.entries.push([dice.pick(HOSTILE_KEYS), hostileValue(dice)]);
      return;
    case 3:
      // Writes the name twice; a reader uses the last value.
      if (entry)
        inner.entries.splice(dice.below(inner.entries.length + 1), 0, [entry[0], hostileValue(dice)]);
      return;
    default:
      if (entry) entry[1] = hostileValue(dice);
  }
}

type Container = Exclude<JsonNode, { text: string }>;

function containers(node: JsonNode, found: Container[] = []): Container[] {
  if ('text' in node) return found;
  found.push(node);
  const inner = 'items' in node ? node.items : node.entries.map(([, value]) => value);
  for (const each of inner) containers(each, found);
  return found;
}
