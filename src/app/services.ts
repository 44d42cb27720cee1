import type { Branch } from '../catalog/product.ts';
import { LeasedSweep } from '../catalog/sweep.ts';
import type { Config } from '../config/config-type.ts';
import { branchCallsNobody, configuredNames, isBranch, isHub, roleOf } from '../config/roles.ts';
import type { Secrets } from '../config/secrets.ts';
import { openWhenFree } from '../core/files.ts';
import type { Log } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import type { Holders } from '../db/lease.ts';
import { type Counters, measuredTransport } from '../health/counters.ts';
import { Recently } from '../health/health-checks.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import { OrderPoll } from '../orders/receiving/order-poll.ts';
import type { InboxAsker, InboxProcessOptions } from '../outbox/intake/inbox-process.ts';
import { PosLife } from '../outbox/intake/pos-signs.ts';
import { OutboxService } from '../outbox/sending/outbox.ts';
import { MirrorStores } from '../outbox/sending/repositories.ts';
import { PlatformClient } from '../platform/client.ts';
import { createHttpTransport, type Transport } from '../platform/transport.ts';
import { WebhookRegistration, WebhookSecrets } from '../platform/webhook-registration.ts';
import { userAgent } from './installation.ts';
import { openMirror } from './mirror.ts';
import { configuredBranches, configuredSafety } from './read-only-services.ts';
import { openState, type State } from './state.ts';
import { prepareStorage } from './storage.ts';

/** Remembers opened resources and closes them in reverse order, each once, even if closing another one fails. */
export class Releasers {
  readonly #log: Log;
  readonly #undo: { name: string; release: () => Promise<void> | void }[] = [];

  constructor(log: Log) {
    this.#log = log;
  }

  push(name: string, release: () => Promise<void> | void): void {
    this.#undo.push({ name, release });
  }

  /** Closes all resources in reverse order. A failure is logged and does not prevent the others. */
  async release(): Promise<void> {
    for (let last = this.#undo.pop(); last; last = this.#undo.pop()) {
      try {
        await last.release();
      } catch (error) {
        this.#log.error({ err: error, part: last.name }, 'closing a part failed');
      }
    }
  }
}

/** Builds something that opens several resources. If that fails, the resources opened so far are closed. */
export async function buildOrRelease<T>(log: Log, build: (releasers: Releasers) => Promise<T>): Promise<T> {
  const releasers = new Releasers(log);
  try {
    return await build(releasers);
  } catch (error) {
    await releasers.release();
    throw error;
  }
}

const NEW_TOKENS = 'New tokens are stored, and are used with the next call.';

export interface ServicesOptions {
  config: Config;
  secrets: Secrets;
  clock: Clock;
  random: Random;
  log: Log;
  /** Transport used instead of HTTP, for a simulation in one process. */
  transport?: Transport;
  /** Called with every secret found while running, such as a rotated token, so that the log can hide it. */
  onSecret?: ((value: string) => void) | undefined;
  /** Interval at which the daemon checks for work of other processes. If left out, a default for shops is used. */
  lookEveryMs?: number | undefined;
  /** Opens the inbox. If left out, the inbox is opened in a process of its own. */
  openInbox?: ((options: InboxProcessOptions) => InboxAsker) | undefined;
  /** Names of the holders of rate slots and leases, for a simulation in which one process acts as several. */
  holders?: Holders;
  /** Counters for calls to the platform. */
  counters?: Counters;
}

/**
 * Services of the daemon and of every command that writes. Both are built here, so that both follow the same rules.
 */
export type Services = Awaited<ReturnType<typeof build>>;

/** Opens the databases and builds the services on them. Throws `storage-…`, `config-invalid`. */
export function openServices(options: ServicesOptions): Promise<Services> {
  return buildOrRelease(options.log, (releasers) => build(options, releasers));
}

