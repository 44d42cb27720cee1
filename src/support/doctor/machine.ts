import { execFile } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import Database from 'better-sqlite3';
import { Agent, request } from 'undici';
import { programVersion, type ServiceView, viewOfService } from '../../app/installation.ts';
import {
  type ConfigOptions,
  configWarnings,
  hookNames,
  readConfig,
  withStoredKey,
} from '../../config/config.ts';
import type { Config } from '../../config/config-type.ts';
import { readSecrets, type Secrets, serviceOf } from '../../config/secrets.ts';
import { type ConfigFault, describeFault, isSetUp } from '../../config/source.ts';
import { asTillsyncError } from '../../core/errors.ts';
import { isOwnListener } from '../../core/own-listener.ts';
import { FINDINGS } from '../../health/findings.ts';
import { addressOf, type PlatformWay, proxyAddress, proxyOf } from '../../platform/transport.ts';
import { reachPlatform } from '../webhook-probe.ts';
import { type CheckOutcome, failed, hidden, outcomeOfError, skipped, warned, well } from './check.ts';
import { PROPERTIES, parseUnit, type ServiceUnit } from './unit.ts';

/** Reports the versions of this command's parts. */
export function versionsOutcome(): CheckOutcome {
  const facts = { tillsync: programVersion(), node: process.version, sqlite: sqliteVersion() };
  return well(`tillsync ${facts.tillsync}, Node ${facts.node.slice(1)}, SQLite ${facts.sqlite}.`, facts);
}

export function sqliteVersion(): string {
  const db = new Database(':memory:');
  try {
    return String(db.prepare('SELECT sqlite_version()').pluck().get());
  } finally {
    db.close();
  }
}

/** Checks that a connection to the platform's address is possible. It sends no request, so no limit counts it. */
export async function networkOutcome(way: PlatformWay, signal: AbortSignal): Promise<CheckOutcome> {
  const { isTls: tls, ...to } = addressOf(way.baseUrl);
  const proxyUrl = proxyOf(way);
  const proxy = proxyUrl === undefined ? null : namedProxy(proxyUrl);
  const facts = { ...to, tls, proxy, caFile: way.caFile || null };
  const startMs = performance.now();
  try {
    await reachPlatform(way, signal);
  } catch (error) {
    if (signal.aborted) return outcomeOfError(error);
    const { message, hint = '', cause } = asTillsyncError(error);
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : null;
    return failed(message, hint, { ...facts, code });
  }
  const tookMs = Math.round(performance.now() - startMs);
  const through = proxy === null ? '' : ` through the proxy ${proxy}`;
  return well(`${to.host}:${to.port} takes connections${through} (${tookMs} ms).`, { ...facts, tookMs });
}

function namedProxy(url: string): string {
  const { host, port } = proxyAddress(url);
  return `${host}:${port}`;
}

const TIMEOUT_MS = 5_000;

/** Returns systemd's state of the unit; null without a unit or systemd, or if systemd does not know it. */
export async function readUnit(name: string | null): Promise<ServiceUnit | null> {
  if (name === null || !existsSync('/run/systemd/system')) return null;
  const text = await new Promise<string>((resolve) => {
    const words = ['show', name, `--property=${PROPERTIES.join(',')}`];
    execFile('systemctl', words, { timeout: TIMEOUT_MS }, (error, stdout) => resolve(error ? '' : stdout));
  });
  return parseUnit(name, text);
}

/** A running daemon's answer. */
export interface DaemonAnswer {
  url: string;
  /** `down`: nothing answers; `other`: a program answers that is not the tillsync of this storage. */
  health: 'ok' | 'failing' | 'down' | 'other';
  /** Storage directory of another tillsync that answers; null if no tillsync answers. */
  otherStorage: string | null;
  /** Loops that were silent for too long. */
  stalled: string[];
  /** Version of the answering tillsync; null if it reports none. */
  version: string | null;
  /** The system's error if nothing answers. */
  fault: string | null;
}

