import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { TillsyncError } from '../core/errors.ts';
import { syncPath } from '../db/sqlite.ts';
import type { HubKeys, HubRows } from './hub-state.ts';
import { type LinkTls, type NatsOptions, newKey, publicKeyOf, reloadServer } from './nats.ts';
import { serverConfig } from './server-config.ts';

const MODE = 0o600;

/** `[hub]` of the configuration. */
export interface HubAddresses {
  nats: string;
  publicUrl: string;
}

/** The hub's own keys, made when they are asked for first. */
export async function hubKeys(rows: HubRows): Promise<HubKeys> {
  const there = rows.keys();
  if (there) return there;
  const [hub, system] = [await newKey(), await newKey()];
  return rows.keepKeys({ hub: hub.seed, system: system.seed, storage: randomBytes(24).toString('hex') });
}

/** How one of the hub's own users reaches the server. Throws `config-invalid`. */
export async function ownAccess(
  rows: HubRows,
  { nats, publicUrl }: HubAddresses,
  user: 'hub' | 'system',
): Promise<NatsOptions> {
  const keys = await hubKeys(rows);
  const tls = rows.serverConfig()?.tls ?? null;
  const serverName = hostOf(publicUrl || nats);
  const how: LinkTls | null = tls && { ca: tls.caFile && readPem(tls.caFile), serverName };
  return { url: nats, seed: keys[user], user, tls: how };
}

/** null for an address of numbers, which no certificate is asked for by name. */
function hostOf(url: string): string | null {
  const { hostname } = new URL(url.replace(/^\w+:/, 'http:'));
  return /^[\d.]+$|^\[/.test(hostname) ? null : hostname;
}

/** Throws `config-invalid` for a file that cannot be read. */
export function readPem(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('config-invalid', `${file} cannot be read (${why}).`, { cause });
  }
}

/** The server's configuration as it has to be now; undefined while nobody said where it is to be written. */
async function wantedText(
  rows: HubRows,
  { nats, publicUrl }: HubAddresses,
  nowMs: number,
): Promise<string | undefined> {
  const place = rows.serverConfig();
  if (!place) return undefined;
  const keys = await hubKeys(rows);
  const { port } = new URL(nats.replace(/^\w+:/, 'http:'));
  const isOpen = place.tls !== null && publicUrl !== '';
  return serverConfig({
    listen: `${isOpen ? '0.0.0.0' : '127.0.0.1'}:${port || '4222'}`,
    storeDirectory: place.storeDirectory,
    storageKey: keys.storage,
    tls: place.tls,
    hubKey: await publicKeyOf(keys.hub),
    systemKey: await publicKeyOf(keys.system),
    branches: rows.branches().filter(({ expiresAt }) => expiresAt === null || Date.parse(expiresAt) > nowMs),
  });
}

/**
 * Writes the server's configuration where it is not as it has to be, and gives whether it did. The server has to read
 * it then. Throws `config-invalid` when it cannot be written.
 */
export async function writeServerFile(
  rows: HubRows,
  addresses: HubAddresses,
  nowMs: number,
): Promise<boolean> {
  const text = await wantedText(rows, addresses, nowMs);
  const file = rows.serverConfig()?.file;
  if (text === undefined || file === undefined) return false;
  const part = `${file}.${process.pid}.part`;
  try {
    const there = statSync(file, { throwIfNoEntry: false });
    if (there && readFileSync(file, 'utf8') === text) return false;
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(part, text, { mode: there ? there.mode & 0o777 : MODE, flush: true });
    renameSync(part, file);
    syncPath(dirname(file));
    return true;
  } catch (cause) {
    rmSync(part, { force: true });
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('config-invalid', `${file} cannot be written (${why}).`, {
      cause,
      hint: 'Name a file below the storage directory: {tillsync} hub server-config {storage}/nats/server.conf',
    });
  }
}

/** Keeps the server's configuration in step with the branches that come and go. */
export class ServerKeeper {
  readonly #rows: HubRows;
  readonly #addresses: HubAddresses;
  /** The server may not have read what is in the file: also at the start, for nobody knows. */
  #isBehind = true;

  constructor(rows: HubRows, addresses: HubAddresses) {
    this.#rows = rows;
    this.#addresses = addresses;
  }

  /** Throws `config-invalid`, and `link-down` while the server cannot be told: call it again. */
  async look(nowMs: number): Promise<void> {
    if (await writeServerFile(this.#rows, this.#addresses, nowMs)) this.#isBehind = true;
    if (!this.#isBehind || this.#rows.serverConfig() === undefined) return;
    await reloadServer(await ownAccess(this.#rows, this.#addresses, 'system'));
    this.#isBehind = false;
  }
}
