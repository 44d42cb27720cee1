import type { Log } from '../domain/log.ts';
import type { Clock } from '../domain/time/clock.ts';

const AGAIN_AFTER_MS = 60_000;

/** Tells of a disk that keeps nothing: at once, once a minute while it lasts, and when it is over. */
export class PutOffLog {
  readonly #log: Log;
  readonly #clock: Clock;
  #notifications = 0;
  #toldMonoMs: number | undefined;

  constructor({ log, clock }: { log: Log; clock: Clock }) {
    this.#log = log;
    this.#clock = clock;
  }

  /** So many notifications were put off. */
  putOff(error: unknown, notifications: number): void {
    this.#notifications += notifications;
    const nowMs = this.#clock.monotonicMs();
    if (this.#toldMonoMs !== undefined && nowMs - this.#toldMonoMs < AGAIN_AFTER_MS) return;
    this.#toldMonoMs = nowMs;
    this.#log.error(
      { err: error, notifications: this.#notifications },
      'notifications could not be kept; their sender was asked to come again',
    );
  }

  /** Something was kept. */
  kept(): void {
    if (this.#toldMonoMs === undefined) return;
    this.#log.info({ putOff: this.#notifications }, 'notifications are kept again');
    this.#toldMonoMs = undefined;
    this.#notifications = 0;
  }
}
