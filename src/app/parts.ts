import type { Branch } from '../catalog/product.ts';
import { LeasedSweep } from '../catalog/sweep.ts';
import type { Config } from '../config/config-type.ts';
import type { Secrets } from '../config/secrets.ts';
import type { Alarms } from '../core/alarm.ts';
import { openWhenFree } from '../core/files.ts';
import type { Log } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import type { Holders } from '../db/lease.ts';
import { type Mirror, openMirror } from '../orders/mirror.ts';
import { OrderPoll } from '../orders/order-poll.ts';
import { WebhookRegistration, WebhookSecrets } from '../orders/webhook.ts';
import { ChangeDesk } from '../outbox/change-desk.ts';
import { MirrorStores } from '../outbox/stores.ts';
import { createPlatformClient, type PlatformClient } from '../platform/client.ts';
import type { Endpoint, PlatformLimits, Wait } from '../platform/platform.ts';
import type { ForbiddenNote, RateLedger } from '../platform/rate-budget.ts';
import type { TokenKeeper } from '../platform/token-keeper.ts';
import { createHttpTransport, type Transport } from '../platform/transport.ts';
import { prepareStorage } from './storage.ts';
import { openState, type State } from './stores.ts';

/** What was opened, to be closed in reverse; each once, whatever the others do. */
export class Releasers {
  readonly #log: Log;
  readonly #undo: { name: string; release: () => Promise<void> | void }[] = [];

  constructor(log: Log) {
    this.#log = log;
  }

  push(name: string, release: () => Promise<void> | void): void {
    this.#undo.push({ name, release });
  }

  /** Closes all in reverse. A failure is logged and does not keep the others open. */
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

/** Builds something of many parts; when that fails on the way, what was open already is closed again. */
export async function buildOrRelease<T>(log: Log, build: (releasers: Releasers) => Promise<T>): Promise<T> {
  const releasers = new Releasers(log);
  try {
    return await build(releasers);
  } catch (error) {
    await releasers.release();
    throw error;
  }
}

export interface PlatformAlarmsOptions {
  alarms: Alarms;
  ledger: Pick<RateLedger, 'blockHistory'>;
  limits: PlatformLimits;
}

/** Tells a person of a block by the platform, and of its end, also when another process met it. */
export class PlatformAlarms {
  readonly #options: PlatformAlarmsOptions;
  /** Endpoints that answered here since the last 403 to them. */
  readonly #answering = new Set<Endpoint>();

  constructor(options: PlatformAlarmsOptions) {
    this.#options = options;
  }

  forbidden({ kind, endpoint, error }: ForbiddenNote): void {
    this.#answering.delete(endpoint);
    const message = [error.message, error.hint].filter(Boolean).join(' ');
    this.#options.alarms.raise(kind === 'block' ? 'platform.blocked' : 'platform.forbidden', message);
  }

