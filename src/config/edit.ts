import { readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { parse, stringify } from 'smol-toml';
import { TillsyncError } from '../core/errors.ts';
import { type Replaced, replaceText } from '../core/files.ts';
import { loadConfig, readConfig } from './config.ts';
import type { BranchConfig, Config } from './config-type.ts';
import type { ROLES } from './roles.ts';
import { FILE, keyAt } from './schema.ts';
import {
  type ConfigFault,
  configError,
  configPath,
  DEFAULT_CONFIG_FILE,
  type Environment,
  SAMPLE_BASE_URL,
  shownValue,
} from './source.ts';
import { isTable } from './values.ts';

/** Returns the header `[section]` or `[[list]]` in a line, without blanks and comment; undefined if there is none. */
function headerOf(line: string): string | undefined {
  const match = /^\s*(\[\[?)\s*([^\]]*?)\s*(\]\]?)\s*(#.*)?$/.exec(line);
  return match ? `${match[1]}${match[2]}${match[3]}` : undefined;
}

/** Returns the key that a line sets; undefined if it sets none or the key is dotted. */
function keyOf(line: string): string | undefined {
  return /^\s*(["']?)([\w-]+)\1\s*=/.exec(line)?.[2];
}

/** Returns the index of the line after the section that begins at the line `header`. */
function endOf(lines: readonly string[], header: number): number {
  const next = lines.findIndex((line, i) => i > header && headerOf(line) !== undefined);
  return next === -1 ? lines.length : next;
}

/** Returns the value in TOML syntax. */
function literal(value: unknown): string {
  return stringify({ value })
    .trim()
    .replace(/^value = /, '');
}

/** Replaces the value in a line and keeps the comment behind it. */
function withValue(line: string, value: unknown): string {
  const match = /^(\s*[^=]+=\s*)("(?:[^"\\]|\\.)*"|'[^']*'|\[.*\]|[^#"']*?)(\s*(?:#.*)?)$/.exec(line);
  return match ? `${match[1]}${literal(value)}${match[3]}` : line;
}

/**
 * Returns the text if it parses to exactly `wanted`. Otherwise throws `config-invalid` with what a person must change.
 */
function surely(text: string, wanted: object, what: string): string {
  try {
    // Converts the parser's tables to plain objects, so that they can compare equal.
    if (isDeepStrictEqual(structuredClone(parse(text)), structuredClone(wanted))) return text;
  } catch {
    // The edited text is no valid TOML.
  }
  throw new TillsyncError('config-invalid', `${what} cannot be set in the file without rewriting it.`, {
    hint: `Change ${what} by hand: it is written in a way that tillsync does not touch.`,
  });
}

/**
 * Sets one key of a section, such as `stock` or `platform.quirks`, in a TOML text and leaves everything else unchanged,
 * such as comments. Throws `config-invalid` if the text is written in a form that this function cannot edit safely.
 */
export function setKey(text: string, section: string, key: string, value: unknown): string {
  const wanted: Record<string, unknown> = structuredClone(parse(text));
  let table = wanted;
  for (const step of section.split('.')) {
    const inner = isTable(table[step]) ? table[step] : {};
    table[step] = inner;
    table = inner;
  }
  if (isDeepStrictEqual(table[key], value)) return text;
  table[key] = value;
  const lines = text.split('\n');
  const line = `${key} = ${literal(value)}`;
  const header = lines.findIndex((each) => headerOf(each) === `[${section}]`);
  if (header === -1) {
    const gap = text === '' || text.endsWith('\n\n') ? '' : text.endsWith('\n') ? '\n' : '\n\n';
    return surely(`${text}${gap}[${section}]\n${line}\n`, wanted, `${section}.${key}`);
  }
  const end = endOf(lines, header);
  const at = lines.findIndex((each, i) => i > header && i < end && keyOf(each) === key);
  if (at === -1) lines.splice(header + 1, 0, line);
  else lines[at] = withValue(lines[at] ?? '', value);
  return surely(lines.join('\n'), wanted, `${section}.${key}`);
}

const IDS = ['subsidiary_id', 'external_id'] as const;
type BranchTable = Partial<Record<(typeof IDS)[number], string>> & { may_price?: boolean };

/**
 * Replaces `[[branches]]` in a TOML text by `wanted`. A branch that stays keeps its lines and comments. Throws
 * `config-invalid` if the text is written in a form that this function cannot edit safely.
 */
export function setBranches(text: string, wanted: readonly BranchConfig[]): string {
  const { branches, ...rest } = parse(text);
  const tables = (Array.isArray(branches) ? branches : []) as BranchTable[];
  const lines = text.split('\n');
  const added = wanted.map(tableOf);
  const order: BranchTable[] = [];
  const result: string[] = [];
  /** Index of the first line that is neither copied to the result nor deleted. */
  let done = 0;
  for (const [from, line] of lines.entries()) {
    if (headerOf(line) !== '[[branches]]') continue;
    const before = tables.shift() ?? {};
    const own = lines.slice(from, endOf(lines, from));
    // Comments below the last key belong to the section that follows.
    own.length =
      Math.max(
        0,
        own.findLastIndex((each) => keyOf(each) !== undefined),
      ) + 1;
    const found = added.findIndex((table) => IDS.some((id) => before[id] && table[id] === before[id]));
    const kept = found === -1 ? [] : added.splice(found, 1);
    // Other keys of a branch stay, such as its safety stock.
    const { subsidiary_id: _id, external_id: _externalId, ...others } = before;
    order.push(...kept.map((table) => ({ ...others, ...table })));
    result.push(...lines.slice(done, from), ...kept.flatMap((table) => edited(own, table)));
    done = from + own.length;
  }
  const fresh = added.flatMap((table) => ['', ...edited(['[[branches]]'], table)]);
  if (done === 0 && fresh.length > 0) {
    result.push(...(lines.at(-1) === '' ? lines.slice(0, -1) : lines));
    fresh.push('');
    done = lines.length;
  }
  const made = [...result, ...fresh, ...lines.slice(done)].join('\n').replace(/\n{3,}/g, '\n\n');
  order.push(...added);
  return surely(made, order.length === 0 ? rest : { ...rest, branches: order }, '[[branches]]');
}

function tableOf({ subsidiaryId, externalId }: BranchConfig): BranchTable {
  return {
    ...(subsidiaryId !== undefined && { subsidiary_id: subsidiaryId }),
    ...(externalId !== undefined && { external_id: externalId }),
  };
}

/** Returns the lines of a branch, with its ids replaced by those of `table`. */
function edited(lines: readonly string[], table: BranchTable): string[] {
  const left = { ...table };
  const result = lines.flatMap((line) => {
    const id = IDS.find((each) => each === keyOf(line));
    const value = id && left[id];
    if (id === undefined) return [line];
    delete left[id];
    return value === undefined ? [] : [withValue(line, value)];
  });
  for (const id of IDS) if (left[id] !== undefined) result.push(`${id} = ${literal(left[id])}`);
  return result;
}

/**
 * Replaces the file as `replaceText` does. Throws the errors of `judge`, and `config-invalid` if the file cannot be
 * written.
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

/** Keys that the set-up asks for. Faults in them are accepted, because the answers replace them. */
export const ASKED_KEYS = [
  'platform.base_url',
  'storage.directory',
  'storage.group',
  'webhook.enabled',
  'webhook.listen',
  'webhook.callback_url',
  'orders.timezone',
  'shop.language',
  'local.listen',
  'local.socket',
  'retention.personal_data',
  'backup.recipient',
] as const;
export type AskedKey = (typeof ASKED_KEYS)[number];

/** Keys that are written even if the answer is the default, because the default depends on the machine. */
const ALWAYS_WRITTEN: readonly AskedKey[] = ['platform.base_url', 'orders.timezone'];

/** Beginning of a new file. Only what was answered follows, so that all other defaults are those of the version. */
const NEW_FILE = `# tillsync: settings of this shop. All other settings have their defaults.
# Every setting with its value: tillsync config show --all
# To change one: tillsync config set KEY VALUE, then tillsync config apply
`;

/** The future configuration, made from the existing file or from a new one. Only `write` changes the file. */
export class ConfigDraft {
  readonly file: string;
  /** True if nobody has set up tillsync yet: the file is missing, is empty or has the address of the sample. */
  readonly isNew: boolean;
  /** Text of the draft, still with the branches that were found in the file. `text` replaces them by `#branches`. */
  #base: string;
  #branches: readonly BranchConfig[];

  private constructor(file: string, text: string, isNew: boolean) {
    this.file = file;
    this.isNew = isNew;
    this.#base = text;
    const read = FILE.shape.branches.safeParse(parse(text).branches);
    this.#branches = read.success && !isNew ? read.data : [];
  }

  /** Opens the draft of a file. Throws `config-invalid` if the file has faults that no question corrects. */
  static open({ file, env }: { file?: string | undefined; env: Environment }): ConfigDraft {
    const path = configPath(file, env);
    const text = textOf(path);
    if (text.trim() === '') {
      const draft = new ConfigDraft(path, NEW_FILE, true);
      const isInstance = dirname(path) === dirname(DEFAULT_CONFIG_FILE) && path !== DEFAULT_CONFIG_FILE;
      if (isInstance) draft.set('storage.directory', `/var/lib/tillsync@${basename(path, '.toml')}`);
      return draft;
    }
    const result = readConfig({ file: path, env: {}, text });
    // An unreadable branch is a fault too, because it would be lost when branches are set.
    const isAsked = (key: string) => ASKED_KEYS.some((asked) => asked === key);
    const faults = 'faults' in result ? result.faults.filter(({ key }) => !isAsked(key)) : [];
    if (faults.length > 0) throw configError(faults);
    const draft = new ConfigDraft(path, text, false);
    return draft.value('platform.base_url') === SAMPLE_BASE_URL ? new ConfigDraft(path, text, true) : draft;
  }

  get text(): string {
    return setBranches(this.#base, this.#branches);
  }

  /** Returns whether the file has a value for the key. */
  has(asked: AskedKey): boolean {
    return this.#given(asked) !== undefined;
  }

  /** Returns the value in the file, else the default. */
  value(asked: AskedKey): unknown {
    return this.#given(asked) ?? keyAt(asked).schema.def.defaultValue;
  }

  #given(asked: AskedKey): unknown {
    const { section, name } = keyAt(asked);
    const table = parse(this.#base)[section];
    return isTable(table) ? table[name] : undefined;
  }

  /** Sets a value. Throws `config-invalid` if it is not allowed. */
  set(asked: AskedKey, value: string | boolean): void {
    const { section, name, schema } = keyAt(asked);
    const read = schema.safeParse(value);
    if (!read.success) {
      const allowed = read.error.issues[0]?.message ?? 'a value';
      throw unfit([{ found: shownValue(asked, value), allowed }]);
    }
    const isKept = this.value(asked) === value && !ALWAYS_WRITTEN.includes(asked);
    if (!isKept) this.#base = setKey(this.#base, section, name, value);
  }

  /** Returns the role that the content of the file gives the machine. */
  role(): (typeof ROLES)[number] {
    const { link, hub } = parse(this.#base);
    const has = (table: unknown, name: string) => isTable(table) && (table[name] ?? '') !== '';
    return has(link, 'hub') ? 'branch' : has(hub, 'nats') ? 'hub' : 'store';
  }

  /** Returns the branches. A new file has none, because those of the sample are only examples. */
  branches(): readonly BranchConfig[] {
    return this.#branches;
  }

  /** Sets the branches. Throws `config-invalid` if two of them contradict each other. */
  setBranches(branches: readonly BranchConfig[]): void {
    const result = readConfig({ file: this.file, env: {}, text: setBranches(this.#base, branches) });
    const faults = 'faults' in result ? result.faults.filter(({ key }) => key.startsWith('branches')) : [];
    if (faults.length > 0) throw unfit(faults);
    this.#branches = branches;
  }

  /**
   * Returns the configuration as the service will read it, so without the variables of this process's environment.
   * Throws `config-invalid`.
   */
  config(): Config {
    return loadConfig({ file: this.file, env: {}, text: this.text });
  }

  /**
   * Writes the draft to a temporary file, reads it back, and then replaces the configuration file by it. Throws
   * `config-invalid`.
   */
  write(nowMs: number): Replaced {
    return replaceFile(this.file, this.text, (file) => void loadConfig({ file, env: {} }), nowMs);
  }
}

/** Returns the error for an answer that is not allowed. It does not name the file, which is not at fault. */
function unfit(faults: readonly Pick<ConfigFault, 'found' | 'allowed'>[]): TillsyncError {
  const lines = faults.map(({ found, allowed }) =>
    found === '""'
      ? `Nothing was given. Allowed: ${allowed}.`
      : `${found} cannot be used here. Allowed: ${allowed}.`,
  );
  return new TillsyncError('config-invalid', lines.join('\n'));
}

/** Returns the text of the file; '' if there is no file. */
export function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    if (code === 'ENOENT') return '';
    const found = `a file that cannot be read (${code})`;
    throw configError([{ origin: path, key: '', found, allowed: 'a readable TOML file' }]);
  }
}
