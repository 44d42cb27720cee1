import type { Alarms } from '../../core/alarm.ts';
import { asTillsyncError, counted } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import { retryDelayMs } from '../../core/loop.ts';
import type { Clock, Random } from '../../core/time.ts';
import { Lease, type Leases } from '../../db/lease.ts';
import { sqlOf } from '../../db/sqlite.ts';
import type { CallOptions } from '../../platform/platform.ts';
import type { HoldBackSetting } from '../ledger/hold-back.ts';
import type { StockKey } from '../ledger/stock-ledger.ts';
import type { OnDifference } from './differences.ts';
import { ProductReads, type ProductReadsOptions } from './product-reads.ts';
import type { MirrorStores } from './repositories.ts';

/** Name of the lease of the one process that sends. */
const LEASE = 'outbox.push';
/** The lease is long, so that an idle process rarely writes. The lease of a dead process ends at once in any case. */
const HOLD_MS = 3_600_000;
/**
 * The lease is released this long before its end, so that a running call ends before another process starts to send.
 */
const MARGIN_MS = 10_000;

const LOOK_EVERY_MS = 1_000;
const PRUNE_EVERY_MS = 3_600_000;
/** Maximum number of rows deleted per transaction, so that no callback waits noticeably. */
const PRUNED_AT_ONCE = 250;

interface OutboxMaintenanceOptions extends ProductReadsOptions {
  /** `stock.hold_back_unbooked`. */
  holdBack: HoldBackSetting;
  /**
   * Compares some counts with the platform and returns whether more are left. Left out if counts are not compared.
   */
  compare?: (() => Promise<boolean>) | undefined;
  /** Time for which settled changes are stored; 0 means for ever. */
  keptMs: number;
  /** Newest event of the order feed. */
  newestSeq: () => number;
  leases: Leases;
  alarms: Alarms;
  /** Whether calls are possible; false while only a person can bring new tokens. */
  mayCall: () => boolean;
  /** Resolves when the senders of this process have ended after a stop, so that none of its calls is running. */
  sent: () => Promise<unknown>;
  /** Pause between checks for changes of other processes; has a default. */
  lookEveryMs?: number | undefined;
  random: Random;
  log: Log;
  beat: () => void;
}

/**
 * Does the outbox's work beside sending: holds the sending lease, resolves targets that the mirror did not know, adds
 * orders to the stock ledger, raises alarms for changes that wait for people, and deletes old settled changes.
 */
export class OutboxMaintenance {
  readonly #options: OutboxMaintenanceOptions;
  readonly #lease: Lease;
  /** Whether a dead process's changes were requeued after the lease was acquired. */
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

  /** Whether this process may send. */
  get isSender(): boolean {
    return this.#isReady && this.#lease.leftMs > MARGIN_MS;
  }

  /** Runs all parts concurrently, so that the lease is renewed while a product is being read. */
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

  /** Acquires the lease and maintains once, without comparing and reading. For a command that starts to send. */
  async step(): Promise<void> {
    await this.#holdLease();
    await this.#maintain();
  }

  /** Acquires the lease if it is free, and renews it in time. */
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

  /** Requeues the changes of a process that died during a call. */
  protected async reclaim(): Promise<void> {
    const { stores, log } = this.#options;
    const reclaimed = await stores.write(({ dispatcher }) => dispatcher.reclaim());
    if (reclaimed > 0) log.info({ reclaimed }, 'changes that were under way are sent again');
  }

  /**
   * Adds the steps of new orders to the ledger, even if no branch holds back, so that a branch can start to hold back.
   */
  protected async catchUp(): Promise<void> {
    const { stores, holdBack, onQueued } = this.#options;
    while (await stores.writeDerived(({ dispatcher }) => dispatcher.catchUp({ holdBack })));
    if (stores.read(({ dispatcher }) => dispatcher.movedCount) > 0) onQueued();
  }

  /** Deletes some rows that are no longer needed. Returns whether more may be left. */
  protected prune(): Promise<boolean> {
    const { stores, keptMs, clock } = this.#options;
    return stores.write(({ admin, reservations }) => {
      const collected = reservations.collect(PRUNED_AT_ONCE);
      const pruned = keptMs === 0 ? 0 : admin.prune(clock.nowMs() - keptMs, PRUNED_AT_ONCE);
      return Math.max(collected, pruned) === PRUNED_AT_ONCE;
    });
  }

  /** Returns the number of changes that wait for a person. */
  protected forPeople(): { held: number; rejected: number } {
    return this.#options.stores.read(({ queries }) => queries.forPeople());
  }

  /** Repeats `action`, and pauses after each run, unless the run returned true because work is left. */
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
    const hasMovedIds = stores.read(({ dispatcher }) => dispatcher.hasMovedIds);
    if (seq !== this.#seenSeq || isSwitchDue || hasMovedIds) {
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

/** Raises or clears the alarms for held changes and for rejected changes. */
export function notifyPeople(alarms: Alarms, { held, rejected }: { held: number; rejected: number }): void {
  const ofHeld = `${counted(held, 'change')} held until a person releases or discards ${held === 1 ? 'it' : 'them'}. See why: {tillsync} outbox list --state held`;
  const ofRejected = `${counted(rejected, 'change')} did not arrive and will not be sent again automatically. See why: {tillsync} outbox list --state rejected`;
  alarms.note('outbox.held', held === 0 ? null : ofHeld);
  alarms.note('outbox.rejected', rejected === 0 ? null : ofRejected);
}

/** Shortest and longest time between the starts of two comparisons of all counts. */
const ROUND_AFTER_MS = 15_000;
const ROUND_WITHIN_MS = 10 * 60_000;

interface DifferenceWatchOptions {
  stores: MirrorStores;
  onDifference: OnDifference;
  /** Time of the last complete poll of orders, by the wall clock; null before the first one. */
  lastPollOkMs: () => number | null;
  /** Called when counts have to be sent again. */
  onQueued: () => void;
  clock: Clock;
}

/**
 * Compares all counts with the platform again and again, one part per step. Sends a count again if the platform kept
 * pieces of ended orders. Sends other differing counts again only if the configuration says so.
 */
export class DifferenceMonitor {
  readonly #options: DifferenceWatchOptions;
  #after: StockKey | undefined;
  /** Inputs of the last comparison as one text. If the present inputs give the same text, nothing has changed since. */
  #madeOf = '';
  #beganMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: DifferenceWatchOptions) {
    this.#options = options;
  }

  /** Compares the next counts. Returns true if more follow. */
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
        `SELECT (SELECT value FROM marks WHERE name = 'push') || ' ' || (SELECT coalesce(max(completed_ms), 0) FROM _sweeps)
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
