import type { Alarms } from '../../domain/health/alarm.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { namesOf } from '../lock-holders.ts';
import { findLockHolders } from './wal-readers.ts';

const AGAIN_AFTER_MS = 1_000;

export interface LockWatchOptions {
  path: string;
  clock: Clock;
  alarms: Alarms;
  /** Writes what waits for the disk. */
  tryAgain: () => Promise<void>;
}

/**
 * Tells that another program keeps the mirror locked. A read lock is enough for that, which whoever may read the
 * mirror can take; so it cannot be prevented, and has to be told, with the name of the program.
 */
export class LockWatch {
  readonly #options: LockWatchOptions;
  /** undefined: an earlier run may have left the alarm up. */
  #isUp: boolean | undefined;
  readonly #closed = new AbortController();

  constructor(options: LockWatchOptions) {
    this.#options = options;
  }

  /** A transaction gave up waiting. */
  locked(): void {
    const { path, alarms } = this.#options;
    const isNews = this.#isUp !== true;
    this.#isUp = true;
    const names = namesOf(findLockHolders(path));
    const who = names === '' ? 'A program that could not be named keeps' : `${names} keeps`;
    alarms.raise(
      'mirror.locked',
      `${who} mirror.db locked: callbacks are put off (503), and polls keep nothing.`,
    );
    if (isNews) void this.#tryUntilFree();
  }

  /** A transaction is on the disk. */
  free(): void {
    if (this.#isUp === false) return;
    this.#isUp = false;
    this.#options.alarms.lower('mirror.locked');
  }

  close(): void {
    this.#closed.abort();
  }

  /** Nothing else may want to write for a long time. */
  async #tryUntilFree(): Promise<void> {
    const { signal } = this.#closed;
    while (this.#isUp && !signal.aborted) {
      await this.#options.clock.sleep(AGAIN_AFTER_MS, signal);
      if (!signal.aborted) await this.#options.tryAgain();
    }
  }
}
