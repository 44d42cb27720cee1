import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { TillsyncError } from '../domain/errors.ts';
import type { Environment } from './config-source.ts';

/** What never stands in the configuration file. Never logged, never part of an error. */
export interface Secrets {
  /** The tokens handed in at first; a newer pair in the store wins over them. */
  readonly refreshToken?: string;
  readonly accessToken?: string;
  /** The secrets a callback may carry: none, one, or during a rotation the new one and then the old one. */
  readonly webhookSecrets: readonly string[];
  readonly localApiKey?: string;
}

const WEBHOOK_SECRETS_MAX = 2;
const NAMES = {
  refreshToken: 'refresh-token',
  accessToken: 'access-token',
  webhookSecret: 'webhook-secret',
  localApiKey: 'local-api-key',
} as const;

interface Handed {
  /** Where it came from, for a person. */
  origin: string;
  text: string;
}

/**
 * Secrets from systemd credentials (`$CREDENTIALS_DIRECTORY/refresh-token` and so on), else from
 * `TILLSYNC_REFRESH_TOKEN` and so on. Throws `config-invalid` naming every secret that cannot be used.
 */
export function loadSecrets(env: Environment): Secrets {
  const faults: string[] = [];
  const one = (name: string): string | undefined => {
    const handed = handedIn(name, env, faults);
    if (handed === undefined) return undefined;
    const fault = faultOf(handed.text);
    if (fault !== undefined) faults.push(`${handed.origin}: ${fault}`);
    return handed.text;
  };
  const refreshToken = one(NAMES.refreshToken);
  const accessToken = one(NAMES.accessToken);
  const localApiKey = one(NAMES.localApiKey);
  const webhookSecrets = webhookSecretsOf(handedIn(NAMES.webhookSecret, env, faults), faults);
  if (faults.length > 0) {
    throw new TillsyncError('config-invalid', `Secrets cannot be used:\n  ${faults.join('\n  ')}`, {
      hint: 'A secret is one line of visible characters; remove its file or variable to go without it.',
    });
  }
  return Object.freeze({
    ...(refreshToken === undefined ? {} : { refreshToken }),
    ...(accessToken === undefined ? {} : { accessToken }),
    webhookSecrets: Object.freeze(webhookSecrets),
    ...(localApiKey === undefined ? {} : { localApiKey }),
  });
}

function handedIn(name: string, env: Environment, faults: string[]): Handed | undefined {
  const directory = env.CREDENTIALS_DIRECTORY;
  if (directory !== undefined && directory !== '') {
    const file = join(directory, name);
    try {
      return { origin: file, text: withoutLineEnd(readFileSync(file, 'utf8')) };
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault';
      if (code !== 'ENOENT') {
        faults.push(`${file}: cannot be read (${code})`);
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

function withoutLineEnd(text: string): string {
  return text.replace(/[\r\n]+$/, '');
}

function webhookSecretsOf(handed: Handed | undefined, faults: string[]): string[] {
  if (handed === undefined) return [];
  const secrets = handed.text.split(/\r?\n/);
  if (secrets.length > WEBHOOK_SECRETS_MAX) {
    faults.push(
      `${handed.origin}: ${secrets.length} lines; allowed: the current secret, then the previous one`,
    );
  }
  for (const secret of secrets) {
    const fault = faultOf(secret);
    if (fault !== undefined) faults.push(`${handed.origin}: ${fault}`);
  }
  return [...new Set(secrets)];
}

/** A secret travels in an HTTP header, so it can hold nothing that a header cannot. */
function faultOf(secret: string): string | undefined {
  if (secret === '') return 'is empty';
  return /^[\x21-\x7e]+$/.test(secret)
    ? undefined
    : 'holds spaces or characters that no HTTP header can carry';
}
