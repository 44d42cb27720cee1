import { isIPv4 } from 'node:net';
import { resolve } from 'node:path';
import type { z } from 'zod';
import type { Config } from './config-type.ts';
import { storedKey } from './key-file.ts';
import { branchName, isBranch } from './roles.ts';
import { type ConfigKey, type FILE, KEYS, keyAt } from './schema.ts';
import { readSecrets, type Secrets, serviceOf } from './secrets.ts';
import {
  type ConfigFault,
  configError,
  type Environment,
  type RawConfig,
  rawValue,
  readConfigFile,
  shownValue,
  unknownName,
  unknownNames,
} from './source.ts';
import { HOOK_KEYS, ORDER_FIELD_KEYS } from './values.ts';

const DAY_MS = 86_400_000;
/** Window in which zeros count as one hand-over for the guards. */
const ZEROS_WINDOW_MS = 600_000;
/** How long a receiver of alarms may take. What fails is sent again. */
const RECEIVER_TIMEOUT_MS = 30_000;

export interface ConfigOptions {
  /** File named by `--config`. If left out, it is `$TILLSYNC_CONFIG`, else `/etc/tillsync/config.toml`. */
  file?: string | undefined;
  env: Environment;
  /** Future content of the file, to be checked before it is written. */
  text?: string;
}

type ConfigResult = { file: string } & ({ config: Config } | { faults: ConfigFault[] });

/** Returns the configuration. Throws `config-invalid` with all its faults. */
export function loadConfig(options: ConfigOptions): Config {
  const result = readConfig(options);
  if ('faults' in result) throw configError(result.faults);
  return result.config;
}

type File = z.infer<typeof FILE>;

/** Returns the configuration or all its faults. */
export function readConfig({ file: named, env, text }: ConfigOptions): ConfigResult {
  const raw = readConfigFile(named, env, text);
  const { file } = raw;
  // The keys of an unreadable file are not checked, because all required ones would be reported as missing.
  if (raw.faults.length > 0) return { file, faults: raw.faults };
  const faults = unknownNames(raw, env);
  // Values by part and property; `branches` and `hooks` have no section.
  const read: Record<string, Record<string, unknown>> = {};
  for (const key of KEYS) {
    const result = readKey(raw, env, key);
    // A branch of a hub does not call the platform, so the platform's address may be missing.
    if (key.path === 'platform.base_url' && isLinked(raw, env) && !isGiven(raw, env, key)) {
      read.platform = { ...read.platform, baseUrl: '' };
    } else if ('faults' in result) faults.push(...result.faults);
    else read[key.part] = { ...read[key.part], [key.property]: result.value };
  }
  const { '': beside, ...sections } = read;
  faults.push(...conflicts(file, sections), ...roleFaults(file, { ...sections, ...beside }));
  if (faults.length > 0) return { file, faults };
  // The schema of each key has checked its value.
  const { webhook, local, link, ...rest } = { ...sections, ...beside } as unknown as File;
  const { listen, ...receiver } = webhook;
  const [first, ...others] = local.listen;
  const [hub = '', ...otherHubs] = link.hub;
  const config: Config = {
    ...rest,
    guard: { ...rest.guard, zeroItemsWindowMs: ZEROS_WINDOW_MS },
    // Unreadable data is as old as the events that it would have become.
    retention: { ...rest.retention, quarantineMs: rest.retention.eventsMs },
    alarms: { ...rest.alarms, timeoutMs: RECEIVER_TIMEOUT_MS },
    webhook: { ...receiver, ...listen },
    local: { ...first, others, socket: local.socket },
    link: { ...link, hub, otherHubs },
  };
  return { file, config: deepFreeze(isBranch(config) ? asBranch(config) : config) };
}

function isGiven(raw: RawConfig, env: Environment, key: ConfigKey): boolean {
  return rawValue(raw, env, key).value !== undefined;
}

function isLinked(raw: RawConfig, env: Environment): boolean {
  const { value } = rawValue(raw, env, keyAt('link.hub'));
  return !['', '[]'].includes(String(value ?? ''));
}

/**
 * Returns a branch's configuration with callbacks, hold-back and guards off, because only the hub gets callbacks and
 * decides what is sent to the platform.
 */
function asBranch(config: Config): Config {
  return {
    ...config,
    webhook: { ...config.webhook, enabled: false },
    stock: { ...config.stock, holdBackUnbooked: false },
    guard: { ...config.guard, zeroItemsMax: 0, zeroShareMax: 0, priceFactorMax: 0, missingShareMax: 0 },
  };
}

