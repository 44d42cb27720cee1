import type { Alarms } from '../core/alarm.ts';
import { asTillsyncError, counted } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { retryDelayMs } from '../core/loop.ts';
import type { Clock, Random } from '../core/time.ts';
import { Lease, type Leases } from '../db/lease.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { CallOptions } from '../platform/platform.ts';
import type { OnDifference } from './differences.ts';
import type { HoldBackSetting } from './hold-back.ts';
import { ProductReads, type ProductReadsOptions } from './product-reads.ts';
import type { Place } from './stock-ledger.ts';
import type { MirrorStores } from './stores.ts';

/** One process sends at a time. */
const LEASE = 'outbox.push';
/** Long, so that an idle process writes nothing: the lease of a process that has died ends at once anyway. */
const HOLD_MS = 3_600_000;
/** Given up this long before it ends, so that a call that was just begun is over when another process starts. */
const MARGIN_MS = 10_000;

const LOOK_EVERY_MS = 1_000;
const PRUNE_EVERY_MS = 3_600_000;
/** In one transaction; few enough that no callback waits behind it. */
const PRUNED_AT_ONCE = 250;

export interface OutboxMaintenanceOptions extends ProductReadsOptions {
  /** `stock.hold_back_unbooked`. */
  holdBack: HoldBackSetting;
  /** Compares some counts with what the platform has; whether more are left. Left out where nobody compares. */
  compare?: (() => Promise<boolean>) | undefined;
  /** How long settled changes stay; 0: for ever. */
  keptMs: number;
  /** Newest event of the order feed. */
  newestSeq: () => number;
  leases: Leases;
  alarms: Alarms;
  /** False while only a person can bring new tokens. */
  mayCall: () => boolean;
  /** Resolves when no call of this process is under way, after the signal. */
  sent: () => Promise<unknown>;
  /** How often it looks for what another process did; without it, as a store needs it. */
  lookEveryMs?: number | undefined;
  random: Random;
  log: Log;
  beat: () => void;
}

/**
 * What the outbox needs besides sending: holds the lease of sending, so that one process sends at a time; finds targets
 * that the mirror did not know; follows what orders take of stock; notifies people of what waits for them; forgets what
 * was settled long ago.
 */
export class OutboxMaintenance {
  readonly #options: OutboxMaintenanceOptions;
  readonly #lease: Lease;
  /** Whether what was left under way is back in the queue since the lease was taken. */
  #isReady = false;
  readonly #reads: ProductReads;
  #pruneDueMs = Number.NEGATIVE_INFINITY;
  #seenSeq = -1;
  #readDueMs = Number.NEGATIVE_INFINITY;
  #failedReads = 0;
  #notified = '';

  constructor(options: OutboxMaintenanceOptions, reads = new ProductReads(options)) {
    this.#options = options;
    const { leases, clock } = options;
    this.#lease = new Lease({ leases, clock, name: LEASE, holdMs: HOLD_MS });
    this.#reads = reads;
  }

  /** Whether this process is the one that sends. */
  get isSender(): boolean {
    return this.#isReady && this.#lease.leftMs > MARGIN_MS;
  }

  /** Nothing of it waits for another: the lease is kept while a product is being read. */
  async run(signal: AbortSignal): Promise<void> {
    const { beat, sent } = this.#options;
    try {
      await Promise.all([
        this.#often(() => this.#holdLease(), signal),
        this.#often(() => this.#maintain(), signal),
        this.#often(async () => this.isSender && this.#options.compare?.(), signal),
        this.#often(() => this.#read({ signal, onWait: beat }), signal),
      ]);
    } finally {
      if (signal.aborted) await sent();
      await this.#lease.release();
    }
  }

  /** One look at everything but reads, for a command that begins to send. */
  async step(): Promise<void> {
    await this.#holdLease();
    await this.#maintain();
  }

