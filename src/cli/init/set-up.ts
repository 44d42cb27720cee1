import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { asRoot, serviceUserOf } from '../../app/installation.ts';
import type { Parts } from '../../app/parts.ts';
import type { BranchConfig, Config } from '../../config/config-type.ts';
import type { AskedKey, ConfigDraft } from '../../config/edit.ts';
import type { Secrets } from '../../config/secrets.ts';
import { DEFAULT_CONFIG_FILE, type Environment, nearest } from '../../config/source.ts';
import { hasCode, TillsyncError } from '../../core/errors.ts';
import type { CallOptions } from '../../platform/platform.ts';
import { authReport } from '../auth.ts';
import type { Cli } from '../cli.ts';
import { Progress } from '../progress.ts';

/** The zone of this machine; undefined for UTC, which is how servers are delivered and no shop's. */
export function machineTimeZone(): string | undefined {
  const zone = zoneOfMachine();
  return /^(Etc\/)?(UTC|UCT|GMT|Universal|Zulu)$/.test(zone) ? undefined : zone;
}

function zoneOfMachine(): string {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone !== 'UTC' && zone !== undefined) return zone;
  try {
    return readFileSync('/etc/timezone', 'utf8').trim() || 'UTC';
  } catch {
    return 'UTC';
  }
}

/** Throws `usage` that names the zone that was probably meant. */
export function setTimeZone(draft: ConfigDraft, zone: string): void {
  try {
    draft.set('orders.timezone', zone);
  } catch (error) {
    if (!hasCode(error, 'config-invalid')) throw error;
    const meant = zoneMeant(zone);
    throw new TillsyncError('usage', `"${zone}" is no IANA time zone, such as America/Santiago or UTC.`, {
      ...(meant !== undefined && { hint: `Did you mean ${meant}?` }),
    });
  }
}

/** `santiago` is enough for `America/Santiago`. */
function zoneMeant(text: string): string | undefined {
  const zones = Intl.supportedValuesOf('timeZone');
  const word = text.trim().toLowerCase().replace(/ /g, '_');
  return zones.find((zone) => zone.toLowerCase().split('/').at(-1) === word) ?? nearest(text, zones);
}

export interface Address {
  host: string;
  port: number;
}

interface Holder {
  pid: number;
  program: string;
}

const OPTIONS = { 'webhook.listen': '--webhook-listen', 'local.listen': '--local-listen' } as const;
export type ListenKey = keyof typeof OPTIONS & AskedKey;

const PORT_MAX = 65_535;
/** A test of the same address by another program is over by then. */
const AGAIN_AFTER_MS = 100;

/**
 * Tries whether this machine lets a program listen there. Throws `usage` with who holds the port and one that is free;
 * `isOwn` says of a process whether it is the service that is to take this configuration over.
 */
export async function tryListener(
  key: ListenKey,
  address: Address,
  isOwn: (pid: number, port: number) => Promise<boolean>,
): Promise<void> {
  const { host, port } = address;
  if (port === 0) return;
  let code = await bindFault(address);
  // systemd opens the socket of callbacks as root; here it may be another user who tries.
  if (code === undefined || (code === 'EACCES' && key === 'webhook.listen')) return;
  let holder = code === 'EADDRINUSE' ? holderOf(port) : undefined;
  if (code === 'EADDRINUSE' && holder === undefined) {
    await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER_MS));
    code = await bindFault(address);
    if (code === undefined) return;
    holder = holderOf(port);
  }
  if (holder && (await isOwn(holder.pid, port))) return;
  if (code === 'EADDRINUSE') {
    const who = holder ? ` (${holder.program}, process ${holder.pid})` : '';
    const free = `${written(host)}:${await freePort(host, port + 1, new Set())}`;
    throw new TillsyncError('usage', `Port ${port} is already used by another program${who}.`, {
      hint: `Choose another with ${OPTIONS[key]}, such as ${free}, or stop that program.`,
    });
  }
  const why = code === 'EADDRNOTAVAIL' ? `${host} is no address of this machine` : `${code}`;
  throw new TillsyncError('usage', `Nothing can listen on ${written(host)}:${port}: ${why}.`, {
    hint: `Choose another with ${OPTIONS[key]}, such as 127.0.0.1:${port}.`,
  });
}

