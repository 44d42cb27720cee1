import type { Branch, MirroredProduct } from '../catalog/product.ts';
import { subsidiaryOf } from '../catalog/unmapped.ts';
import type { Config } from '../config/config-type.ts';
import { isBranch, isHub, roleOf } from '../config/roles.ts';
import { cronSchedule } from '../config/schedule.ts';
import { isSetUp } from '../config/source.ts';
import type { AlarmUp } from '../core/alarm.ts';
import { asTillsyncError, TillsyncError } from '../core/errors.ts';
import { openWhenFree } from '../core/files.ts';
import { type Clock, keptFor } from '../core/time.ts';
import type { Role } from '../db/migrate.ts';
import type { DiskSpace, Facts } from '../health/facts.ts';
import type { HeartbeatMemory } from '../health/heartbeat.ts';
import { CurrentAssessment } from '../health/notifier.ts';
import { assess, type Verdict, verdictOf } from '../health/verdict.ts';
import type { PreparationContext } from '../hooks/prepared-orders.ts';
import { IS_OPEN } from '../orders/merging/order.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import { quarantineEntries } from '../orders/reading/order-queries.ts';
import { type BranchHoldBack, holdBackOf } from '../outbox/ledger/hold-back.ts';
import { acknowledgingStores } from '../outbox/ledger/holding-branches.ts';
import type { SafetyRule } from '../outbox/ledger/stock-ledger.ts';
import { MirrorStores } from '../outbox/sending/repositories.ts';
import { describeTokens, type TokenStatus } from '../platform/tokens.ts';
import { isReadable, requireRights } from './installation.ts';
import { openMirror } from './mirror.ts';
import { openState, type State } from './state.ts';
import { RUNNING, storagePaths, storageSpace } from './storage.ts';

/** Counts rows of the mirror. `events` is the newest seq of the feed. */
export function mirrorCounts(mirror: Pick<Mirror, 'read' | 'orders'>) {
  const counts = mirror.read((db) =>
    db
      .prepare<[], { orders: number; openOrders: number; quarantine: number }>(
        `SELECT (SELECT count(*) FROM _orders) AS orders,
           (SELECT count(*) FROM _orders WHERE ${IS_OPEN}) AS openOrders,
           (SELECT count(*) FROM _quarantine) AS quarantine`,
      )
      .get(),
  );
  const { orders = 0, openOrders = 0, quarantine = 0 } = counts ?? {};
  return { orders, openOrders, events: mirror.orders.newestSeq(), quarantine };
}

const STALE_AFTER_MS = 600_000;
/**
 * Time by which the patience is shorter if it starts when a poll is due, and not at the last good poll. Most short
 * outages end even within the shorter time.
 */
const CUT_MS = 120_000;

/** Returns the shortest time without a good poll after which people are notified. */
function ordersPatienceMs({ limits }: Pick<Config, 'limits'>): number {
  return Math.max(STALE_AFTER_MS, limits.ordersIntervalMs * 3);
}

/**
 * Returns the time after the last good poll from which on orders are stale: the time until the next poll is due, plus a
 * margin. At a branch, the hub's value is used.
 */
export function ordersStaleAfterMs(
  config: Pick<Config, 'orders' | 'limits' | 'link'>,
  mirror: { polls: Pick<Mirror['polls'], 'lastOkMs' | 'hubStaleAfterMs'> },
): number {
  const ofHubMs = isBranch(config) ? mirror.polls.hubStaleAfterMs() : undefined;
  if (ofHubMs !== undefined) return ofHubMs;
  const lastPollOkMs = mirror.polls.lastOkMs();
  const { poll, timezone } = config.orders;
  const patienceMs = ordersPatienceMs(config);
  if (lastPollOkMs === null) return patienceMs;
  const dueInMs = cronSchedule(poll, timezone).nextAfter(lastPollOkMs) - lastPollOkMs;
  return Math.max(patienceMs, dueInMs + patienceMs - CUT_MS);
}

