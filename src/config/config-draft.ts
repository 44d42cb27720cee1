import { readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { parse } from 'smol-toml';
import { TillsyncError } from '../domain/errors.ts';
import { type ConfigFault, type ConfigResult, readConfig } from './config.ts';
import { configError, shownValue } from './config-fault.ts';
import { BRANCHES, SECTIONS } from './config-keys.ts';
import { DEFAULT_CONFIG_FILE, type Environment, readConfigFile } from './config-source.ts';
import type { BranchConfig, Config } from './config-type.ts';
import { setBranches } from './edit-branches.ts';
import { type ScalarValue, setKey } from './edit-text.ts';
import { type Replaced, replaceFile } from './replace-file.ts';
import { SAMPLE_BASE_URL, sampleConfig } from './sample-config.ts';

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
