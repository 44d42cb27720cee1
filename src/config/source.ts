import { readFileSync } from 'node:fs';
import { parse, TomlError } from 'smol-toml';
import { TillsyncError } from '../core/errors.ts';
import { editDistance, jsonText } from '../core/values.ts';
import { CHAIN_SECTIONS } from './roles.ts';
import { type ConfigKey, envName, KEYS, SAMPLE_BASE_URL, SECTIONS } from './schema.ts';
import { isTable } from './values.ts';

export { envName, SAMPLE_BASE_URL };

export const DEFAULT_CONFIG_FILE = '/etc/tillsync/config.toml';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Whether somebody has set the platform's address. Before that, nothing calls the platform. */
export function isSetUp({ platform }: { platform: { baseUrl: string } }): boolean {
  return platform.baseUrl !== SAMPLE_BASE_URL;
}

export function notSetUp(): TillsyncError {
  return new TillsyncError('config-invalid', 'tillsync is not set up yet.', { hint: 'Run: {tillsync} init' });
}

/** A fault of the configuration. */
export interface ConfigFault {
  /** Path of the file, or `environment variable NAME`. */
  origin: string;
  /**
   * Key as in the file, such as `orders.poll` or `branches[1].external_id`; '' if the fault is about the whole file.
   */
  key: string;
  /** Present value, shortened and never a secret; `nothing` if a required key is missing. */
  found: string;
  /** Values that are allowed. */
  allowed: string;
  /** Known key or value that was probably meant. */
  suggestion?: string;
}

/** Returns a `config-invalid` error that lists all faults, one in a line. */
export function configError(faults: readonly ConfigFault[]): TillsyncError {
  const count = faults.length === 1 ? 'one fault' : `${faults.length} faults`;
  const lines = faults.map((fault) => `  ${describeFault(fault)}`);
  return new TillsyncError('config-invalid', `The configuration has ${count}:\n${lines.join('\n')}`, {
    hint: 'Correct the file or the environment, then try it with: {tillsync} config check',
  });
}

/** Returns a fault as a line for a person. */
export function describeFault(fault: ConfigFault): string {
  const where = fault.key === '' ? fault.origin : `${fault.origin}: ${fault.key}`;
  const suggestion = fault.suggestion === undefined ? '' : `; did you mean ${fault.suggestion}?`;
  return `${where}: found ${fault.found}; allowed: ${fault.allowed}${suggestion}`;
}

