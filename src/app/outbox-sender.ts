import { type SweepNowRequest, sweepNow } from '../catalog/sweep.ts';
import { isBranch } from '../config/roles.ts';
import type { Freshness } from '../core/alarm.ts';
import { counted, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import type { Clock } from '../core/time.ts';
import type { ChangeKind, OutboxEntry } from '../outbox/intake/change.ts';
import { DifferenceMonitor, OutboxMaintenance } from '../outbox/sending/maintenance.ts';
import { StockLooker } from '../outbox/sending/product-reads.ts';
import { PushFreshness, PushLoop, type PushLoopOptions } from '../outbox/sending/push-loop.ts';
import type { Services, ServicesOptions } from './services.ts';

export interface OutboxSenderOptions
  extends Pick<ServicesOptions, 'config' | 'clock' | 'random' | 'log' | 'lookEveryMs'>,
    Pick<PushLoopOptions, 'onSettled'> {
  services: Services;
  /** Returns false while no call can succeed until a person brings new tokens. */
  mayCall: () => boolean;
  /** Requests an early sweep; left out if no loop sweeps. */
  wantCatalog?: () => void;
}

/** Sends the queued changes, in the daemon or in a command that waits for them. */
export class OutboxSender {
  readonly #options: OutboxSenderOptions;
  readonly #freshness: PushFreshness;
  readonly #lastPollOkMs: () => number | null;
  readonly #pushing = new Set<Promise<void>>();
  #maintenance: OutboxMaintenance | undefined;

  constructor(options: OutboxSenderOptions) {
    this.#options = options;
    const { health } = options.services.mirror;
    this.#freshness = new PushFreshness(health);
    this.#lastPollOkMs = health.lastOkMs.bind(health, 'orders.poll');
  }

  /** Whether this process may send now, because no other process does and the platform can be called. */
  get maySend(): boolean {
    return this.#status() === 'sends';
  }

  /** Makes the maintenance of the outbox, without which nothing is sent. Each call makes a new one. */
  maintenance(beat: () => void): OutboxMaintenance {
    const { services, config } = this.#options;
    const { stores, mirror, platform, state, outbox } = services;
    const differences = new DifferenceMonitor({
      stores,
      clock: this.#options.clock,
      onDifference: config.stock.onDifference,
      lastPollOkMs: this.#lastPollOkMs,
      onQueued: () => outbox.queued(),
    });
    this.#maintenance = new OutboxMaintenance({
      ...this.#options,
      stores,
      platform,
      leases: state.leases,
      alarms: mirror.health,
      beat,
      holdBack: config.stock.holdBackUnbooked,
      compare: async () => {
        const polledMs = this.#lastPollOkMs();
        if (polledMs !== null && stores.read(({ looks }) => !looks.isEmpty)) {
          if (await stores.write(({ looks }) => looks.end(polledMs))) outbox.queued();
        }
        return differences.step();
      },
      keptMs: config.retention.outboxMs,
      newestSeq: () => mirror.orders.newestSeq(),
      onQueued: () => outbox.queued(),
      sent: () => Promise.allSettled(this.#pushing),
    });
    return this.#maintenance;
  }

  /** Sends changes of one kind until the signal aborts. Wakes up when a change is queued. */
  async push(kind: ChangeKind, signal: AbortSignal, beat: () => void): Promise<void> {
    const { services, config } = this.#options;
    const { platform, stores, branches, mirror, outbox } = services;
    const { holdBackUnbooked: holdBack, skipUnchanged, trustForMs: trustMs, platformDeducts } = config.stock;
    const loop = new PushLoop({
      ...this.#options,
      kind,
      platform,
      stores,
      freshness: this.#freshness,
      beat,
      rules: { holdBack, skipUnchanged, trustMs, platformDeducts },
      looker: new StockLooker({
        stores,
        platform,
        clock: this.#options.clock,
        lookBelow: config.stock.lookBelow,
        isHeardLate: mirror.health.isHeardLate.bind(mirror.health),
      }),
      hasBranches: branches.length > 0,
      lastPollOkMs: this.#lastPollOkMs,
      status: () => this.#status(),
      lingerMs: config.outbox.lingerMs,
    });
    const unsubscribe = outbox.onQueued(() => loop.wake());
    const pushing = loop.run(signal);
    this.#pushing.add(pushing);
    try {
      await pushing;
    } finally {
      this.#pushing.delete(pushing);
      unsubscribe();
    }
  }

  #status(): 'sends' | 'elsewhere' | 'locked-out' {
    if (!this.#maintenance?.isSender) return 'elsewhere';
    return this.#options.mayCall() ? 'sends' : 'locked-out';
  }
}

const LOOK_EVERY_MS = 100;
const TROUBLE_EVERY_MS = 1_000;

export interface WaitRequest extends Pick<SweepNowRequest, 'onWait'> {
  /** Ends the wait. Unsettled changes stay queued. */
  signal: AbortSignal;
  onProgress: (settled: number, total: number) => void;
  /** Called once if no daemon sends changes, so that this process sends them. */
  onAlone: () => void;
  /** Called with a message if sending fails. Sending then continues. */
  onTrouble: (message: string) => void;
  /** Called during the sweep for which the changes wait, if no other process sweeps. */
  onCatalog: SweepNowRequest['onProgress'];
}

/**
 * Waits until each change, or the change that replaced it, is done, rejected, discarded or held. If no other process
 * sends, this process does. Returns the outcomes. Throws `aborted` and `auth-required`; all changes then stay queued.
 */
