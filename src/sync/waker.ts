import type { Clock } from '../domain/time/clock.ts';

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
