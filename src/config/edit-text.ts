import { isDeepStrictEqual } from 'node:util';
import { parse, stringify } from 'smol-toml';
import { TillsyncError } from '../domain/errors.ts';

/** A value that `init` sets: one line of TOML. */
export type ScalarValue = string | boolean;

const HEADER = /^\s*\[(\[?)\s*([^\]]*?)\s*\]\]?\s*(#.*)?$/;

/** A header line: `[section]` or `[[list]]`. */
export function headerOf(line: string): { name: string; isList: boolean } | undefined {
  const match = HEADER.exec(line);
  return match ? { name: match[2] ?? '', isList: match[1] === '[' } : undefined;
}

/** The line number of `[section]` and of the first line that belongs to the next one; undefined: there is none. */
function sectionLines(lines: readonly string[], section: string): { from: number; to: number } | undefined {
  const from = lines.findIndex((line) => {
    const header = headerOf(line);
    return header !== undefined && !header.isList && header.name === section;
  });
  if (from === -1) return undefined;
  const next = lines.findIndex((line, i) => i > from && headerOf(line) !== undefined);
  return { from, to: next === -1 ? lines.length : next };
}

/**
 * Sets one key of a section in the text of a TOML file and leaves every other character alone, comments and order
 * above all. Throws `config-invalid` where the text is written in a way that this cannot be done for certain.
 */
export function setKey(text: string, section: string, key: string, value: ScalarValue): string {
  const before = parse(text);
  const table = before[section];
  if (isTable(table) && table[key] === value) return text;
  const lines = text.split('\n');
  const place = sectionLines(lines, section);
  if (place === undefined) {
    const gap = text === '' || text.endsWith('\n\n') ? '' : text.endsWith('\n') ? '\n' : '\n\n';
    return checked(`${text}${gap}[${section}]\n${key} = ${literal(value)}\n`, before, {
      section,
      key,
      value,
    });
  }
  const at = lines.findIndex((line, i) => i > place.from && i < place.to && keyOf(line) === key);
  if (at === -1) {
    lines.splice(place.from + 1, 0, `${key} = ${literal(value)}`);
  } else {
    lines[at] = withValue(lines[at] ?? '', value);
  }
  return checked(lines.join('\n'), before, { section, key, value });
}

/** The key that a line sets, if it is a plain one. */
export function keyOf(line: string): string | undefined {
  const match = /^\s*(?:"([\w-]+)"|'([\w-]+)'|([\w-]+))\s*=/.exec(line);
  return match?.[1] ?? match?.[2] ?? match?.[3];
}

/** The line with another value; a comment behind it stays. */
export function withValue(line: string, value: ScalarValue): string {
  const match = /^(\s*[^=]+=\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^#"']*?)(\s*(?:#.*)?)$/.exec(line);
  return match ? `${match[1]}${literal(value)}${match[3]}` : line;
}

/** The value as TOML writes it. */
export function literal(value: ScalarValue): string {
  return stringify({ value })
    .trim()
    .replace(/^value = /, '');
}

function checked(
  text: string,
  before: Record<string, unknown>,
  { section, key, value }: { section: string; key: string; value: ScalarValue },
): string {
  const table = before[section];
  const wanted = { ...before, [section]: { ...(isTable(table) ? table : {}), [key]: value } };
  return surely(text, wanted, `${section}.${key}`);
}

/** The text, if it says exactly what is wanted. Throws `config-invalid` that names what a person has to change. */
export function surely(text: string, wanted: unknown, what: string): string {
  let found: unknown;
  try {
    found = parse(text);
  } catch {
    found = undefined;
  }
  if (isDeepStrictEqual(plain(found), plain(wanted))) return text;
  throw new TillsyncError('config-invalid', `${what} cannot be set in the file without rewriting it.`, {
    hint: `Change ${what} by hand: it is written in a way that tillsync init does not touch.`,
  });
}

/** Tables as plain objects, however the parser made them. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (!isTable(value) || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]));
}

function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
