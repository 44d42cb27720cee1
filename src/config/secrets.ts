import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { TillsyncError } from '../core/errors.ts';
import { type ConfigFault, configError, DEFAULT_CONFIG_FILE, type Environment } from './source.ts';
import { httpUrl } from './values.ts';

/** Where systemd looks for the credentials of its services (systemd.exec(5), LoadCredential). */
export const CREDSTORE = '/etc/credstore';

const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;

/** The service that reads a configuration file, such as `tillsync@second`; undefined for a file that none reads. */
export function serviceOf(configFile: string): string | undefined {
  if (dirname(configFile) !== dirname(DEFAULT_CONFIG_FILE) || !configFile.endsWith('.toml')) return undefined;
  return configFile === DEFAULT_CONFIG_FILE ? 'tillsync' : `tillsync@${basename(configFile, '.toml')}`;
}

/** The file from which the service gets a secret, such as `/etc/credstore/tillsync.local-api-key`. */
export function credentialFile(service: string, name: string, directory = CREDSTORE): string {
  return join(directory, `${service}.${name}`);
}

/** Without its line end; undefined when there is none, or this user may not read it. */
export function readCredential(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').replace(/[\r\n]+$/, '');
  } catch {
    return undefined;
  }
}

/** Puts the secret there, all or nothing, for root alone. Throws `config-invalid`. */
export function writeCredential(file: string, secret: string): void {
  const part = `${file}.${process.pid}.part`;
  let isBegun = false;
  try {
    mkdirSync(dirname(file), { recursive: true, mode: DIRECTORY_MODE });
    const handle = openSync(part, 'wx', FILE_MODE);
    isBegun = true;
    try {
      writeSync(handle, `${secret}\n`);
      fsyncSync(handle);
    } finally {
      closeSync(handle);
    }
    renameSync(part, file);
    const directory = openSync(dirname(file), 'r');
    fsyncSync(directory);
    closeSync(directory);
  } catch (cause) {
    if (isBegun) rmSync(part, { force: true });
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('config-invalid', `${file} cannot be written (${why}). Nothing was changed.`, {
      cause,
      hint: 'Run it as root: sudo tillsync key',
    });
  }
}

/** What never stands in the configuration file. Never logged, never part of an error. */
export interface Secrets {
  /** The tokens handed in at first; a newer pair in the store wins over them. */
  readonly refreshToken?: string;
  readonly accessToken?: string;
  /** The secrets a callback may carry: none, one, or during a rotation the new one and then the old one. */
  readonly webhookSecrets: readonly string[];
  readonly localApiKey?: string;
  /** Takes the place of `alarms.url`. */
  readonly alarmUrl?: string;
  /** Sent to the address for alarms. */
  readonly alarmToken?: string;
}

const WEBHOOK_SECRETS_MAX = 2;
const NAMES = {
  refreshToken: 'refresh-token',
  accessToken: 'access-token',
  webhookSecret: 'webhook-secret',
  localApiKey: 'local-api-key',
  alarmUrl: 'alarm-url',
  alarmToken: 'alarm-token',
} as const;

interface Handed {
  /** Where it came from, for a person. */
  origin: string;
  text: string;
}

const ALLOWED = 'one line of visible ASCII characters, as an HTTP header can carry them';

/**
 * Secrets from systemd credentials (`$CREDENTIALS_DIRECTORY/refresh-token` and so on), else from
 * `TILLSYNC_REFRESH_TOKEN` and so on. Throws `config-invalid` naming every secret that cannot be used.
 */
export function loadSecrets(env: Environment): Secrets {
  const result = readSecrets(env);
  if ('faults' in result) throw configError(result.faults);
  return result.secrets;
}

/** Where systemd finds the secrets of a service, for whoever is not started by it. */
export interface ServiceSecrets {
  /** Such as `tillsync@second`; undefined: no service reads the configuration. */
  service: string | undefined;
  /** Another place than `/etc/credstore`. */
  credstore?: string;
}

export type SecretsResult =
  | { secrets: Secrets; unseen: string[] }
  | { faults: ConfigFault[]; unseen: string[] };

/**
 * The secrets, or every fault of them. With `of`, what the service would be handed counts where this process was
 * handed nothing; `unseen` names the files that this user may not read.
 */
