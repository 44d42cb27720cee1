import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { TillsyncError } from '../core/errors.ts';
import { syncPath } from '../db/sqlite.ts';
import type { HubKeys, HubRows, ServerConfigPlace } from './hub-state.ts';
import { type HubUser, type LinkTls, type NatsOptions, newKey, publicKeyOf, reloadServer } from './nats.ts';
import { serverConfig } from './server-config.ts';
import { lookAtCertificate, placeOf, readPem } from './server-look.ts';

const MODE = 0o600;

/** Of the package `tillsync-hub`. */
export const SERVER_UNIT = 'tillsync-nats.service';
/** Also for one that runs: where it listens, and whether with TLS, it reads at its start alone. */
export const START_SERVER = 'sudo systemctl enable tillsync-nats && sudo systemctl restart tillsync-nats';

/** Whether the server with this file is the one that the unit starts. */
export function isOfUnit(file: string): boolean {
  return file === '/var/lib/tillsync/nats/server.conf' && existsSync(`/lib/systemd/system/${SERVER_UNIT}`);
}

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
  user: HubUser,
): Promise<NatsOptions> {
  const keys = await hubKeys(rows);
  const tls = rows.serverConfig()?.tls ?? null;
  const { host, isName } = placeOf(publicUrl || nats);
  // No certificate is asked for an address of numbers by name.
  const serverName = isName ? host : null;
  // So that a server with a certificate that is out of date can be told to read the new one.
  const takesAny = user === '@system';
  const how: LinkTls | null = tls && { ca: tls.caFile && readPem(tls.caFile), serverName, takesAny };
  return { url: nats, seed: user === '@hub' ? keys.hub : keys.system, user, tls: how };
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
  const isOpen = place.tls !== null && publicUrl !== '';
  return serverConfig({
    listen: `${isOpen ? '0.0.0.0' : '127.0.0.1'}:${placeOf(nats).port}`,
    storeDirectory: place.storeDirectory,
    storageKey: keys.storage,
    tls: place.tls,
    hubKey: await publicKeyOf(keys.hub),
    systemKey: await publicKeyOf(keys.system),
    branches: rows.branches().filter(({ expiresAt }) => expiresAt === null || Date.parse(expiresAt) > nowMs),
  });
}

/**
 * Writes the server's configuration where it is not as it has to be. `text`: what is in it; undefined while nobody said
 * where it is to be written. The server has to read it then. Throws `config-invalid` when it cannot be written.
 */
export async function writeServerFile(
  rows: HubRows,
  addresses: HubAddresses,
  nowMs: number,
): Promise<{ text: string | undefined; changed: boolean }> {
  const text = await wantedText(rows, addresses, nowMs);
  const file = rows.serverConfig()?.file;
  if (text === undefined || file === undefined) return { text, changed: false };
  const part = `${file}.${process.pid}.part`;
  try {
    const there = statSync(file, { throwIfNoEntry: false });
    if (there && readFileSync(file, 'utf8') === text) return { text, changed: false };
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(part, text, { mode: there ? there.mode & 0o777 : MODE, flush: true });
    renameSync(part, file);
    syncPath(dirname(file));
    return { text, changed: true };
  } catch (cause) {
    rmSync(part, { force: true });
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('config-invalid', `${file} cannot be written (${why}).`, {
      cause,
      hint: 'Name a file below the storage directory: {tillsync} hub server-config {storage}/nats/server.conf',
    });
  }
}

/** Keeps the server in step with the branches that come and go, and with a certificate that was renewed. */
export class ServerKeeper {
  readonly #rows: HubRows;
  readonly #addresses: HubAddresses;
  /** What the server has read, by all that this process knows: nothing at the start. */
  #read: string | undefined;

  constructor(rows: HubRows, addresses: HubAddresses) {
    this.#rows = rows;
    this.#addresses = addresses;
  }

  /** Throws `config-invalid`, and `link-down` while the server cannot be told: call it again. */
  async look(nowMs: number): Promise<void> {
    const { text } = await writeServerFile(this.#rows, this.#addresses, nowMs);
    const place = this.#rows.serverConfig();
    if (text === undefined || place === undefined) return;
    const wanted = text + stampOf(place.tls);
    if (wanted === this.#read) return;
    // It goes on with the one it has rather than with one that no branch takes.
    const fault = place.tls && lookAtCertificate(place.tls, this.#addresses.publicUrl, nowMs).fault;
    if (fault) throw new TillsyncError('config-invalid', fault);
    await reloadServer(await ownAccess(this.#rows, this.#addresses, '@system'));
    this.#read = wanted;
  }
}

/** Another one when a file was exchanged; a link, such as that of an ACME client, is followed. */
function stampOf(tls: ServerConfigPlace['tls']): string {
  const files = tls === null ? [] : [tls.certFile, tls.keyFile];
  return files.map((file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? '').join(' ');
}
