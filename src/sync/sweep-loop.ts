import { asTillsyncError } from '../domain/errors.ts';
import type { Alarms } from '../domain/health/alarm.ts';
import type { FreshnessBoard } from '../domain/health/freshness.ts';
import type { Log } from '../domain/log.ts';
import type { Branch } from '../domain/product/catalog-lookup.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import type { Schedule } from '../domain/time/schedule.ts';
import type { SweepReport } from './catalog-sweep.ts';
import type { LeasedSweep, LeasedSweepRequest } from './leased-sweep.ts';
import { retryDelayMs } from './retry.ts';
import { Waker } from './waker.ts';

const LOCKED_OUT_LOOK_MS = 5_000;

export interface SweepAllOptions {
  sweep: Pick<LeasedSweep, 'sweep'>;
  branches: readonly Branch[];
  freshness: FreshnessBoard;
  alarms: Alarms;
}

export interface SweepLoopOptions extends SweepAllOptions {
  schedule: Schedule;
  /** When the last whole reading of all branches began; undefined: one was never read, and the first is due at once. */
  sweptMs: () => number | undefined;
  /** False while only a person can bring new tokens. */
  mayCall: () => boolean;
  wish: SweepWish;
  clock: Clock;
  random: Random;
  log: Log;
  beat: () => void;
}

/** Somebody's wish for a sweep before its time. It is fulfilled by the next one that begins. */
export class SweepWish {
  readonly waker: Waker;
  #isOpen = false;

  constructor(clock: Clock) {
    this.waker = new Waker(clock);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  make(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.waker.wake();
  }

  fulfil(): void {
    this.#isOpen = false;
  }
}

/** Sweeps every configured branch once and reports how it fared. Throws what stopped it. */
export async function sweepAll(
  options: SweepAllOptions,
  request: LeasedSweepRequest,
): Promise<SweepReport[]> {
  const { sweep, branches, freshness, alarms } = options;
  const reports: SweepReport[] = [];
  try {
    for (const branch of branches) reports.push(await sweep.sweep(branch, request));
  } catch (error) {
    const { code, message, hint } = asTillsyncError(error);
    if (code !== 'aborted') {
      const text = [message, hint].filter(Boolean).join(' ');
      const state = code === 'auth-required' ? 'locked-out' : code === 'blocked' ? 'blocked' : 'failing';
      freshness.report('catalog.sweep', state, text);
      alarms.raise('catalog.incomplete', `The catalogue in the mirror is not complete: ${text}`);
    }
    throw error;
  }
  freshness.ok('catalog.sweep');
  alarms.lower('catalog.incomplete');
  return reports;
}

/**
 * What was due while nobody ran, or was not finished, is made up for: a machine that is off each night would never
 * read the catalogue again.
 */
function firstDueMs({ branches, schedule, sweptMs, clock }: SweepLoopOptions): number {
  const nowMs = clock.nowMs();
  if (branches.length === 0) return schedule.nextAfter(nowMs);
  const lastMs = sweptMs();
  return lastMs === undefined ? nowMs : schedule.nextAfter(Math.min(lastMs, nowMs));
}

/** Keeps the catalogue swept: at once while a branch was never swept or one was missed, then by the schedule. */
export async function sweepLoop(options: SweepLoopOptions, signal: AbortSignal): Promise<void> {
  const { branches, schedule, mayCall, wish, clock, random, log, freshness, beat } = options;
  if (branches.length === 0) {
    freshness.report('catalog.sweep', 'off', 'No branches are configured, so no catalogue is mirrored.');
  }
  let dueMs = firstDueMs(options);
  let failures = 0;
  while (!signal.aborted) {
    await wish.waker.until(() => dueMs, signal, beat);
    if (signal.aborted) return;
    // After a failure the rest is kept, whoever wishes what.
    if (clock.nowMs() < dueMs && !(wish.isOpen && failures === 0)) continue;
    wish.fulfil();
    if (branches.length === 0) dueMs = schedule.nextAfter(clock.nowMs());
    else if (!mayCall()) dueMs = clock.nowMs() + LOCKED_OUT_LOOK_MS;
    else {
      try {
        const reports = await sweepAll(options, {
          signal,
          onWait: beat,
          onBusy: beat,
          onProgress: beat,
        });
        log.info({ branches: reports }, 'catalogue swept');
        failures = 0;
        dueMs = schedule.nextAfter(clock.nowMs());
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        log.warn({ err: error, failures }, 'the catalogue was not swept whole');
        dueMs = clock.nowMs() + retryDelayMs(failures, error, random);
      }
    }
  }
}
