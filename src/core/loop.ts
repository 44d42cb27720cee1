import { asTillsyncError } from './errors.ts';
import type { Clock, Random } from './time.ts';

/** Sleeps are cut into pieces of this length, so that after a jump of the wall clock no schedule is missed. */
const PIECE_MS_MAX = 15_000;

/** Returns the time until the next common end of pieces, so that all loops of an idle process wake together. */
export function chunkMs(clock: Clock): number {
  return PIECE_MS_MAX - (clock.monotonicMs() % PIECE_MS_MAX);
}

/**
 * Returns how long to sleep of a longer wait. It is a millisecond at least, because a fraction that is left by rounding
 * may be too small to move a clock, and the wait would never end.
 */
export function pieceMs(clock: Clock, restMs: number): number {
  return Math.max(1, Math.min(restMs, chunkMs(clock)));
}

/**
 * An abortable wait of a loop. A wake only ends the wait early; it carries no information about the work. A wake
 * without a waiting loop ends the next wait.
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
   * Waits until `dueMs()` (wall clock, read again after each piece), a wake, or the signal. `onPiece` is called after
   * each piece, as a heartbeat.
   */
  async until(dueMs: () => number, signal: AbortSignal, onPiece: () => void = () => {}): Promise<void> {
    // The timer and the signal share a controller, because AbortSignal.any would leave a weak reference each
    // time.
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
}

/**
 * Runs `act` at once, and again `everyMs` after each end, until the signal. An error goes to `onError` and the loop
 * continues.
 */
export async function repeat(
  options: {
    act: () => void | Promise<void>;
    everyMs: number;
    onError: (error: unknown) => void;
    clock: Clock;
    /** Heartbeat for the watchdog. */
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
    beat();
    await clock.sleep(everyMs, signal);
  }
}

/** Interval at which a loop that waits for new tokens checks for them. */
export const LOCKED_OUT_LOOK_MS = 5_000;

/** Pauses for `ms` of the monotonic clock, whatever the wall clock does. `onPiece` is called after each piece. */
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

/** Returns the backoff: `firstMs` without a failure, doubled by each failure, up to `longestMs`. */
export function backoffMs(failures: number, firstMs: number, longestMs: number): number {
  return Math.min(firstMs * 2 ** Math.min(failures, 30), longestMs);
}

const FIRST_MS = 5_000;
const LONGEST_MS = 300_000;

/**
 * Returns how long a loop pauses after its `failures`-th failure in a row (1 = first): five seconds, doubled up to
 * five minutes, with jitter over the upper half. A longer wait that the platform or the budget asked for is used
 * instead. The rate budget still decides when a call may be sent.
 */
export function retryDelayMs(failures: number, error: unknown, random: Random): number {
  const jittered = backoffMs(Math.max(0, failures - 1), FIRST_MS, LONGEST_MS) * (0.5 + random.next() / 2);
  const asked = asTillsyncError(error).retryAfterMs ?? 0;
  return Math.max(jittered, asked);
}

/** Time that a running call may continue after a stop request; the whole process has ten seconds. */
const PATIENCE_MS = 7_000;

/**
 * Returns a signal for one call. It follows `signal` at once while the call waits, but later once the call is sent:
 * its answer is useful, and aborting would leave the outcome unknown.
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
 * Waits until this process was awake for about `ms`, or until `signal`. Time in which it was frozen (a paused
 * machine, a blocked event loop, SIGSTOP) does not count, because what arrived then is not read yet.
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
