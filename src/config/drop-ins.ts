import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { isIPv4, isIPv6 } from 'node:net';
import { dirname, join } from 'node:path';
import type { z } from 'zod';
import { FILE, keyAt } from './schema.ts';
import { HOOK_SECRET, serviceOf } from './secrets.ts';
import { DEFAULT_CONFIG_FILE, describeFault, type RawConfig, rawValue, readConfigFile } from './source.ts';
import type { Listen } from './values.ts';

export interface DropInsOptions {
  /** Directory of the configuration files. */
  configs: string;
  /** Directory with the secrets of the services. */
  credstore: string;
  /** Directory for units, which systemd gives to a generator. */
  units: string;
  /** Gets a line about what could not be read or written. */
  warn: (line: string) => void;
}

/** Settings that systemd adds to those of a unit's own file. */
interface DropIn {
  unit: string;
  name: string;
  text: string;
}

/**
 * Writes the drop-ins by which the units follow the configuration: sockets listen at `webhook.listen`, and services may
 * write in `storage.directory` and `backup.directory` and get the secrets of their hooks. What cannot be read changes
 * nothing. A key is used even if others have faults, so that a typing error at one boot does not move a socket.
 */
export function writeDropIns({ configs, credstore, units, warn }: DropInsOptions): void {
  const secrets = namesIn(credstore);
  for (const file of namesIn(configs)) {
    const service = serviceOfName(file);
    if (service === undefined) continue;
    const raw = readConfigFile(join(configs, file), {});
    for (const fault of raw.faults) warn(`${describeFault(fault)}. ${service} gets no drop-ins from it.`);
    for (const dropIn of [
      ...hooksOf(service, secrets),
      ...storageOf(service, raw, warn),
      ...socketOf(service, raw),
    ]) {
      try {
        write(units, dropIn);
      } catch (error) {
        warn(`A drop-in of ${dropIn.unit} cannot be written: ${String(error)}`);
      }
    }
  }
}

/** Returns the names in a directory; none if it cannot be read. */
function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory).sort();
  } catch {
    return [];
  }
}

/** Returns the service that reads the configuration file of this name; undefined if no unit can have the name. */
function serviceOfName(name: string): string | undefined {
  return /^[\w-][\w.-]*$/.test(name) ? serviceOf(join(dirname(DEFAULT_CONFIG_FILE), name)) : undefined;
}

function write(units: string, { unit, name, text }: DropIn): void {
  const directory = join(units, `${unit}.d`);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, `50-${name}.conf`), text);
}

/** Loads the secrets of hooks, whose names are free, so that the unit's own file cannot list them. */
function hooksOf(service: string, secrets: readonly string[]): DropIn[] {
  const beginning = `${service}.${HOOK_SECRET}`;
  const lines = secrets
    .filter((name) => name.startsWith(beginning) && /^[a-z][a-z0-9-]*$/.test(name.slice(beginning.length)))
    .map((name) => `LoadCredential=${name.slice(service.length + 1)}:${name}\n`);
  if (lines.length === 0) return [];
  const text = `# From /etc/credstore\n[Service]\n${lines.join('')}`;
  return [{ unit: `${service}.service`, name: 'hooks', text }];
}

function storageOf(service: string, raw: RawConfig, warn: DropInsOptions['warn']): DropIn[] {
  const { storage, backup } = FILE.shape;
  const paths: string[] = [];
  for (const path of [
    given(raw, 'storage.directory', storage.shape.directory),
    given(raw, 'backup.directory', backup.shape.directory),
  ]) {
    if (!path) continue;
    // biome-ignore lint/suspicious/noControlCharactersInRegex: a path may have them, and a unit may not.
    if (/["\\\x00-\x1f\x7f]/.test(path)) warn(`${service} cannot be let write in ${JSON.stringify(path)}.`);
    // A unit reads % as the beginning of a name.
    else paths.push(`"-${path.replaceAll('%', '%%')}"`);
  }
  if (paths.length === 0) return [];
  const text = `# From ${raw.file}\n[Service]\nReadWritePaths=${paths.join(' ')}\n`;
  return [{ unit: `${service}.service`, name: 'storage', text }];
}

/** Gives the socket its address. Switches the socket off if there are no callbacks: they are disabled, or the hub gets them. */
function socketOf(service: string, raw: RawConfig): DropIn[] {
  const { webhook, link } = FILE.shape;
  const dropIn = (text: string) => [{ unit: `${service}.socket`, name: 'webhook-listen', text }];
  const isBranch = (given(raw, 'link.hub', link.shape.hub) ?? []).length > 0;
  if (isBranch || given(raw, 'webhook.enabled', webhook.shape.enabled) === false) {
    return dropIn(`# No callbacks arrive here by ${raw.file}\n[Unit]\nConditionPathExists=!${raw.file}\n`);
  }
  const listen = given(raw, 'webhook.listen', webhook.shape.listen);
  const address = listen && addressOf(listen);
  if (address === undefined) return [];
  return dropIn(`# From ${raw.file}\n[Socket]\nListenStream=\nListenStream=${address}\n`);
}

/** Returns the address as a unit takes it; undefined for names, zones and a port that is chosen at the start. */
function addressOf({ host, port }: Listen): string | undefined {
  if (port === 0) return undefined;
  const address = host === 'localhost' ? '127.0.0.1' : host;
  if (isIPv4(address)) return `${address}:${port}`;
  return isIPv6(address) && !address.includes('%') ? `[${address}]:${port}` : undefined;
}

/** Returns the value that the file gives to a key; undefined if there is none, or a wrong one. */
function given<T>(raw: RawConfig, path: string, schema: z.ZodType<T>): T | undefined {
  const { value } = rawValue(raw, {}, keyAt(path));
  return value === undefined ? undefined : schema.safeParse(value).data;
}