/** An id by which a person names a product. */
export type ProductName = { productId: string } | { sku: string } | { externalId: string };

/** Opens catalogue and outbox of a mirror that is open for reading only. */
export function readStores(
  mirror: Mirror,
  config: Pick<Config, 'branches' | 'link'>,
  clock: Clock,
): MirrorStores {
  return new MirrorStores({ mirror, branches: configuredBranches(config), clock });
}

/**
 * Returns the configured branches. At a branch of a hub, returns only this branch, with its id at the hub and, if
 * `mirror` has its catalogue, the subsidiary id of its stocks.
 */
export function configuredBranches(
  { branches, link }: Pick<Config, 'branches' | 'link'>,
  mirror?: Pick<Mirror, 'read'>,
): Branch[] {
  if (isBranch({ link })) {
    const own = { subsidiaryId: null, externalId: link.branch };
    const subsidiaryId = mirror?.read((db) => subsidiaryOf(db, own, [own])) ?? null;
    return [{ subsidiaryId, externalId: subsidiaryId === link.branch ? null : link.branch }];
  }
  return branches.map(({ subsidiaryId = null, externalId = null }) => ({ subsidiaryId, externalId }));
}

/** Returns what decides, beside the mirror, when orders are to be prepared. */
export function preparationContext(
  config: Pick<Config, 'branches' | 'link' | 'orders'>,
  mirror: Pick<Mirror, 'read'>,
  clock: Pick<Clock, 'nowMs'>,
): PreparationContext {
  const branches = configuredBranches(config, mirror);
  return { nowMs: clock.nowMs(), timezone: config.orders.timezone, branches };
}

/**
 * Returns for each branch whether stock of unbooked orders is held back. Empty at a branch, whose hub holds stock
 * back.
 */
export function holdBackStates(
  mirror: Pick<Mirror, 'read'>,
  config: Pick<Config, 'branches' | 'link' | 'stock'>,
): BranchHoldBack[] {
  if (isBranch(config)) return [];
  const acknowledging = mirror.read(acknowledgingStores);
  return holdBackOf(configuredBranches(config), config.stock.holdBackUnbooked, acknowledging);
}

/** Returns the configured safety stock. Empty at a branch, whose hub holds stock back. */
export function configuredSafety({
  stock,
  branches,
  link,
}: Pick<Config, 'stock' | 'branches' | 'link'>): SafetyRule[] {
  if (isBranch({ link })) return [];
  const ofCompany = { sku: null, subsidiaryId: null, qty: stock.safety };
  const ofBranches = branches.flatMap(({ subsidiaryId, safety: qty }) =>
    subsidiaryId === undefined || qty === undefined ? [] : [{ sku: null, subsidiaryId, qty }],
  );
  return [...(stock.safety > 0 ? [ofCompany] : []), ...ofBranches];
}

/** Returns the products with this id. Only an externalId may belong to several products. */
export function findProducts(stores: Pick<MirrorStores, 'read'>, name: ProductName): MirroredProduct[] {
  return stores.read(({ catalogQueries }) => catalogQueries.products({ ...name, limit: 100 }));
}

export interface ReadOnlyOptions {
  config: Config;
  clock: Clock;
}

/** Services of a command that only reads. Opening them creates, migrates and writes nothing. */
export type ReadOnlyServices = Awaited<ReturnType<typeof openReadOnlyServices>>;

