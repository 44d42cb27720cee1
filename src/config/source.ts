import { readFileSync } from 'node:fs';
import { parse, TomlError } from 'smol-toml';
import type { z } from 'zod';
import { TillsyncError } from '../core/errors.ts';
import { LOG_LEVELS } from '../core/log.ts';
import { jsonText } from '../core/values.ts';
import type { Config } from './config-type.ts';
import * as value from './values.ts';
import { branches, orderFields } from './values.ts';

/** One key of the file: its name there, what it may hold, and what holds when it is missing. */
export interface KeySpec<T> {
  readonly key: string;
  readonly schema: z.ZodType<T>;
  /** As it would be written in the file; undefined: the key is required. */
  readonly fallback?: unknown;
}

type Listening = { listen: value.Listen };
type ListenSplit<T> = Omit<T, 'host' | 'port'> & Listening;
/** The sections as the file has them: `listen` is one key there and `host` and `port` in the Config. */
export type FileSections = Omit<Config, 'branches' | 'webhook' | 'local'> & {
  webhook: ListenSplit<Config['webhook']>;
  local: { listen: [value.Listen, ...value.Listen[]]; socket: string };
};
type SectionSpecs = {
  readonly [S in keyof FileSections]: {
    readonly [K in keyof FileSections[S]]: KeySpec<FileSections[S][K]>;
  };
};

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const YEAR = 365 * DAY;

function spec<T>(key: string, schema: z.ZodType<T>, fallback?: unknown): KeySpec<T> {
  return { key, schema, fallback };
}

/** Every key of every section but `[[branches]]`, with the defaults that the product promises. */
export const SECTIONS: SectionSpecs = {
  platform: {
    baseUrl: spec('base_url', value.httpUrl({ baseOnly: true })),
    timeoutMs: spec('timeout', value.duration(SECOND, 10 * MINUTE), '30s'),
    webhookReadMethod: spec('webhook_read_method', value.oneOf('GET', 'POST'), 'GET'),
    webhookReadPath: spec('webhook_read_path', value.urlPath, '/webhook'),
    webhookActiveField: spec('webhook_active_field', value.fieldName, 'active'),
  },
  storage: {
    directory: spec('directory', value.absolutePath, '/var/lib/tillsync'),
    group: spec('group', value.optionalGroup, ''),
  },
  webhook: {
    enabled: spec('enabled', value.boolean, true),
    listen: spec('listen', value.listen, '127.0.0.1:8787'),
    path: spec('path', value.urlPath, '/webhook'),
    callbackUrl: spec('callback_url', value.httpUrl({ baseOnly: false }), ''),
    tlsCertFile: spec('tls_cert_file', value.optionalPath, ''),
    tlsKeyFile: spec('tls_key_file', value.optionalPath, ''),
    bodyLimitBytes: spec('body_limit', value.byteSize(1024, 64 * 1024 ** 2), '1MiB'),
  },
  orders: {
    poll: spec('poll', value.cron, '*/2 * * * *'),
    timezone: {
      ...spec('timezone', value.timeZone),
      // Looked up only when it is needed, for it costs more than all other keys together.
      get fallback() {
        return Intl.DateTimeFormat().resolvedOptions().timeZone;
      },
    },
    lookbackDays: spec('lookback_days', value.wholeNumber(0, 365), 1),
    wideDays: spec('wide_days', value.wholeNumber(0, 366), 30),
    wideEveryMs: spec('wide_every', value.duration(MINUTE, 30 * DAY), '1h'),
    pageParameter: spec('page_parameter', value.optionalFieldName, ''),
    listPath: spec('list_path', value.optionalDottedPath, ''),
    fields: spec('fields', orderFields, {}),
  },
  catalog: {
    sweep: spec('sweep', value.cron, '30 4 * * *'),
    pageSize: spec('page_size', value.wholeNumber(1, 1000), 100),
  },
  outbox: {
    lingerMs: spec('linger', value.duration(0, MINUTE), '250ms'),
  },
  stock: {
    holdBackUnbooked: spec('hold_back_unbooked', value.boolean, false),
    skipUnchanged: spec('skip_unchanged', value.boolean, true),
    trustForMs: spec('trust_for', value.duration(0, 30 * DAY), '10m'),
    platformDeducts: spec('platform_deducts', value.boolean, true),
  },
  guard: {
    zeroItemsMax: spec('zero_items_max', value.wholeNumber(0, 1_000_000), 100),
    zeroItemsWindowMs: spec('zero_items_window', value.duration(SECOND, DAY), '10m'),
    priceFactorMax: spec('price_factor_max', value.decimal(0, 1_000_000), 10),
    missingShareMax: spec('missing_share_max', value.decimal(0, 1), 0.5),
  },
  retention: {
    eventsMs: spec('events', value.keepFor(DAY, 10 * YEAR), '90d'),
    payloadsMs: spec('payloads', value.keepFor(DAY, 10 * YEAR), '30d'),
    ordersMs: spec('orders', value.keepFor(DAY, 10 * YEAR), '400d'),
    outboxMs: spec('outbox', value.keepFor(DAY, 10 * YEAR), '30d'),
    quarantineMs: spec('quarantine', value.keepFor(DAY, 10 * YEAR), '90d'),
    maxBytes: spec('max_bytes', value.byteSize(16 * 1024 ** 2, 1024 ** 4), '1GiB'),
  },
  local: {
    listen: spec('listen', value.listenList, '127.0.0.1:8788'),
    socket: spec('socket', value.optionalSocketPath, ''),
  },
  alarms: {
    command: spec('command', value.commandLine, []),
    url: spec('url', value.httpUrl({ baseOnly: false }), ''),
    name: spec('name', value.shortLine, ''),
    level: spec('level', value.oneOf('amber', 'red'), 'amber'),
    settleMs: spec('settle', value.duration(0, HOUR), '1m'),
    repeatMs: spec('repeat', value.duration(0, 30 * DAY), '0s'),
    dailyMax: spec('daily_max', value.wholeNumber(1, 1000), 20),
    timeoutMs: spec('timeout', value.duration(SECOND, 5 * MINUTE), '30s'),
  },
  limits: {
    endpointIntervalMs: spec('endpoint_interval', value.duration(1, HOUR), '1s'),
    ordersIntervalMs: spec('orders_interval', value.duration(1, DAY), '2m'),
    windowMs: spec('window', value.duration(1, DAY), '5m'),
    requestsPerWindow: spec('requests_per_window', value.wholeNumber(1, 1_000_000), 1000),
    ordersPerWindow: spec('orders_per_window', value.wholeNumber(1, 1_000_000), 100),
  },
  log: {
    level: spec('level', value.oneOf(...LOG_LEVELS), 'info'),
    pretty: spec('pretty', value.oneOf('auto', true, false), 'auto'),
  },
};