/** Returns faults of the role: a tillsync may be a hub, a branch, or neither, but not both. */
function roleFaults(
  origin: string,
  { hub, link, platform, branches = [] }: { [S in keyof File]?: Partial<File[S]> },
): ConfigFault[] {
  const faults: ConfigFault[] = [];
  const fault = (key: string, found: string, allowed: string) => faults.push({ origin, key, found, allowed });
  if (link?.hub?.length) {
    if (hub?.nats) fault('link.hub', 'an address beside hub.nats', 'a hub or a branch, not both');
    if (!link.branch) fault('link.branch', 'nothing', 'the name that the hub gave this branch');
    if (platform?.baseUrl) {
      fault('platform.base_url', 'an address beside link.hub', 'nothing: only the hub calls the platform');
    }
    if (branches.length) fault('branches', 'branches beside link.hub', 'nothing: the hub has the branches');
  }
  if (!hub?.nats) return faults;
  if (branches.length === 0) fault('branches', 'nothing', 'the branches of the hub, one table each');
  for (const [index, branch] of branches.entries()) {
    const name = branch && branchName(branch);
    if (name === undefined || /^[\w-]{1,64}$/.test(name)) continue;
    const allowed = 'in a hub: a name of letters, digits, "_" and "-"';
    fault(
      `branches[${index}].${branch?.externalId ? 'external_id' : 'subsidiary_id'}`,
      shownValue('', name),
      allowed,
    );
  }
  return faults;
}

function readKey(
  raw: RawConfig,
  env: Environment,
  key: ConfigKey,
): { value: unknown } | { faults: ConfigFault[] } {
  const { origin, value } = rawValue(raw, env, key);
  const attempts = origin === raw.file ? [value] : [value, ...jsonValue(value)];
  let faults: ConfigFault[] = [];
  for (const attempt of attempts) {
    const result = key.schema.safeParse(attempt);
    if (result.success) return { value: result.data };
    faults = result.error.issues.flatMap((issue) => issueFaults(origin, key.path, attempt, issue));
  }
  return { faults };
}

/**
 * Parses the text of an environment variable as JSON. Returns the value in a list, which is empty if the text is no
 * JSON.
 */
function jsonValue(text: unknown): unknown[] {
  try {
    return [JSON.parse(String(text))];
  } catch {
    return [];
  }
}

/** Keys that a table may have, by the list of tables to which it belongs. */
const KEYS_WITHIN: Readonly<Record<string, readonly string[]>> = {
  branches: ['subsidiary_id', 'external_id', 'safety', 'may_price', 'watched'],
  hooks: HOOK_KEYS,
};

function issueFaults(origin: string, path: string, value: unknown, issue: z.core.$ZodIssue): ConfigFault[] {
  let key = path;
  let at = value;
  for (const step of issue.path) {
    key += typeof step === 'number' ? `[${step}]` : `.${String(step)}`;
    at = typeof at === 'object' && at !== null ? Reflect.get(at, step) : undefined;
  }
  if (issue.code === 'unrecognized_keys') {
    const known = KEYS_WITHIN[path] ?? ORDER_FIELD_KEYS;
    return issue.keys.map((name) => unknownName(origin, `${key}.`, name, known, 'key'));
  }
  return [{ origin, key, found: shownValue(key, at), allowed: issue.message }];
}

/** Returns faults of values that are each valid but contradict each other. */
function conflicts(
  origin: string,
  { webhook = {}, local = {}, orders = {}, retention = {} }: { [S in keyof File]?: Partial<File[S]> },
): ConfigFault[] {
  const faults: ConfigFault[] = [];
  const fault = (key: string, found: string, allowed: string) => faults.push({ origin, key, found, allowed });
  const { tlsCertFile = '', tlsKeyFile = '', listen } = webhook;
  if (tlsCertFile === '' && tlsKeyFile !== '') {
    fault('webhook.tls_cert_file', 'nothing beside tls_key_file', 'both files, or neither');
  }
  if (tlsKeyFile === '' && tlsCertFile !== '') {
    fault('webhook.tls_key_file', 'nothing beside tls_cert_file', 'both files, or neither');
  }
  const againDays = Math.max(orders.lookbackDays ?? 0, orders.wideDays ?? 0) + 2;
  const { ordersMs = 0 } = retention;
  if (ordersMs > 0 && ordersMs < againDays * DAY_MS) {
    const shortest = `at least ${againDays}d, or "0d": polls read orders again for as long, and what was deleted would come back as new`;
    fault('retention.orders', 'a time shorter than polls look back', shortest);
  }
  const isTaken = local.listen?.some(({ host, port }) => host === listen?.host && port === listen.port);
  if (webhook.enabled && listen?.port !== 0 && isTaken) {
    fault('local.listen', 'the address of webhook.listen', 'an address of its own');
  }
  return faults;
}

