import { counted } from '../domain/counted.ts';
import { asTillsyncError } from '../domain/errors.ts';
import type { Alarms } from '../domain/health/alarm.ts';
import type { Leases } from '../domain/leases.ts';
import type { Log } from '../domain/log.ts';
import type { CallOptions } from '../domain/platform/call.ts';
import type { Platform } from '../domain/platform/platform.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import { ProductReads, type UnresolvedChanges } from './product-reads.ts';
import { retryDelayMs } from './retry.ts';
import { SendLease } from './send-lease.ts';

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
