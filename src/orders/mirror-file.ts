import { statSync } from 'node:fs';
import type Database from 'better-sqlite3';
import { hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import {
  type ConnectionOptions,
  closeLeavingFiles,
  openConnection,
  openKeeper,
  WriteGate,
} from '../db/mirror-connection.ts';
import { settleWal, sqlOf, storing, toStorageError } from '../db/sqlite.ts';
import { truncateWal } from '../db/wal.ts';
import { FEED_JUMP } from './order.ts';

/** The highest seq ever given, also when its event is gone; 0 when there was none. */
export function newestSeq(db: Database.Database): number {
  const sql = "SELECT seq FROM sqlite_sequence WHERE name = 'order_events'";
  return sqlOf(db).value(sql) ?? 0;
}

/** No event gets `seq` or a lower number any more. The caller's transaction. */
export function continueFeedAfter(db: Database.Database, seq: number): void {
  const raised = db
    .prepare("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'order_events'")
    .run(seq);
  if (raised.changes === 0) {
    db.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('order_events', ?)").run(seq);
  }
  // Tells the mirror that began by what was known then from one that is new.
  db.prepare("INSERT OR IGNORE INTO marks (name, value) VALUES ('feed.begun', 1)").run();
}

/**
 * Goes on far after `highestSeq`, what was noted of the mirror before, when this one is new, or an older copy that
 * somebody put there. Called before the first event is written.
 */
function beginFeed(db: Database.Database, highestSeq: number | undefined): void {
  const begun = db.prepare("SELECT 1 FROM marks WHERE name = 'feed.begun'");
  const isSound = () => {
    const hasBegun = begun.get() !== undefined;
    const newest = newestSeq(db);
    // A mirror from before the mark has given numbers of its own.
    return highestSeq === undefined ? hasBegun : newest >= highestSeq && (newest > 0 || hasBegun);
  };
  if (isSound()) return;
  db.transaction(() => {
    // Another process may have been first.
    if (!isSound()) continueFeedAfter(db, highestSeq === undefined ? 0 : highestSeq + FEED_JUMP);
  }).immediate();
}

const REOPEN_AFTER_MS = 500;
const INODE_CHECK_MS = 1_000;
/** Events between two notes of how far the feed has got; far below the leap of a feed that has lost its mirror. */
const NOTE_EVERY_EVENTS = 10_000;

/** Referenced here for the life of the process, so that no garbage collection closes them early. */
const keepers = new Set<Database.Database>();

export interface MirrorFileOptions extends ConnectionOptions {
  clock: Clock;
  /** Without it a mirror that is made anew begins at 1. */
  feed?: FeedMemory | undefined;
  /** Called after each transaction of this process, whatever it was for. Must not throw. */
  onWritten: (db: Database.Database) => void;
  /** Called when a transaction gave up waiting for another process. Must not throw. */
  onLocked: () => void;
}

type Action = (db: Database.Database) => unknown;

interface OpenFile {
  db: Database.Database;
  keeper: Database.Database | undefined;
  inode: number;
  transaction: Database.Transaction<(action: Action) => unknown>;
}

/**
 * The main thread's connection to the mirror. States: open; failed (the disk or the file refused, so the
 * connection was closed and the next use after a pause opens it anew); closed for good.
 */
export class MirrorFile {
  readonly gate = new WriteGate();
  readonly path: string;
  readonly clock: Clock;
  readonly #options: MirrorFileOptions;
  #open: OpenFile | undefined;
  #failure: { error: TillsyncError; untilMs: number } | undefined;
  #inodeCheckedMs = 0;
  #notedSeq = 0;
  #closed = false;

  constructor(options: MirrorFileOptions) {
    this.#options = options;
    this.path = options.path;
    this.clock = options.clock;
    this.#open = this.#openFile();
  }

  /** One or a few short reads, at once. */
  read<T>(action: (db: Database.Database) => T): T {
    return this.#guarded(({ db }) => action(db));
  }

  /** Many short reads, at once and of one state: each by itself would lock the file and let it go again. */
  readTogether<T>(action: (db: Database.Database) => T): T {
    return this.#guarded(({ transaction }) => transaction.deferred(action) as T);
  }

  /**
   * One transaction, on the disk when the promise resolves. Waits, without blocking the event loop, for the
   * import's worker thread and for other processes. `action` may run more than once, each time from the start.
   */
  async write<T>(action: (db: Database.Database) => T, signal?: AbortSignal): Promise<T> {
    const run = () => this.#guarded(({ transaction }) => transaction.immediate(action) as T);
    await this.gate.enter();
    let result: T;
    try {
      result = await whenFree(this.clock, run, undefined, signal);
    } catch (error) {
      if (hasCode(error, 'storage-busy')) this.#options.onLocked();
      throw error;
    } finally {
      this.gate.leave();
    }
    if (this.#open) this.#options.onWritten(this.#open.db);
    this.noteFeed();
    return result;
  }

  /** Remembers outside of the mirror how far the feed has got, where that is so many events after what was noted. */
  noteFeed(events = NOTE_EVERY_EVENTS): void {
    const { feed } = this.#options;
    if (!feed || !this.#open) return;
    try {
      const newest = newestSeq(this.#open.db);
      if (newest - this.#notedSeq < events) return;
      feed.noteSeq(newest);
      this.#notedSeq = newest;
    } catch {
      // The next write tries again; a feed that leaps goes over all that was given meanwhile.
    }
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Leaves -wal and -shm behind, so that the mirror can be read while nobody has it open. */
  close(): void {
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

  /** The writer first, the keeper last; a failing disk must not keep either from being let go. */
  #release(): void {
    // An older copy may be put in its place.
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
        // Nothing was acknowledged that is not on the disk already.
      }
    }
  }
}

function inodeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.ino ?? 0;
}

export type FeedMemory = Pick<FeedRows, 'highestSeq' | 'noteSeq'>;

/**
 * Remembers outside of the mirror, as one row of state.db, how far its feed has got, so that a mirror that is made
 * anew gives no number a second time. Methods throw `storage-…`.
 */
export class FeedRows {
  readonly #db: Database.Database;

  constructor({ db }: { db: Database.Database }) {
    this.#db = db;
  }

  /** The newest event when that was noted last, which is seldom; undefined: no mirror was ever there. */
  highestSeq(): number | undefined {
    return storing(() => sqlOf(this.#db).value('SELECT seq FROM feed'));
  }

  /** Durable when it returns; a lower number than the one that is kept changes nothing. */
  noteSeq(seq: number): void {
    const sql = `INSERT INTO feed (one, seq) VALUES (1, ?)
      ON CONFLICT DO UPDATE SET seq = excluded.seq WHERE excluded.seq > seq`;
    storing(() => sqlOf(this.#db).run(sql, seq));
  }
}

/** When something was handed over (ISO 8601, UTC); null: now. */
type Time = string | null | undefined;

/** Events of the feed that are read at once. */
const PART = 500;

/**
 * Tells the newest event of the feed that there was at one of these times (ISO 8601, UTC); for null the newest of all.
 * What was handed over contains no event that was heard after it, whenever it is taken in.
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
  // What is ahead of the clock was heard before the clock was set back.
  const isHeard = (observedAt: string, time: string) => observedAt <= time || observedAt > now;
  // Newest first; as a rule one, for what lies in the inbox is taken in within a second.
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
  return (time) =>
    time ? (later.find(({ observedAt }) => isHeard(observedAt, time))?.seq ?? before) : newest;
}
