import { actAsStorageUser, asRoot } from '../../app/installation.ts';
import type { Services } from '../../app/services.ts';
import { RUNNING } from '../../app/storage.ts';
import { readSetup } from '../../config/config.ts';
import type { BranchConfig, Config } from '../../config/config-type.ts';
import type { ConfigDraft } from '../../config/edit.ts';
import { mainKey } from '../../config/key-file.ts';
import type { Secrets } from '../../config/secrets.ts';
import { formatCommands, hasCode, TillsyncError } from '../../core/errors.ts';
import { silentLog } from '../../core/log.ts';
import { whenFree } from '../../core/loop.ts';
import type { SigningKey } from '../../db/signing-keys.ts';
import type { Wait } from '../../platform/platform.ts';
import { authReport } from '../auth.ts';
import { type Cli, EXIT, type ExitCode, printable } from '../cli.ts';
import { Progress } from '../progress.ts';
import { statusPageOf } from '../status-page.ts';
import {
  commandsFor,
  isInstalled,
  isOfService,
  joinGroup,
  type ListenKey,
  startAnew,
  tryListener,
  unitsOf,
} from './machine.ts';
import type { Terminal } from './terminal.ts';

/** A part of the set-up that was tried, and the result. */
export interface Check {
  what: 'address' | 'tokens' | 'branch' | 'receiver' | 'service';
  subject: string;
  /** Whether the part works; null if it was not tried. */
  ok: boolean | null;
  /** One sentence for a person. */
  message: string;
}

/** State of the service, and the steps that remain for a person. */
export interface AtWork {
  service: { unit: string; started: boolean } | null;
  /** Address of the status page for a browser on this machine; null while its port is unknown. */
  statusPage: string | null;
  /** The same address with the API key. It is shown to the person, and `--json` leaves it out. */
  readonly pageLink: () => string | null;
  /** Next steps for the person, in order. */
  next: readonly string[];
}

export function workLines({ service, pageLink, next }: AtWork): string[] {
  const link = pageLink();
  return [
    ...(service?.started ? [`${service.unit} is running, and starts with the machine.`] : []),
    ...(link === null ? [] : [`Status page: ${link}`]),
    ...(next.length === 0 ? [] : ['Next:', ...next.map((step) => `  ${step}`)]),
  ];
}

interface SetUpOptions {
  cli: Cli;
  draft: ConfigDraft;
  secrets: Secrets;
  /** Value of `storage.group` before the set-up. */
  groupBefore: string;
  /** Aborts when the person stops. */
  signal: AbortSignal;
  /** If true, the platform is not called, and tokens are stored without a try. */
  offline: boolean;
}

const NOT_TRIED = 'not tried';

/** Returns a branch's known ids as its name. */
export function branchName({ subsidiaryId, externalId }: BranchConfig): string {
  return [subsidiaryId, externalId].filter((id) => id !== undefined).join(' / ');
}

/**
 * Tries each answer with the same services as the daemon, so that rate budget and token pair are shared with a
 * running daemon. Throws the platform's errors. Successful tries are recorded in `checks`.
 */
export class SetUp {
  readonly checks: Check[] = [];
  readonly draft: ConfigDraft;
  offline: boolean;
  /** True as soon as new tokens are in state.db, even if the configuration file is never written. */
  hasStoredTokens = false;
  /** Words of a new recovery phrase, which are shown after the file was written; null if none was made. */
  phrase: string | null = null;
  #signingKey: SigningKey | undefined;
  readonly #options: SetUpOptions;
  readonly #progress: Progress;
  /** Present group of the storage directory. The draft's group replaces it after the file was written. */
  #group: string;
  #open: { key: string; services: Services } | undefined;

  constructor(options: SetUpOptions) {
    this.#options = options;
    this.draft = options.draft;
    this.offline = options.offline;
    this.#group = options.groupBefore;
    this.#progress = new Progress(options.cli);
  }

