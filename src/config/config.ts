import { isIPv4 } from 'node:net';
import type { z } from 'zod';
import type { Config } from './config-type.ts';
import { readSecrets, type Secrets, type ServiceSecrets } from './secrets.ts';
import {
  BRANCHES,
  type ConfigFault,
  configError,
  type Environment,
  type FileSections,
  type KeySpec,
  type RawConfig,
  rawValue,
  readConfigFile,
  SECTIONS,
  shownValue,
  unknownName,
  unknownNames,
} from './source.ts';
import { type Listen, ORDER_FIELD_KEYS } from './values.ts';

const DAY_MS = 86_400_000;

export interface ConfigOptions {
  /** The file of `--config`; without it `$TILLSYNC_CONFIG`, then `/etc/tillsync/config.toml`. */
  file?: string | undefined;
  env: Environment;
  /** What will be in the file, to judge it before it is written. */
  text?: string;
}

export type ConfigResult = { file: string } & ({ config: Config } | { faults: ConfigFault[] });

/** The configuration, or a `config-invalid` error that names every fault at once. */
export function loadConfig(options: ConfigOptions): Config {
  const result = readConfig(options);
  if ('faults' in result) throw configError(result.faults);
  return result.config;
}

/** The configuration, or every fault of it. */
export function readConfig({ file, env, text }: ConfigOptions): ConfigResult {
  const raw = readConfigFile(file, env, text);
  // A file that cannot be read has no keys to judge, and its required keys are not what is missing.
  if (raw.faults.length > 0) return { file: raw.file, faults: raw.faults };
  const faults = unknownNames(raw, env);
  const sections: Partial<Record<keyof FileSections, Record<string, unknown>>> = {};
  for (const [name, specs] of Object.entries(SECTIONS)) {
    const values: Record<string, unknown> = {};
    for (const [property, spec] of Object.entries(specs)) {
      const read = readKey(raw, env, name, spec);
      if ('faults' in read) faults.push(...read.faults);
      else values[property] = read.value;
    }
    sections[name as keyof FileSections] = values;
  }
  const branches = readKey(raw, env, undefined, BRANCHES);
  if ('faults' in branches) faults.push(...branches.faults);
  faults.push(...conflicts(raw, sections));
  if (faults.length > 0 || 'faults' in branches) return { file: raw.file, faults };
  // Every key was read by the schema that its section's type demands.
  const { webhook, local, ...rest } = sections as unknown as FileSections;
  const config: Config = {
    ...rest,
    ...{ webhook: split(webhook), local: localOf(local) },
    branches: branches.value,
  };
  return { file: raw.file, config: deepFreeze(config) };
}

type KeyResult<T> = { value: T } | { faults: ConfigFault[] };

function readKey<T>(
  raw: RawConfig,
  env: Environment,
  section: string | undefined,
  spec: KeySpec<T>,
): KeyResult<T> {
  const path = section === undefined ? spec.key : `${section}.${spec.key}`;
  const found = section === undefined ? rawValue(raw, env, spec.key) : rawValue(raw, env, section, spec.key);
  const value = found.value === undefined ? spec.fallback : found.value;
  if (value === undefined) {
    const allowed = spec.schema.safeParse(undefined).error?.issues[0]?.message ?? 'a value';
    return { faults: [{ origin: found.origin, key: path, found: 'nothing', allowed }] };
  }
  const attempts = found.origin === raw.file ? [value] : [value, ...jsonValue(value)];
  let faults: ConfigFault[] = [];
  for (const attempt of attempts) {
    const result = spec.schema.safeParse(attempt);
    if (result.success) return { value: result.data };
    faults = result.error.issues.flatMap((issue) => issueFaults(found.origin, path, attempt, issue));
  }
  return { faults };
}

/** The environment holds text only: what is no text in the file stands there as JSON. */
function jsonValue(text: unknown): unknown[] {
  try {
    return [JSON.parse(String(text))];
  } catch {
    return [];
  }
}

function issueFaults(origin: string, path: string, value: unknown, issue: z.core.$ZodIssue): ConfigFault[] {
  let key = path;
  let at: unknown = value;
  for (const step of issue.path) {
    key += typeof step === 'number' ? `[${step}]` : `.${String(step)}`;
    at = typeof at === 'object' && at !== null ? (at as Record<PropertyKey, unknown>)[step] : undefined;
  }
  if (issue.code === 'unrecognized_keys') {
    const known = path === BRANCHES.key ? ['subsidiary_id', 'external_id'] : ORDER_FIELD_KEYS;
    return issue.keys.map((name) => unknownName(origin, `${key}.`, name, known, 'key'));
  }
  return [{ origin, key, found: shownValue(key, at), allowed: issue.message }];
}