/** Opens the stored files for reading, also while a daemon runs. Throws `not-found` before the first start. */
export async function openReadOnlyServices({ config, clock }: ReadOnlyOptions) {
  const { directory } = config.storage;
  const { mirror: path, state: statePath } = storagePaths(directory);
  requireRights(directory, 'read');
  const role = roleOf(config);
  if (!isReadable(path)) throw noMirror(directory);
  const mirror = await openWhenFree(clock, () => openMirror({ path, clock, role, readonly: true }));
  const found = await stateOf(statePath, { clock, role });
  const state = () => {
    if (found instanceof TillsyncError) throw found;
    return found;
  };
  return {
    mirror,
    /**
     * Returns the state of the tokens from state.db. Throws `not-found` if the file does not exist yet, `storage-…` if
     * this user may not read it.
     */
    tokens: () => tokenStatus(state(), clock),
    waits: () => state().ledger.waits(config.limits),
    /** Returns whether a daemon runs on these files now. */
    isRunning: () => state().leases.isHeld(RUNNING),
    /** Returns the raised alarms, including those of the running daemon that could not be written into the mirror. */
    alarms() {
      const stored = mirror.health.raised();
      // Alarms in state.db are ignored if this user may not read them, or if no daemon runs that would end them.
      if (found instanceof TillsyncError || !found.leases.isHeld(RUNNING)) return stored;
      const isMissing = ({ key }: AlarmUp) => !stored.some((alarm) => alarm.key === key);
      return [...found.alarms.aside().filter(isMissing), ...stored];
    },
    /** Returns the heartbeat's state; undefined if none was ever sent. Throws the errors of `tokens`. */
    heartbeat: () => state().alarms.heartbeat(),
    /** Returns the branches of a hub with their reports. Empty elsewhere, or if this user may not read state.db. */
    branches: () => (isHub(config) && !(found instanceof TillsyncError) ? found.hub.branches() : []),
    /** Returns the callbacks after `id`, oldest first. Throws the errors of `tokens`. */
    callbacks: (after: number, limit: number) => state().callbacks.list(after, limit),
    counts: () => mirrorCounts(mirror),
    close: async () => {
      if (!(found instanceof TillsyncError)) found.close();
      await mirror.close();
    },
  };
}

/** Returns the state of the stored tokens, with expiry by the platform's clock. */
export function tokenStatus({ tokens }: Pick<State, 'tokens'>, clock: Clock): TokenStatus {
  const pair = tokens.read();
  const intentAtMs = tokens.readIntent()?.startedAtMs ?? null;
  return describeTokens(pair, intentAtMs, clock.nowMs() + (pair?.clockSkewMs ?? 0));
}

/** Returns the error for a storage directory without a mirror, as before the first start. */
export function noMirror(directory: string): TillsyncError {
  return new TillsyncError('not-found', `There is no mirror in ${directory} yet.`, {
    hint: 'Start tillsync first ({start}), or look into another directory with --config FILE.',
  });
}

async function stateOf(
  path: string,
  { clock, role }: { clock: Clock; role: Role },
): Promise<State | TillsyncError> {
  try {
    if (isReadable(path)) return await openWhenFree(clock, () => openState({ path, clock, role }));
    return new TillsyncError('not-found', 'No tokens were ever stored here.', {
      hint: 'Hand over a refresh token: {tillsync} auth set < FILE',
    });
  } catch (error) {
    return asTillsyncError(error);
  }
}

/**
 * Returns the state of the stored tokens, with or without a running daemon. Creates no file. Throws `storage-…` if
 * this user may not read them.
 */
export async function storedTokens(options: { config: Config; clock: Clock }): Promise<TokenStatus> {
  const { config, clock } = options;
  const { state: path } = storagePaths(config.storage.directory);
  requireRights(config.storage.directory, 'read');
  if (!isReadable(path)) return describeTokens(null, null, 0);
  const state = await openWhenFree(clock, () => openState({ path, clock, role: roleOf(config) }));
  try {
    return tokenStatus(state, clock);
  } finally {
    state.close();
  }
}

export interface StoredVerdictOptions {
  readers: ReadOnlyServices;
  config: Config;
  clock: Clock;
  /** State of the tokens in state.db; null if it cannot be read. */
  tokens: Facts['tokens'];
  running: boolean | null;
  /** Fault of state.db itself; null if there is none or this user may not read the file. */
  stateFault?: string | null;
}

