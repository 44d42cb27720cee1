import { asTillsyncError, hasCode, TillsyncError } from './errors.ts';
import type { Clock, Random } from './time.ts';

/** Longest part of a sleep. Loops sleep in parts, so that no schedule is missed after the wall clock jumped. */
const PIECE_MS_MAX = 15_000;

/**
 * Returns the time until the next moment at which the sleeps of all loops end, so that an idle process wakes up only
 * once for all loops.
 */
export function chunkMs(clock: Clock): number {
  return PIECE_MS_MAX - (clock.monotonicMs() % PIECE_MS_MAX);
}

/**
 * Returns the length of the next part of a longer wait. It is at least a millisecond, because a sleep of a smaller rest
 * may not advance the clock, and the wait would never end.
 */
export function pieceMs(clock: Clock, restMs: number): number {
  return Math.max(1, Math.min(restMs, chunkMs(clock)));
}

/**
 * Lets a loop wait, and lets others end the wait early. A wake-up does not say what there is to do. If the loop is not
 * waiting, the wake-up ends its next wait.
 */
export class Waker {
  readonly #clock: Clock;
  #pending = false;
  #controller: AbortController | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  wake(): void {
    this.#pending = true;
    this.#controller?.abort();
  }

  /**
   * Waits until the wall clock reaches `dueMs()`, a wake-up arrives, or the signal aborts. Before each part of the
   * sleep, `dueMs` is called again, and `onPiece` as a heartbeat.
   */
  async until(dueMs: () => number, signal: AbortSignal, onPiece: () => void = () => {}): Promise<void> {
    // Timer and signal share a controller, because each AbortSignal.any would leave a weak reference behind.
    const controller = new AbortController();
    const end = () => controller.abort();
    signal.addEventListener('abort', end, { once: true });
    this.#controller = controller;
    while (!this.#pending && !signal.aborted) {
      onPiece();
      const restMs = dueMs() - this.#clock.nowMs();
      if (restMs <= 0) break;
      await this.#clock.sleep(pieceMs(this.#clock, restMs), controller.signal);
    }
    signal.removeEventListener('abort', end);
    this.#controller = undefined;
    this.#pending = false;
  }

  /** Waits `ms` by the monotonic clock, so a jump of the wall clock does not matter. Otherwise like `until`. */
  async rest(ms: number, signal: AbortSignal, onPiece?: () => void): Promise<void> {
    const endMonoMs = this.#clock.monotonicMs() + ms;
    await this.until(() => this.#clock.nowMs() + endMonoMs - this.#clock.monotonicMs(), signal, onPiece);
  }
}

/**
 * Runs `act` at once, and again `everyMs` after each run, until the signal aborts. An error is passed to `onError`, and
 * the loop continues.
 */
export async function repeat(
  options: {
    act: () => void | Promise<void>;
    everyMs: number;
    onError: (error: unknown) => void;
    clock: Clock;
    /** Sends a heartbeat to the watchdog. */
    beat: () => void;
  },
  signal: AbortSignal,
): Promise<void> {
  const { act, everyMs, onError, clock, beat } = options;
  while (!signal.aborted) {
    beat();
    try {
      await act();
    } catch (error) {
      if (!signal.aborted) onError(error);
    }
    await rest(clock, everyMs, signal, beat);
  }
}

/** Time for which a piece of longer work may hold the event loop before callbacks get their turn. */
const TURN_MS = 5;
/** Pieces that are done in any case, because the commit after them takes as long as some of them. */
const TURN_PIECES = 4;

/**
 * Returns a function that tells, after each piece of work that begins now, whether it has held the event loop long
 * enough.
 */
export function turnEnd(clock: Pick<Clock, 'monotonicMs'>): () => boolean {
  const endMs = clock.monotonicMs() + TURN_MS;
  let pieces = 0;
  return () => {
    pieces += 1;
    return pieces >= TURN_PIECES && clock.monotonicMs() >= endMs;
  };
}

/** Interval at which a loop without valid tokens checks for new ones. */
export const LOCKED_OUT_LOOK_MS = 5_000;

/**
 * Waits `ms` by the monotonic clock, so a jump of the wall clock does not matter. `onPiece` is called before each part.
 */
