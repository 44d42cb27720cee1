import type { ReadMark } from '../catalog/sweep.ts';
import type { Alarms } from '../core/alarm.ts';
import { asTillsyncError, counted, hasCode, whenFree } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { retryDelayMs } from '../core/loop.ts';
import type { Clock, Random } from '../core/time.ts';
import type { Leases } from '../db/lease.ts';
import type { CallOptions, Platform, ProductRecord } from '../platform/platform.ts';
import type { ProductQuery } from './change.ts';

const LEASE = 'outbox.push';
/** Long, so that an idle process writes nothing: the lease of a process that has died ends at once anyway. */
const HOLD_MS = 3_600_000;
const RENEW_EVERY_MS = 1_800_000;
/** Given up this long before it ends, so that a call that was just begun is over when another process starts. */
const MARGIN_MS = 10_000;

export interface SendLeaseOptions {
  leases: Leases;
  clock: Clock;
  /** Called with the lease taken and before anything is sent; when it throws, it is not taken. */
  onTaken: () => Promise<void>;
}

/** The lease of sending, so that one process sends at a time. Held only while it is certain that it is. */
export class SendLease {
  readonly #options: SendLeaseOptions;
  #fence: number | undefined;
  #renewDueMs = 0;
  #endsMs = 0;

  constructor(options: SendLeaseOptions) {
    this.#options = options;
  }

  get isHeld(): boolean {
    return this.#fence !== undefined && this.#options.clock.monotonicMs() < this.#endsMs - MARGIN_MS;
  }

  /** Takes the lease when it is free and renews it in time; to be called every second or so. */
  async keep(): Promise<void> {
    const { leases, clock, onTaken } = this.#options;
    const fence = this.#fence;
    const nowMs = clock.monotonicMs();
    if (fence === undefined) {
      const taken = await whenFree(clock, () => leases.acquire(LEASE, HOLD_MS));
      if (taken === undefined) return;
      try {
        await onTaken();
      } catch (error) {
        await whenFree(clock, () => leases.release(LEASE, taken));
        throw error;
      }
      this.#fence = taken;
    } else if (nowMs < this.#renewDueMs) {
      return;
    } else if (!(await whenFree(clock, () => leases.renew(LEASE, fence, HOLD_MS)))) {
      this.#fence = undefined;
      return;
    }
    this.#endsMs = nowMs + HOLD_MS;
    this.#renewDueMs = nowMs + RENEW_EVERY_MS;
  }

  async release(): Promise<void> {
    const { leases, clock } = this.#options;
    const fence = this.#fence;
    this.#fence = undefined;
    if (fence !== undefined) await whenFree(clock, () => leases.release(LEASE, fence)).catch(() => {});
  }
}

/** More than this are not asked for one by one: a sweep answers for all of them in fewer calls. */
const ASK_MAX = 100;
const REFUSALS_MAX = 3;

/** A change whose product has to be read before its target is known. */
export interface Unresolved {
  changeId: number;
  query: ProductQuery;
}

/** Changes whose product the mirror does not know. Each write is one short durable transaction. */
export interface UnresolvedChanges {
  count(): number;
  /** The oldest but for those in `passedOver`; those that the mirror knows by now are put where they belong on the way. */
  next(passedOver: ReadonlySet<number>): Promise<Unresolved | undefined>;
  readMark(): ReadMark;
  /** The platform's answer for a product: mirrored, and the change put where it belongs. */
  resolved(changeId: number, record: ProductRecord | null, mark: ReadMark): Promise<void>;
  /**
   * Rejects those whose product no branch listed in a whole reading of the catalogue that is young enough to tell.
   * False while a new reading is needed for the others; true also where none can be had.
   */
  judgeByCatalog(): Promise<boolean>;
}

export interface ProductReadsOptions {
  platform: Pick<Platform, 'productGet'>;
  changes: UnresolvedChanges;
  /** Asks for the catalogue to be read soon; heard again and again, it is read once. */
  wantCatalog: () => void;
  /** Told when something was put in line. */
  onLine: () => void;
}

/**
 * Finds the products that changes name and the mirror does not know. One whose answer cannot be read waits behind
 * the others; one that the platform refuses to show again and again is taken for unknown.
 */
export class ProductReads {
  readonly #options: ProductReadsOptions;
  readonly #passedOver = new Set<number>();
  readonly #refusals = new Map<number, number>();

  constructor(options: ProductReadsOptions) {
    this.#options = options;
  }