/** The first port from `from` on that nobody listens on and no other company's file in the directory names. */
export async function freePortBeside(file: string, host: string, from: number): Promise<number> {
  const taken = new Set<number>();
  const directory = dirname(file);
  for (const name of readdirSync(directory).filter((each) => each.endsWith('.toml'))) {
    if (join(directory, name) === file) continue;
    for (const [, port] of readFileSync(join(directory, name), 'utf8').matchAll(
      /^\s*listen\s*=.*?:(\d+)/gm,
    )) {
      taken.add(Number(port));
    }
  }
  return freePort(host, from, taken);
}

async function freePort(host: string, from: number, taken: ReadonlySet<number>): Promise<number> {
  for (let port = from; port <= PORT_MAX; port++) {
    if (!taken.has(port) && (await bindFault({ host, port })) !== 'EADDRINUSE') return port;
  }
  return 0;
}

/** Node's code, or undefined when it could be listened on. */
function bindFault({ host, port }: Address): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

/** Who listens on a port, as far as /proc tells. */
function holderOf(port: number): Holder | undefined {
  return asRoot(() => findHolder(port));
}

function findHolder(port: number): Holder | undefined {
  const inodes = new Set(['tcp', 'tcp6'].flatMap((name) => listeningInodes(name, port)));
  if (inodes.size === 0) return undefined;
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      for (const fd of readdirSync(`/proc/${pid}/fd`)) {
        const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
        if (inode !== undefined && inodes.has(inode)) {
          // The name of a thread, which is in comm, says less.
          return { pid: Number(pid), program: basename(readlinkSync(`/proc/${pid}/exe`)) };
        }
      }
    } catch {
      // Gone since, or another user's.
    }
  }
  return undefined;
}

