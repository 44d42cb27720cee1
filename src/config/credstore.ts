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
import { TillsyncError } from '../domain/errors.ts';
import { DEFAULT_CONFIG_FILE } from './config-source.ts';

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
