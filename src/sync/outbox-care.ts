import { whenFree } from '../domain/busy.ts';
import type { CallOptions } from '../domain/call.ts';
import type { Clock } from '../domain/clock.ts';
import { asTillsyncError } from '../domain/errors.ts';
import type { Leases } from '../domain/leases.ts';
import type { Log } from '../domain/log.ts';
import type { Platform, ProductRecord } from '../domain/platform.ts';
import type { ProductQuery } from '../domain/target.ts';
import type { ReadMark } from './catalog-sweep.ts';
import { Waker } from './waker.ts';

const LEASE = 'outbox.push';
const LEASE_HOLD_MS = 60_000;
const LOOK_EVERY_MS = 1_000;
const RENEW_EVERY_MS = 15_000;
const PRUNE_EVERY_MS = 3_600_000;
const READ_AT_ONCE = 20;

/** A change whose product has to be read before its target is known. */
export interface Unresolved {
  changeId: number;
  query: ProductQuery;
}

/** What the outbox needs besides sending. Each write is one short durable transaction. */
export interface OutboxChores {
  /** Puts what a process that died left under way back in line. */
  reclaim(): Promise<number>;
  unresolved(limit: number): Unresolved[];
  readMark(): ReadMark;
  /** The platform's answer for a product: mirrored, and the change put where it belongs. */
  resolved(changeId: number, record: ProductRecord | null, mark: ReadMark): Promise<void>;
  /** Corrects what was held back for orders that were booked or cancelled; nothing when that is switched off. */
  correct(): Promise<number>;
  newestSeq(): number;
  /** Deletes what was settled long ago. */
  prune(): Promise<number>;
}

export interface OutboxCareOptions {
  platform: Pick<Platform, 'productGet'>;
  chores: OutboxChores;
  leases: Leases;
  mayCall: () => boolean;
  /** Told when something was put in line. */
  onLine: () => void;
  clock: Clock;
  log: Log;
  beat: () => void;
}

/**
 * Looks after the outbox: holds the lease of sending, so that one process sends at a time; finds targets that the
 * mirror did not know; corrects held-back stock when orders change; forgets what was settled long ago.
 */
export class OutboxCare {
  readonly #options: OutboxCareOptions;
  readonly #waker: Waker;
  #fence: number | undefined;
  #renewDueMs = Number.NEGATIVE_INFINITY;
  #pruneDueMs = Number.NEGATIVE_INFINITY;
  #seenSeq = -1;

  constructor(options: OutboxCareOptions) {
    this.#options = options;
    this.#waker = new Waker(options.clock);
  }

  /** Whether this process may send. */
  get maySend(): boolean {
    return this.#fence !== undefined && this.#options.mayCall();
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, log, beat } = this.#options;
    try {
      while (!signal.aborted) {
        beat();
        try {
          await this.step({ signal, onWait: beat });
        } catch (error) {
          if (!signal.aborted) log.warn({ err: error }, asTillsyncError(error).message);
        }
        const endMonoMs = clock.monotonicMs() + LOOK_EVERY_MS;
        await this.#waker.until(() => clock.nowMs() + endMonoMs - clock.monotonicMs(), signal, beat);
      }
    } finally {
      await this.release();
    }
  }

  /** One look at everything; also for a command that sends while no daemon runs. */
  async step(call: CallOptions): Promise<void> {
    await this.#keepLease();
    if (this.#fence === undefined) return;
    const { chores, clock, onLine, mayCall } = this.#options;
    const seq = chores.newestSeq();
    if (seq !== this.#seenSeq) {
      if ((await chores.correct()) > 0) onLine();
      this.#seenSeq = seq;
    }
    if (clock.monotonicMs() >= this.#pruneDueMs) {
      await chores.prune();
      this.#pruneDueMs = clock.monotonicMs() + PRUNE_EVERY_MS;
    }
    if (mayCall()) await this.#readProducts(call);
  }

  async release(): Promise<void> {
    const { leases, clock } = this.#options;
    const fence = this.#fence;
    this.#fence = undefined;
    if (fence !== undefined) await whenFree(clock, () => leases.release(LEASE, fence)).catch(() => {});
  }

  async #keepLease(): Promise<void> {
    const { leases, clock, chores, log } = this.#options;
    const fence = this.#fence;
    if (fence === undefined) {
      this.#fence = await whenFree(clock, () => leases.acquire(LEASE, LEASE_HOLD_MS));
      if (this.#fence === undefined) return;
      const reclaimed = await chores.reclaim();
      if (reclaimed > 0) log.info({ reclaimed }, 'changes that were under way are sent again');
    } else if (clock.monotonicMs() < this.#renewDueMs) {
      return;
    } else if (!(await whenFree(clock, () => leases.renew(LEASE, fence, LEASE_HOLD_MS)))) {
      this.#fence = undefined;
      return;
    }
    this.#renewDueMs = clock.monotonicMs() + RENEW_EVERY_MS;
  }

  async #readProducts(call: CallOptions): Promise<void> {
    const { chores, platform, onLine } = this.#options;
    for (const { changeId, query } of chores.unresolved(READ_AT_ONCE)) {
      let mark = chores.readMark();
      const record = await platform.productGet(query, {
        ...call,
        onSend: () => {
          mark = chores.readMark();
        },
      });
      await chores.resolved(changeId, record, mark);
      onLine();
    }
  }
}