  /** Takes the lease when it is free, and renews it in time. */
  async #holdLease(): Promise<void> {
    const isHeld = await this.#lease.hold();
    if (isHeld && !this.#isReady) {
      try {
        await this.reclaim();
      } catch (error) {
        await this.#lease.release();
        throw error;
      }
    }
    this.#isReady = isHeld;
  }

  /** Puts what a process that died left under way back in the queue. */
  protected async reclaim(): Promise<void> {
    const { stores, log } = this.#options;
    const reclaimed = await stores.write(({ calls }) => calls.reclaim());
    if (reclaimed > 0) log.info({ reclaimed }, 'changes that were under way are sent again');
  }

  /** Takes in what orders took; also where no branch holds back, so that one can begin to. */
  protected async catchUp(): Promise<void> {
    const { stores, holdBack, onQueued } = this.#options;
    while (await stores.write(({ calls }) => calls.catchUp({ holdBack })));
    if (stores.read(({ calls }) => calls.movedCount) > 0) onQueued();
  }

  /** Deletes some of what is no longer needed; whether more may be left. */
  protected prune(): Promise<boolean> {
    const { stores, keptMs, clock } = this.#options;
    return stores.write(({ decisions, reservations }) => {
      const collected = reservations.collect(PRUNED_AT_ONCE);
      const pruned = keptMs === 0 ? 0 : decisions.prune(clock.nowMs() - keptMs, PRUNED_AT_ONCE);
      return Math.max(collected, pruned) === PRUNED_AT_ONCE;
    });
  }

  /** How many changes wait for a person. */
  protected forPeople(): { held: number; rejected: number } {
    return this.#options.stores.read(({ queries }) => queries.forPeople());
  }

  /** At once again while `action` says that more waits. */
  async #often(action: () => Promise<unknown>, signal: AbortSignal): Promise<void> {
    const { clock, log, beat, lookEveryMs = LOOK_EVERY_MS } = this.#options;
    while (!signal.aborted) {
      beat();
      let more: unknown;
      try {
        more = await action();
      } catch (error) {
        if (!signal.aborted) log.warn({ err: error }, asTillsyncError(error).message);
      }
      if (more !== true) await clock.sleep(lookEveryMs, signal);
    }
  }

  async #maintain(): Promise<void> {
    if (!this.isSender) return;
    const { newestSeq, stores, holdBack, clock } = this.#options;
    this.#notifyPeople();
    const seq = newestSeq();
    const isSwitchDue = stores.read(({ reservations }) => reservations.isSwitchDue(holdBack));
    if (seq !== this.#seenSeq || isSwitchDue) {
      await this.catchUp();
      this.#seenSeq = seq;
    }
    if (clock.monotonicMs() >= this.#pruneDueMs) {
      const more = await this.prune();
      this.#pruneDueMs = more ? Number.NEGATIVE_INFINITY : clock.monotonicMs() + PRUNE_EVERY_MS;
    }
  }

  async #read(call: CallOptions): Promise<boolean> {
    const { clock, random, mayCall } = this.#options;
    if (!this.isSender || !mayCall() || clock.monotonicMs() < this.#readDueMs) return false;
    try {
      const more = await this.#reads.step(call);
      this.#failedReads = 0;
      return more;
    } catch (error) {
      this.#failedReads += 1;
      this.#readDueMs = clock.monotonicMs() + retryDelayMs(this.#failedReads, error, random);
      throw error;
    }
  }

  #notifyPeople(): void {
    const waiting = this.forPeople();
    const news = `${waiting.held}/${waiting.rejected}`;
    if (news === this.#notified) return;
    this.#notified = news;
    notifyPeople(this.#options.alarms, waiting);
  }
}

/** Says which changes wait for a person. */
export function notifyPeople(alarms: Alarms, { held, rejected }: { held: number; rejected: number }): void {
  const ofHeld = `${counted(held, 'change')} held until a person releases or drops ${held === 1 ? 'it' : 'them'}. See why: {tillsync} outbox list --state held`;
  const ofRejected = `${counted(rejected, 'change')} did not arrive and will not be sent again automatically. See why: {tillsync} outbox list --state rejected`;
  alarms.note('outbox.held', held === 0 ? null : ofHeld);
  alarms.note('outbox.rejected', rejected === 0 ? null : ofRejected);
}

/** A comparison of all counts begins at most this often, and at least this often. */
const ROUND_AFTER_MS = 15_000;
const ROUND_WITHIN_MS = 10 * 60_000;

export interface DifferenceWatchOptions {
  stores: MirrorStores;
  onDifference: OnDifference;
  /** Wall clock of the last complete poll of the orders; null: none yet. */
  lastPollOkMs: () => number | null;
  /** Called when counts are to be sent again. */
  onQueued: () => void;
  clock: Clock;
}

/** Goes over all counts again and again, a part with each step, and has them sent again where the configuration says so. */
export class DifferenceWatch {
  readonly #options: DifferenceWatchOptions;
  #after: Place | undefined;
  /** What the last comparison was made of. */
  #madeOf = '';
  #beganMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: DifferenceWatchOptions) {
    this.#options = options;
  }

  /** True: the comparison goes on. */
  async step(): Promise<boolean> {
    const { stores, lastPollOkMs, onDifference, onQueued } = this.#options;
    if (!this.#after && !this.#begins()) return false;
    const after = this.#after;
    const part = stores.read(({ differences }) => differences.part(lastPollOkMs(), after));
    if (stores.read(({ differences }) => differences.isNews(part, after))) {
      await stores.write(({ differences }) => differences.keep(part, after));
    }
    const again = onDifference === 'send' ? [...part.kept, ...part.found] : part.kept;
    if (again.length > 0) {
      await stores.write(({ differences }) => differences.send(again));
      onQueued();
    }
    this.#after = part.next;
    return part.next !== undefined;
  }

  #begins(): boolean {
    const { stores, lastPollOkMs, clock } = this.#options;
    const passedMs = clock.monotonicMs() - this.#beganMonoMs;
    if (passedMs < ROUND_AFTER_MS) return false;
    const marks = stores.read(({ db }) =>
      sqlOf(db).value<string>(
        `SELECT (SELECT value FROM marks WHERE name = 'push') || ' ' || (SELECT coalesce(max(completed_ms), 0) FROM sweeps)
           || ' ' || (SELECT value FROM marks WHERE name = 'outbox.version')`,
      ),
    );
    const madeOf = `${marks} ${lastPollOkMs()}`;
    if (madeOf === this.#madeOf && passedMs < ROUND_WITHIN_MS) return false;
    this.#madeOf = madeOf;
    this.#beganMonoMs = clock.monotonicMs();
    return true;
  }
}
