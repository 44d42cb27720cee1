import type Database from 'better-sqlite3';
import { asTillsyncError } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import type { Clock } from '../../core/time.ts';
import { sqlOf, storing } from '../../db/sqlite.ts';

/** Why a callback was not stored as an order. */
export type CallbackFault =
  | 'secret-missing'
  /** The request has neither a secret nor JSON, so it comes from a scanner and not from the platform. */
  | 'no-callback'
  | 'secret-wrong'
  | 'too-large'
  | 'not-json'
  /** The body has a Content-Encoding that tillsync does not read, or not the one that its header names. */
  | 'not-decoded'
  | 'unreadable'
  | 'not-kept'
  | 'cut-off';

/** One callback and its answer, for the log. It contains no secret and no customer data. */
export interface Callback {
  /** Time of arrival, milliseconds since 1970. */
  atMs: number;
  /** HTTP status of the answer; null if the sender closed the connection before the answer. */
  status: number | null;
  fault: CallbackFault | null;
  orderId: string | null;
  /** Order number in the callback. */
  code: number | null;
  orderStatus: string | null;
  /** Address of the sender; behind a proxy on this machine, the address that the proxy names. */
  from: string;
  /** True for tillsync's own test of the address. */
  isProbe: boolean;
}

/** A stored callback. Refused callbacks of one sender within a minute are stored as one row with a count. */
export interface KeptCallback extends Callback {
  id: number;
  count: number;
}

/**
 * Header that marks tillsync's own test requests, so that they do not count as failed callbacks. Anybody may send it, so
 * it says nothing about a request that is refused for its secret.
 */
export const PROBE_HEADER = 'x-tillsync-probe';
/** The one wrong secret of tillsync's own test requests. Whoever else sends it guesses nothing by it. */
export const PROBE_SECRET = 'tillsync-webhook-test-with-a-wrong-secret';

/** Time for which callbacks are collected before they are written together. */
const COLLECT_MS = 2_000;
const WAITING_MAX = 1_000;
/**
 * Time for which refused callbacks of one sender and kind share a row, so that a flood of requests does not become a
 * flood of writes.
 */
const SAME_FOR_MS = 60_000;

/** A line of the log. `id` is null until the line is written. */
type Line = Omit<KeptCallback, 'id'> & { id: number | null };

interface CallbackLogOptions {
  store: Pick<CallbackRows, 'keep'>;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}

/**
 * Stores the last callbacks for people to read. Lines are collected for two seconds and written together, so that a
 * callback needs no commit of its own.
 */
export class CallbackLog {
  readonly #options: CallbackLogOptions;
  readonly #refused = new Map<string, Line>();
  #waiting = new Set<Line>();
  #writing: Promise<void> | undefined;

  constructor(options: CallbackLogOptions) {
    this.#options = options;
  }

  note(callback: Callback): void {
    this.#waiting.add(this.#lineOf(callback));
    if (this.#waiting.size > WAITING_MAX) {
      const [oldest] = this.#waiting;
      if (oldest) this.#waiting.delete(oldest);
    }
    this.#writing ??= this.#write();
  }

  /** Writes the waiting lines to state.db. */
  flush(): void {
    const lines = [...this.#waiting];
    if (lines.length === 0) return;
    try {
      const ids = this.#options.store.keep(lines);
      for (const [i, line] of lines.entries()) line.id = ids[i] ?? null;
      this.#waiting.clear();
    } catch (error) {
      // The lines stay in memory until the next write, up to `WAITING_MAX`. No order depends on them.
      this.#options.log.debug(
        { code: asTillsyncError(error).code },
        'the list of callbacks could not be written',
      );
    }
  }

  async #write(): Promise<void> {
    const { clock, signal } = this.#options;
    await clock.sleep(COLLECT_MS, signal);
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

/** Minimum number of refusals within `WITHIN_MS` for an alarm, because a single stray request is no reason for one. */
const REFUSED_MIN = 3;
const WITHIN_MS = 3_600_000;
/** Time without a refusal after which the alarm ends. */
const QUIET_MS = 86_400_000;

interface RefusedCallbacksOptions {
  bodyLimitBytes: number;
  clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  /** Callbacks that were stored before the daemon started, oldest first. */
  before?: readonly KeptCallback[];
}

/** Callbacks that were refused for one reason. */
interface Refused {
  /** Times of the last refusals, oldest first. */
  times: readonly number[];
  last: Callback | undefined;
  /** True if several refusals came within an hour, and no day without a refusal has passed after them. */
  isRepeated: boolean;
}

const NONE_REFUSED: Refused = { times: [], last: undefined, isRepeated: false };

function oneMore({ times: before, isRepeated }: Refused, last: Callback, atMonoMs: number): Refused {
  const wasQuiet = atMonoMs - (before.at(-1) ?? Number.NEGATIVE_INFINITY) >= QUIET_MS;
  const times = [...before, atMonoMs].slice(-REFUSED_MIN);
  const isNow = times.length >= REFUSED_MIN && atMonoMs - (times[0] ?? 0) < WITHIN_MS;
  return { times, last, isRepeated: isNow || (isRepeated && !wasQuiet) };
}

/** Decides when an alarm is raised because callbacks were refused repeatedly, for their secret or for their size. */
export class RefusedCallbacks {
  readonly #options: RefusedCallbacksOptions;
  #secret = NONE_REFUSED;
  #large = NONE_REFUSED;