async function build(options: ServicesOptions, releasers: Releasers) {
  const { config, secrets, clock, log, holders } = options;
  const group = config.storage.group === '' ? undefined : config.storage.group;
  const paths = prepareStorage(config.storage.directory, group);
  const shared = { clock, role: roleOf(config) };
  const { onSecret } = options;
  const state = await openWhenFree(clock, () =>
    openState({ path: paths.state, ...shared, onSecret, ...(holders && { holders }) }),
  );
  releasers.push('state.db', () => state.close());
  const { fields: spellings, ...words } = config.orders;
  const mirror = await openWhenFree(clock, () =>
    openMirror({ path: paths.mirror, ...shared, group, feed: state.feed, spellings, ...words }),
  );
  releasers.push('mirror.db', () => mirror.close());

  const limited = new Recently(clock);
  const platform = connect(options, state, mirror, limited);
  releasers.push('connections to the platform', () => platform.close());
  const { refreshToken, accessToken } = secrets;
  if (refreshToken !== undefined) {
    const verdict = await platform.tokens.seed({
      refreshToken,
      ...(accessToken !== undefined && { accessToken }),
    });
    if (verdict === 'adopted') {
      log.info({}, 'took the tokens that were handed in');
      mirror.health.report('auth', 'waiting', NEW_TOKENS);
    }
  }

  const stores = storesOf(options, mirror, () => platform.clock.skewMs());
  const webhookSecrets = new WebhookSecrets({
    handedIn: secrets.webhookSecrets,
    store: state.webhook,
    clock,
  });
  return {
    config,
    state,
    mirror,
    platform,
    /** Remembers when the platform asked to wait. */
    limited,
    webhookSecrets,
    /** Branches whose catalogue is read. */
    branches: isHub(config) ? openOnes(config, state) : configuredBranches(config, mirror),
    /** Catalogue and outbox in the mirror. */
    stores,
    outbox: new OutboxService({ stores, guards: config.guard, holdBack: config.stock.holdBackUnbooked }),
    /** Notes when the POS gives a sign of life. */
    posLife: new PosLife(mirror, clock),
    catalogSweep: new LeasedSweep({
      platform,
      stores,
      leases: state.leases,
      async quarantine(payload) {
        const reason =
          'A product of GET /product/list has no id, or an entry in it names no SKU or no branch. The rest is in the mirror.';
        const unreadable = { source: 'catalog', receivedAtMs: clock.nowMs(), reason, payload } as const;
        await mirror.save([{ kind: 'unreadable', unreadable }]);
      },
      alarms: mirror.health,
      isHub: isHub(config),
      clock,
      pageSize: config.catalog.pageSize,
    }),
    orderPoll: pollOf(options, state, mirror, platform),
    webhookRegistration: new WebhookRegistration({
      platform,
      secrets: webhookSecrets,
      store: state.webhook,
      callbackUrl: config.webhook.enabled ? config.webhook.callbackUrl : '',
      alarms: mirror.health,
      clock,
      log,
    }),
    /** Waits for a running token refresh, writes pending reports, and closes everything. */
    close: () => releasers.release(),
  };
}

function storesOf(
  { config, clock }: ServicesOptions,
  mirror: Mirror,
  skewMs: () => number | undefined,
): MirrorStores {
  return new MirrorStores({
    mirror,
    clock,
    areApart: isHub(config),
    branches: configuredBranches(config),
    skewMs,
    timezone: config.orders.timezone,
    ownName: isBranch(config) ? config.link.branch : undefined,
    safety: configuredSafety(config),
    editHoldMs: config.stock.editHoldMs,
    guards: config.guard,
  });
}

function pollOf(
  { config, clock, log }: ServicesOptions,
  state: State,
  mirror: Mirror,
  platform: PlatformClient,
): OrderPoll {
  return new OrderPoll({
    platform,
    mirror,
    leases: state.leases,
    platformSkewMs: () => platform.clock.skewMs(),
    // Without usable tokens there is no wait, because the call itself fails at once.
    nextWait: () =>
      platform.tokens.describe().state === 'ok' ? state.ledger.waitOf('order.all', config.limits) : undefined,
    clock,
    log,
    settings: { ...config.orders, ...config.quirks },
  });
}

const NO_PLATFORM: Transport = {
  async send() {
    throw branchCallsNobody();
  },
  async close() {},
};

function connect(
  { config, clock, random, log, transport, counters }: ServicesOptions,
  state: State,
  mirror: Mirror,
  limited: Recently,
): PlatformClient {
  const own = () =>
    isBranch(config)
      ? NO_PLATFORM
      : createHttpTransport({ ...config.platform, userAgent: userAgent(), clock });
  const direct = transport ?? own();
  const { health } = mirror;
  const { timeoutMs } = config.platform;
  const { webhookReadMethod, webhookReadPath, webhookActiveField } = config.quirks;
  return new PlatformClient({
    transport: counters ? measuredTransport(direct, counters, clock) : direct,
    ledger: state.ledger,
    tokens: state.tokens,
    limits: config.limits,
    clock,
    random,
    log,
    webhookRead: { method: webhookReadMethod, path: webhookReadPath },
    webhookEnableFlag: webhookActiveField,
    timeoutMs,
    onLockOut(lockOut) {
      const message =
        lockOut.cause === 'reply-lost'
          ? 'The answer to a token refresh was lost, so nobody has the new tokens. tillsync tries the old one again after 1, 10 and 60 minutes, then every hour. To continue now, set new tokens: {tillsync} auth set'
          : 'The platform refused the refresh token. tillsync tries it again after 1, 10 and 60 minutes, then every hour. To continue now, set new tokens: {tillsync} auth set';
      health.report('auth', 'locked-out', message, 'auth-required');
    },
    // New tokens count as valid only after the platform has accepted them.
    onHealed: () => health.report('auth', 'waiting', NEW_TOKENS),
    onAccepted: () => health.ok('auth'),
    onLimited: (endpoint) => limited.note(endpoint),
    onWaited: counters?.waited,
  });
}

function openOnes(config: Config, { hub }: State): Branch[] {
  const named = hub.named(configuredNames(config.branches));
  return configuredBranches(config).filter((_, i) => named[i]?.isClosed !== true);
}