  /** Tries to reach the platform. Throws `platform-unreachable` or `aborted`. */
  async reach(): Promise<void> {
    const baseUrl = String(this.draft.value('platform.base_url'));
    if (this.offline) return this.note('address', baseUrl, null, NOT_TRIED);
    const { reachPlatform } = await import('../../support/webhook-probe.ts');
    await this.#during(`trying ${baseUrl}`, () => reachPlatform({ baseUrl }, this.#options.signal));
    this.note('address', baseUrl, true, 'reached');
  }

  /** Returns the state of the stored tokens without a call. Throws `storage-…`. */
  async tokenState(): Promise<'none' | 'ok' | 'locked-out'> {
    return (await this.#services()).platform.tokens.describe().state;
  }

  /**
   * Exchanges a refresh token at the platform and stores the new pair. If the platform refuses the token
   * (`auth-required`), the stored pair stays.
   */
  async useToken(refreshToken: string): Promise<void> {
    const services = await this.#services();
    const { tokens } = services.platform;
    if (this.offline) {
      if (tokens.describe().state !== 'ok') await tokens.set({ refreshToken });
      this.hasStoredTokens = true;
      return this.note('tokens', 'refresh token', null, 'stored; used with the first call');
    }
    const { onWait } = this.#call();
    const tryOut = () => tokens.tryOut(refreshToken, onWait);
    if ((await this.#during('trying the refresh token', tryOut)) === 'known') return this.tryStoredTokens();
    this.hasStoredTokens = true;
    await services.stores.write(({ audit }) =>
      audit.note({ who: this.#options.cli.who, action: 'auth.set', subject: 'tokens', detail: 'by init' }),
    );
    this.#tokensWork(services);
  }

  /** Tries the stored tokens. Throws `auth-required` if there are none or the platform refuses them. */
  async tryStoredTokens(): Promise<void> {
    const services = await this.#services();
    if (this.offline) return this.note('tokens', 'stored tokens', null, NOT_TRIED);
    await this.#during('trying the stored tokens', () => services.platform.tokens.ready(this.#call()));
    this.#tokensWork(services);
  }

  #tokensWork({ mirror, platform }: Services): void {
    mirror.health.ok('auth');
    const { message } = authReport(platform.tokens.describe(), this.#options.cli.clock.nowMs());
    this.note('tokens', 'refresh token', true, message);
  }

  /** Reads a page of the branch's products by each of its ids. Throws `usage` if the ids cannot be right. */
  async tryBranch(branch: BranchConfig): Promise<void> {
    const { subsidiaryId, externalId } = branch;
    const name = branchName(branch);
    if (this.offline) return this.note('branch', name, null, NOT_TRIED);
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
    this.note('branch', name, true, `${one?.count ?? 0} products${example}`);
  }

  async #productsOf(
    address: { subsidiaryId: string } | { externalId: string },
    key: string,
    name: string,
  ): Promise<{ count: number; first: string | undefined }> {
    const { platform, config } = await this.#services();
    const { pageSize: limit } = config.catalog;
    const query = { ...address, page: 1, limit, order: 'asc', orderBy: 'CreatedDate' } as const;
    try {
      const page = await this.#during(`asking for the products of ${name}`, () =>
        platform.productList(query, this.#call()),
      );
      return { count: page.totalDocs ?? page.docs.length, first: page.docs[0]?.name ?? undefined };
    } catch (error) {
      if (!hasCode(error, 'platform-refused')) throw error;
      const id = Object.values(address)[0];
      throw new TillsyncError('usage', `The platform refuses ${key} "${id}": ${error.message}`, {
        hint: 'Look for the id of the branch in the company panel, or ask the support of the platform.',
        cause: error,
      });
    }
  }

  /** Makes a secret for callbacks if there is none. The platform gets the secret when tillsync starts. */
  async prepareSecret(): Promise<'made' | 'kept'> {
    const { webhookSecrets } = await this.#services();
    if (webhookSecrets.current() !== undefined) return 'kept';
    await webhookSecrets.commit(await webhookSecrets.begin());
    return 'made';
  }

  get areBackupsEncrypted(): boolean {
    return (
      this.draft.value('backup.recipient') !== '' || this.#options.secrets.backupPassphrase !== undefined
    );
  }

  /** Makes a recovery phrase, which will decrypt all later backups. */
  async makePhrase(): Promise<void> {
    const { newRecoveryPhrase } = await import('../../support/recovery-phrase.ts');
    const { phrase, recipient, signingKey } = await newRecoveryPhrase(this.draft.config().shop.language);
    this.draft.set('backup.recipient', recipient);
    this.phrase = phrase;
    this.#signingKey = signingKey;
  }

  /** Stores the key that signs the backups for a new recovery phrase, in the storage directory that is final by now. */
  async keepSigningKey(): Promise<void> {
    const key = this.#signingKey;
    if (key === undefined) return;
    const { state } = await this.#services();
    await whenFree(this.#options.cli.clock, () => state.signingKeys.keep(key));
  }

  /** Throws `usage` if another program listens at an address of the configuration key `key`. */
  async tryListener(key: ListenKey): Promise<void> {
    const { webhook, local, storage } = this.draft.config();
    if (key === 'webhook.listen' && !webhook.enabled) return;
    const { env, clock } = this.#options.cli;
    const service = unitsOf(this.draft.file);
    const isOwn = async (pid: number, port: number) => {
      if (service !== undefined && (await isOfService(pid, port, service, env))) return true;
      const { readRunningMark } = await import('../../support/doctor/stored.ts');
      return (await readRunningMark(storage.directory, clock)).pid === pid;
    };
    const addresses = key === 'webhook.listen' ? [webhook] : [local, ...local.others];
    for (const address of addresses) await tryListener(key, address, isOwn);
  }

  /**
   * Starts the installed service with the new file, or returns what a person must run. Asks the person before the
   * start.
   */
  async bringToWork(how: {
    terminal: Terminal | undefined;
    /** Whether callbacks have a new address. */
    moved: boolean;
    mayStart: boolean;
  }): Promise<AtWork> {
    const config = this.draft.config();
    const setup = asRoot(() => readSetup({ file: this.draft.file, env: this.#options.cli.env }));
    const given = 'secrets' in setup ? setup.secrets.localApiKey : undefined;
    // Made here at the latest, so that the page can be opened as soon as the service runs.
    const { apiKey: key } = mainKey(config.storage, given, silentLog);
    return {
      ...(await this.#startService(how)),
      statusPage: statusPageOf(config),
      pageLink: () => statusPageOf(config, key),
    };
  }

  async #startService({
    terminal,
    moved,
    mayStart,
  }: Parameters<SetUp['bringToWork']>[0]): Promise<Pick<AtWork, 'service' | 'next'>> {
    const { env } = this.#options.cli;
    const isRunning = (await this.#services()).state.leases.isHeld(RUNNING);
    const service = unitsOf(this.draft.file);
    if (service === undefined || !(await isInstalled(service, env))) {
      if (!isRunning) return { service: null, next: [formatCommands('{tillsync} run')] };
      await this.#tryReceiver();
      return { service: null, next: ['Restart the tillsync that is running, so that it reads the file.'] };
    }
    const { unit } = service;
    const question = isRunning ? `Restart ${unit} now, so that this holds?` : `Start ${unit} now?`;
    const isRoot = process.getuid?.() === 0;
    if (!mayStart || !isRoot || (terminal && !(await terminal.yes(question, true)))) {
      const next = commandsFor(service, moved).map((words) => `systemctl ${words.join(' ')}`);
      return { service: { unit, started: false }, next };
    }
    const fault = await startAnew(service, moved, env);
    this.note('service', unit, fault === undefined, fault ?? 'started');
    if (fault !== undefined) {
      return { service: { unit, started: false }, next: [`journalctl -u ${unit} -n 50`] };
    }
    await this.#tryReceiver();
    return { service: { unit, started: true }, next: [] };
  }

  /** Exit code of the command that ran this set-up. */
  get exit(): ExitCode {
    const isFailed = this.checks.some(({ what, ok }) => what === 'service' && ok === false);
    return isFailed ? EXIT.failed : EXIT.done;
  }

  /** Tries the receiver of callbacks of a running tillsync, on this machine and at its public address. */
  async #tryReceiver(): Promise<void> {
    const config = this.draft.config();
    if (!config.webhook.enabled || config.webhook.port === 0) return;
    const { probeWebhook } = await import('../../support/webhook-probe.ts');
    const secret = (await this.#services()).webhookSecrets.current();
    const { signal } = this.#options;
    const results = await this.#during('trying the receiver', () => probeWebhook({ config, secret, signal }));
    for (const { what, url, ok, message } of results) {
      this.note('receiver', `${what === 'local' ? 'here' : 'public'} ${url}`, ok, message);
    }
  }

  /** Gives the storage directory its new group. Called after the file was written. Throws `config-invalid`. */
  async settle(): Promise<void> {
    this.#group = String(this.draft.value('storage.group'));
    await this.#services();
  }

  /** Records and shows the result of a try. The result replaces that of an earlier try of the same answer. */
  note(what: Check['what'], subject: string, ok: boolean | null, message: string): void {
    const isSame = (other: Check) => {
      if (other.what !== what || what === 'receiver') return false;
      return what === 'address' || what === 'tokens' || subject === other.subject;
    };
    const check = { what, subject, ok, message };
    const at = this.checks.findIndex(isSame);
    if (at === -1) this.checks.push(check);
    else this.checks[at] = check;
    const mark = ok === null ? '--' : ok ? 'ok' : '!!';
    this.#options.cli.stderr.write(`${printable(`${mark}  ${what}: ${subject}: ${message}`)}\n`);
  }

  /** Removes the tries of branches from `checks`, because the branches are asked for again. */
  forgetBranches(): void {
    const others = this.checks.filter(({ what }) => what !== 'branch');
    this.checks.splice(0, this.checks.length, ...others);
  }

  async close(): Promise<void> {
    this.#progress.end();
    const open = this.#open;
    this.#open = undefined;
    await open?.services.close();
  }

  #call() {
    return { signal: this.#options.signal, onWait: (wait: Wait) => this.#progress.wait(wait) };
  }

  async #during<T>(step: string, work: () => Promise<T>): Promise<T> {
    this.#progress.step(step);
    return work().finally(() => this.#progress.end());
  }

  /**
   * Returns the same services as the daemon has. Opens them again if the platform's address or the storage settings
   * changed.
   */
  async #services(): Promise<Services> {
    const draft = this.draft.config();
    const config: Config = { ...draft, storage: { ...draft.storage, group: this.#group } };
    const key = JSON.stringify([config.platform.baseUrl, config.storage]);
    if (this.#open?.key === key) return this.#open.services;
    await this.close();
    const { openServices } = await import('../../app/services.ts');
    const { createLogger } = await import('../../core/logger.ts');
    const { cli, secrets } = this.#options;
    const { env, clock, random, stderr } = cli;
    const configFile = this.draft.file;
    // Must happen before this process becomes the service's user, who must be in the group.
    if (this.#group !== '') await joinGroup(this.#group, configFile, env);
    actAsStorageUser({ directory: config.storage.directory, configFile, writes: true });
    const { refreshToken: _tried, accessToken: _too, ...others } = secrets;
    const { log } = createLogger({
      level: 'fatal',
      pretty: true,
      stream: { isTTY: stderr.isTTY, write: (text) => this.#progress.note(text.trimEnd()) },
      clock,
      secrets: [...secrets.webhookSecrets],
    });
    const services = await openServices({ config, secrets: others, clock, random, log });
    this.#open = { key, services };
    return services;
  }
}