/** Faults of values that are right by themselves and wrong together. */
function conflicts(
  raw: RawConfig,
  sections: { [S in keyof FileSections]?: Partial<FileSections[S]> },
): ConfigFault[] {
  const faults: ConfigFault[] = [];
  const { webhook = {}, local = {}, orders = {}, retention = {} } = sections;
  const fault = (key: string, found: string, allowed: string) =>
    faults.push({ origin: raw.file, key, found, allowed });
  if ((webhook.tlsCertFile ?? '') === '' && (webhook.tlsKeyFile ?? '') !== '') {
    fault('webhook.tls_cert_file', 'nothing beside tls_key_file', 'both files, or neither');
  }
  if ((webhook.tlsKeyFile ?? '') === '' && (webhook.tlsCertFile ?? '') !== '') {
    fault('webhook.tls_key_file', 'nothing beside tls_cert_file', 'both files, or neither');
  }
  const againDays = Math.max(orders.lookbackDays ?? 0, orders.wideDays ?? 0) + 2;
  if ((retention.ordersMs ?? 0) > 0 && (retention.ordersMs ?? 0) < againDays * DAY_MS) {
    const shortest = `at least ${againDays}d, or "0d": polls read orders again for as long, and what was deleted would come back as new`;
    fault('retention.orders', 'a time shorter than polls look back', shortest);
  }
  const one = webhook.listen;
  const isSame = (other: Listen) => other.port === one?.port && other.host === one.host;
  if (webhook.enabled && one && one.port !== 0 && local.listen?.some(isSame)) {
    fault('local.listen', 'the address of webhook.listen', 'an address of its own');
  }
  return faults;
}

function split<T extends { listen: { host: string; port: number } }>({ listen, ...rest }: T) {
  return { ...rest, host: listen.host, port: listen.port };
}

function localOf({ listen: [first, ...others], socket }: FileSections['local']): Config['local'] {
  return { ...first, others, socket };
}

function deepFreeze<T extends object>(value: T): T {
  for (const inner of Object.values(value))
    if (typeof inner === 'object' && inner !== null) deepFreeze(inner);
  return Object.freeze(value);
}

/** What a process needs to know before it starts. */
export interface Setup {
  config: Config;
  secrets: Secrets;
  /** Files with secrets of the service that this user may not read. */
  unseen: string[];
}

export type SetupResult = { file: string } & (Setup | { faults: ConfigFault[] });

/** Configuration and secrets, or a `config-invalid` error that names every fault of both at once. */
export function loadSetup(options: ConfigOptions): Setup {
  const result = readSetup(options);
  if ('faults' in result) throw configError(result.faults);
  return result;
}

/** Configuration and secrets, or every fault of both; `of`: with the secrets that a service would be handed. */
export function readSetup(options: ConfigOptions, of?: ServiceSecrets): SetupResult {
  const config = readConfig(options);
  const secrets = readSecrets(options.env, of);
  const { file } = config;
  const faults = [config, secrets].flatMap((result) => ('faults' in result ? result.faults : []));
  if ('faults' in config || 'faults' in secrets) return { file, faults };
  const { unseen } = secrets;
  const setup = { file, config: config.config, secrets: secrets.secrets, unseen };
  const { local } = setup.config;
  const open = [local, ...local.others].find(({ host }) => !isLoopback(host));
  if (setup.secrets.localApiKey === undefined && unseen.length === 0 && open) {
    const found = `${open.host}, and no local-api-key`;
    const allowed =
      'a loopback address, or a local-api-key among the secrets, which `sudo tillsync key` makes';
    return { file, faults: [{ origin: file, key: 'local.listen', found, allowed }] };
  }
  return setup;
}

/** What works and is unwise all the same, each in one or two sentences. */
export function configWarnings({ platform }: Pick<Config, 'platform'>): string[] {
  const { protocol, hostname, host } = new URL(platform.baseUrl);
  if (protocol === 'https:' || isLoopback(hostname.replace(/^\[(.*)\]$/, '$1'))) return [];
  return [
    `platform.base_url begins with http://, so the tokens go to ${host} in clear text: whoever is on the way can read and use them. Use https://.`,
  ];
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}
