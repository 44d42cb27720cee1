import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { sameCommandWithSudo, TillsyncError } from '../core/errors.ts';
import { replaceSecret } from '../core/files.ts';
import { type ConfigFault, configError, DEFAULT_CONFIG_FILE, type Environment } from './source.ts';
import { isHttpUrl } from './values.ts';

/** Directory from which systemd reads credentials (systemd.exec(5), LoadCredential). */
export const CREDSTORE = '/etc/credstore';

/**
 * Returns the name of the service of a configuration file, such as `tillsync@second`; undefined if no service reads the
 * file.
 */
export function serviceOf(configFile: string): string | undefined {
  if (dirname(configFile) !== dirname(DEFAULT_CONFIG_FILE) || !configFile.endsWith('.toml')) return undefined;
  return configFile === DEFAULT_CONFIG_FILE ? 'tillsync' : `tillsync@${basename(configFile, '.toml')}`;
}

/** Returns the path of a service's secret, such as `/etc/credstore/tillsync.local-api-key`. */
export function credentialFile(service: string, name: string, directory = CREDSTORE): string {
  return join(directory, `${service}.${name}`);
}

/** Returns the secret in a file without its line end; undefined if the file is missing or this user may not read it. */
export function readCredential(file: string): string | undefined {
  try {
    return withoutLineEnd(readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}

/** Writes a secret as a whole or not at all. Only root can read it. Throws `config-invalid`. */
export function writeCredential(file: string, secret: string): void {
  try {
    replaceSecret(file, secret);
  } catch (cause) {
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('config-invalid', `${file} cannot be written (${why}). Nothing was changed.`, {
      cause,
      hint: `Run it as root: ${sameCommandWithSudo()}`,
    });
  }
}

/** Secrets. They are never in the configuration file, in a log or in an error. */
export interface Secrets {
  /** Tokens with which this tillsync begins. A newer pair in state.db is used instead. */
  readonly refreshToken?: string;
  readonly accessToken?: string;
  /** Secrets that a callback may have: none, one, or during a rotation the new one followed by the old one. */
  readonly webhookSecrets: readonly string[];
  readonly localApiKey?: string;
  /** Address that replaces `alarms.url`. */
  readonly alarmUrl?: string;
  /** Token that is sent to the alarm address. */
  readonly alarmToken?: string;
  /** Signing secrets by the name of the hook. During a rotation, a hook has two, and the new one is first. */
  readonly hookSecrets?: Readonly<Record<string, readonly string[]>>;
  /** Address that replaces the `url` of a hook, by the name of the hook. */
  readonly hookUrls?: Readonly<Record<string, string>>;
  /** Address that replaces `alarms.heartbeat_url`. */
  readonly heartbeatUrl?: string;
  /** Private key with which this branch identifies itself to the hub. */
  readonly linkSeed?: string;
  /** Passphrase that encrypts backups if `backup.recipient` is empty. */
  readonly backupPassphrase?: string;
}

/** Maximum number of secrets that callbacks, and each hook, may have at the same time. */
const SIGNING_SECRETS_MAX = 2;
const SINGLE = {
  refreshToken: 'refresh-token',
  accessToken: 'access-token',
  localApiKey: 'local-api-key',
  alarmUrl: 'alarm-url',
  alarmToken: 'alarm-token',
  heartbeatUrl: 'heartbeat-url',
  linkSeed: 'link-seed',
  backupPassphrase: 'backup-passphrase',
} as const;
/** Every secret that can be handed in, by its name as a systemd credential; those of hooks are not listed. */
export const SECRET_NAMES = [...Object.values(SINGLE), 'webhook-secret'];
/** Beginning of the names of a hook's secrets. */
export const HOOK_SECRET = 'hook-';
/** Ending of the name of a secret that is a hook's address. */
const HOOK_URL = '-url';

/** Returns the environment variable by which a secret can be handed in. */
export function secretVariable(name: string): string {
  return `TILLSYNC_${name.toUpperCase().replaceAll('-', '_')}`;
}

const ALLOWED = 'one line of visible ASCII characters, as an HTTP header can carry them';

/**
 * Loads secrets from systemd credentials such as `$CREDENTIALS_DIRECTORY/refresh-token`, else from variables such as
 * `TILLSYNC_REFRESH_TOKEN`. Throws `config-invalid` with every unusable secret.
 */
export function loadSecrets(env: Environment): Secrets {
  const result = readSecrets(env);
  if ('faults' in result) throw configError(result.faults);
  return result.secrets;
}

type SecretsResult = { secrets: Secrets; unseen: string[] } | { faults: ConfigFault[]; unseen: string[] };

/**
 * Returns the secrets, or all their faults. Secrets that this process was not given are read from the files of
 * `service`, such as `tillsync@second`; `unseen` lists files that this user may not read. `hooks` are the names of the
 * hooks.
 */
export function readSecrets(
  env: Environment,
  service?: string,
  hooks: readonly string[] = [],
): SecretsResult {
  const faults: ConfigFault[] = [];
  const unseen: string[] = [];
  const fault = (origin: string, found: string, allowed = ALLOWED) =>
    faults.push({ origin, key: '', found, allowed });

  const fromFile = (file: string, isCredstore: boolean): Handed | undefined => {
    try {
      return { origin: file, text: withoutLineEnd(readFileSync(file, 'utf8')) };
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault';
      if (isCredstore && code === 'EACCES') unseen.push(file);
      else if (code !== 'ENOENT' && !(isCredstore && code === 'ENOTDIR')) {
        fault(file, `a file that cannot be read (${code})`);
      }
      return undefined;
    }
  };
  const fromVariable = (variable: string): Handed | undefined => {
    const text = env[variable];
    if (text === undefined) return undefined;
    return { origin: `environment variable ${variable}`, text: withoutLineEnd(text) };
  };
  const handedIn = (name: string): Handed | undefined =>
    (env.CREDENTIALS_DIRECTORY ? fromFile(join(env.CREDENTIALS_DIRECTORY, name), false) : undefined) ??
    fromVariable(secretVariable(name)) ??
    (service === undefined ? undefined : fromFile(credentialFile(service, name), true));

  /** Checks the characters of a secret, because it is sent in an HTTP header. */
  const judge = (origin: string, secret: string) => {
    if (secret === '') fault(origin, 'an empty secret');
    else if (!/^[\x21-\x7e]+$/.test(secret))
      fault(origin, 'spaces or characters that no HTTP header can carry');
  };
  const single: Record<string, string> = {};
  for (const [property, name] of Object.entries(SINGLE)) {
    const handed = handedIn(name);
    if (handed === undefined) continue;
    judge(handed.origin, handed.text);
    single[property] = handed.text;
  }
  const judgeAddress = (name: string, address: string | undefined) => {
    if (address === undefined || isHttpUrl(address)) return;
    const allowed = 'an address that begins with http:// or https://, without user or fragment';
    fault(`the secret ${name}`, 'a value that is not shown', allowed);
  };
  for (const property of ['alarmUrl', 'heartbeatUrl'] as const) {
    judgeAddress(SINGLE[property], single[property]);
  }
  /** Checks the lines of a signing secret: the current secret, and below it perhaps the previous one. */
  const signing = ({ origin, text }: Handed) => {
    const lines = text.split(/\r?\n/);
    if (lines.length > SIGNING_SECRETS_MAX) {
      const allowed = 'the current secret and, below it, the previous one while it is being rotated';
      fault(origin, `${lines.length} lines`, allowed);
    }
    for (const secret of lines) judge(origin, secret);
    return Object.freeze([...new Set(lines)]);
  };
  const hookSecrets: Record<string, readonly string[]> = {};
  const hookUrls: Record<string, string> = {};
  for (const hook of hooks) {
    const name = `${HOOK_SECRET}${hook}`;
    const handed = handedIn(name);
    if (handed) {
      hookSecrets[hook] = signing(handed);
    }
    // The secret `hook-NAME-url` is the address of the hook NAME, unless another hook is named `NAME-url`. Then it is
    // that hook's signing secret.
    const address = hooks.includes(hook + HOOK_URL) ? undefined : handedIn(name + HOOK_URL);
    if (address) {
      judge(address.origin, address.text);
      judgeAddress(name + HOOK_URL, address.text);
      hookUrls[hook] = address.text;
    }
  }
  const handed = handedIn('webhook-secret');
  const webhookSecrets = handed ? signing(handed) : Object.freeze([]);
  if (faults.length > 0) return { faults, unseen };
  const secrets: Secrets = {
    ...single,
    webhookSecrets,
    ...(Object.keys(hookSecrets).length > 0 && { hookSecrets: Object.freeze(hookSecrets) }),
    ...(Object.keys(hookUrls).length > 0 && { hookUrls: Object.freeze(hookUrls) }),
  };
  return { secrets: Object.freeze(secrets), unseen };
}

interface Handed {
  /** Where the secret came from, in words for a person. */
  origin: string;
  text: string;
}

function withoutLineEnd(text: string): string {
  return text.replace(/[\r\n]+$/, '');
}

/** Returns the secrets that were handed in, by their names as systemd credentials. */
export function secretsByName(secrets: Secrets): ReadonlyMap<string, string> {
  const { webhookSecrets, hookSecrets = {}, hookUrls = {} } = secrets;
  const all: [string, string | undefined][] = [
    ...Object.entries(SINGLE).map(([property, name]): [string, string | undefined] => [
      name,
      secrets[property as keyof typeof SINGLE],
    ]),
    ['webhook-secret', webhookSecrets.join('\n') || undefined],
    ...Object.entries(hookSecrets).map(([name, lines]): [string, string] => [
      HOOK_SECRET + name,
      lines.join('\n'),
    ]),
    ...Object.entries(hookUrls).map(([name, url]): [string, string] => [HOOK_SECRET + name + HOOK_URL, url]),
  ];
  return new Map(all.flatMap(([name, secret]) => (secret === undefined ? [] : [[name, secret]])));
}

/** Returns all secrets in use. Used to remove them from texts. */
export function secretValues(secrets: Secrets): string[] {
  return [...secretsByName(secrets).values()].flatMap((text) => text.split('\n'));
}