  /** A 2xx proves that the token is not blocked, and that this endpoint is allowed. */
  answered(endpoint: Endpoint): void {
    const { alarms } = this.#options;
    alarms.lower('platform.blocked');
    if (this.#answering.has(endpoint)) return;
    this.#answering.add(endpoint);
    if (this.#wasForbidden(endpoint)) alarms.lower('platform.forbidden');
  }

  #wasForbidden(endpoint: Endpoint): boolean {
    const { ledger, limits } = this.#options;
    try {
      return ledger.blockHistory(endpoint, limits).own !== null;
    } catch {
      // The next answer asks again.
      this.#answering.delete(endpoint);
      return false;
    }
  }
}

const NEW_TOKENS = 'New tokens were handed over and are used with the next call.';

export interface PartsOptions {
  config: Config;
  secrets: Secrets;
  clock: Clock;
  random: Random;
  log: Log;
  /** Another way to the platform than HTTP, for a simulation in one process. */
  transport?: Transport;
  /** Told of every secret that comes up while running, such as a rotated token, so that the log can hide it. */
  onSecret?: ((value: string) => void) | undefined;
  /** How often the daemon looks for what other processes did; without it, as a store needs it. */
  lookEveryMs?: number | undefined;
  /** Who holds slots and leases, for a simulation in which one process lives several lives. */
  holders?: Holders;
  /** Counts what goes to the platform. */
  meter?: PlatformMeter;
}

/** Whoever counts the calls to the platform and the waits before them. */
export interface PlatformMeter {
  measured(transport: Transport): Transport;
  waited(wait: Wait): void;
}

/** What the daemon and every command beside it work with; both build it here, so both keep the same rules. */
export interface Parts {
  config: Config;
  state: State;
  mirror: Mirror;
  platform: PlatformClient;
  orderPoll: OrderPoll;
  webhookSecrets: WebhookSecrets;
  webhookRegistration: WebhookRegistration;
  branches: readonly Branch[];
  /** Catalogue and outbox in the mirror. */
  stores: MirrorStores;
  changeDesk: ChangeDesk;
  catalogSweep: LeasedSweep;
  /** Called after changes were put in line by this process. */
  onLine: Set<() => void>;
  /** Waits for a token refresh under way, writes what is pending, closes. */
  close(): Promise<void>;
}

/** Opens the databases and builds what works on them. Throws `storage-…`, `config-invalid`. */
export function openParts(options: PartsOptions): Promise<Parts> {
  return buildOrRelease(options.log, (releasers) => build(options, releasers));
}

async function build(options: PartsOptions, releasers: Releasers): Promise<Parts> {
  const { config, secrets, clock, log, holders } = options;
  const group = config.storage.group === '' ? undefined : config.storage.group;
  const paths = prepareStorage(config.storage.directory, group);
  const state = await openWhenFree(clock, () =>
    openState({ path: paths.state, clock, onSecret: options.onSecret, ...(holders && { holders }) }),
  );
  releasers.push('state.db', () => state.close());
  const mirror = await openWhenFree(clock, () =>
    openMirror({
      path: paths.mirror,
      clock,
      group,
      feed: state.feed,
      spellings: config.orders.fields,
      listPath: config.orders.listPath,
    }),
  );
  releasers.push('mirror.db', () => mirror.close());

  const platform = connect(options, state, mirror);
  releasers.push('connections to the platform', () => platform.close());
  await seedTokens(platform.tokens, secrets, mirror, log);

  const branches = config.branches.map(
    ({ subsidiaryId = null, externalId = null }): Branch => ({ subsidiaryId, externalId }),
  );
  const stores = new MirrorStores({
    ...{ mirror, branches, clock },
    skewMs: () => platform.clock.skewMs(),
  });
  const onLine = new Set<() => void>();
  const { holdBackUnbooked: holdBack } = config.stock;
  const changeDesk = new ChangeDesk({
    stores,
    guards: config.guard,
    holdBack,
    onTaken: () => {
      for (const listener of onLine) listener();
    },
  });
  const { pageSize } = config.catalog;
  const quarantine = async (payload: string) => {
    const reason = 'An entry of GET /product/list could not be read whole as a product.';
    const unreadable = { source: 'catalog', receivedAtMs: clock.nowMs(), reason, payload } as const;
    await mirror.keep([{ kind: 'unreadable', unreadable }]);
  };

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
    webhookSecrets,
    branches,
    stores,
    changeDesk,
    onLine,
    catalogSweep: new LeasedSweep({ platform, stores, leases: state.leases, quarantine, clock, pageSize }),
    orderPoll: createOrderPoll(options, state, mirror, platform),
    webhookRegistration: new WebhookRegistration({
      platform,
      secrets: webhookSecrets,
      store: state.webhook,
      callbackUrl: config.webhook.enabled ? config.webhook.callbackUrl : '',
      alarms: mirror.alarms,
      clock,
      log,
    }),
    close: () => releasers.release(),
  };
}

function createOrderPoll(
  { config, clock, log }: PartsOptions,
  state: State,
  mirror: Mirror,
  platform: PlatformClient,
): OrderPoll {
  return new OrderPoll({
    platform,
    mirror,
    leases: state.leases,
    platformSkewMs: () => platform.clock.skewMs(),
    // Without usable tokens the call itself says so at once.
    nextWait: () =>
      platform.tokens.describe().state === 'ok' ? state.ledger.waitOf('order.all', config.limits) : undefined,
    clock,
    log,
    settings: config.orders,
  });
}

function connect(
  { config, clock, random, log, transport, meter }: PartsOptions,
  state: State,
  mirror: Mirror,
): PlatformClient {
  const direct = transport ?? createHttpTransport({ baseUrl: config.platform.baseUrl, clock });
  const { freshnessBoard, alarms } = mirror;
  const platformAlarms = new PlatformAlarms({ alarms, ledger: state.ledger, limits: config.limits });
  const { timeoutMs, webhookReadMethod, webhookReadPath, webhookActiveField } = config.platform;
  return createPlatformClient({
    transport: meter?.measured(direct) ?? direct,
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
          ? 'The answer to a token refresh was lost, so the platform has given the new tokens to nobody. Hand in new ones with: {tillsync} auth set'
          : 'The platform refused the refresh token. Hand in new ones with: {tillsync} auth set';
      freshnessBoard.report('auth', 'locked-out', message);
      alarms.raise('auth.locked-out', message);
    },
    // That they are good is not known before the platform has taken them.
    onHealed: () => freshnessBoard.report('auth', 'waiting', NEW_TOKENS),
    onAccepted() {
      freshnessBoard.ok('auth');
      alarms.lower('auth.locked-out');
    },
    onForbidden: (told) => platformAlarms.forbidden(told),
    onAnswered: (endpoint) => platformAlarms.answered(endpoint),
    onWaited: meter && ((wait) => meter.waited(wait)),
  });
}

async function seedTokens(
  keeper: TokenKeeper,
  secrets: Secrets,
  { freshnessBoard }: Pick<Mirror, 'freshnessBoard'>,
  log: Log,
): Promise<void> {
  const { refreshToken, accessToken } = secrets;
  if (refreshToken === undefined) return;
  const verdict = await keeper.seed({ refreshToken, ...(accessToken !== undefined && { accessToken }) });
  if (verdict !== 'adopted') return;
  log.info({}, 'took the tokens that were handed in');
  freshnessBoard.report('auth', 'waiting', NEW_TOKENS);
}