export const BRANCHES: KeySpec<Config['branches']> = spec<Config['branches']>('branches', branches, []);

/** The environment variable that overrides a key; section and key joined as they stand in the file. */
export function envName(section: string, key?: string): string {
  return `TILLSYNC_${section}${key === undefined ? '' : `_${key}`}`.toUpperCase();
}

/** The base address that stands in the sample; nobody's platform. */
export const SAMPLE_BASE_URL = 'https://api.example.com';

/** Whether the platform of this store was ever named. Until then nobody is called. */
export function isSetUp({ platform }: { platform: { baseUrl: string } }): boolean {
  return platform.baseUrl !== SAMPLE_BASE_URL;
}

export function notSetUp(): TillsyncError {
  return new TillsyncError('config-invalid', 'tillsync is not set up yet.', { hint: 'Run: {tillsync} init' });
}

/** The commented sample of the file, from which a set-up makes the first configuration. */
export function sampleConfig(): string {
  return readFileSync(new URL('../../config/tillsync.sample.toml', import.meta.url), 'utf8');
}

/** One thing wrong with the configuration. */
export interface ConfigFault {
  /** The file, or `environment variable NAME`. */
  origin: string;
  /** As written in the file: `orders.poll`, `branches[1].external_id`; empty when it is about the whole file. */
  key: string;
  /** What stands there, shortened, never a secret; `nothing` when a required key is missing. */
  found: string;
  /** What may stand there. */
  allowed: string;
  /** The known key or value that was probably meant. */
  suggestion?: string;
}

/** All faults as one `config-invalid` error whose message has one line for each. */
export function configError(faults: readonly ConfigFault[]): TillsyncError {
  const count = faults.length === 1 ? 'one fault' : `${faults.length} faults`;
  const lines = faults.map((fault) => `  ${describeFault(fault)}`);
  return new TillsyncError('config-invalid', `The configuration has ${count}:\n${lines.join('\n')}`, {
    hint: 'Correct the file or the environment, then try it with: {tillsync} config check',
  });
}

/** One line for a person. */
export function describeFault(fault: ConfigFault): string {
  const where = fault.key === '' ? fault.origin : `${fault.origin}: ${fault.key}`;
  const suggestion = fault.suggestion === undefined ? '' : `; did you mean ${fault.suggestion}?`;
  return `${where}: found ${fault.found}; allowed: ${fault.allowed}${suggestion}`;
}

const SHOWN_MAX = 60;
const TOKEN_LIKE = /eyJ[\w-]{4,}\.|^"[A-Za-z0-9_+=-]{32,}"$/;
/** A user and perhaps a password in an address. */
const USER_INFO = /:\/\/[^/\s"]*@/;
const SECRET_NAME = /secret|token|password|api_?key/i;

/** A value as a fault shows it: short, and hidden when it could be a secret that strayed into the file. */
export function shownValue(key: string, value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = jsonText(value);
  if (text === undefined) return 'a value that is nested too deeply';
  if (SECRET_NAME.test(key) || [SECRET_NAME, TOKEN_LIKE, USER_INFO].some((sign) => sign.test(text))) {
    return 'a value that is not shown';
  }
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text;
}

/** The candidate nearest to `word`, when it is near enough to be a slip of the hand. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Levenshtein distance, with a swap of neighbours as one step. */
function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const current = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let least = Math.min(at(previous, j) + 1, at(current, j - 1) + 1, at(previous, j - 1) + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        least = Math.min(least, at(before, j - 2) + 1);
      }
      current.push(least);
    }
    before = previous;
    previous = current;
  }
  return at(previous, b.length);
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY;
}

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
