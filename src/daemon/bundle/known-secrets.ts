import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Environment } from '../../config/config-source.ts';
import { lookInto } from '../../store/backup/copy-database.ts';
import { asRoot } from '../storage/storage-user.ts';

export interface KnownSecrets {
  secrets: Set<string>;
  /** Names of those that were handed in. */
  handedIn: Set<string>;
  /** sha256 of every refresh token that a person handed in. */
  fingerprints: Set<string>;
  /** Why not all are known; then what could hold one is left out. */
  fault: unknown;
}

const NAMES = [
  'refresh-token',
  'access-token',
  'webhook-secret',
  'local-api-key',
  'alarm-url',
  'alarm-token',
];

/** Every secret that this process can come by: in the environment, in credentials, in state.db, in addresses. */
export function knownSecrets(options: {
  env: Environment;
  /** The configuration file, in order or not: a secret may have strayed into it. */
  configFile: string;
  statePath: string;
}): KnownSecrets {
  const { env, configFile, statePath } = options;
  const found: KnownSecrets = {
    secrets: new Set(),
    handedIn: new Set(),
    fingerprints: new Set(),
    fault: undefined,
  };
  const add = (text: string | null | undefined) => {
    for (const line of (text ?? '').split(/[\r\n]+/)) {
      for (const secret of [line, line.trim()]) if (secret !== '') found.secrets.add(secret);
    }
  };
  for (const name of NAMES) {
    const fromFile = env.CREDENTIALS_DIRECTORY && contentOf(join(env.CREDENTIALS_DIRECTORY, name));
    for (const secret of [env[`TILLSYNC_${name.toUpperCase().replaceAll('-', '_')}`], fromFile]) {
      if (secret) found.handedIn.add(name);
      add(secret);
    }
  }
  const overrides = Object.entries(env).filter(([name]) => name.startsWith('TILLSYNC_'));
  const configured = [contentOf(configFile), ...overrides.map(([, value]) => value)];
  for (const text of configured) straySecrets(text ?? '').forEach(add);
  try {
    for (const copy of [statePath, `${statePath}.before-upgrade`]) {
      if (existsSync(copy)) addStored(copy, found, add);
    }
    // Where not even the directory can be looked into, nothing seems to exist.
    const directory = join(statePath, '..');
    if (existsSync(directory)) readdirSync(directory);
  } catch (error) {
    found.fault = error;
  }
  return found;
}

function addStored(path: string, found: KnownSecrets, add: (text: string | null | undefined) => void): void {
  lookInto(path, (db) => {
    const tables = new Set(db.prepare<[], string>('SELECT name FROM sqlite_schema').pluck().all());
    const texts = (query: string) => db.prepare<[], (string | null)[]>(query).raw().all().flat();
    if (tables.has('tokens')) texts('SELECT refresh_token, access_token FROM tokens').forEach(add);
    if (tables.has('handed_in')) {
      for (const print of texts('SELECT fingerprint FROM handed_in'))
        if (print) found.fingerprints.add(print);
    }
    if (!tables.has('webhook')) return;
    for (const memory of texts('SELECT memory FROM webhook')) {
      for (const value of Object.values(JSON.parse(memory ?? '{}') as object).flat()) {
        if (typeof value === 'string') add(value);
      }
    }
  });
}

const ADDRESS = /\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>]+/gi;
const NAMED = /^[\w.\s-]*(?:secret|token|passw|api_?key)[\w\s-]*=\s*["']+([^"'\n]{4,})/gim;

/** User, password and query of each address in a text, and what stands under the name of a secret. */
function straySecrets(text: string): string[] {
  const named = Array.from(text.matchAll(NAMED), (match) => match[1] ?? '');
  const inAddresses = Array.from(text.matchAll(ADDRESS), ([address]) => {
    if (!URL.canParse(address)) return [];
    const { username, password, searchParams } = new URL(address);
    return [decoded(username), decoded(password), ...searchParams.values()];
  });
  return [...named, ...inAddresses.flat()].filter((secret) => secret.length >= 4);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function contentOf(path: string): string | undefined {
  try {
    return asRoot(() => readFileSync(path, 'utf8'));
  } catch {
    return undefined;
  }
}