export async function rest(
  clock: Clock,
  ms: number,
  signal: AbortSignal,
  onPiece: () => void,
): Promise<void> {
  const endMs = clock.monotonicMs() + ms;
  for (let restMs = ms; restMs > 0 && !signal.aborted; restMs = endMs - clock.monotonicMs()) {
    onPiece();
    await clock.sleep(pieceMs(clock, restMs), signal);
  }
}

/** Interval of the heartbeats while a loop waits for long work. */
const BEAT_EVERY_MS = 60_000;

/** Sends heartbeats until the work ends. Only for work with a time limit of its own. */
export async function beatWhile<T>(work: Promise<T>, clock: Clock, beat: () => void): Promise<T> {
  const over = new AbortController();
  const beats = (async () => {
    while (!over.signal.aborted) {
      beat();
      await clock.sleep(BEAT_EVERY_MS, over.signal);
    }
  })();
  try {
    return await work;
  } finally {
    over.abort();
    await beats;
  }
}

/** Returns the pause after `failures` failures: `firstMs` after none, doubled by each failure, at most `longestMs`. */
export function backoffMs(failures: number, firstMs: number, longestMs: number): number {
  return Math.min(firstMs * 2 ** Math.min(failures, 30), longestMs);
}

const FIRST_MS = 5_000;
const LONGEST_MS = 300_000;

/**
 * Returns the pause after the `failures`-th failure in a row: 5 s for the first, doubled up to 5 min, less a random
 * part of up to half. A longer wait that the platform or the rate budget asked for is returned instead.
 */
export function retryDelayMs(failures: number, error: unknown, random: Random): number {
  const jittered = backoffMs(Math.max(0, failures - 1), FIRST_MS, LONGEST_MS) * (0.5 + random.next() / 2);
  const asked = asTillsyncError(error).retryAfterMs ?? 0;
  return Math.max(jittered, asked);
}

/**
 * Runs a short database action, and retries it while another process holds the lock. The event loop is not blocked
 * between tries. Throws `storage-busy` after `deadlineMs`, and `aborted` when the signal aborts.
 */
export async function whenFree<T>(
  clock: Clock,
  action: () => T,
  deadlineMs = 10_000,
  signal?: AbortSignal,
): Promise<T> {
  const endMs = clock.monotonicMs() + deadlineMs;
  for (let attempt = 0; ; attempt++) {
    try {
      return action();
    } catch (error) {
      if (!hasCode(error, 'storage-busy') || clock.monotonicMs() >= endMs) throw error;
    }
    if (signal?.aborted) throw new TillsyncError('aborted', 'Stopped while waiting for the database.');
    await clock.sleep(Math.min(2 + attempt * 3, 50), signal);
  }
}

/** Time for which a running call may continue after a stop request. The whole process has ten seconds to end. */
const PATIENCE_MS = 7_000;

/**
 * Returns a signal for one call. Until the call is sent, it aborts together with `signal`; after that it aborts
 * `PATIENCE_MS` after `signal`, because the answer is useful and an aborted call has an unknown outcome.
 */
export function gracefulSignal(
  signal: AbortSignal,
  clock: Clock,
): { signal: AbortSignal; onSend: () => void; end: () => void } {
  const follower = new AbortController();
  const ended = new AbortController();
  let sent = false;
  const follow = () => {
    if (!sent) follower.abort();
    else void clock.sleep(PATIENCE_MS, ended.signal).then(() => follower.abort());
  };
  if (signal.aborted) follow();
  signal.addEventListener('abort', follow, { once: true });
  return {
    signal: follower.signal,
    onSend: () => {
      sent = true;
    },
    end() {
      signal.removeEventListener('abort', follow);
      ended.abort();
    },
  };
}

const STEP_MS = 1_000;

/**
 * Waits until this process was awake for about `ms`, or the signal aborts. Time in which it was frozen (a paused
 * machine, a blocked event loop, SIGSTOP) does not count, because nothing that arrived then was read.
 */
export async function sleepAwake(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  for (let restMs = ms; restMs > 0 && !signal.aborted; ) {
    const stepMs = Math.min(STEP_MS, restMs);
    const beginMs = clock.monotonicMs();
    await clock.sleep(stepMs, signal);
    const stoodStill = clock.monotonicMs() - beginMs > stepMs + STEP_MS;
    if (!stoodStill) restMs -= stepMs;
  }
}