const SHOWN_MAX = 60;
/** Patterns of values that may be secrets: names of secrets, tokens, and addresses with user and password. */
const SECRET_NAME = /secret|token|password|api_?key/i;
const SECRET_LIKE = [SECRET_NAME, /eyJ[\w-]{4,}\.|^"[A-Za-z0-9_+=-]{32,}"$/, /:\/\/[^/\s"]*@/];

/** Whether a value, as JSON text, may be a secret that somebody put into the file by mistake. */
export function mayBeSecret(key: string, text: string): boolean {
  return SECRET_NAME.test(key) || SECRET_LIKE.some((sign) => sign.test(text));
}

/**
 * Returns a value for the message of a fault: shortened, and hidden if it may be a secret that somebody put into the
 * file by mistake.
 */
export function shownValue(key: string, value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = jsonText(value);
  if (text === undefined) return 'a value that is nested too deeply';
  if (mayBeSecret(key, text)) return 'a value that is not shown';
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text;
}

/** Returns the candidate that is most similar to `word`; undefined if none is similar enough for a typing error. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance >= bestDistance) continue;
    best = candidate;
    bestDistance = distance;
  }
  return best;
}

/** Content of the configuration file before it is checked. */
export interface RawConfig {
  /** Path of the file, which may be missing. */
  file: string;
  root: Record<string, unknown>;
  faults: ConfigFault[];
}

/** Returns the path of the file to read: `file` if given, else `$TILLSYNC_CONFIG`, else the default. */
export function configPath(file: string | undefined, env: Environment): string {
  return file ?? (env.TILLSYNC_CONFIG || DEFAULT_CONFIG_FILE);
}

/**
 * Reads the file of `configPath`. Only the default file may be missing, because nobody has set up tillsync then. `text`
 * is used instead of the file's content.
 */
export function readConfigFile(file: string | undefined, env: Environment, text?: string): RawConfig {
  const path = configPath(file, env);
  try {
    return { file: path, root: parse(text ?? readFileSync(path, 'utf8')), faults: [] };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (code === 'ENOENT' && path === DEFAULT_CONFIG_FILE) {
      return { file: path, root: { platform: { base_url: SAMPLE_BASE_URL } }, faults: [] };
    }
    return { file: path, root: {}, faults: [{ origin: path, key: '', ...unreadable(error, code) }] };
  }
}

/**
 * Returns whether the file, or the environment in its place, has the section of a hub or of a branch. The help shows
 * what only a chain needs then, whatever other faults the file has.
 */
export function isOfChain(file: string | undefined, env: Environment): boolean {
  const { root } = readConfigFile(file, env);
  const names = Object.keys(env);
  return [...CHAIN_SECTIONS].some(
    (section) =>
      Object.hasOwn(root, section) || names.some((name) => name.startsWith(`${envName(section)}_`)),
  );
}

function unreadable(error: unknown, code: string): Pick<ConfigFault, 'found' | 'allowed'> {
  if (error instanceof TomlError) {
    // The error's excerpt of the file is left out, because it may contain a secret.
    const what = (error.message.split('\n')[0] ?? '').replace('Invalid TOML document: ', '');
    return { found: `${what} at line ${error.line}, column ${error.column}`, allowed: 'a TOML document' };
  }
  if (code === 'ENOENT') return { found: 'no such file', allowed: 'a TOML file, which tillsync init makes' };
  if (code === 'EACCES') {
    const found = 'a file that you do not have permission to read';
    return { found, allowed: 'the same with sudo, or a file that you may read' };
  }
  return { found: `a file that cannot be read (${code || String(error)})`, allowed: 'a readable TOML file' };
}

const RESERVED_ENV = new Set(
  [
    ...['CONFIG', 'BOOT_ID', 'REFRESH_TOKEN', 'ACCESS_TOKEN', 'WEBHOOK_SECRET', 'LOCAL_API_KEY'],
    ...['ALARM_URL', 'ALARM_TOKEN', 'HEARTBEAT_URL', 'LINK_SEED', 'BACKUP_PASSPHRASE'],
    // Variables that tillsync sets for an alarm command. They are accepted, because that command may run tillsync
    // itself.
    ...['ALARM_STATE', 'ALARM_KEY', 'ALARM_LEVEL', 'ALARM_MESSAGE', 'ALARM_DETAIL', 'ALARM_REMEDY'],
    ...['ALARM_SINCE', 'ALARM_AT', 'ALARM_SHOP', 'ALARM_TEXT'],
  ].map((name) => `TILLSYNC_${name}`),
);

/** Returns faults for unknown sections and keys of the file, and for unknown overrides in the environment. */
export function unknownNames(raw: RawConfig, env: Environment): ConfigFault[] {
  const faults: ConfigFault[] = [];
  const others = KEYS.flatMap(({ section, name }) => (section === '' ? [name] : []));
  const sections = [...SECTIONS.keys()];
  const tables: [string, unknown][] = Object.entries(raw.root).filter(([name]) => !others.includes(name));
  for (const [path, table] of tables) {
    if (!SECTIONS.has(path)) {
      const names = [...sections.filter((each) => !each.includes('.')), ...others];
      faults.push(unknownName(raw.file, '', path, names, 'section'));
    } else if (!isTable(table)) {
      faults.push({
        origin: raw.file,
        key: path,
        found: shownValue(path, table),
        allowed: `a section [${path}]`,
      });
    } else {
      const known = KEYS.flatMap((key) => (key.section === path ? [key.name] : []));
      for (const [name, value] of Object.entries(table)) {
        // The loop goes on with the tables that are added here.
        if (SECTIONS.has(`${path}.${name}`)) tables.push([`${path}.${name}`, value]);
        else if (!known.includes(name)) faults.push(unknownName(raw.file, `${path}.`, name, known, 'key'));
      }
    }
  }
  const variables = KEYS.map(({ variable }) => variable);
  const beginnings = [...sections, ...others].map((section) => `${envName(section)}_`);
  for (const name of Object.keys(env)) {
    if (!name.startsWith('TILLSYNC_') || RESERVED_ENV.has(name) || variables.includes(name)) continue;
    // The variables for the secrets of hooks have this prefix.
    if (name.startsWith('TILLSYNC_HOOK_')) continue;
    const gone = Object.entries(GONE).find(
      ([key]) => name === envName(...(key.split('.') as [string, string])),
    );
    if (gone) {
      const origin = `environment variable ${name}`;
      faults.push({ origin, key: '', found: 'a key that is gone', allowed: gone[1] });
      continue;
    }
    const suggestion = nearest(name, variables);
    // Other variables are ignored unless they are similar to an override, or begin like the overrides of a section.
    if (suggestion === undefined && !beginnings.some((beginning) => name.startsWith(beginning))) continue;
    faults.push({
      origin: `environment variable ${name}`,
      key: '',
      found: 'an unknown override',
      allowed: 'TILLSYNC_<SECTION>_<KEY> of a key of the file',
      ...(suggestion !== undefined && { suggestion }),
    });
  }
  return faults;
}

/** What to write instead of a key that tillsync does not have any more. */
const GONE: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    [
      ...['platform.webhook_read_method', 'platform.webhook_read_path', 'platform.webhook_active_field'],
      ...['orders.page_parameter', 'orders.list_path'],
    ].map((key) => [key, `the same key in [platform.quirks]`]),
  ),
  'alarms.name': 'nothing here: shop.name names the shop in alarms too',
  'alarms.timeout': 'nothing here: a receiver always has 30 seconds',
  'guard.zero_items_window': 'nothing here: the window is always ten minutes',
  'retention.quarantine': 'nothing here: unreadable data is kept as long as retention.events says',
  'log.pretty': 'nothing here: the log is easy to read on a terminal, and JSON elsewhere',
  'hub.store': 'nothing here: the shop on this machine is a branch: sudo tillsync branch add NAME --here',
  'hooks.store': 'nothing here: write the hook into the file of the branch, /etc/tillsync/NAME.toml',
  'hub.announce':
    'nothing here: name the hub by DNS in public_url, or list its addresses in link.hub of each branch',
  'hub.announce_ca_files':
    'nothing here: put the new authority into the file of link.ca_file at each branch, beside the one of today',
  'hub.copies_max_bytes':
    'nothing here: a branch whose machine is lost is invited again, without a copy at the hub',
  'backup.to_hub':
    'nothing here: a branch whose machine is lost is invited again; backup.after takes backups elsewhere',
};