export async function sendUntilSettled(
  options: OutboxSenderOptions,
  changeIds: readonly number[],
  request: WaitRequest,
): Promise<Map<number, OutboxEntry>> {
  const { services, clock } = options;
  const ended = new AbortController();
  const signal = AbortSignal.any([request.signal, ended.signal]);
  const sender = new OutboxSender(options);
  const beat = () => {};
  const maintenance = sender.maintenance(beat);
  const watch = new SettlementMonitor(services, changeIds);
  // A branch does not send to the platform; its daemon uploads changes to the hub.
  const sends = !isBranch(options.config);
  if (sends) await maintenance.step();
  const work = sends
    ? [maintenance.run(signal), sender.push('stock', signal, beat), sender.push('product', signal, beat)]
    : [];
  try {
    if (sender.maySend && !watch.refresh()) request.onAlone();
    await Promise.race([
      settled(watch, { services, clock, sender, request, signal }),
      // A loop that fails ends the wait with its error. A loop that the signal ends returns normally, so it must not
      // end the wait.
      ...work.map((loop) => loop.then(() => new Promise<never>(() => {}))),
    ]);
  } finally {
    ended.abort();
    await Promise.allSettled(work);
  }
  return watch.results;
}

interface SettlementWait {
  services: Services;
  clock: Clock;
  sender: OutboxSender;
  request: WaitRequest;
  signal: AbortSignal;
}

async function settled(watch: SettlementMonitor, waiting: SettlementWait): Promise<void> {
  const { services, clock, sender, request, signal } = waiting;
  const startedAtMs = clock.nowMs();
  let catalog: Promise<unknown> | undefined;
  let failure: { error: unknown } | undefined;
  let told = '';
  let troubleDueMs = clock.monotonicMs() + TROUBLE_EVERY_MS;
  while (!(await whenFree(clock, () => watch.refresh(), undefined, signal))) {
    request.onProgress(watch.settled, watch.total);
    if (failure) throw failure.error;
    if (request.signal.aborted) throw stopped(watch);
    if (!catalog && sender.maySend && needsCatalog(services)) {
      catalog = readCatalog(services, request, signal).catch((error: unknown) => {
        failure = { error };
      });
    }
    if (clock.monotonicMs() >= troubleDueMs) {
      troubleDueMs = clock.monotonicMs() + TROUBLE_EVERY_MS;
      if (!isBranch(services.config)) requireTokens(services, watch);
      const trouble = troubleOf(services.mirror.health.freshness(), startedAtMs);
      if (trouble !== '' && trouble !== told) request.onTrouble(trouble);
      told = trouble;
    }
    await clock.sleep(LOOK_EVERY_MS, signal);
  }
  request.onProgress(watch.settled, watch.total);
}

/** Returns whether the mirror lacks its first complete sweep, for which changes of unknown products wait. */
function needsCatalog({ stores, branches }: Services): boolean {
  return branches.length > 0 && stores.read(({ lookup }) => !lookup.isComplete);
}

function readCatalog(services: Services, request: WaitRequest, signal: AbortSignal): Promise<unknown> {
  const { onWait, onCatalog } = request;
  return sweepNow(services, {
    signal,
    ...(onWait && { onWait }),
    ...(onCatalog && { onProgress: onCatalog }),
  });
}

function requireTokens({ platform }: Services, watch: SettlementMonitor): void {
  if (platform.tokens.describe().state === 'ok') return;
  throw new TillsyncError(
    'auth-required',
    `The platform asks for new tokens. Still queued: ${counted(watch.total - watch.settled, 'change')}.`,
    { hint: 'Run: {tillsync} auth set, and they are sent.' },
  );
}

function troubleOf(freshness: readonly Freshness[], sinceMs: number): string {
  const push = freshness.find(({ subject }) => subject === 'outbox.push');
  const isNow = push?.lastTryAt != null && Date.parse(push.lastTryAt) >= sinceMs;
  return push && isNow && push.state !== 'ok' ? push.message : '';
}

function stopped(watch: SettlementMonitor): TillsyncError {
  const left = watch.total - watch.settled;
  return new TillsyncError('aborted', `Stopped waiting. Still queued: ${counted(left, 'change')}.`, {
    hint: 'The daemon sends them, or the next command with --wait.',
  });
}

/** Follows changes to their outcomes, also through changes that replaced them. */
class SettlementMonitor {
  readonly results = new Map<number, OutboxEntry>();
  readonly total: number;
  readonly #services: Pick<Services, 'stores'>;
  /** For each unsettled change, the change that replaced it, or itself. */
  readonly #waiting: Map<number, number>;

  constructor(services: Pick<Services, 'stores'>, changeIds: readonly number[]) {
    this.#services = services;
    this.#waiting = new Map(changeIds.map((changeId) => [changeId, changeId]));
    this.total = this.#waiting.size;
  }

  get settled(): number {
    return this.total - this.#waiting.size;
  }

  /** Reads the changes again. Returns whether all are settled. */
  refresh(): boolean {
    this.#services.stores.read(({ queries }) => {
      const open = queries.open();
      for (const [changeId, now] of this.#waiting) {
        const state = open.get(now);
        if (state && !state.isHeld) continue;
        const entry = queries.follow(now);
        const isOpen = entry && open.get(entry.changeId)?.isHeld === false;
        if (isOpen) this.#waiting.set(changeId, entry.changeId);
        else {
          // A missing row belongs to a change that was settled so long ago that the row was deleted.
          if (entry) this.results.set(changeId, entry);
          this.#waiting.delete(changeId);
        }
      }
    });
    return this.#waiting.size === 0;
  }
}
