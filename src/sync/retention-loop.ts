import { whenFree } from '../domain/busy.ts';
import { asTillsyncError } from '../domain/errors.ts';
import type { Alarms } from '../domain/health/alarm.ts';
import type { Leases } from '../domain/leases.ts';
import type { Log } from '../domain/log.ts';
import {
  PRESSURE_MAX,
  type RetentionCuts,
  type RetentionSettings,
  retentionCuts,
} from '../domain/retention.ts';
import type { Clock } from '../domain/time/clock.ts';
import { pieceMs } from './waker.ts';

/** Starting is for orders; what is old can wait. */
const FIRST_AFTER_MS = 300_000;
const LOOK_EVERY_MS = 3_600_000;
const RUN_EVERY_MS = 24 * 3_600_000;
/** Between two transactions or looks, so that callbacks go first. */
const PAUSE_MS = 20;
const LEASE = 'mirror.retention';
const LEASE_HOLD_MS = 600_000;

/** What goes by age, in small steps: each look one short read, each drop one short transaction. */
export interface RetentionStore<Family extends string = string> {
  readonly families: readonly Family[];
  /** Keys of what may go, and where to look on. */
  look(family: Family, cuts: RetentionCuts, from: number): { keys: number[]; next: number | undefined };
  /** How many keys one transaction may take. */
  dropsAtOnce(family: Family): number;
  /** Deletes those that still may go; how many. */
  drop(family: Family, cuts: RetentionCuts, keys: readonly number[]): Promise<number>;
  usedBytes(): number;
  /** Whether a reader keeps the log from being emptied, so that each deletion would make it grow. */
  isLogHeld(): boolean;
}

export interface RetentionOptions {
  store: RetentionStore;
  settings: RetentionSettings;
  leases: Leases;
  alarms: Alarms;
  clock: Clock;
  log: Log;
  beat: () => void;
}

export interface RetentionReport {
  /** Rows that went, by family. */
  dropped: Record<string, number>;
  usedBytes: number;
  /** How often the time that things stay was halved for want of room. */
  pressure: number;
  /** False: another process is at it, the log is held, or it was stopped. */
  isComplete: boolean;
}

/** Lets what nobody needs any more go, once a day, or within the hour when the mirror passes its bound. */
export async function retentionLoop(options: RetentionOptions, signal: AbortSignal): Promise<void> {
  const { clock, store, settings, log } = options;
  let runDueMs = clock.monotonicMs() + FIRST_AFTER_MS;
  await rest(options, FIRST_AFTER_MS, signal);
  while (!signal.aborted) {
    try {
      if (clock.monotonicMs() >= runDueMs || store.usedBytes() > settings.maxBytes) {
        const report = await retentionRun(options, signal);
        if (report.isComplete) runDueMs = clock.monotonicMs() + RUN_EVERY_MS;
        if (Object.keys(report.dropped).length > 0)
          log.info({ ...report }, 'what is past its time was deleted');
      }
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error }, asTillsyncError(error).message);
    }
    await rest(options, LOOK_EVERY_MS, signal);
  }
}

/** One run. Writes nothing where nothing may go. Errors: `storage-…`; what went until then is gone. */
export async function retentionRun(options: RetentionOptions, signal: AbortSignal): Promise<RetentionReport> {
  const { store, settings, clock, alarms } = options;
  const run = new RetentionRun(options, signal);
  const nowMs = clock.nowMs();
  const { report } = run;
  try {
    for (;;) {
      await run.pass(retentionCuts(settings, nowMs, report.pressure));
      report.usedBytes = store.usedBytes();
      const isOver = report.usedBytes > settings.maxBytes;
      if (!report.isComplete) return report;
      if (!isOver || report.pressure === PRESSURE_MAX) break;
      report.pressure += 1;
    }
  } finally {
    await run.end();
  }
  if (report.usedBytes > settings.maxBytes) alarms.raise('mirror.too-large', tooLarge(report, settings));
  else alarms.lower('mirror.too-large');
  return report;
}

class RetentionRun {
  readonly report: RetentionReport = { dropped: {}, usedBytes: 0, pressure: 0, isComplete: true };
  readonly #options: RetentionOptions;
  readonly #signal: AbortSignal;
  #fence: number | undefined;

  constructor(options: RetentionOptions, signal: AbortSignal) {
    this.#options = options;
    this.#signal = signal;
  }

  /** Everything once, the oldest first. */
  async pass(cuts: RetentionCuts): Promise<void> {
    const { store, beat, clock } = this.#options;
    for (const family of store.families) {
      for (let from: number | undefined = 0; from !== undefined; ) {
        if (this.#signal.aborted) this.report.isComplete = false;
        if (!this.report.isComplete) return;
        beat();
        const look = store.look(family, cuts, from);
        await this.#drop(family, cuts, look.keys);
        from = look.next;
        if (from !== undefined) await clock.sleep(PAUSE_MS, this.#signal);
      }
    }
  }

  async end(): Promise<void> {
    const { leases, clock } = this.#options;
    const fence = this.#fence;
    if (fence !== undefined) await whenFree(clock, () => leases.release(LEASE, fence)).catch(() => {});
  }

  async #drop(family: string, cuts: RetentionCuts, keys: readonly number[]): Promise<void> {
    const { store, clock } = this.#options;
    const size = store.dropsAtOnce(family);
    for (let at = 0; at < keys.length; at += size) {
      if (this.#signal.aborted || store.isLogHeld() || !(await this.#hold())) {
        this.report.isComplete = false;
        return;
      }
      const dropped = await store.drop(family, cuts, keys.slice(at, at + size));
      if (dropped > 0) this.report.dropped[family] = (this.report.dropped[family] ?? 0) + dropped;
      await clock.sleep(PAUSE_MS, this.#signal);
    }
  }

  /** The lease is taken only for something to delete, and renewed with each step at little cost. */
  async #hold(): Promise<boolean> {
    const { leases, clock } = this.#options;
    const fence = this.#fence;
    if (fence !== undefined) return await this.#renew(fence);
    this.#fence = await whenFree(clock, () => leases.acquire(LEASE, LEASE_HOLD_MS));
    this.#renewDueMs = clock.monotonicMs() + LEASE_HOLD_MS / 2;
    return this.#fence !== undefined;
  }

  #renewDueMs = 0;

  async #renew(fence: number): Promise<boolean> {
    const { leases, clock } = this.#options;
    if (clock.monotonicMs() < this.#renewDueMs) return true;
    this.#renewDueMs = clock.monotonicMs() + LEASE_HOLD_MS / 2;
    return await whenFree(clock, () => leases.renew(LEASE, fence, LEASE_HOLD_MS));
  }
}

async function rest({ clock, beat }: RetentionOptions, ms: number, signal: AbortSignal): Promise<void> {
  const endMs = clock.monotonicMs() + ms;
  for (let restMs = ms; restMs > 0 && !signal.aborted; restMs = endMs - clock.monotonicMs()) {
    beat();
    await clock.sleep(Math.min(restMs, pieceMs(clock)), signal);
  }
}

function tooLarge({ usedBytes }: RetentionReport, { maxBytes }: RetentionSettings): string {
  const mib = (bytes: number) => `${Math.round(bytes / 1024 / 1024)} MiB`;
  return (
    `mirror.db holds ${mib(usedBytes)}, more than the ${mib(maxBytes)} of retention.max_bytes, and what is left is ` +
    'still needed: orders within retention.orders, open ones, and those that the POS has not acknowledged.'
  );
}