export function readSecrets(env: Environment, of: ServiceSecrets = { service: undefined }): SecretsResult {
  const faults: ConfigFault[] = [];
  const unseen: string[] = [];
  const one = (name: string): string | undefined => {
    const handed = handedIn(name, env, faults) ?? fromCredstore(name, of, faults, unseen);
    if (handed !== undefined) judge(handed.origin, handed.text, faults);
    return handed?.text;
  };
  const refreshToken = one(NAMES.refreshToken);
  const accessToken = one(NAMES.accessToken);
  const localApiKey = one(NAMES.localApiKey);
  const alarmToken = one(NAMES.alarmToken);
  const alarmUrl = one(NAMES.alarmUrl);
  if (alarmUrl !== undefined && !isHttpUrl(alarmUrl)) {
    const allowed = 'an address that begins with http:// or https://, without user or fragment';
    faults.push({ origin: 'the secret alarm-url', key: '', found: 'a value that is not shown', allowed });
  }
  const handed =
    handedIn(NAMES.webhookSecret, env, faults) ?? fromCredstore(NAMES.webhookSecret, of, faults, unseen);
  const webhookSecrets = webhookSecretsOf(handed, faults);
  if (faults.length > 0) return { faults, unseen };
  const secrets: Secrets = {
    ...(refreshToken === undefined ? {} : { refreshToken }),
    ...(accessToken === undefined ? {} : { accessToken }),
    webhookSecrets: Object.freeze(webhookSecrets),
    ...(localApiKey === undefined ? {} : { localApiKey }),
    ...(alarmUrl === undefined ? {} : { alarmUrl }),
    ...(alarmToken === undefined ? {} : { alarmToken }),
  };
  return { secrets: Object.freeze(secrets), unseen };
}

function handedIn(name: string, env: Environment, faults: ConfigFault[]): Handed | undefined {
  const directory = env.CREDENTIALS_DIRECTORY;
  if (directory !== undefined && directory !== '') {
    const file = join(directory, name);
    try {
      return { origin: file, text: withoutLineEnd(readFileSync(file, 'utf8')) };
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault';
      if (code !== 'ENOENT') {
        faults.push({
          origin: file,
          key: '',
          found: `a file that cannot be read (${code})`,
          allowed: ALLOWED,
        });
        return undefined;
      }
    }
  }
  const variable = `TILLSYNC_${name.toUpperCase().replaceAll('-', '_')}`;
  const text = env[variable];
  return text === undefined
    ? undefined
    : { origin: `environment variable ${variable}`, text: withoutLineEnd(text) };
}

function fromCredstore(
  name: string,
  { service, credstore }: ServiceSecrets,
  faults: ConfigFault[],
  unseen: string[],
): Handed | undefined {
  if (service === undefined) return undefined;
  const file = credentialFile(service, name, credstore);
  try {
    return { origin: file, text: withoutLineEnd(readFileSync(file, 'utf8')) };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault';
    if (code === 'EACCES') unseen.push(file);
    else if (code !== 'ENOENT' && code !== 'ENOTDIR') {
      faults.push({ origin: file, key: '', found: `a file that cannot be read (${code})`, allowed: ALLOWED });
    }
    return undefined;
  }
}

function withoutLineEnd(text: string): string {
  return text.replace(/[\r\n]+$/, '');
}

function webhookSecretsOf(handed: Handed | undefined, faults: ConfigFault[]): string[] {
  if (handed === undefined) return [];
  const secrets = handed.text.split(/\r?\n/);
  if (secrets.length > WEBHOOK_SECRETS_MAX) {
    const allowed = 'the current secret and, below it, the previous one while it is being rotated';
    faults.push({ origin: handed.origin, key: '', found: `${secrets.length} lines`, allowed });
  }
  for (const secret of secrets) judge(handed.origin, secret, faults);
  return [...new Set(secrets)];
}

/** What is in force, for whoever must never show it. */
export function secretValues(secrets: Secrets): string[] {
  const { webhookSecrets, refreshToken, accessToken, localApiKey, alarmUrl, alarmToken } = secrets;
  const single = [refreshToken, accessToken, localApiKey, alarmUrl, alarmToken];
  return [...webhookSecrets, ...single.filter((secret) => secret !== undefined)];
}

function isHttpUrl(text: string): boolean {
  return httpUrl({ baseOnly: false }).safeParse(text).success && text !== '';
}

/** A secret travels in an HTTP header, so it can hold nothing that a header cannot. */
function judge(origin: string, secret: string, faults: ConfigFault[]): void {
  if (/^[\x21-\x7e]+$/.test(secret)) return;
  const found = secret === '' ? 'an empty secret' : 'spaces or characters that no HTTP header can carry';
  faults.push({ origin, key: '', found, allowed: ALLOWED });
}
