import type { Clock } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { OnDifference } from './differences.ts';
import type { Place } from './stock-ledger.ts';
import type { MirrorStores } from './stores.ts';

/** A comparison of all counts begins at most this often, and at least this often. */
const ROUND_AFTER_MS = 15_000;
const ROUND_WITHIN_MS = 10 * 60_000;

export interface DifferenceWatchOptions {
  stores: MirrorStores;
  onDifference: OnDifference;
  /** Wall clock of the last complete poll of the orders; null: none yet. */
  lastPollOkMs: () => number | null;
  /** Called when counts are to be sent again. */
  onQueued: () => void;
  clock: Clock;
}

/** Goes over all counts again and again, a part with each step, and has them sent again where the configuration says so. */
export class DifferenceWatch {
  readonly #options: DifferenceWatchOptions;
  #after: Place | undefined;
  /** What the last comparison was made of. */
  #madeOf = '';
  #beganMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: DifferenceWatchOptions) {
    this.#options = options;
  }

  /** True: the comparison goes on. */
  async step(): Promise<boolean> {
    const { stores, lastPollOkMs, onDifference, onQueued } = this.#options;
    if (!this.#after && !this.#begins()) return false;
    const after = this.#after;
    const part = stores.read(({ differences }) => differences.part(lastPollOkMs(), after));
    if (stores.read(({ differences }) => differences.isNews(part, after))) {
      await stores.write(({ differences }) => differences.keep(part, after));
    }
    if (onDifference === 'send' && part.found.length > 0) {
      await stores.write(({ differences }) => differences.send(part));
      onQueued();
    }
    this.#after = part.next;
    return part.next !== undefined;
  }

  #begins(): boolean {
    const { stores, lastPollOkMs, clock } = this.#options;
    const passedMs = clock.monotonicMs() - this.#beganMonoMs;
    if (passedMs < ROUND_AFTER_MS) return false;
    const marks = stores.read(({ db }) =>
      sqlOf(db).value<string>(
        `SELECT (SELECT value FROM marks WHERE name = 'push') || ' ' || (SELECT coalesce(max(completed_ms), 0) FROM sweeps)
           || ' ' || (SELECT value FROM marks WHERE name = 'outbox.version')`,
      ),
    );
    const madeOf = `${marks} ${lastPollOkMs()}`;
    if (madeOf === this.#madeOf && passedMs < ROUND_WITHIN_MS) return false;
    this.#madeOf = madeOf;
    this.#beganMonoMs = clock.monotonicMs();
    return true;
  }
}