/** Returns the fault for an unknown name, with the known names. `place` is the prefix of the name. */
export function unknownName(
  origin: string,
  place: string,
  name: string,
  known: readonly string[],
  what: 'section' | 'key',
): ConfigFault {
  const instead = GONE[`${place.replace(/\[\d+\]/, '')}${name}`];
  if (instead !== undefined)
    return { origin, key: `${place}${name}`, found: 'a key that is gone', allowed: instead };
  const suggestion = nearest(name, known);
  return {
    origin,
    key: `${place}${name}`,
    found: `an unknown ${what}`,
    allowed: known.join(', '),
    ...(suggestion !== undefined && { suggestion: `${place}${suggestion}` }),
  };
}

/** Returns the value of a key from the environment, else from the file; undefined if neither has one. */
export function rawValue(
  { file, root }: RawConfig,
  env: Environment,
  { section, name, variable }: Pick<ConfigKey, 'section' | 'name' | 'variable'>,
): { origin: string; value: unknown } {
  if (env[variable] !== undefined)
    return { origin: `environment variable ${variable}`, value: env[variable] };
  let table: unknown = root;
  for (const step of section.split('.').filter((each) => each !== '')) {
    table = isTable(table) && Object.hasOwn(table, step) ? table[step] : undefined;
  }
  return { origin: file, value: isTable(table) && Object.hasOwn(table, name) ? table[name] : undefined };
}
