import { readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { parse, stringify } from 'smol-toml';
import { TillsyncError } from '../core/errors.ts';
import { type Replaced, replaceText } from '../core/files.ts';
import { type ConfigResult, readConfig } from './config.ts';
import type { BranchConfig, Config } from './config-type.ts';
import {
  BRANCHES,
  type ConfigFault,
  configError,
  DEFAULT_CONFIG_FILE,
  type Environment,
  readConfigFile,
  SAMPLE_BASE_URL,
  SECTIONS,
  sampleConfig,
  shownValue,
} from './source.ts';

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

/**
 * Puts the text in place of the file as replaceText does. Throws `config-invalid` when the file cannot be written, and
 * what `judge` throws.
 */
export function replaceFile(
  path: string,
  text: string,
  judge: (file: string) => void,
  nowMs: number,
): Replaced {
  try {
    return replaceText({ path, text, judge, nowMs });
  } catch (cause) {
    if (cause instanceof TillsyncError) throw cause;
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('config-invalid', `${path} cannot be written (${why}); it is as it was.`, {
      cause,
      hint: 'Run it as root (sudo), or name another file with --config FILE.',
    });
  }
}

/** Keys that a set-up asks for, so that a fault in them is no reason to refuse the file. */
export const ASKED_KEYS = [
  'platform.base_url',
  'storage.directory',
  'storage.group',
  'webhook.enabled',
  'webhook.listen',
  'webhook.callback_url',
  'orders.timezone',
  'local.listen',
] as const;
export type AskedKey = (typeof ASKED_KEYS)[number];

/** The configuration as it will be, from the file that is there or from the sample; nothing is written. */
export class ConfigDraft {
  readonly file: string;
  /** Nobody has set up this file yet: it is not there, or it is the sample. */
  readonly isNew: boolean;
  /** With the branches as they were found: those to come take their place. */
  #base: string;
  #branches: readonly BranchConfig[];

  private constructor(file: string, text: string, isNew: boolean) {
    this.file = file;
    this.#base = text;
    this.isNew = isNew;
    const read = BRANCHES.schema.safeParse(parse(text)[BRANCHES.key] ?? []);
    this.#branches = read.success && !isNew ? read.data : [];
  }

  /** Throws `config-invalid` for a file with faults that the questions would not mend; it is left alone. */
  static open({ file, env }: { file?: string | undefined; env: Environment }): ConfigDraft {
    const { file: path } = readConfigFile(file, env, '');
    const text = textOf(path);
    if (text === undefined || text.trim() === '') return ConfigDraft.#ofSample(path);
    const raw = readConfigFile(path, {}, text);
    if (raw.faults.length > 0) throw configError(raw.faults);
    const result = readConfig({ file: path, env: {}, text });
    const faults = 'faults' in result ? result.faults.filter(({ key }) => !isAsked(key)) : [];
    if (faults.length > 0) throw configError(faults);
    const draft = new ConfigDraft(path, text, false);
    return draft.value('platform.base_url') === SAMPLE_BASE_URL ? new ConfigDraft(path, text, true) : draft;
  }

  static #ofSample(path: string): ConfigDraft {
    const draft = new ConfigDraft(path, sampleConfig(), true);
    const name = basename(path, '.toml');
    const isInstance = dirname(path) === dirname(DEFAULT_CONFIG_FILE) && path !== DEFAULT_CONFIG_FILE;
    if (isInstance) draft.set('storage.directory', `/var/lib/tillsync@${name}`);
    return draft;
  }

  get text(): string {
    return setBranches(this.#base, this.#branches);
  }

  /** As the file has it, else what holds without it. */
  value(asked: AskedKey): unknown {
    const { section, key } = partsOf(asked);
    const table = parse(this.#base)[section];
    const own = typeof table === 'object' && table !== null ? Reflect.get(table, key) : undefined;
    return own ?? specOf(asked).fallback;
  }

  /** Throws `config-invalid` for a value that may not stand there. */
  set(asked: AskedKey, value: ScalarValue): void {
    const read = specOf(asked).schema.safeParse(value);
    if (!read.success) {
      const allowed = read.error.issues[0]?.message ?? 'a value';
      throw unfit([{ origin: '', key: asked, found: shownValue(asked, value), allowed }]);
    }
    if (this.value(asked) === value) return;
    const { section, key } = partsOf(asked);
    this.#base = setKey(this.#base, section, key, value);
  }

  /** None in a new file: those of the sample are nobody's. */
  branches(): readonly BranchConfig[] {
    return this.#branches;
  }

  /** Throws `config-invalid` for branches that may not stand there together. */
  setBranches(branches: readonly BranchConfig[]): void {
    const text = setBranches(this.#base, branches);
    const faults = this.#faultsOf(text).filter(({ key }) => key.startsWith(BRANCHES.key));
    if (faults.length > 0) throw unfit(faults);
    this.#branches = branches;
  }

  /** As the service will read it, without overrides of this process's environment. Throws `config-invalid`. */
  config(): Config {
    return checkedConfig(readConfig({ file: this.file, env: {}, text: this.text }));
  }

  /** Puts the draft in place of the file, once it reads well from the disk. Throws `config-invalid`. */
  write(nowMs: number): Replaced {
    const judge = (file: string) => checkedConfig(readConfig({ file, env: {} }));
    return replaceFile(this.file, this.text, judge, nowMs);
  }

  #faultsOf(text: string): readonly ConfigFault[] {
    const result = readConfig({ file: this.file, env: {}, text });
    return 'faults' in result ? result.faults : [];
  }
}

function checkedConfig(result: ConfigResult): Config {
  if ('faults' in result) throw configError(result.faults);
  return result.config;
}

/** An answer that may not stand in the file; the file itself is not at fault. */
function unfit(faults: readonly ConfigFault[]): TillsyncError {
  const lines = faults.map(({ found, allowed }) =>
    found === '""'
      ? `Nothing was given. Allowed: ${allowed}.`
      : `${found} cannot be used here. Allowed: ${allowed}.`,
  );
  return new TillsyncError('config-invalid', lines.join('\n'));
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    if (code === 'ENOENT') return undefined;
    const found = `a file that cannot be read (${code})`;
    throw configError([{ origin: path, key: '', found, allowed: 'a readable TOML file' }]);
  }
}

function isAsked(key: string): boolean {
  // A branch that cannot be read would be lost by setting others.
  return ASKED_KEYS.some((asked) => asked === key);
}

function partsOf(asked: AskedKey): { section: keyof typeof SECTIONS; key: string } {
  const [section = '', key = ''] = asked.split('.');
  return { section: section as keyof typeof SECTIONS, key };
}

function specOf(asked: AskedKey) {
  const { section, key } = partsOf(asked);
  const spec = Object.values(SECTIONS[section]).find((each) => each.key === key);
  if (spec === undefined) throw new Error(`${asked} is no key`);
  return spec;
}
