import { statSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { DEFAULT_CONFIG_FILE, type Environment, rawValue, readConfigFile } from '../config/config-source.ts';
import type { Installation } from '../domain/installation.ts';

const DEFAULT_STORAGE = '/var/lib/tillsync';
/** Users below are the system's own, such as the one of a service: nobody types as one of them. */
const FIRST_PERSON_UID = 1000;

/** The unit of the package that serves a configuration file; null: none does. */
export function unitOf(configFile: string): string | null {
  if (dirname(configFile) !== dirname(DEFAULT_CONFIG_FILE) || !configFile.endsWith('.toml')) return null;
  const name = basename(configFile, '.toml');
  return configFile === DEFAULT_CONFIG_FILE ? 'tillsync.service' : `tillsync@${name}.service`;
}

/** How tillsync is called here with the configuration that `--config` (or the environment) names. */
export function findInstallation(file: string | undefined, env: Environment): Installation {
  const raw = readConfigFile(file, env);
  const configFile = resolve(raw.file);
  const directory = rawValue(raw, env, 'storage', 'directory').value;
  const storage = typeof directory === 'string' ? directory : DEFAULT_STORAGE;
  const isCheckout = basename(process.argv[1] ?? '') === 'main.ts';
  return {
    program: isCheckout ? 'npm run -s tillsync --' : 'tillsync',
    needsSudo: isOfAnother(storage),
    storage,
    configFile: configFile === DEFAULT_CONFIG_FILE ? null : configFile,
    unit: unitOf(configFile),
  };
}

/** Whether a person who types as this user has no right to a directory, or to where it will be made. */
function isOfAnother(directory: string): boolean {
  const own = process.geteuid?.();
  if (own === undefined) return false;
  let at = resolve(directory);
  let found = statOf(at);
  while (found === undefined && at !== dirname(at)) {
    at = dirname(at);
    found = statOf(at);
  }
  const owner = found?.uid ?? own;
  return owner !== own || (owner !== 0 && owner < FIRST_PERSON_UID);
}

function statOf(path: string): { uid: number } | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}
