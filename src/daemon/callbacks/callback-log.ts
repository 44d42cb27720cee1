import type { Callback, CallbackStore, KeptCallback } from '../../domain/callback.ts';
import { asTillsyncError } from '../../domain/errors.ts';
import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';

/** Everything of so long becomes one write. */
const COLLECT_MS = 2_000;
const WAITING_MAX = 1_000;
/** Refused ones of one sender and one kind become one line for so long: a flood of them is no flood of writes. */
const SAME_FOR_MS = 60_000;

type Line = Omit<KeptCallback, 'id'> & { id: number | null };

/** Keeps the last callbacks for people, some seconds late: nobody waits for it, and it costs no commit of its own. */
export class CallbackLog {
  readonly #store: CallbackStore;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #signal: AbortSignal;
  readonly #refused = new Map<string, Line>();
  #waiting = new Set<Line>();
  #writing: Promise<void> | undefined;

  constructor(options: { store: CallbackStore; clock: Clock; log: Log; signal: AbortSignal }) {
    this.#store = options.store;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#signal = options.signal;
  }

  note(callback: Callback): void {
    this.#waiting.add(this.#lineOf(callback));
    if (this.#waiting.size > WAITING_MAX) {
      const [oldest] = this.#waiting;
      if (oldest) this.#waiting.delete(oldest);
    }
    this.#writing ??= this.#write();
  }

  /** Writes what waits. */
  flush(): void {
    const lines = [...this.#waiting];
    if (lines.length === 0) return;
    try {
      const ids = this.#store.keep(lines);
      for (const [i, line] of lines.entries()) line.id = ids[i] ?? null;
      this.#waiting.clear();
    } catch (error) {
      // They stay for the next time, up to their number; the orders themselves are kept elsewhere.
      this.#log.debug({ code: asTillsyncError(error).code }, 'the list of callbacks could not be written');
    }
  }

  async #write(): Promise<void> {
    await this.#clock.sleep(COLLECT_MS, this.#signal);
    this.#writing = undefined;
    this.flush();
  }

  #lineOf(callback: Callback): Line {
    const { atMs, status, fault, from, isProbe } = callback;
    if (status !== 401 && status !== 413) return { ...callback, id: null, count: 1 };
    for (const [key, line] of this.#refused) if (atMs - line.atMs >= SAME_FOR_MS) this.#refused.delete(key);
    const key = JSON.stringify([status, fault, from, isProbe]);
    const same = this.#refused.get(key);
    if (same) {
      same.count += 1;
      return same;
    }
    const line = { ...callback, id: null, count: 1 };
    if (this.#refused.size < WAITING_MAX) this.#refused.set(key, line);
    return line;
  }
}