/** Returns the verdict of the status page from stored data, with or without a running daemon. */
export function storedVerdict(options: StoredVerdictOptions): { verdict: Verdict; disk: DiskSpace | null } {
  const { readers, config, clock, tokens, running, stateFault } = options;
  const disk = storageSpace(config.storage.directory);
  const alarms = readers.alarms();
  const outbox = readStores(readers.mirror, config, clock).read(({ queries }) => queries.counts());
  const isLineUp = lineOf(() => readers.heartbeat());
  const facts = { alarms, tokens, outbox, disk, running, stateFault, isLineUp };
  return { verdict: verdictOn(readers.mirror, { config, clock }, facts), disk };
}

/**
 * Calls `look`, which reads state.db. A fault of the file is returned in `stateFault`, so that findings of the mirror
 * are still found. `found` is null after a fault, and at a branch, which has no tokens. Throws `storage-busy`.
 */
export function fromState<T>(config: Config, look: () => T): { found: T | null; stateFault: string | null } {
  if (isBranch(config)) return { found: null, stateFault: null };
  try {
    return { found: look(), stateFault: null };
  } catch (error) {
    if (!(error instanceof TillsyncError) || error.code === 'storage-busy') throw error;
    return { found: null, stateFault: error.message };
  }
}

/**
 * Time for which notifiers and heartbeat share one result, because they read at the same time and the read is costly.
 */
const SHARED_FOR_MS = 200;

/** Returns the present findings for the daemon with these services. */
export function currentAssessment({
  config,
  mirror,
  state,
  platform,
  outbox,
  clock,
}: Pick<ReadOnlyOptions, 'config' | 'clock'> & {
  mirror: Mirror;
  state: { alarms: { heartbeat(): HeartbeatMemory | undefined } };
  platform: { tokens: { describe(): TokenStatus } };
  outbox: { counts(): NonNullable<Facts['outbox']> };
}): CurrentAssessment {
  const look = () => {
    const { found: tokens, stateFault } = fromState(config, () => platform.tokens.describe());
    const disk = storageSpace(config.storage.directory);
    const isLineUp = lineOf(() => state.alarms.heartbeat());
    const alarms = mirror.health.raised();
    const beside = { alarms, tokens, stateFault, outbox: outbox.counts(), disk, isLineUp };
    return assess(factsOn(mirror, { config, clock }, beside));
  };
  return new CurrentAssessment(keptFor(SHARED_FOR_MS, clock, look), clock);
}

/** Returns whether the last heartbeat reached its watcher; null if none is sent or the state cannot be read. */
export function lineOf(heartbeat: () => HeartbeatMemory | undefined): boolean | null {
  try {
    return heartbeat()?.ok ?? null;
  } catch {
    return null;
  }
}

/** Returns whether orders are stale, even if another finding hides the finding `orders.stale`. */
export function areOrdersStale(mirror: Mirror, options: Pick<ReadOnlyOptions, 'config' | 'clock'>): boolean {
  const beside = { alarms: mirror.health.raised(), tokens: null, outbox: null };
  const { findings, hidden } = assess(factsOn(mirror, options, beside));
  return hidden.has('orders.stale') || findings.some(({ code }) => code === 'orders.stale');
}

/** Returns the verdict that follows from the mirror and other known facts. */
export function verdictOn(...known: Parameters<typeof factsOn>): Verdict {
  return verdictOf(factsOn(...known));
}

function factsOn(
  mirror: Mirror,
  { config, clock }: ReadOnlyOptions,
  beside: Pick<Facts, 'alarms' | 'tokens' | 'outbox' | 'disk' | 'running' | 'stateFault' | 'isLineUp'>,
): Facts {
  return {
    ...beside,
    // A branch has no tokens.
    ...(isBranch(config) && { tokens: null }),
    nowMs: clock.nowMs(),
    isSetUp: isSetUp(config),
    freshness: mirror.health.freshness(),
    quarantine: mirror.read(quarantineEntries),
    ordersStaleAfterMs: ordersStaleAfterMs(config, mirror),
  };
}