/** Asks the daemon through its Unix socket, else at local.listen; null if neither is known. Sends the key to no other. */
export async function askDaemon(
  { local: { host, port, socket }, storage: { directory } }: Pick<Config, 'local' | 'storage'>,
  apiKey: string | undefined,
  signal: AbortSignal,
): Promise<DaemonAnswer | null> {
  const asked = { directory, apiKey, signal };
  if (socket !== '') {
    const agent = new Agent({ connect: { socketPath: socket } });
    const answer = await askAt('http://localhost', agent, asked);
    if (answer.health !== 'down' || port === 0) return { ...answer, url: socket };
  }
  if (port === 0) return null;
  const given = isOwnListener(port, directory) ? apiKey : undefined;
  return askAt(`http://${reachable(host)}:${port}`, new Agent(), { ...asked, apiKey: given });
}

async function askAt(
  url: string,
  agent: Agent,
  { directory, apiKey, signal }: { directory: string; apiKey: string | undefined; signal: AbortSignal },
): Promise<DaemonAnswer> {
  const ask = async (path: string) => {
    const { statusCode, body } = await request(url + path, {
      dispatcher: agent,
      headers: apiKey === undefined ? {} : { 'x-api-key': apiKey },
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    return { statusCode, document: parsed(await body.text()) };
  };
  const answer = { url, otherStorage: null, stalled: [], version: null, fault: null };
  try {
    const health = await ask('/healthz');
    const { status, storage = directory, stalled } = health.document;
    const isTillsync = status === 'ok' || status === 'failing';
    if (!isTillsync || real(String(storage)) !== real(directory)) {
      return { ...answer, health: 'other', otherStorage: isTillsync ? String(storage) : null };
    }
    const { statusCode, document } = await ask('/v1/status');
    const versions = statusCode === 200 ? document.versions : undefined;
    return {
      ...answer,
      health: health.statusCode === 200 ? 'ok' : 'failing',
      stalled: Array.isArray(stalled) ? stalled.map(String) : [],
      version: isRecord(versions) && typeof versions.tillsync === 'string' ? versions.tillsync : null,
    };
  } catch (error) {
    const fault = error instanceof Error && 'code' in error ? String(error.code) : 'no answer in time';
    return { ...answer, health: 'down', fault };
  } finally {
    await agent.destroy();
  }
}

function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/** Returns the host to call. For a wildcard address, this is the loopback address. */
function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  const v6 = host === '::' ? '::1' : host;
  return v6.includes(':') ? `[${v6}]` : v6;
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

/** Checks whether the daemon runs; `running` is null if unknown. */
export function serviceOutcome(running: boolean | null, unit: ServiceUnit | null): CheckOutcome {
  const facts = { running, unit };
  const name = unit?.name.replace(/\.service$/, '') ?? 'tillsync';
  if (running === null) {
    return hidden('You do not have permission to see whether tillsync runs.', facts);
  }
  if (!running) {
    const { message } = FINDINGS['service.down'];
    if (unit === null) return failed(message, 'Start it with: {tillsync} run', facts);
    const why = unit.activeState === 'failed' ? ` systemd says that ${name} failed.` : '';
    const look = unit.activeState === 'inactive' ? '' : '; see why it ended with: {journal}';
    return failed(message + why, `Start it with: {start}${look}`, facts);
  }
  if (unit && unit.activeState !== 'active') {
    const message = `tillsync runs, but not as ${name} of systemd (${unit.activeState}): it does not come back by itself.`;
    return warned(message, 'End it and start it with: {start}', facts);
  }
  if (unit?.unitFileState === 'disabled') {
    const message = 'tillsync runs, but does not start with the machine.';
    return warned(message, 'Have it start with: {enable}', facts);
  }
  return well(unit ? `tillsync runs as ${name} of systemd.` : 'tillsync runs.', facts);
}

/** Checks the status page and the local API by the daemon's `answer`, which is null if the daemon's port is unknown. */
export function apiOutcome(running: boolean | null, answer: DaemonAnswer | null): CheckOutcome {
  const facts = { answer };
  if (answer === null)
    return skipped('local.listen picks a free port, so it cannot be found from outside.', null, facts);
  const { url, health, otherStorage, stalled, fault } = answer;
  if (health === 'other') {
    const who = otherStorage === null ? 'Another program' : `The tillsync of ${otherStorage}`;
    const remedy = 'Give local.listen another port in the configuration, then: {restart}';
    return failed(`${who} answers at ${url}, which is local.listen of this one.`, remedy, facts);
  }
  if (health === 'ok') return well(`The status page and the API answer at ${url}.`, facts);
  if (health === 'failing') {
    const message = `tillsync answers at ${url}, but a part of it has stopped: ${stalled.join(', ')}.`;
    return failed(message, 'Restart the service: {restart}', facts);
  }
  if (running === false) return skipped('tillsync does not run.', null, facts);
  const message = `Nothing answers at ${url} (${fault}), where the status page and the API of the POS should be.`;
  return failed(message, 'If local.listen was changed, restart the service: {restart}', facts);
}

export function versionOutcome(running: string | null, own: string): CheckOutcome {
  const facts = { running, own };
  if (running === null) return skipped('No running tillsync tells its version.', null, facts);
  if (running === own) return well(`The service runs ${running}, the same as this command.`, facts);
  const message = `The service still runs ${running}, and ${own} is installed.`;
  return warned(message, 'Restart the service: {restart}', facts);
}

export interface DoctorSetup {
  file: string;
  /** The configuration; undefined if it is invalid. */
  config: Config | undefined;
  /** Secrets handed to this command, else those handed to the service. */
  secrets: Secrets;
  /** Files with the service's secrets that this user may not read. */
  unseen: readonly string[];
  /** Service that reads the configuration file; undefined if none does. */
  view: ServiceView | undefined;
  faults: readonly ConfigFault[];
}

const NO_SECRETS: Secrets = { webhookSecrets: [] };

/** Reads the usable parts of configuration and secrets, with all their faults. */
export function readDoctorSetup(options: ConfigOptions): DoctorSetup {
  const config = readConfig(options);
  const hooks = 'config' in config ? hookNames(config.config) : [];
  const secrets = readSecrets(options.env, serviceOf(resolve(config.file)), hooks);
  const handedIn = 'secrets' in secrets ? secrets.secrets : NO_SECRETS;
  const view = viewOfService(config.file);
  return {
    file: config.file,
    config: 'config' in config ? config.config : undefined,
    secrets: 'config' in config ? withStoredKey(handedIn, config.config) : handedIn,
    faults: [
      ...[config, secrets].flatMap((result) => ('faults' in result ? result.faults : [])),
      ...(view?.faults ?? []),
    ],
    view,
    unseen: secrets.unseen,
  };
}

export function configOutcome({ file, faults, config, view, unseen }: DoctorSetup): CheckOutcome {
  if (config && !isSetUp(config)) {
    const { message, remedy } = FINDINGS['setup.missing'];
    return warned(message, remedy, { file, code: 'setup.missing' });
  }
  if (faults.length > 0) {
    const count = faults.length === 1 ? 'One fault' : `${faults.length} faults`;
    return failed(
      `${count}: ${faults.map(describeFault).join('; ')}`,
      'Correct the file or the environment, then try it with: {tillsync} config check',
      { file, faults },
    );
  }
  const warnings = config ? configWarnings(config) : [];
  if (warnings.length > 0) {
    return warned(warnings.join(' '), `Correct ${file}.`, { file, faults, warnings });
  }
  if (view?.canRead === null || unseen.length > 0) {
    const user = view?.user ?? 'the service';
    return hidden(`${file} is in order; you do not have permission to try it as ${user}.`, { file, faults });
  }
  return well(`${file} is in order.`, { file, faults });
}
