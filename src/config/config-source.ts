import { readFileSync } from 'node:fs';
import { parse, TomlError } from 'smol-toml';
import { type ConfigFault, nearest, shownValue } from './config-fault.ts';
import { BRANCHES, envName, SECTIONS } from './config-keys.ts';
import { SAMPLE_BASE_URL } from './sample-config.ts';

export const DEFAULT_CONFIG_FILE = '/etc/tillsync/config.toml';

export type Environment = Readonly<Record<string, string | undefined>>;

type Table = Record<string, unknown>;

/** What the file and the environment say, before it is checked. */
export interface RawConfig {
  /** The file that was read, or would be. */
  file: string;
  root: Table;
  faults: ConfigFault[];
}

/** The file that is read: the named one, else `$TILLSYNC_CONFIG`, else the default. */
export function configPath(file: string | undefined, env: Environment): string {
  return file ?? (env.TILLSYNC_CONFIG || DEFAULT_CONFIG_FILE);
}

/**
 * Reads the TOML file: `file`, else `$TILLSYNC_CONFIG`, else the default, which alone may be missing: nobody has set it up then. `text` stands
 * in for what is in it, before it is written.
 */
export function readConfigFile(file: string | undefined, env: Environment, text?: string): RawConfig {
  const named = file ?? (env.TILLSYNC_CONFIG || undefined);
  const path = named ?? DEFAULT_CONFIG_FILE;
  const raw: RawConfig = { file: path, root: {}, faults: [] };
  try {
    raw.root = parse(text ?? readFileSync(path, 'utf8'));
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (error instanceof TomlError) {
      // The error's own excerpt of the file is left out: a secret may have strayed into it.
      const what = (error.message.split('\n')[0] ?? '').replace('Invalid TOML document: ', '');
      const found = `${what} at line ${error.line}, column ${error.column}`;
      raw.faults.push({ origin: path, key: '', found, allowed: 'a TOML document' });
    } else if (code === 'ENOENT' && path === DEFAULT_CONFIG_FILE) {
      raw.root = { platform: { base_url: SAMPLE_BASE_URL } };
    } else {
      const isMissing = code === 'ENOENT';
      const found = isMissing
        ? 'no such file'
        : code === 'EACCES'
          ? 'a file that you do not have permission to read'
          : `a file that cannot be read (${code || String(error)})`;
      const allowed =
        code === 'EACCES'
          ? 'the same with sudo, or a file that you may read'
          : isMissing
            ? 'a TOML file, which tillsync init makes'
            : 'a readable TOML file';
      raw.faults.push({ origin: path, key: '', found, allowed });
    }
  }
  return raw;
}

const RESERVED_ENV = new Set([
  'TILLSYNC_CONFIG',
  'TILLSYNC_BOOT_ID',
  'TILLSYNC_REFRESH_TOKEN',
  'TILLSYNC_ACCESS_TOKEN',
  'TILLSYNC_WEBHOOK_SECRET',
  'TILLSYNC_LOCAL_API_KEY',
  'TILLSYNC_ALARM_URL',
  'TILLSYNC_ALARM_TOKEN',
  // What a command that is told of an alarm finds around it; it may well call tillsync.
  ...['STATE', 'KEY', 'LEVEL', 'MESSAGE', 'DETAIL', 'REMEDY', 'SINCE', 'AT', 'SHOP', 'TEXT'].map(
    (field) => `TILLSYNC_ALARM_${field}`,
  ),
]);

/** Faults for sections and keys in the file, and override names in the environment, that mean nothing. */
export function unknownNames(raw: RawConfig, env: Environment): ConfigFault[] {
  const faults: ConfigFault[] = [];
  const sectionNames = [...Object.keys(SECTIONS), BRANCHES.key];
  for (const [name, table] of Object.entries(raw.root)) {
    const section = Object.hasOwn(SECTIONS, name) ? SECTIONS[name as keyof typeof SECTIONS] : undefined;
    if (section === undefined) {
      if (name !== BRANCHES.key) faults.push(unknownName(raw.file, '', name, sectionNames, 'section'));
      continue;
    }
    if (!isTable(table)) {
      const found = shownValue(name, table);
      faults.push({ origin: raw.file, key: name, found, allowed: `a section [${name}]` });
      continue;
    }
    const known = Object.values(section).map((spec) => spec.key);
    for (const key of Object.keys(table)) {
      if (!known.includes(key)) faults.push(unknownName(raw.file, `${name}.`, key, known, 'key'));
    }
  }
  return [...faults, ...unknownOverrides(env, sectionNames)];
}

/** A fault for a name that is not known at `place` (a prefix), told with the known ones there. */
export function unknownName(
  origin: string,
  place: string,
  name: string,
  known: readonly string[],
  what: 'section' | 'key',
): ConfigFault {
  const suggestion = nearest(name, known);
  return {
    origin,
    key: `${place}${name}`,
    found: `an unknown ${what}`,
    allowed: known.join(', '),
    ...(suggestion === undefined ? {} : { suggestion: `${place}${suggestion}` }),
  };
}

/** Only names that begin like a section's override or are nearly one are ours to judge. */
function unknownOverrides(env: Environment, sectionNames: readonly string[]): ConfigFault[] {
  const known = [envName(BRANCHES.key)];
  for (const [section, specs] of Object.entries(SECTIONS)) {
    for (const spec of Object.values(specs)) known.push(envName(section, spec.key));
  }
  const faults: ConfigFault[] = [];
  for (const name of Object.keys(env)) {
    if (!name.startsWith('TILLSYNC_') || RESERVED_ENV.has(name) || known.includes(name)) continue;
    const suggestion = nearest(name, known);
    const ofSection = sectionNames.some((section) => name.startsWith(`${envName(section)}_`));
    if (!ofSection && suggestion === undefined) continue;
    faults.push({
      origin: `environment variable ${name}`,
      key: '',
      found: 'an unknown override',
      allowed: 'TILLSYNC_<SECTION>_<KEY> of a key of the file',
      ...(suggestion === undefined ? {} : { suggestion }),
    });
  }
  return faults;
}

/** One value of the file or, before it, of the environment; undefined when neither has it. */
export function rawValue(
  raw: RawConfig,
  env: Environment,
  section: string,
  key?: string,
): { origin: string; value: unknown } {
  const name = envName(section, key);
  const text = env[name];
  if (text !== undefined) return { origin: `environment variable ${name}`, value: text };
  const table = raw.root[section];
  if (key === undefined) return { origin: raw.file, value: table };
  return { origin: raw.file, value: isTable(table) && Object.hasOwn(table, key) ? table[key] : undefined };
}

function isTable(value: unknown): value is Table {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}