/** proc(5): local address in hex, state 0A is LISTEN, the tenth column the inode. */
function listeningInodes(table: string, port: number): string[] {
  try {
    return readFileSync(`/proc/net/${table}`, 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(
        ([, local = '', , state]) =>
          state === '0A' && Number.parseInt(local.split(':')[1] ?? '', 16) === port,
      )
      .flatMap((columns) => columns[9] ?? []);
  } catch {
    return [];
  }
}

function written(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

/** The units that run tillsync with one configuration file. */
export interface Service {
  unit: string;
  socket: string;
}

/** A start may bring a large mirror to a new schema first. */
const START_LIMIT_MS = 15 * 60_000;

/** The units that the package has for this file; undefined for a file that none of them reads. */
export function unitsOf(file: string): Service | undefined {
  if (dirname(file) !== dirname(DEFAULT_CONFIG_FILE) || !file.endsWith('.toml')) return undefined;
  const name = basename(file, '.toml');
  const instance = file === DEFAULT_CONFIG_FILE ? '' : `@${name}`;
  return { unit: `tillsync${instance}.service`, socket: `tillsync${instance}.socket` };
}

/** Whether this machine's systemd runs and has the unit. */
export async function isInstalled({ unit }: Service, env: Environment): Promise<boolean> {
  const { text } = await systemctl(['show', '--property=LoadState', '--value', unit], env);
  return text.trim() === 'loaded';
}

/** Whether a process that listens does so for the service: as its daemon, or as systemd for its socket unit. */
export async function isOfService(
  { pid, port }: { pid: number; port: number },
  { unit, socket }: Service,
  env: Environment,
): Promise<boolean> {
  if (pid !== 1) {
    const { text } = await systemctl(['show', '--property=MainPID', '--value', unit], env);
    return text.trim() === String(pid);
  }
  const { text } = await systemctl(['show', '--property=Listen', '--value', socket], env);
  return text.includes(`:${port} `);
}

/** What brings a new configuration to work, in order; `moved`: callbacks arrive at another address than before. */
export function commandsFor({ unit, socket }: Service, moved: boolean): string[][] {
  return [
    // The generator reads the socket's address from the file.
    ['daemon-reload'],
    ['enable', unit],
    // A socket moves only while its service is stopped; where it stays, callbacks wait in it.
    ...(moved ? [['stop', unit, socket]] : []),
    ['start', socket],
    ['restart', unit],
  ];
}

/** Starts the service anew, and at boot from now on. Says what failed, or undefined when all went well. */
export async function startAnew(
  service: Service,
  moved: boolean,
  env: Environment,
): Promise<string | undefined> {
  for (const words of commandsFor(service, moved)) {
    const { code, text } = await systemctl(words, env);
    if (code !== 0) {
      const unit = words.includes(service.socket) ? service.socket : service.unit;
      return `systemctl ${words.join(' ')} failed: ${text.trim()} Look at: journalctl -u ${unit} -n 50`;
    }
  }
  return undefined;
}

/**
 * Lets the user of the service that reads a configuration file hand files to the group; only root can, and for others
 * nothing happens. Throws `config-invalid`.
 */
export async function joinGroup(group: string, configFile: string, env: Environment): Promise<void> {
  const user = serviceUserOf(configFile)?.name;
  if (process.getuid?.() !== 0 || user === undefined || user === null || user === 'root') return;
  const { code, text } = await execute('usermod', ['--append', '--groups', group, user], env);
  if (code === 0) return;
  throw new TillsyncError(
    'config-invalid',
    `${user} could not be made a member of ${group}: ${text.trim()}`,
    {
      hint: `Make it one yourself: sudo usermod --append --groups ${group} ${user}`,
    },
  );
}

function systemctl(words: string[], env: Environment): Promise<{ code: number; text: string }> {
  return execute('systemctl', words, env);
}

function execute(
  program: string,
  words: string[],
  env: Environment,
): Promise<{ code: number; text: string }> {
  return new Promise((resolve) => {
    const options = { env: { ...env }, timeout: START_LIMIT_MS, encoding: 'utf8' as const };
    asRoot(() =>
      execFile(program, words, options, (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 1;
        resolve({ code, text: code === 0 ? stdout : `${stdout}${stderr}` });
      }),
    );
  });
}

/** What was tried, and what it showed. */
export interface Check {
  what: 'address' | 'tokens' | 'branch' | 'receiver' | 'service';
  subject: string;
  /** null: not tried. */
  ok: boolean | null;
  /** One sentence for a person. */
  message: string;
}

export interface SetUpOptions {
  cli: Cli;
  draft: ConfigDraft;
  secrets: Secrets;
  /** What storage.group is before the answers. */
  groupBefore: string;
  /** Aborts what waits when the person has enough. */
  signal: AbortSignal;
  /** Nothing is asked of the platform; tokens are stored as they are. */
  offline: boolean;
  /** Told of each try that was noted. */
  onCheck: (check: Check) => void;
}

const NOT_TRIED = 'not tried';

/**
 * Tries each answer with the daemon's own parts, so that the rate budget and the token pair are kept beside a running
 * daemon, too. Platform errors are those of `Platform`; what was tried well is noted in `checks`.
 */
export class SetUp {
  readonly checks: Check[] = [];
  readonly draft: ConfigDraft;
  offline: boolean;
  /** New tokens are in state.db, whatever becomes of the file. */
  hasStoredTokens = false;
  readonly #options: SetUpOptions;
  readonly #progress: Progress;
  /** Of the storage directory; the one in the draft is given to it once the file is written. */
  #group: string;
  #open: { key: string; parts: Parts } | undefined;

  constructor(options: SetUpOptions) {
    this.#options = options;
    this.draft = options.draft;
    this.offline = options.offline;
    this.#group = options.groupBefore;
    this.#progress = new Progress({ stream: options.cli.stderr, clock: options.cli.clock });
  }

  /** Throws `platform-unreachable`, `aborted`. */
  async reach(): Promise<void> {
    const baseUrl = String(this.draft.value('platform.base_url'));
    if (this.offline) return this.#note('address', baseUrl, null, NOT_TRIED);
    const { reachPlatform } = await import('../../app/webhook-probe.ts');
    await this.#during(`trying ${baseUrl}`, () => reachPlatform(baseUrl, this.#options.signal));
    this.#note('address', baseUrl, true, 'reached');
  }

  /** How the stored tokens stand, without a call. Throws `storage-…`. */
  async tokenState(): Promise<'none' | 'ok' | 'locked-out'> {
    return (await this.#parts()).platform.tokens.describe().state;
  }

  /** Exchanges a refresh token and stores the new pair; a refused one (`auth-required`) leaves the stored pair. */
  async useToken(refreshToken: string): Promise<void> {
    const parts = await this.#parts();
    const { tokens } = parts.platform;
    if (this.offline) {
      if (tokens.describe().state !== 'ok') await tokens.set({ refreshToken });
      this.hasStoredTokens = true;
      return this.#note('tokens', 'refresh token', null, 'stored; used with the first call');
    }
    const verdict = await this.#during('trying the refresh token', () =>
      tokens.tryOut(refreshToken, (wait) => this.#progress.wait(wait)),
    );
    if (verdict === 'known') return this.tryStoredTokens();
    this.hasStoredTokens = true;
    this.#tokensWork(parts);
  }

  /** Throws `auth-required` when there are none or the platform refuses them. */
  async tryStoredTokens(): Promise<void> {
    const parts = await this.#parts();
    if (this.offline) return this.#note('tokens', 'stored tokens', null, NOT_TRIED);
    await this.#during('trying the stored tokens', () => parts.platform.tokens.ready(this.#call()));
    this.#tokensWork(parts);
  }

  /** Reads a page of the branch's products by each of its ids. Throws `usage` when they cannot be right. */
  async tryBranch(branch: BranchConfig): Promise<void> {
    const { subsidiaryId, externalId } = branch;
    const name = [subsidiaryId, externalId].filter((id) => id !== undefined).join(' / ');
    if (this.offline) return this.#note('branch', name, null, NOT_TRIED);
    const seen: { count: number; first: string | undefined }[] = [];
    if (subsidiaryId !== undefined)
      seen.push(await this.#productsOf({ subsidiaryId }, 'subsidiary_id', name));
    if (externalId !== undefined) seen.push(await this.#productsOf({ externalId }, 'external_id', name));
    const [one, other = one] = seen;
    if (one?.count !== other?.count) {
      throw new TillsyncError(
        'usage',
        `"${subsidiaryId}" and "${externalId}" look like two branches: they have ${one?.count} and ${other?.count} products.`,
        { hint: 'Give both ids of the same branch, or only one of them.' },
      );
    }
    const example = one?.first === undefined ? '' : `, such as "${one.first}"`;
    this.#note('branch', name, true, `${one?.count ?? 0} products${example}`);
  }

  /** Makes a secret for callbacks where there is none; the platform hears of it when tillsync starts. */
  async prepareSecret(): Promise<'made' | 'kept'> {
    const { webhookSecrets } = await this.#parts();
    if (webhookSecrets.current() !== undefined) return 'kept';
    await webhookSecrets.commit(await webhookSecrets.begin());
    return 'made';
  }

  /** Throws `usage` where something else listens already. */
  async tryListener(key: ListenKey): Promise<void> {
    const { webhook, local } = this.draft.config();
    if (key === 'webhook.listen' && !webhook.enabled) return;
    const addresses = key === 'webhook.listen' ? [webhook] : [local, ...local.others];
    const service = unitsOf(this.draft.file);
    const isOwn = async (pid: number, port: number) =>
      (service !== undefined && (await isOfService({ pid, port }, service, this.#options.cli.env))) ||
      (await this.#isRunningAs(pid));
    for (const address of addresses) await tryListener(key, address, isOwn);
  }

  async #isRunningAs(pid: number): Promise<boolean> {
    const { readRunningMark } = await import('../../support/doctor/stored.ts');
    const { directory } = this.draft.config().storage;
    return (await readRunningMark(directory, this.#options.cli.clock)).pid === pid;
  }

  /** Whether a tillsync runs on this storage directory. */
  async isRunning(): Promise<boolean> {
    const { RUNNING } = await import('../../app/storage.ts');
    return (await this.#parts()).state.leases.isHeld(RUNNING);
  }

  /** Tries the receiver of a running tillsync, here and at its public address. */
  async tryReceiver(): Promise<void> {
    const config = this.draft.config();
    if (!config.webhook.enabled || config.webhook.port === 0) return;
    const { probeWebhook } = await import('../../app/webhook-probe.ts');
    const secret = (await this.#parts()).webhookSecrets.current();
    const { signal } = this.#options;
    const results = await this.#during('trying the receiver', () => probeWebhook({ config, secret, signal }));
    for (const { what, url, ok, message } of results) {
      this.#note('receiver', `${what === 'local' ? 'here' : 'public'} ${url}`, ok, message);
    }
  }

  /** After the file is written: the storage directory gets its group. Throws `config-invalid`. */
  async settle(): Promise<void> {
    this.#group = String(this.draft.value('storage.group'));
    await this.#parts();
  }

  /** A later try of an answer takes the place of an earlier one. */
  note(check: Check): void {
    const isSame = ({ what, subject }: Check) => {
      if (what !== check.what || what === 'receiver') return false;
      return what === 'address' || what === 'tokens' || subject === check.subject;
    };
    const at = this.checks.findIndex(isSame);
    this.checks.splice(at === -1 ? this.checks.length : at, at === -1 ? 0 : 1, check);
    this.#options.onCheck(check);
  }

  /** A branch that is given up is no part of the report. */
  forgetBranches(): void {
    const others = this.checks.filter(({ what }) => what !== 'branch');
    this.checks.splice(0, this.checks.length, ...others);
  }

  async close(): Promise<void> {
    this.#progress.end();
    const open = this.#open;
    this.#open = undefined;
    await open?.parts.close();
  }

  async #productsOf(
    address: { subsidiaryId: string } | { externalId: string },
    key: string,
    name: string,
  ): Promise<{ count: number; first: string | undefined }> {
    const { platform, config } = await this.#parts();
    const query = {
      ...address,
      page: 1,
      limit: config.catalog.pageSize,
      order: 'asc',
      orderBy: 'CreatedDate',
    };
    try {
      const page = await this.#during(`asking for the products of ${name}`, () =>
        platform.productList(query as Parameters<typeof platform.productList>[0], this.#call()),
      );
      return { count: page.totalDocs ?? page.docs.length, first: page.docs[0]?.name ?? undefined };
    } catch (error) {
      if (!(error instanceof TillsyncError) || error.code !== 'platform-refused') throw error;
      const id = Object.values(address)[0];
      throw new TillsyncError('usage', `The platform refuses ${key} "${id}": ${error.message}`, {
        hint: 'Look for the id of the branch in the company panel, or ask the support of the platform.',
        cause: error,
      });
    }
  }

  #call(): CallOptions {
    return { signal: this.#options.signal, onWait: (wait) => this.#progress.wait(wait) };
  }

  async #during<T>(step: string, action: () => Promise<T>): Promise<T> {
    this.#progress.step(step);
    try {
      return await action();
    } finally {
      this.#progress.end();
    }
  }

  #tokensWork(parts: Parts): void {
    const { freshnessBoard, alarms } = parts.mirror;
    freshnessBoard.ok('auth');
    alarms.lower('auth.locked-out');
    const { message } = authReport(parts.platform.tokens.describe(), this.#options.cli.clock.nowMs());
    this.#note('tokens', 'refresh token', true, message);
  }

  #note(what: Check['what'], subject: string, ok: boolean | null, message: string): void {
    this.note({ what, subject, ok, message });
  }

  async #parts(): Promise<Parts> {
    const draft = this.draft.config();
    const config = { ...draft, storage: { ...draft.storage, group: this.#group } };
    const key = keyOf(config);
    if (this.#open?.key === key) return this.#open.parts;
    await this.close();
    const { openParts } = await import('../../app/parts.ts');
    const { createLogger } = await import('../../core/logger.ts');
    // Before it acts as the user that has to be a member.
    if (this.#group !== '') await joinGroup(this.#group, this.draft.file, this.#options.cli.env);
    const { actAsStorageUser } = await import('../../app/installation.ts');
    const { directory } = config.storage;
    actAsStorageUser({ directory, configFile: this.draft.file, writes: true });
    const { cli, secrets } = this.#options;
    const { refreshToken: _tried, accessToken: _too, ...others } = secrets;
    const { log } = createLogger({
      level: 'fatal',
      pretty: true,
      stream: { isTTY: cli.stderr.isTTY, write: (text) => this.#progress.note(text.trimEnd()) },
      clock: cli.clock,
      secrets: [...secrets.webhookSecrets],
    });
    const parts = await openParts({ config, secrets: others, clock: cli.clock, random: cli.random, log });
    this.#open = { key, parts };
    return parts;
  }
}

/** What parts are built from, as far as a set-up changes it. */
function keyOf({ platform, storage }: Config): string {
  return JSON.stringify([platform.baseUrl, storage]);
}