  constructor(options: RefusedCallbacksOptions) {
    this.#options = options;
    const { before = [], clock } = options;
    const aheadMs = clock.nowMs() - clock.monotonicMs();
    for (const { count, ...callback } of before) {
      for (let i = 0; i < Math.min(count, REFUSED_MIN); i++) this.#take(callback, callback.atMs - aheadMs);
    }
  }

  answered(callback: Callback): void {
    this.#take(callback, this.#options.clock.monotonicMs());
  }

  #take(callback: Callback, atMonoMs: number): void {
    const { status, fault, isProbe } = callback;
    if (isProbe || fault === 'no-callback') return;
    // An accepted callback proves that the secret is right, but not that larger callbacks are accepted.
    if (status === 200) this.#secret = NONE_REFUSED;
    else if (status === 401) this.#secret = oneMore(this.#secret, callback, atMonoMs);
    else if (status === 413) this.#large = oneMore(this.#large, callback, atMonoMs);
  }

  /** Returns a sentence about repeated refusals, or null if there are none or a day passed without one. */
  trouble(): string | null {
    const told: string[] = [];
    const { last } = this.#secret;
    if (last && this.#isUp(this.#secret)) {
      told.push(
        last.fault === 'secret-missing'
          ? `They carry no secret (401), the last from ${last.from}. {tillsync} webhook set gives the platform the one that is agreed.`
          : `They carry another secret than the one that is agreed (401), the last from ${last.from}. {tillsync} webhook set gives the platform the right one.`,
      );
    }
    if (this.#isUp(this.#large)) {
      const { bodyLimitBytes } = this.#options;
      told.push(
        `They are larger than webhook.body_limit, which is ${bodyLimitBytes} bytes (413). Raise it in the configuration, then restart tillsync; until then these orders come by polling.`,
      );
    }
    return told.join(' ') || null;
  }

  #isUp({ isRepeated, times }: Refused): boolean {
    return isRepeated && this.#options.clock.monotonicMs() - (times.at(-1) ?? 0) < QUIET_MS;
  }
}

const KEPT = 1_000;

/** Stores the last callbacks in state.db, one row each. Throws `storage-…`. */
export class CallbackRows {
  readonly #db: Database.Database;

  constructor({ db }: { db: Database.Database }) {
    this.#db = db;
  }

  /**
   * Stores callbacks, oldest first, and returns their ids. A line with `id` null becomes a new row. Only the newest
   * 1,000 are kept.
   */
  keep(callbacks: readonly Line[]): number[] {
    const db = this.#db;
    const keepAll = db.transaction(() => {
      const ids = callbacks.map(({ id, ...callback }) => {
        const entry = JSON.stringify(callback);
        if (id !== null) sqlOf(db).run('UPDATE callbacks SET entry = ? WHERE id = ?', entry, id);
        return id ?? Number(sqlOf(db).run('INSERT INTO callbacks (entry) VALUES (?)', entry).lastInsertRowid);
      });
      sqlOf(db).run('DELETE FROM callbacks WHERE id <= (SELECT max(id) FROM callbacks) - ?', KEPT);
      return ids;
    });
    return storing(() => keepAll.immediate());
  }

  /** Returns the newest `limit` callbacks with an id above `after`, oldest first. */
  list(after: number, limit: number): KeptCallback[] {
    const sql = 'SELECT id, entry FROM callbacks WHERE id > ? ORDER BY id DESC LIMIT +?';
    const rows = storing(() => sqlOf(this.#db).rows<{ id: number; entry: string }>(sql, after, limit));
    return rows.reverse().map(({ id, entry }) => ({ ...JSON.parse(entry), id }));
  }
}
