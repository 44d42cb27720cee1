import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import * as z from 'zod';
import type { FindingLevel } from '../core/alarm.ts';
import { asTillsyncError, TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import { syncPath } from '../db/sqlite.ts';
import { ABSENT_AFTER_MS } from './branch-status.ts';
import type { HubKeys, HubRows, ServerConfigPlace } from './hub-state.ts';
import {
  ANSWER_TIMEOUT_MS,
  down,
  type HubUser,
  type LinkTls,
  type NatsOptions,
  NatsWire,
  newKey,
  publicKeyOf,
} from './nats.ts';
import { accountNames, clientName, type ServerConfig, serverConfig } from './server-config.ts';
import { type CertificateSeen, lookAtCertificate, placeOf, readPem } from './server-look.ts';

const MODE = 0o600;

/** Systemd unit of the package `tillsync-hub`, which runs nats-server. */
export const SERVER_UNIT = 'tillsync-nats.service';
/** The only configuration that the unit reads, wherever `storage.directory` is. */
export const UNIT_FILE = '/var/lib/tillsync/nats/server.conf';
/**
 * Command that starts the server, or restarts a running one, which reads its address and TLS settings only at
 * its start.
 */
export const START_SERVER = 'sudo systemctl enable tillsync-nats && sudo systemctl restart tillsync-nats';

/** Returns whether the systemd unit starts the server with this file. */
export function isOfUnit(file: string): boolean {
  return file === UNIT_FILE && isUnitInstalled();
}

export function isUnitInstalled(): boolean {
  return existsSync(`/lib/systemd/system/${SERVER_UNIT}`);
}

/** The addresses in the section `[hub]` of the configuration. */
export interface HubAddresses {
  nats: string;
  publicUrl: string;
}

/** Returns the hub's own keys. They are made on the first call. */
export async function hubKeys(rows: HubRows): Promise<HubKeys> {
  const there = rows.keys();
  if (there) return there;
  const [hub, system] = [await newKey(), await newKey()];
  return rows.keepKeys({ hub: hub.seed, system: system.seed, storage: randomBytes(24).toString('hex') });
}

/** Returns how one of the hub's own users connects to the server. Throws `config-invalid`. */
export async function ownAccess(
  rows: HubRows,
  { nats, publicUrl }: HubAddresses,
  user: HubUser,
): Promise<NatsOptions> {
  const keys = await hubKeys(rows);
  const tls = rows.serverConfig()?.tls ?? null;
  const { host, isName } = placeOf(publicUrl || nats);
  // A numeric address is not compared with the name in the certificate.
  const serverName = isName ? host : null;
  // This user accepts any certificate, so that a server with an expired certificate can be told to load the
  // new one.
  const takesAny = user === '@system';
  const how: LinkTls | null = tls && { ca: tls.caFile && readPem(tls.caFile), serverName, takesAny };
  return { url: nats, seed: user === '@hub' ? keys.hub : keys.system, user, tls: how };
}

/** Returns the inputs of the configuration that the server should have now. */
async function wantedConfig(
  rows: HubRows,
  { nats, publicUrl }: HubAddresses,
  { place, tls }: { place: ServerConfigPlace; tls: ServerFiles | null },
  nowMs: number,
): Promise<ServerConfig> {
  const keys = await hubKeys(rows);
  const isOpen = tls !== null && publicUrl !== '';
  return {
    listen: `${isOpen ? '0.0.0.0' : '127.0.0.1'}:${placeOf(nats).port}`,
    storeDirectory: place.storeDirectory,
    storageKey: keys.storage,
    tls,
    hubKey: await publicKeyOf(keys.hub),
    systemKey: await publicKeyOf(keys.system),
    branches: rows.usersOfServer(nowMs),
  };
}

/** PEM files of the server's certificate and its key. */
type ServerFiles = Pick<NonNullable<ServerConfigPlace['tls']>, 'certFile' | 'keyFile'>;

/**
 * Remaining validity below which a certificate counts as not renewed. Automatic renewal happens a month before expiry.
 */
export const RENEWED_BEFORE_MS = 14 * 86_400_000;

/** A warning about the server's certificate. The level is red if no branch accepts the certificate. */
export interface CertificateWarning {
  message: string;
  level: FindingLevel;
}

/** Result of writing the server's file, with a warning about the certificate. */
interface Written {
  /** Text that changes when the configuration or the certificate changes. */
  stamp: string;
  changed: boolean;
  warning: CertificateWarning | null;
  /** Accounts in the configuration. */
  accounts: string[];
}

/**
 * Writes the server's configuration if it changed, and beside it one file with certificate and key, if branches accept
 * them. The server must then reload both. Returns undefined if no file was chosen yet. Throws `config-invalid`.
 */
export async function writeServerFile(
  rows: HubRows,
  addresses: HubAddresses,
  nowMs: number,
): Promise<Written | undefined> {
  const place = rows.serverConfig();
  if (place === undefined) return undefined;
  const { file } = place;
  const { tls, warning } = place.tls
    ? keepCertificate(place.tls, file, addresses.publicUrl, nowMs)
    : { tls: null, warning: null };
  const wanted = await wantedConfig(rows, addresses, { place, tls }, nowMs);
  const text = serverConfig(wanted);
  const changed = keepFile(file, text, file);
  return { stamp: text + stampOf(tls), changed, warning, accounts: accountNames(wanted) };
}

function keepCertificate(
  given: ServerFiles,
  serverFile: string,
  publicUrl: string,
  nowMs: number,
): { tls: ServerFiles; warning: CertificateWarning | null } {
  const file = `${dirname(serverFile)}/server.pem`;
  const { fault, validToMs } = seenAs(given, publicUrl, nowMs);
  if (fault === null) keepFile(file, `${readPem(given.certFile)}\n${readPem(given.keyFile)}`, serverFile);
  const tls = existsSync(file) ? { certFile: file, keyFile: file } : given;
  if (fault !== null) {
    const level = seenAs(tls, publicUrl, nowMs).fault === null ? 'amber' : 'red';
    return { tls, warning: { message: fault, level } };
  }
  if (validToMs - nowMs >= RENEWED_BEFORE_MS) return { tls, warning: null };
  const message = `The certificate in ${given.certFile} ends at ${isoUtc(validToMs)}.`;
  return { tls, warning: { message, level: 'amber' } };
}

function seenAs(
  files: ServerFiles,
  publicUrl: string,
  nowMs: number,
): Pick<CertificateSeen, 'fault' | 'validToMs'> {
  try {
    return lookAtCertificate(files, publicUrl, nowMs);
  } catch (error) {
    return { fault: asTillsyncError(error).message, validToMs: 0 };
  }
}

/**
 * Writes `text` into `file`, with the mode of the file `like`, unless the file has this text already. Returns whether
 * the file was written. Throws `config-invalid`.
 */
function keepFile(file: string, text: string, like: string): boolean {
  const part = `${file}.${process.pid}.part`;
  try {
    const mode = (statSync(like, { throwIfNoEntry: false })?.mode ?? MODE) & 0o777;
    if (existsSync(file) && readFileSync(file, 'utf8') === text) return false;
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(part, text, { mode, flush: true });
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

/** Keeps the server's configuration up to date with the branches and the renewed certificate. */
export class ServerKeeper {
  readonly #rows: HubRows;
  readonly #addresses: HubAddresses;
  /**
   * Stamp of the files that the server has loaded; undefined until this process has made the server load
   * them.
   */
  #read: string | undefined;
  #refusedToMs = Number.NEGATIVE_INFINITY;
  /** Inputs and result of the last check, cached because composing a configuration for 500 branches takes 14 ms. */
  #looked: { basis: string; made: string; atMs: number; warning: CertificateWarning | null } | undefined;

  constructor(rows: HubRows, addresses: HubAddresses) {
    this.#rows = rows;
    this.#addresses = addresses;
  }

  /** Returns all inputs of the server's files as one text, to compare with the last ones. */
  #basis(nowMs: number): string {
    const place = this.#rows.serverConfig();
    const { certFile, keyFile } = place?.tls ?? {};
    const files = [certFile, keyFile].filter((file) => file !== undefined);
    return JSON.stringify([place ?? null, changedAt(files), this.#rows.usersOfServer(nowMs)]);
  }

  /** Returns when the written files last changed, to notice changes by somebody else. */
  #made(): string {
    const { file } = this.#rows.serverConfig() ?? {};
    return file === undefined ? '' : JSON.stringify(changedAt([file, `${dirname(file)}/server.pem`]));
  }

  /**
   * Records which absent branches the server refused since the last call because of their key. Throws
   * `link-down`.
   */
  async noteRefused(nowMs: number): Promise<void> {
    const absent = this.#rows
      .branches()
      .filter(({ seenAt }) => seenAt === null || nowMs - Date.parse(seenAt) >= ABSENT_AFTER_MS)
      .map(({ branch }) => branch);
    if (absent.length === 0) return;
    const access = await ownAccess(this.#rows, this.#addresses, '@system');
    const refused = await refusedClients(access, this.#refusedToMs);
    this.#refusedToMs = nowMs;
    for (const branch of absent) {
      if (refused.has(clientName(branch))) this.#rows.noteRefused(branch, 'key', nowMs);
    }
  }

  /**
   * Writes and reloads the server's files if an input changed. `onCertificate` gets the warning about the
   * certificate, or null. Throws `config-invalid`, and `link-down` while the server is unreachable; then call
   * it again.
   */
  async look(
    nowMs: number,
    onCertificate: (warning: CertificateWarning | null) => void = () => {},
  ): Promise<void> {
    const looked = this.#looked;
    // The inputs are stamped before they are read, so that a change in between is noticed at the next call.
    const basis = this.#basis(nowMs);
    // A certificate can expire without a change of its file, so a cached result is used for a limited time
    // only.
    const isFresh = looked !== undefined && Math.abs(nowMs - looked.atMs) < LOOKED_MS;
    if (isFresh && looked.basis === basis && looked.made === this.#made())
      return onCertificate(looked.warning);
    this.#looked = undefined;
    const written = await writeServerFile(this.#rows, this.#addresses, nowMs);
    onCertificate(written?.warning ?? null);
    if (written === undefined) return;
    if (written.stamp !== this.#read) {
      await reloadServer(await ownAccess(this.#rows, this.#addresses, '@system'), written.accounts);
      this.#read = written.stamp;
    }
    this.#looked = { basis, made: this.#made(), atMs: nowMs, warning: written.warning };
  }
}

function changedAt(files: readonly string[]): (number | null)[] {
  return files.map((file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? null);
}

const ACCOUNTS = z.object({ data: z.object({ accounts: z.array(z.string()) }) });

/**
 * Makes the server reload its configuration, which disconnects removed branches. Throws `config-invalid` if
 * the server then has other accounts than `accounts`, `link-down` if it is unreachable.
 */
async function reloadServer(options: NatsOptions, accounts: readonly string[]): Promise<void> {
  const wire = new NatsWire(options);
  try {
    const connection = await wire.connection();
    const ask = async (what: string) => {
      const subject = `$SYS.REQ.SERVER.${connection.info?.server_id ?? ''}.${what}`;
      return (await connection.request(subject, '{}', { timeout: ANSWER_TIMEOUT_MS })).json<unknown>();
    };
    // nats-server 2.10.27 applies a new account's imports only at the second reload.
    for (const _ of ['read', 'imported']) {
      const { error } = (await ask('RELOAD')) as { error?: { description?: string } };
      if (error) {
        throw new TillsyncError(
          'link-down',
          `The nats-server does not take its configuration (${error.description ?? 'no reason given'}).`,
        );
      }
    }
    const has = new Set(ACCOUNTS.parse(await ask('ACCOUNTZ')).data.accounts);
    if (!accounts.every((name) => has.has(name))) throw otherConfiguration(options.url);
  } catch (cause) {
    throw cause instanceof TillsyncError
      ? cause
      : down(cause, 'The nats-server does not read its configuration');
  } finally {
    await wire.close();
  }
}

function otherConfiguration(url: string): TillsyncError {
  const other = `The nats-server at ${url} runs with another configuration than the one that tillsync wrote last.`;
  const kept = 'What it does not carry is kept, at the hub and at the branches.';
  return new TillsyncError('config-invalid', `${other} ${kept}`, {
    hint: 'Write it once more and start the server with it: {tillsync} hub server-config; sudo systemctl restart tillsync-nats',
  });
}

const CLOSED_MAX = 1_000;

const CLOSED = z.object({
  data: z.object({
    connections: z
      .array(z.object({ name: z.string().default(''), reason: z.string().default(''), stop: z.string() }))
      .nullish(),
  }),
});

/** Returns the names of clients whose key the server refused after the time `afterMs`. Throws `link-down`. */
async function refusedClients(options: NatsOptions, afterMs: number): Promise<Set<string>> {
  const wire = new NatsWire(options);
  try {
    const connection = await wire.connection();
    const subject = `$SYS.REQ.SERVER.${connection.info?.server_id ?? ''}.CONNZ`;
    const closedLast = JSON.stringify({ state: 1, sort: 'stop', limit: CLOSED_MAX });
    const answer = await connection.request(subject, closedLast, { timeout: ANSWER_TIMEOUT_MS });
    const { connections } = CLOSED.parse(answer.json<unknown>()).data;
    const refused = (connections ?? []).filter(
      ({ reason, stop }) => /^authentication failure/i.test(reason) && Date.parse(stop) > afterMs,
    );
    return new Set(refused.map(({ name }) => name));
  } catch (cause) {
    throw cause instanceof TillsyncError
      ? cause
      : down(cause, 'The nats-server does not say whom it refused');
  } finally {
    await wire.close();
  }
}

/**
 * Time for which the last result is used without composing the configuration again, if all inputs are the
 * same.
 */
const LOOKED_MS = 60_000;

/** Returns a text of the files' modification times, which changes when a file is replaced. */
function stampOf(tls: ServerFiles | null): string {
  const files = tls === null ? [] : [tls.certFile, tls.keyFile];
  return files.map((file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? '').join(' ');
}
