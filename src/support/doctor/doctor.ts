import { programVersion, unitOf } from '../../app/installation.ts';
import { configuredBranches } from '../../app/read-only-services.ts';
import { openServices, type Services } from '../../app/services.ts';
import { storagePaths } from '../../app/storage.ts';
import type { Config } from '../../config/config-type.ts';
import { configuredNames, isBranch, isHub } from '../../config/roles.ts';
import { isSetUp } from '../../config/source.ts';
import { asTillsyncError } from '../../core/errors.ts';
import { silentLog } from '../../core/log.ts';
import type { Clock, Random } from '../../core/time.ts';
import { branchBoard } from '../../link/branch-status.ts';
import { SERVER_UNIT } from '../../link/server-file.ts';
import type { ChangeKind } from '../../outbox/intake/change.ts';
import type { Wait } from '../../platform/platform.ts';
import { heartbeatTarget } from '../alarm-test.ts';
import { probeWebhook } from '../webhook-probe.ts';
import {
  CHECK_IDS,
  CHECK_TITLES,
  type Check,
  type CheckId,
  type CheckOutcome,
  type CheckResult,
  hidden,
  outcomeOfError,
  outcomeOfFindings,
  since,
  skipped,
  well,
} from './check.ts';
import { databaseOutcome, diskOutcome, filesOutcome, readersNow } from './files.ts';
import { branchesOutcome, certificateOutcome, lookAt, type Seen, serverOutcome, wayOutcome } from './hub.ts';
import {
  apiOutcome,
  askDaemon,
  configOutcome,
  type DoctorSetup,
  networkOutcome,
  readUnit,
  serviceOutcome,
  versionOutcome,
  versionsOutcome,
} from './machine.ts';
import {
  addressOutcome,
  arrivingOutcome,
  attempts,
  clockOutcome,
  firstSights,
  limitsOutcome,
  listOutcome,
  productOutcome,
  registeredOutcome,
} from './platform.ts';
import {
  backupOutcome,
  bookedOutcome,
  differsOutcome,
  type FLOWS,
  flowOutcome,
  heartbeatOutcome,
  heldBackOutcome,
  hooksOutcome,
  mappedOutcome,
  openStored,
  outboxOutcome,
  readRunningMark,
  type Stored,
  safetyOutcome,
  sentOutcome,
  tokensOutcome,
} from './stored.ts';

export interface DoctorOptions {
  setup: DoctorSetup;
  clock: Clock;
  random: Random;
  signal: AbortSignal;
  /** If true, neither the platform nor any other machine is called. */
  offline: boolean;
  /** Ids or beginnings of ids, such as `storage`; empty for all. */
  only: readonly string[];
  /** Called before each check. */
  onCheck(id: CheckId): void;
  onWait(wait: Wait): void;
}

/** Returns the ids that a word of `--only` means: the check itself and those below it. */
export function checksNamed(word: string): CheckId[] {
  return CHECK_IDS.filter((id) => id === word || id.startsWith(`${word}.`));
}

/**
 * Runs every possible check and yields each result when it is known. Storage and platform are only read, within the
 * rate budget that all processes here share. A check that throws yields a result with its error.
 */
export async function* examine(options: DoctorOptions): AsyncGenerator<CheckResult> {
  const { setup, only, onCheck } = options;
  const wanted = new Set(only.length === 0 ? CHECK_IDS : only.flatMap(checksNamed));
  const { config } = setup;
  const examination = config && isSetUp(config) ? new Examination(options, config) : undefined;
  const why = config ? 'Not checked before the set-up.' : 'Not checked: the configuration cannot be used.';
  const checks: Partial<Record<CheckId, Check>> = {
    config: () => configOutcome(setup),
    version: versionsOutcome,
    ...examination?.checks(),
  };
  try {
    for (const id of CHECK_IDS) {
      if (!wanted.has(id) || !concerns(id, config)) continue;
      onCheck(id);
      const outcome = await outcomeOf(checks[id] ?? (() => skipped(why)));
      yield { id, title: CHECK_TITLES[id], ...outcome };
    }
  } finally {
    await examination?.close();
  }
}

async function outcomeOf(check: Check): Promise<CheckOutcome> {
  try {
    return await check();
  } catch (thrown) {
    return outcomeOfError(thrown);
  }
}

/** The checks of tokens, platform and webhook. A branch has none of the three and leaves these checks to its hub. */
const OF_THE_HUB: Partial<Record<CheckId, Check>> = Object.fromEntries(
  CHECK_IDS.filter((id) => /^(tokens|platform|webhook)/.test(id)).map((id) => [
    id,
    () => skipped('Only the hub calls the platform.'),
  ]),
);

