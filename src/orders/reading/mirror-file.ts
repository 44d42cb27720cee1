import { statSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import type Database from 'better-sqlite3';
import { hasCode, TillsyncError } from '../../core/errors.ts';
import { whenFree } from '../../core/loop.ts';
import type { Clock } from '../../core/time.ts';
import { factOf } from '../../db/facts.ts';
import {
  type ConnectionOptions,
  closeLeavingFiles,
  openConnection,
  openKeeper,
} from '../../db/mirror-connection.ts';
import { settleWal, sqlOf, storing, toStorageError, unsynced, walBytes } from '../../db/sqlite.ts';
import { type MirrorWatch, truncateWal, WAL_BYTES_MAX } from '../../db/wal.ts';
import { SEQ_JUMP } from '../merging/order.ts';

/** Returns the highest seq that was ever used, even if its event was deleted; 0 if there was none. */
export function newestSeq(db: Database.Database): number {
  const sql = "SELECT seq FROM sqlite_sequence WHERE name = 'order_events'";
  return sqlOf(db).value(sql) ?? 0;
}

/** Makes the next event get a number above `seq`. Runs in the caller's transaction. */
export function continueFeedAfter(db: Database.Database, seq: number): void {
  const raised = db
    .prepare("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'order_events'")
    .run(seq);
  if (raised.changes === 0) {
    db.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('order_events', ?)").run(seq);
  }
  // The mark records that the feed has begun; a new mirror has no such mark.
  db.prepare("INSERT OR IGNORE INTO marks (name, value) VALUES ('feed.begun', 1)").run();
}

/**
 * Continues the feed `SEQ_JUMP` after `highestSeq`, the last recorded seq, if this mirror is new or an older copy.
 * Must run before the first event is written.
 */
function beginFeed(db: Database.Database, highestSeq: number | undefined): void {
  const begun = db.prepare("SELECT 1 FROM marks WHERE name = 'feed.begun'");
  const isSound = () => {
    return begun.get() !== undefined && newestSeq(db) >= (highestSeq ?? 0);
  };
  if (isSound()) return;
  db.transaction(() => {
    // Another process may have continued the feed in the meantime.
    if (!isSound()) continueFeedAfter(db, highestSeq === undefined ? 0 : highestSeq + SEQ_JUMP);
  }).immediate();
}

/**
 * Decides which thread may take the mirror's write lock: the main thread or the worker of the import. Both use the same
 * cells of shared memory. The main thread waits for at most one transaction: it announces that it wants the lock, and
 * the worker ends its transaction early and waits until nobody wants the lock. When the main thread has gone first
 * `PASSED_MAX` times while the worker waited, the worker goes first, so that callbacks without end cannot stop the
 * import.
 *
 * Each side first announces itself and then checks the other side, so that they never both start.
 */

/** Index of the cell with the number of calls on the main thread that want or hold the lock. */
const WANTED = 0;
/** Index of the cell that is 1 while the worker is in a transaction. */
const WORKING = 1;
const ABORTED = 2;
/** Index of the cell that is 1 while the worker waits for its turn. */
const WAITING = 3;
/** Index of the cell with the number of times that the main thread went before the waiting worker. */
const PASSED = 4;
const CELLS = 5;

const PASSED_MAX = 8;
/** Interval at which a waiting side checks the cells again, in case a wake-up was missed. */
const LOOK_AGAIN_MS = 50;

export class WriteGate {
  /** Memory that is passed to the worker thread, which makes its own `WriteGate` from it. */
  readonly memory: SharedArrayBuffer;
  readonly #cells: Int32Array;

  constructor(memory = new SharedArrayBuffer(CELLS * Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#cells = new Int32Array(memory);
  }

  /** For the main thread: waits until the worker has no transaction. The worker cannot start one until `leave`. */
  async enter(): Promise<void> {
    while (this.#is(WAITING) && Atomics.load(this.#cells, PASSED) >= PASSED_MAX) await this.#changed(WAITING);
    if (this.#is(WAITING)) Atomics.add(this.#cells, PASSED, 1);
    Atomics.add(this.#cells, WANTED, 1);
    while (this.#is(WORKING)) await this.#changed(WORKING);
  }

  leave(): void {
    if (Atomics.sub(this.#cells, WANTED, 1) === 1) Atomics.notify(this.#cells, WANTED);
  }

  /** For the main thread: resets the gate after the worker ended, also if it died in a transaction. */
  reset(): void {
    Atomics.store(this.#cells, ABORTED, 0);
    this.#endWaiting();
    this.endWork();
  }

  abort(): void {
    Atomics.store(this.#cells, ABORTED, 1);
    Atomics.notify(this.#cells, ABORTED);
  }

  get aborted(): boolean {
    return this.#is(ABORTED);
  }

  /** For the worker thread: blocks until nobody wants the lock, then holds it until `endWork`. */
  beginWork(): void {
    Atomics.store(this.#cells, PASSED, 0);
    Atomics.store(this.#cells, WAITING, 1);
    for (;;) {
      const wanted = Atomics.load(this.#cells, WANTED);
      if (wanted > 0) {
        Atomics.wait(this.#cells, WANTED, wanted, LOOK_AGAIN_MS);
        continue;
      }
      Atomics.store(this.#cells, WORKING, 1);
      if (Atomics.load(this.#cells, WANTED) === 0) break;
      this.endWork();
    }
    this.#endWaiting();
  }

  endWork(): void {
    Atomics.store(this.#cells, WORKING, 0);
    Atomics.notify(this.#cells, WORKING);
  }

  /** For the worker thread: whether to end its transaction now. */
  get wanted(): boolean {
    return Atomics.load(this.#cells, WANTED) > 0;
  }

  /** For the worker thread: sleeps while another process holds the lock. */
  pause(ms: number): void {
    Atomics.wait(this.#cells, ABORTED, 0, ms);
  }

  #endWaiting(): void {
    Atomics.store(this.#cells, WAITING, 0);
    Atomics.notify(this.#cells, WAITING);
  }

  #is(cell: number): boolean {
    return Atomics.load(this.#cells, cell) === 1;
  }

  async #changed(cell: number): Promise<void> {
    const wait = Atomics.waitAsync(this.#cells, cell, 1, LOOK_AGAIN_MS);
    if (wait.async) await wait.value;
  }
}

const REOPEN_AFTER_MS = 500;
const INODE_CHECK_MS = 1_000;
/** Shortest time between two looks at the size of the log, which are cheap while the log is small. */
const LOG_CHECK_MS = 1_000;
/** Number of events after which the feed's seq is recorded again; far fewer than `SEQ_JUMP`. */
const NOTE_EVERY_EVENTS = 10_000;

/** The open keeper connections, referenced here so that garbage collection does not close them early. */
const keepers = new Set<Database.Database>();

export interface MirrorFileOptions extends ConnectionOptions {
  clock: Clock;
  /** Remembers the feed's seq outside the mirror. Without it, a new mirror's feed begins at 1. */
  feed?: SeqMemory | undefined;
}

type Action = (db: Database.Database) => unknown;

interface OpenFile {
  db: Database.Database;
  keeper: Database.Database | undefined;
  inode: number;
  transaction: Database.Transaction<(action: Action) => unknown>;
}

/**
 * The main thread's connection to the mirror, in one of three states: open; failed (closed after a fault of the disk,
 * and opened again at the next use after a pause); closed for good.
 */
export class MirrorFile {
  readonly gate = new WriteGate();
  readonly path: string;
  readonly clock: Clock;
  /** Acts on a large log, and on a lock of another process. */
  protected watch: MirrorWatch | undefined;
  readonly #options: MirrorFileOptions;
  #open: OpenFile | undefined;
  #failure: { error: TillsyncError; untilMs: number } | undefined;
  #inodeCheckedMs = 0;
  #logCheckedMs = Number.NEGATIVE_INFINITY;
  // Both true at first, because an earlier process may have raised their alarms.
  #isLogLarge = true;
  #isLocked = true;
  #notedSeq = 0;
  /** Resolves once the event loop has looked for requests after the last transaction; undefined if it has. */
  #turn: Promise<void> | undefined;
  #closed = false;

  constructor(options: MirrorFileOptions) {
    this.#options = options;
    this.path = options.path;
    this.clock = options.clock;
    this.#open = this.#openFile();
  }

  /** Runs one or a few short reads without a transaction. */
  read<T>(action: (db: Database.Database) => T): T {
    return this.#guarded(({ db }) => action(db));
  }

  /** Runs many short reads in one transaction, so that they see the same state and the file is locked only once. */
  readTogether<T>(action: (db: Database.Database) => T): T {
    return this.#guarded(({ transaction }) => transaction.deferred(action) as T);
  }

  /**
   * Runs one transaction, which is on the disk when the promise resolves. Waits for the import's thread and for other
   * processes without blocking the event loop. `action` may run several times, each time from the start.
   */
  async write<T>(action: (db: Database.Database) => T, signal?: AbortSignal): Promise<T> {
    await this.#ownTurn();
    return this.#write(({ transaction }) => transaction.immediate(action) as T, signal);
  }

  /** Runs a short transaction like `write`, but in this turn of the event loop, because somebody waits for it. */
  writeNow<T>(action: (db: Database.Database) => T): Promise<T> {
    return this.#write(({ transaction }) => transaction.immediate(action) as T);
  }

  /**
   * Runs a transaction like `write` that only works off what is stored. The disk is not synced for it, because after a
   * power cut it is done again, with the same outcome; nothing may be sent for it before another transaction.
   */
  async writeDerived<T>(action: (db: Database.Database) => T): Promise<T> {
    await this.#ownTurn();
    return this.#write(({ db, transaction }) => unsynced(db, () => transaction.immediate(action) as T));
  }

  async #write<T>(use: (file: OpenFile) => T, signal?: AbortSignal): Promise<T> {
    await this.gate.enter();
    let result: T;
    try {
      this.#turn ??= this.#nextTurn();
      result = await whenFree(this.clock, () => this.#guarded(use), undefined, signal);
    } catch (error) {
      if (hasCode(error, 'storage-busy')) {
        this.#isLocked = true;
        this.watch?.locked();
      }
      throw error;
    } finally {
      this.gate.leave();
    }
    if (this.#open) this.#tend(this.#open.db);
    this.noteFeed();
    return result;
  }

  /** Must be called after each transaction. */
  #tend(db: Database.Database): void {
    const nowMs = this.clock.monotonicMs();
    if (nowMs - this.#logCheckedMs >= LOG_CHECK_MS) {
      this.#logCheckedMs = nowMs;
      const isNews = this.#isLogLarge || walBytes(this.path) > WAL_BYTES_MAX;
      if (isNews && this.watch) this.#isLogLarge = this.watch.truncate(db);
    }
    if (!this.#isLocked) return;
    this.#isLocked = false;
    this.watch?.free();
  }

  /** Waits until no transaction has run in this turn of the event loop, so that many of them leave room for callbacks. */
  async #ownTurn(): Promise<void> {
    while (this.#turn) await this.#turn;
    this.#turn = this.#nextTurn();
  }

  async #nextTurn(): Promise<void> {
    // Called where the loop reads from its connections, the first of the two still belongs to the same turn.
    await setImmediate();
    await setImmediate();
    this.#turn = undefined;
  }

  /** Records the feed's seq outside the mirror, if `events` events were written after the last record. */
  noteFeed(events = NOTE_EVERY_EVENTS): void {
    const { feed } = this.#options;
    if (!feed || !this.#open) return;
    try {
      const newest = newestSeq(this.#open.db);
      if (newest - this.#notedSeq < events) return;
      feed.noteSeq(newest);
      this.#notedSeq = newest;
    } catch {
      // The next write tries again. If the mirror is lost before, `SEQ_JUMP` skips the numbers that were not recorded.
    }
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Closes the mirror but leaves the files -wal and -shm, so that readers can open it while no process has it open.
   */
  protected closeFile(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#release();
  }

  #guarded<T>(use: (file: OpenFile) => T): T {
    if (this.#closed) throw new TillsyncError('aborted', 'The mirror is closed.');
    const file = this.#current();
    try {
      return storing(() => use(file));
    } catch (error) {
      if (hasCode(error, 'storage-failed', 'storage-readonly', 'storage-corrupt')) this.#fail(error);
      throw error;
    }
  }

  #current(): OpenFile {
    const nowMs = this.clock.monotonicMs();
    if (this.#failure && nowMs < this.#failure.untilMs) throw this.#failure.error;
    if (this.#open && nowMs - this.#inodeCheckedMs >= INODE_CHECK_MS) {
      this.#inodeCheckedMs = nowMs;
      if (inodeOf(this.path) !== this.#open.inode) this.#release();
    }
    if (this.#open) return this.#open;
    try {
      this.#open = this.#openFile();
      this.#failure = undefined;
      return this.#open;
    } catch (error) {
      const failure = toStorageError(error, this.path);
      this.#fail(failure);
      throw failure;
    }
  }

  #fail(error: TillsyncError): void {
    if (this.#options.readonly && hasCode(error, 'storage-readonly')) return;
    this.#failure = { error, untilMs: this.clock.monotonicMs() + REOPEN_AFTER_MS };
    this.#release();
  }

  #openFile(): OpenFile {
    const { readonly } = this.#options;
    const db = openConnection(this.#options);
    try {
      newestSeq(db);
      if (!readonly) {
        settleWal(db);
        this.#beginFeed(db);
      }
      const keeper = readonly ? undefined : openKeeper(this.path);
      if (keeper) keepers.add(keeper);
      const transaction = db.transaction((action: Action) => action(db));
      return { db, keeper, inode: inodeOf(this.path), transaction };
    } catch (error) {
      closeLeavingFiles(db, this.#options);
      throw error;
    }
  }

  #beginFeed(db: Database.Database): void {
    const { feed } = this.#options;
    if (!feed) return;
    const highestSeq = feed.highestSeq();
    beginFeed(db, highestSeq);
    const newest = newestSeq(db);
    if (highestSeq === undefined || newest - highestSeq >= NOTE_EVERY_EVENTS) feed.noteSeq(newest);
    this.#notedSeq = feed.highestSeq() ?? 0;
  }

  /** Closes the writing connection first and the keeper last. Continues if closing one of them fails. */
  #release(): void {
    // After this, somebody may replace the file by an older copy, so the exact seq is recorded.
    if (!this.#options.readonly) this.noteFeed(1);
    const { db, keeper } = this.#open ?? {};
    this.#open = undefined;
    if (keeper) keepers.delete(keeper);
    const actions = [
      () => db && !this.#options.readonly && truncateWal(db),
      () => db?.close(),
      () => keeper?.close(),
    ];
    for (const action of actions) {
      try {
        action();
      } catch {
        // A failed close loses nothing, because everything acknowledged is on the disk.
      }
    }
  }
}

function inodeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.ino ?? 0;
}

export type SeqMemory = Pick<EventCursorRows, 'highestSeq' | 'noteSeq'>;

/**
 * Remembers the feed's seq outside the mirror, in state.db, so that a new mirror uses no number twice. Methods throw
 * `storage-…`.
 */
export class EventCursorRows {
  readonly #db: Database.Database;

  constructor({ db }: { db: Database.Database }) {
    this.#db = db;
  }

  /**
   * Returns the last recorded seq, which may be behind by up to `NOTE_EVERY_EVENTS`; undefined if there never was a
   * mirror.
   */
  highestSeq(): number | undefined {
    const seq = storing(() => factOf(this.#db, 'feed.seq'));
    return seq === undefined ? undefined : Number(seq);
  }

  /** Stores the feed's newest seq, durable on return. Does nothing if a higher seq is stored. */
  noteSeq(seq: number): void {
    const sql = `INSERT INTO facts (name, value) VALUES ('feed.seq', ?) ON CONFLICT DO UPDATE SET value = excluded.value
      WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER)`;
    storing(() => sqlOf(this.#db).run(sql, String(seq)));
  }
}

/** Time of a submitted change, ISO 8601 UTC; null or undefined means now. */
type Time = string | null | undefined;

/** Number of the feed's events that are read at once. */
const PART = 500;

/**
 * Returns a function that gives the seq of the newest event at any of the `times`, because a count covers only events
 * up to the time when the POS submitted it, however late tillsync reads the count.
 */
export function newestSeqAt(
  db: Database.Database,
  times: readonly Time[],
  now: string,
): (time: Time) => number {
  const sql = sqlOf(db);
  const newest = newestSeq(db);
  const earliest = times.reduce<string | null>(
    (min, time) => (time && (!min || time < min) ? time : min),
    null,
  );
  if (earliest === null) return () => newest;
  // An event later than the present was written before the clock was set back, so it counts as earlier than any time.
  const isHeard = (observedAt: string, time: string) => observedAt <= time || observedAt > now;
  // The newest events, back to the first one that is not after `earliest`. Usually this is only the newest event,
  // because the inbox is read within a second.
  const later: { seq: number; observedAt: string }[] = [];
  for (let from = newest; ; ) {
    const page = sql.rows<{ seq: number; observedAt: string }>(
      'SELECT seq, observed_at AS observedAt FROM order_events WHERE seq <= ? ORDER BY seq DESC LIMIT ?',
      ...[from, later.length === 0 ? 1 : PART],
    );
    const end = page.findIndex(({ observedAt }) => isHeard(observedAt, earliest));
    later.push(...(end < 0 ? page : page.slice(0, end + 1)));
    const last = page.at(-1);
    if (end >= 0 || last === undefined) break;
    from = last.seq - 1;
  }
  const before = (later.at(-1)?.seq ?? 1) - 1;
  // The earliest time up to each event. It only falls, so the first event that a time covers is found by bisection,
  // even where the clock was set back in between.
  const earliestTo: string[] = [];
  for (const { observedAt } of later) {
    const heardAt = observedAt > now ? '' : observedAt;
    const last = earliestTo.at(-1);
    earliestTo.push(last !== undefined && last < heardAt ? last : heardAt);
  }
  return (time) => {
    if (!time) return newest;
    let [low, high] = [0, later.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((earliestTo[middle] as string) <= time) high = middle;
      else low = middle + 1;
    }
    return later[low]?.seq ?? before;
  };
}
