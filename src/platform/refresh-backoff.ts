import { TillsyncError } from '../domain/errors.ts';
import type { Clock, Random } from '../domain/time/clock.ts';

const FIRST_MS = 5_000;
const LONGEST_MS = 300_000;

/** Spaces the tries to renew one generation of tokens after a network fault or a fault of the platform. */
export class RefreshBackoff {
  readonly #clock: Clock;
  readonly #random: Random;
  #generation = -1;
  #count = 0;
  #untilMonoMs = 0;
  #error: TillsyncError | undefined;

  constructor(options: { clock: Clock; random: Random }) {
    this.#clock = options.clock;
    this.#random = options.random;
  }

  /** Milliseconds until the next try; 0 when it is welcome. */
  restMs(generation: number): number {
    return generation === this.#generation ? Math.max(0, this.#untilMonoMs - this.#clock.monotonicMs()) : 0;
  }

  /** Notes a failed try and returns how long the next one has to wait. */
  failed(generation: number, error: TillsyncError): number {
    this.#count = generation === this.#generation ? this.#count + 1 : 1;
    const plainMs = Math.min(FIRST_MS * 2 ** Math.min(this.#count - 1, 10), LONGEST_MS);
    const waitMs = Math.round(
      Math.max(plainMs * (0.75 + 0.5 * this.#random.next()), error.retryAfterMs ?? 0),
    );
    this.#generation = generation;
    this.#untilMonoMs = this.#clock.monotonicMs() + waitMs;
    this.#error = error;
    return waitMs;
  }

  /** Why the last try failed, for a caller that cannot go on without it. */
  error(generation: number): TillsyncError {
    const last = this.#error;
    return new TillsyncError(
      last?.code ?? 'platform-unreachable',
      last?.message ?? 'The tokens could not be renewed yet.',
      {
        cause: last,
        retryAfterMs: Math.ceil(this.restMs(generation)),
        retryable: true,
        ...(last?.hint && { hint: last.hint }),
      },
    );
  }
}
