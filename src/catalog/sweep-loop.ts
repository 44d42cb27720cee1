import type { Log } from '../core/log.ts';
import { LOCKED_OUT_LOOK_MS, rest, retryDelayMs, Waker } from '../core/loop.ts';
import type { Clock, Random, Schedule } from '../core/time.ts';
import { type SweepAllOptions, sweepAll } from './sweep.ts';

/** A request for an early sweep. The next sweep clears it when it starts. */
export class SweepTrigger {
  readonly waker: Waker;
  #isOpen = false;

  constructor(clock: Clock) {
    this.waker = new Waker(clock);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  request(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.waker.wake();
  }

  clear(): void {
    this.#isOpen = false;
  }
}

interface SweepLoopOptions extends SweepAllOptions {
  schedule: Schedule;
  /**
   * Returns the start of the oldest of the branches' last complete sweeps. If a branch has none, returns undefined,
   * and the first sweep is due at once.
   */
  sweptMs: () => number | undefined;
  /** Returns false while no call can succeed until a person brings new tokens. */
  mayCall: () => boolean;
  trigger: SweepTrigger;
  clock: Clock;
  random: Random;
  log: Log;
  beat: () => void;
}

/**
 * Sweeps the catalogue by the schedule. A missed or unfinished sweep is repeated as soon as possible, because a
 * machine that is off each night would otherwise never sweep.
 */
export async function sweepLoop(options: SweepLoopOptions, signal: AbortSignal): Promise<void> {
  const { branches, schedule, sweptMs, mayCall, trigger, clock, random, log, freshness, beat } = options;
  const isOff = branches.length === 0;
  if (isOff) {
    freshness.report('catalog.sweep', 'off', 'No branches are configured, so no catalogue is mirrored.');
  }
  const startMs = clock.nowMs();
  const lastMs = isOff ? startMs : sweptMs();
  let dueMs = lastMs === undefined ? startMs : schedule.nextAfter(Math.min(lastMs, startMs));
  /**
   * Returns when the next sweep is due. It is computed again each time, because a clock that was ahead may have been
   * set back.
   */
  const due = () => {
    dueMs = Math.min(dueMs, schedule.nextAfter(clock.nowMs()));
    return dueMs;
  };
  /** Pauses for `restMs`, even if the clock jumps or a sweep is requested. The next sweep is due afterwards. */
  const again = async (restMs: number) => {
    await rest(clock, restMs, signal, beat);
    dueMs = clock.nowMs();
  };
  let failures = 0;
  /** Time of the schedule that the present reading serves, also when it is tried again; undefined for another one. */
  let scheduledMs: number | undefined;
  while (!signal.aborted) {
    await trigger.waker.until(due, signal, beat);
    if (signal.aborted) return;
    const isDue = clock.nowMs() >= due();
    if (!isDue && !trigger.isOpen) continue;
    trigger.clear();
    if (failures === 0) scheduledMs = isDue ? dueMs : undefined;
    if (!isOff && !mayCall()) {
      await again(LOCKED_OUT_LOOK_MS);
      continue;
    }
    try {
      if (!isOff) {
        const request = { signal, onWait: beat, onBusy: beat, onProgress: beat, scheduledMs };
        log.info({ branches: await sweepAll(options, request) }, 'catalogue swept');
      }
      failures = 0;
      dueMs = schedule.nextAfter(clock.nowMs());
    } catch (error) {
      if (signal.aborted) return;
      failures += 1;
      log.warn({ err: error, failures }, 'the catalogue was not swept whole');
      await again(retryDelayMs(failures, error, random));
    }
  }
}
