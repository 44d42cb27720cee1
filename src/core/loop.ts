import { asTillsyncError } from './errors.ts';
import type { Clock, Random } from './time.ts';

/** Sleeps are cut into pieces of this length, so that a jump of the wall clock cannot oversleep a schedule. */
const PIECE_MS_MAX = 15_000;

/** Until the next moment at which pieces end: the same for all loops, so that an idle process wakes once for all. */
export function pieceMs(clock: Clock): number {
  return PIECE_MS_MAX - (clock.monotonicMs() % PIECE_MS_MAX);
}

/**
 * The one abortable wait of a loop. Waking is a hint only: it ends the wait early and says nothing of what
 * there is to do. A wake that comes while nobody waits is kept for the next wait.
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
   * Waits until `dueMs()` (wall clock, asked again after each piece), a wake, or the signal. `onPiece` is told
   * of each piece, as a sign of life.
   */
  async until(dueMs: () => number, signal: AbortSignal, onPiece: () => void = () => {}): Promise<void> {
    // One controller for both ends of the wait: a composed signal would leave a weak reference behind each time.
    const controller = new AbortController();
    const end = () => controller.abort();
    signal.addEventListener('abort', end, { once: true });
    this.#controller = controller;
    while (!this.#pending && !signal.aborted) {
      onPiece();
      const restMs = dueMs() - this.#clock.nowMs();
      if (restMs <= 0) break;
      await this.#clock.sleep(Math.min(restMs, pieceMs(this.#clock)), controller.signal);
    }
    signal.removeEventListener('abort', end);
    this.#controller = undefined;
    this.#pending = false;
  }
}

/**
 * Does something at once and then every `everyMs`, counted from its end, until the signal. What it throws is told to
 * `onError` and ends nothing.
 */
export async function repeat(
  options: {
    act: () => void | Promise<void>;
    everyMs: number;
    onError: (error: unknown) => void;
    clock: Clock;
    /** Sign of life, for the watchdog. */
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

/** How soon new tokens from a person are noticed by a loop that nobody but a person can help. */
export const LOCKED_OUT_LOOK_MS = 5_000;

/** Rests for `ms` of the monotonic clock, whatever the wall clock does; `onPiece` is told of each piece. */
export async function rest(
  clock: Clock,
  ms: number,
  signal: AbortSignal,
  onPiece: () => void,
): Promise<void> {
  const endMs = clock.monotonicMs() + ms;
  for (let restMs = ms; restMs > 0 && !signal.aborted; restMs = endMs - clock.monotonicMs()) {
    onPiece();
    await clock.sleep(Math.min(restMs, pieceMs(clock)), signal);
  }
}

/** The one backoff: doubles from `firstMs`, after no failure, up to `longestMs`. */
export function backoffMs(failures: number, firstMs: number, longestMs: number): number {
  return Math.min(firstMs * 2 ** Math.min(failures, 30), longestMs);
}

const FIRST_MS = 5_000;
const LONGEST_MS = 300_000;

/**
 * The back-off of retries: how long a loop rests after its `failures`-th failure in a row (1 = first). Doubles from
 * five seconds to five minutes with full jitter on the upper half; what the platform or the budget asked for
 * counts when it is longer. The rate budget still has the last word on when a call may leave.
 */
export function retryDelayMs(failures: number, error: unknown, random: Random): number {
  const jittered = backoffMs(Math.max(0, failures - 1), FIRST_MS, LONGEST_MS) * (0.5 + random.next() / 2);
  const asked = asTillsyncError(error).retryAfterMs ?? 0;
  return Math.max(jittered, asked);
}

/** How long a call under way may go on after the wish to stop; the whole process has ten seconds. */
const PATIENCE_MS = 7_000;

/**
 * A signal for one call that follows `signal` at once while the call only waits for its turn, and with patience
 * once it is sent: its answer is worth having, and cutting it off would only leave its fate unknown.
 */
export function patientSignal(
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
 * Waits until this process has been awake for about `ms`; ends early when `signal` aborts. Time in which it stood still
 * (a paused machine, a blocked event loop, SIGSTOP) does not count: what arrived meanwhile is not read yet.
 */
export async function awakeFor(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  for (let restMs = ms; restMs > 0 && !signal.aborted; ) {
    const stepMs = Math.min(STEP_MS, restMs);
    const beginMs = clock.monotonicMs();
    await clock.sleep(stepMs, signal);
    const stoodStill = clock.monotonicMs() - beginMs > stepMs + STEP_MS;
    if (!stoodStill) restMs -= stepMs;
  }
}