function deepFreeze<T extends object>(value: T): T {
  for (const inner of Object.values(value)) {
    if (typeof inner === 'object' && inner !== null) deepFreeze(inner);
  }
  return Object.freeze(value);
}

/** Configuration and secrets of a process. */
interface Setup {
  config: Config;
  secrets: Secrets;
  /** Files with the service's secrets that this user is not permitted to read. */
  unseen: string[];
}

type SetupResult = { file: string } & (Setup | { faults: ConfigFault[] });

/** Returns configuration and secrets. Throws `config-invalid` with the faults of both. */
export function loadSetup(options: ConfigOptions): Setup {
  const result = readSetup(options);
  if ('faults' in result) throw configError(result.faults);
  return result;
}

/**
 * Returns configuration and secrets, or all faults of both. A command in a shell uses the service's secrets, as far as
 * its user may read them, so that it agrees with the daemon.
 */
export function readSetup(options: ConfigOptions): SetupResult {
  const read = readConfig(options);
  const service = options.env.CREDENTIALS_DIRECTORY ? undefined : serviceOf(resolve(read.file));
  const handed = readSecrets(options.env, service, 'config' in read ? hookNames(read.config) : []);
  const { file } = read;
  const faults = [read, handed].flatMap((result) => ('faults' in result ? result.faults : []));
  if ('faults' in read || 'faults' in handed) return { file, faults };
  const { config } = read;
  const { secrets, unseen } = handed;
  return { file, config, secrets: withStoredKey(secrets, config), unseen };
}

/** Adds the API key of the storage directory, if this user may read it and no other key is handed in. */
export function withStoredKey(secrets: Secrets, { storage }: Pick<Config, 'storage'>): Secrets {
  const localApiKey = secrets.localApiKey ?? storedKey(storage.directory);
  return localApiKey === undefined ? secrets : { ...secrets, localApiKey };
}

export function hookNames({ hooks }: Pick<Config, 'hooks'>): string[] {
  return hooks.map(({ name }) => name);
}

/** Returns warnings about valid settings that are probably a mistake. */
export function configWarnings({
  platform,
  stock,
  branches,
  link,
}: Pick<Config, 'platform' | 'stock' | 'branches' | 'link'>): string[] {
  const warnings: string[] = [];
  if (isBranch({ link }) && stock.safety > 0) {
    warnings.push(
      'stock.safety says nothing at a branch: only its hub keeps stock back. Set it there, in [stock] or as safety of this branch in [[branches]].',
    );
  }
  if (platform.baseUrl === '') return warnings;
  const { protocol, hostname, host } = new URL(platform.baseUrl);
  if (protocol !== 'https:' && !isLoopback(hostname.replace(/^\[(.*)\]$/, '$1'))) {
    warnings.push(
      `platform.base_url begins with http://, so the tokens go to ${host} in clear text: whoever is on the way can read and use them. Use https://.`,
    );
  }
  // Only a warning, because orders still arrive with this setting.
  if (!stock.platformDeducts && stock.holdBackUnbooked !== true) {
    warnings.push(
      'stock.platform_deducts = false needs stock.hold_back_unbooked = true. Without it nothing is sent after an order, and the platform goes on selling what is gone until the POS hands over the next count.',
    );
  }
  const half = branches.filter(({ subsidiaryId, externalId }) => !subsidiaryId || !externalId);
  if (stock.holdBackUnbooked === true && half.length > 0) {
    const names = half.map(({ subsidiaryId, externalId }) => subsidiaryId ?? externalId).join(', ');
    warnings.push(
      `stock.hold_back_unbooked is on, and not every branch has both of its ids: ${names}. What an order takes cannot be told for certain there. Give each of the [[branches]] a subsidiary_id and an external_id.`,
    );
  }
  return warnings;
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}