/** Whether a check applies to this kind of store. */
export function concerns(id: CheckId, config: Config | undefined): boolean {
  if (/^hub\.(server|certificate|branches)$/.test(id)) return config !== undefined && isHub(config);
  return !/^hub/.test(id) || (config !== undefined && (isBranch(config) || isHub(config)));
}

/** The checks that need a configuration. Data that several of them need is read only once, when first needed. */
class Examination {
  readonly #o: DoctorOptions;
  readonly #config: Config;
  /** Whether a connection to the platform was made; undefined before a try. */
  #reached: boolean | undefined;

  constructor(options: DoctorOptions, config: Config) {
    this.#o = options;
    this.#config = config;
  }

  async close(): Promise<void> {
    const [services, stored] = [await this.#services.made(), await this.#stored.made()];
    if (services && !isOutcome(services)) await services.close();
    if (stored && !isOutcome(stored)) await stored.readers.close();
  }

  checks(): Partial<Record<CheckId, Check>> {
    const checks = { ...this.#ofMachine(), ...this.#ofStored(), ...this.#ofPlatform() };
    return isBranch(this.#config) ? { ...checks, ...OF_THE_HUB } : checks;
  }

  #ofMachine(): Partial<Record<CheckId, Check>> {
    const { setup, clock, signal } = this.#o;
    const { directory, group } = this.#config.storage;
    const paths = storagePaths(directory);
    return {
      // `storage.files` runs before the mirror is opened, because opening creates missing -wal and -shm files.
      'storage.disk': () => diskOutcome(directory),
      'storage.files': async () =>
        filesOutcome({
          ...{ directory, group, configFile: setup.file },
          apiKey: setup.secrets.localApiKey,
          running: await this.#running(),
        }),
      'storage.mirror': () => databaseOutcome('mirror', this.#config, clock, signal),
      'storage.state': () => databaseOutcome('state', this.#config, clock, signal),
      'storage.inbox': () => databaseOutcome('inbox', this.#config, clock, signal),
      'storage.readers': async () =>
        readersNow(paths.mirror, { clock, signal, daemon: (await this.#mark()).pid }),
      service: async () => serviceOutcome(await this.#running(), await readUnit(unitOf(setup.file))),
      'service.api': async () => apiOutcome(await this.#running(), await this.#answer()),
      'service.version': async () =>
        versionOutcome((await this.#answer())?.version ?? null, programVersion()),
    };
  }

  /** Returns the checks of what the daemon stored in the mirror and state.db, in the words of the status page. */
  #ofStored(): Partial<Record<CheckId, Check>> {
    const { clock } = this.#o;
    const flow = (id: keyof typeof FLOWS) => this.#withStored((stored) => flowOutcome(id, stored, clock));
    const sent = (kind: ChangeKind, what: string) =>
      this.#withStored(({ stores }) =>
        sentOutcome(
          stores.read(({ queries }) => queries.lastSent(kind)),
          what,
          clock,
        ),
      );
    return {
      tokens: this.#withStored(({ tokens, verdict }) =>
        tokens === null
          ? hidden('state.db cannot be read, so nothing is known of the tokens.')
          : tokensOutcome(tokens, verdict, clock.nowMs()),
      ),
      orders: flow('orders'),
      'orders.booked': this.#withStored((stored) => bookedOutcome(stored, clock)),
      catalog: flow('catalog'),
      'catalog.mapped': this.#withStored((stored) => mappedOutcome(stored, configuredBranches(this.#config))),
      changes: flow('changes'),
      'changes.stock': sent('stock', 'stock'),
      'changes.products': sent('product', 'price or text'),
      outbox: this.#withStored(outboxOutcome),
      'stock.differs': this.#withStored(differsOutcome),
      'stock.held-back': this.#withStored((stored) => heldBackOutcome(stored, this.#config)),
      'stock.safety': this.#withStored(safetyOutcome),
      hooks: this.#withStored((stored) => hooksOutcome(stored, this.#config, clock)),
      quarantine: this.#withStored(({ verdict, readers }) => {
        const entries = readers.counts().quarantine;
        const found = outcomeOfFindings(verdict, 'quarantine', { entries });
        return found ?? well('Everything received could be read.', { entries: 0 });
      }),
      backup: this.#withStored((stored) => backupOutcome(stored, clock)),
      hub: this.#withStored(({ verdict, mirror }) => {
        const link = mirror.health.freshness().find(({ subject }) => subject === 'hub.link');
        const found = outcomeOfFindings(verdict, 'hub');
        if (found) return found;
        if (link?.lastOkAt == null) return skipped('Nothing was heard over the link so far.');
        return well(`The link works; last heard ${since(link.lastOkAt, clock)}.`, {
          lastOkAt: link.lastOkAt,
        });
      }),
      ...this.#ofHub(),
      alarms: this.#withStored(
        ({ verdict }) =>
          outcomeOfFindings(verdict, 'alarms') ?? well('The status page tells of nothing else.'),
      ),
      'alarms.heartbeat': this.#withStored((stored) => {
        const target = heartbeatTarget({ config: this.#config, secrets: this.#o.setup.secrets });
        return heartbeatOutcome(target ? new URL(target.url).host : null, stored, clock);
      }),
    };
  }

  /** Returns the checks of a hub's nats-server and branches, and of the way between hub and branches. */
  #ofHub(): Partial<Record<CheckId, Check>> {
    const { clock, signal, offline } = this.#o;
    const config = this.#config;
    const { nats, publicUrl } = config.hub;
    let own: Promise<Seen> | undefined;
    const ownServer = ({ state }: Services) => {
      own ??= lookAt(nats, { caFile: state.hub.serverConfig()?.tls?.caFile, calledAs: publicUrl }, signal);
      return own;
    };
    return {
      'hub.server': this.#withServices(async (services) => {
        const unit = await readUnit(SERVER_UNIT);
        return serverOutcome(nats, services.state.hub.serverConfig(), await ownServer(services), unit);
      }),
      'hub.certificate': this.#withServices(async (services) => {
        const place = services.state.hub.serverConfig();
        if (place === undefined) return skipped('The nats-server has no configuration yet.');
        return certificateOutcome(publicUrl, place, await ownServer(services), clock.nowMs());
      }),
      'hub.branches': this.#withServices(({ state, mirror }) => {
        const watched = config.branches.filter((branch) => branch.watched !== false);
        const names = state.hub.open(configuredNames(watched));
        const invited = state.hub.branches();
        return branchesOutcome(mirror.read((db) => branchBoard(db, names, invited, clock.nowMs())));
      }),
      'hub.way': async () => {
        if (offline) return skipped('Not tried: --offline.');
        if (isBranch(config)) return this.#wayOfBranch();
        if (publicUrl === '')
          return skipped('hub.public_url is empty: only branches on this machine can join.');
        return this.#withServices(async ({ state }) =>
          wayOutcome(
            config,
            await lookAt(publicUrl, { caFile: state.hub.serverConfig()?.tls?.caFile }, signal),
          ),
        )();
      },
    };
  }

  /** Checks the way to the hub: the first of its addresses that works, otherwise the first one. */
  async #wayOfBranch(): Promise<CheckOutcome> {
    const { signal } = this.#o;
    const config = this.#config;
    const { hub, otherHubs, caFile } = config.link;
    const lookUp = async (url: string) => wayOutcome(config, await lookAt(url, { caFile }, signal), url);
    const first = await lookUp(hub);
    if (first.level === 'ok') return first;
    for (const url of otherHubs) {
      const other = await lookUp(url);
      if (other.level === 'ok') return other;
    }
    return first;
  }

  /**
   * Returns the checks of the platform: its endpoints, clock and webhook, and the path of callbacks to this machine.
   */
  #ofPlatform(): Partial<Record<CheckId, Check>> {
    const { clock, signal, offline } = this.#o;
    const config = this.#config;
    const { callbackUrl, port } = config.webhook;
    const attempt = attempts({ ...this.#o, hopeless: () => this.#whyNot() });
    return {
      'platform.network': async () => {
        if (offline) return skipped('Not tried: --offline.');
        const outcome = await networkOutcome(config.platform, signal);
        this.#reached = outcome.level === 'ok';
        return outcome;
      },
      'platform.limits': this.#withServices((services, { verdict }) => {
        const waits = services.state.ledger.waits(config.limits);
        return outcomeOfFindings(verdict, 'platform.limits', { waits }) ?? limitsOutcome(waits);
      }),
      'platform.products': this.#withServices(({ platform }) =>
        listOutcome(platform, configuredBranches(config), attempt),
      ),
      'platform.product': this.#withServices(({ platform, mirror }) =>
        productOutcome(
          platform,
          mirror.read((db) => db.prepare('SELECT sku FROM _skus LIMIT 1').pluck().get()),
          attempt,
        ),
      ),
      'webhook.registered': this.#ofWebhook(async () => {
        const outcome = await this.#withServices(({ webhookRegistration, state }) =>
          attempt(async (how) => {
            const there = await webhookRegistration.look(how);
            return registeredOutcome(callbackUrl, there, state.webhook.read());
          }),
        )();
        const stored = await this.#stored();
        if (outcome.level !== 'skipped' || isOutcome(stored)) return outcome;
        // If the webhook cannot be checked now, the daemon's last result is used.
        return outcomeOfFindings(stored.verdict, 'webhook.registered', outcome.facts) ?? outcome;
      }),
      'platform.clock': () => this.#clockNow(),
      'webhook.receiver': this.#ofWebhook(() => {
        if (port === 0)
          return skipped('webhook.listen picks a free port, so it cannot be found from outside.');
        return this.#address('local');
      }),
      'webhook.public': this.#ofWebhook(() => {
        const why = callbackUrl === '' ? 'webhook.callback_url is empty.' : this.#whyNot();
        return why === undefined ? this.#address('public') : skipped(why);
      }),
      'webhook.arriving': this.#ofWebhook(
        this.#withStored(({ verdict, mirror }) =>
          arrivingOutcome(verdict, firstSights(mirror, clock.nowMs()), clock),
        ),
      ),
    };
  }

  readonly #mark = once(() => readRunningMark(this.#config.storage.directory, this.#o.clock));

  readonly #answer = once(() => {
    const { setup, signal } = this.#o;
    return askDaemon(this.#config, setup.secrets.localApiKey, signal);
  });

  /** Whether the daemon runs; null if neither its mark nor the local API can be read. */
  readonly #running = once(async () => {
    const { running } = await this.#mark();
    const answer = running === null ? await this.#answer() : null;
    return answer === null ? running : answer.health === 'ok' || answer.health === 'failing';
  });

  readonly #stored = once(async () => openStored(this.#config, this.#o.clock, await this.#running()));

  /**
   * The services that share the daemon's rate budget and token pair, or an outcome with the reason why they are
   * unavailable.
   */
  readonly #services = once(async (): Promise<Services | CheckOutcome> => {
    const stored = await this.#stored();
    if (isOutcome(stored) || !stored.tokens) {
      return skipped('Not tried, since what is stored cannot be looked into.');
    }
    const { setup, clock, random } = this.#o;
    try {
      const { secrets } = setup;
      return await openServices({ config: this.#config, secrets, clock, random, log: silentLog });
    } catch (thrown) {
      const { message } = asTillsyncError(thrown);
      return skipped(`Not tried, since what is stored cannot be opened: ${message}`);
    }
  });

  readonly #probes = once(async () => {
    const services = await this.#services();
    const secret = isOutcome(services) ? undefined : services.webhookSecrets.current();
    const { webhook } = this.#config;
    const callbackUrl = this.#whyNot() === undefined ? webhook.callbackUrl : '';
    const config = { ...this.#config, webhook: { ...webhook, callbackUrl } };
    return probeWebhook({ config, secret, signal: this.#o.signal });
  });

  async #address(what: 'local' | 'public'): Promise<CheckOutcome> {
    if ((await this.#running()) === false)
      return skipped('tillsync does not run, so nobody takes callbacks.');
    return addressOutcome((await this.#probes()).filter((result) => result.what === what));
  }

  async #clockNow(): Promise<CheckOutcome> {
    const [services, stored] = [await this.#services(), await this.#stored()];
    const skewMs = isOutcome(services) ? undefined : services.platform.clock.skewMs();
    if (skewMs !== undefined) return clockOutcome({ skewMs, source: 'answer' });
    const tokens = isOutcome(stored) ? null : stored.tokens;
    // Tokens that were handed in and never refreshed contain no time of the platform.
    if (!tokens || tokens.generation < 2) return clockOutcome(null);
    return clockOutcome({ skewMs: tokens.clockSkewMs, source: 'refresh' });
  }

  /** Returns the reason why no other machine is contacted; undefined if there is none. */
  #whyNot(): string | undefined {
    if (this.#o.offline) return 'Not tried: --offline.';
    return this.#reached === false ? 'Not tried, since the platform is not reached.' : undefined;
  }

  #withStored(check: (stored: Stored) => CheckOutcome): Check {
    return async () => {
      const stored = await this.#stored();
      return isOutcome(stored) ? stored : check(stored);
    };
  }

  #withServices(check: (services: Services, stored: Stored) => CheckOutcome | Promise<CheckOutcome>): Check {
    return async () => {
      const [services, stored] = [await this.#services(), await this.#stored()];
      if (!isOutcome(services) && !isOutcome(stored)) return check(services, stored);
      const why = this.#whyNot();
      return why === undefined && isOutcome(services) ? services : skipped(why ?? 'Not tried.');
    };
  }

  #ofWebhook(check: Check): Check {
    if (this.#config.webhook.enabled) return check;
    return () => skipped('The webhook is switched off in the configuration; orders come by polling.');
  }
}

function isOutcome(found: object): found is CheckOutcome {
  return 'level' in found;
}

/**
 * Returns a function that runs `make` at its first call and always returns the same result. `made` returns the result,
 * or undefined if there was no call yet.
 */
function once<T>(make: () => Promise<T>): { (): Promise<T>; made(): Promise<T | undefined> } {
  let kept: Promise<T> | undefined;
  const get = () => {
    kept ??= make();
    return kept;
  };
  return Object.assign(get, { made: async () => kept });
}