  /** Reads one product, or lets a sweep answer for many. Whether more may wait. Throws what a call throws. */
  async step(call: CallOptions): Promise<boolean> {
    const { changes, platform, wantCatalog, onLine } = this.#options;
    if (changes.count() > ASK_MAX && !(await changes.judgeByCatalog())) wantCatalog();
    const before = changes.count();
    if (before === 0) return false;
    const next = await changes.next(this.#passedOver);
    if (!next) {
      this.#passedOver.clear();
      onLine();
      return false;
    }
    const { changeId, query } = next;
    let mark = changes.readMark();
    const onSend = () => {
      mark = changes.readMark();
    };
    let record: ProductRecord | null = null;
    try {
      record = await platform.productGet(query, { ...call, onSend });
    } catch (error) {
      const isAbout = hasCode(error, 'platform-garbled') || hasCode(error, 'platform-refused');
      if (isAbout) this.#passedOver.add(changeId);
      if (!this.#isGivenUp(changeId, error)) throw error;
    }
    await changes.resolved(changeId, record, mark);
    this.#refusals.delete(changeId);
    onLine();
    return true;
  }

  #isGivenUp(changeId: number, error: unknown): boolean {
    if (!hasCode(error, 'platform-refused')) return false;
    const refusals = (this.#refusals.get(changeId) ?? 0) + 1;
    this.#refusals.set(changeId, refusals);
    return refusals >= REFUSALS_MAX;
  }
}

const LOOK_EVERY_MS = 1_000;
const PRUNE_EVERY_MS = 3_600_000;

/** What the outbox needs besides sending. Each write is one short durable transaction. */
export interface OutboxChores {
  /** Puts what a process that died left under way back in line. */
  reclaim(): Promise<number>;
  unresolved: UnresolvedChanges;
  /** Takes in what orders took; how many stocks it has moved. */
  catchUp(): Promise<number>;
  newestSeq(): number;
  /** Deletes some of what was settled long ago; whether more is left. */
  prune(): Promise<boolean>;
  /** How many changes wait for a person. */
  forPeople(): { held: number; rejected: number };
}

export interface OutboxCareOptions {
  platform: Pick<Platform, 'productGet'>;
  chores: OutboxChores;
  leases: Leases;
  alarms: Alarms;
  mayCall: () => boolean;
  /** Asks for the catalogue to be read soon. */
  wantCatalog: () => void;
  /** Told when something was put in line. */
  onLine: () => void;
  /** Resolves when no call of this process is under way, after the signal. */
  sent: () => Promise<unknown>;
  /** How often it looks for what another process did; without it, as a store needs it. */
  lookEveryMs?: number | undefined;
  clock: Clock;
  random: Random;
  log: Log;
  beat: () => void;
}

/**
 * Looks after the outbox: holds the lease of sending, so that one process sends at a time; finds targets that the
 * mirror did not know; follows what orders take of stock; tells people of what waits for them; forgets
 * what was settled long ago.
 */
export class OutboxCare {
  readonly #options: OutboxCareOptions;
  readonly #lease: SendLease;
  readonly #reads: ProductReads;
  #pruneDueMs = Number.NEGATIVE_INFINITY;
  #seenSeq = -1;
  #readDueMs = Number.NEGATIVE_INFINITY;
  #failedReads = 0;
  #told = '';

  constructor(options: OutboxCareOptions) {
    const { leases, clock, platform, chores, wantCatalog, onLine } = options;
    this.#options = options;
    this.#lease = new SendLease({ leases, clock, onTaken: () => this.#reclaim() });
    this.#reads = new ProductReads({ platform, changes: chores.unresolved, wantCatalog, onLine });
  }

  /** Whether this process is the one that sends. */
  get isSender(): boolean {
    return this.#lease.isHeld;
  }

  /** Nothing of it waits for another: the lease is kept while a product is being read. */
  async run(signal: AbortSignal): Promise<void> {
    const { beat, sent } = this.#options;
    const call = { signal, onWait: beat };
    try {
      await Promise.all([
        this.#often(() => this.#lease.keep(), signal),
        this.#often(() => this.#chores(), signal),
        this.#often(() => this.#read(call), signal),
      ]);
    } finally {
      if (signal.aborted) await sent();
      await this.#lease.release();
    }
  }

  /** One look at everything but reads, for a command that begins to send. */
  async step(): Promise<void> {
    await this.#lease.keep();
    await this.#chores();
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

  async #reclaim(): Promise<void> {
    const reclaimed = await this.#options.chores.reclaim();
    if (reclaimed > 0) this.#options.log.info({ reclaimed }, 'changes that were under way are sent again');
  }

  async #chores(): Promise<void> {
    if (!this.#lease.isHeld) return;
    const { chores, clock, onLine } = this.#options;
    this.#tellPeople();
    const seq = chores.newestSeq();
    if (seq !== this.#seenSeq) {
      if ((await chores.catchUp()) > 0) onLine();
      this.#seenSeq = seq;
    }
    if (clock.monotonicMs() >= this.#pruneDueMs) {
      const more = await chores.prune();
      this.#pruneDueMs = more ? Number.NEGATIVE_INFINITY : clock.monotonicMs() + PRUNE_EVERY_MS;
    }
  }

  async #read(call: CallOptions): Promise<boolean> {
    const { clock, random, mayCall } = this.#options;
    if (!this.#lease.isHeld || !mayCall() || clock.monotonicMs() < this.#readDueMs) return false;
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

  #tellPeople(): void {
    const { chores, alarms } = this.#options;
    const { held, rejected } = chores.forPeople();
    const told = `${held}/${rejected}`;
    if (told === this.#told) return;
    this.#told = told;
    if (held === 0) alarms.lower('outbox.held');
    else {
      const message = `${counted(held, 'change')} held until a person releases or drops ${held === 1 ? 'it' : 'them'}. See why: {tillsync} outbox list --state held`;
      alarms.raise('outbox.held', message);
    }
    if (rejected === 0) alarms.lower('outbox.rejected');
    else {
      const message = `${counted(rejected, 'change')} did not arrive and will not be sent again automatically. See why: {tillsync} outbox list --state rejected`;
      alarms.raise('outbox.rejected', message);
    }
  }
}
