import { statSync } from 'node:fs';
import type Database from 'better-sqlite3';
import type { AlarmKey, Freshness } from '../core/alarm.ts';
import { hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { closeLeavingFiles, openConnection, openKeeper, WriteGate } from '../db/mirror-connection.ts';
import { settleWal, storing, toStorageError } from '../db/sqlite.ts';
import { truncateWal } from '../db/wal.ts';
import { FEED_JUMP, type FeedMemory } from './order.ts';
import { OrderQueries, QuarantineRows } from './order-queries.ts';
import { OrderMerge } from './order-rows.ts';

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
 * To be called before the first event is written to a mirror: goes on far after `highestSeq`, what was noted of
 * the mirror before, when this one is new, or an older copy that somebody put there. Returns the newest number that
 * is taken.
 */
export function beginFeed(db: Database.Database, highestSeq: number | undefined): number {
  const newestSeq = db
    .prepare<[], number>("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0)")
    .pluck();
  const begun = db.prepare("SELECT 1 FROM marks WHERE name = 'feed.begun'").pluck();
  const isSound = () => {
    if (highestSeq === undefined) return begun.get() !== undefined;
    const newest = newestSeq.get() ?? 0;
    // A mirror from before the mark has given numbers of its own.
    return newest >= highestSeq && (newest > 0 || begun.get() !== undefined);
  };
  if (!isSound()) {
    db.transaction(() => {
      // Another process may have been first.
      if (!isSound()) continueFeedAfter(db, highestSeq === undefined ? 0 : highestSeq + FEED_JUMP);
    }).immediate();
  }
  return newestSeq.get() ?? 0;
}

/** An alarm that is up. */
export interface RaisedAlarm {
  key: AlarmKey;
  message: string;
  raisedAt: string;
  /** When its message last changed. */
  changedAt: string;
}

/** Statements on `freshness` and `alarms`, and the mark of the last complete poll. */
export class BoardRows {
  readonly #setFreshness: Database.Statement;
  readonly #freshness: Database.Statement<[], Freshness>;
  readonly #raise: Database.Statement;
  readonly #lower: Database.Statement;
  readonly #alarms: Database.Statement<[], RaisedAlarm>;
  readonly #notePoll: Database.Statement<[number]>;
  readonly #lastPoll: Database.Statement<[], number>;

  constructor(db: Database.Database) {
    this.#setFreshness = db.prepare(`
      INSERT INTO freshness (subject, last_ok_at, last_try_at, state, message)
      VALUES (@subject, @lastOkAt, @lastTryAt, @state, @message)
      ON CONFLICT (subject) DO UPDATE SET last_ok_at = coalesce(excluded.last_ok_at, last_ok_at),
        last_try_at = excluded.last_try_at, state = excluded.state, message = excluded.message`);
    this.#freshness = db.prepare(`
      SELECT subject, last_ok_at AS lastOkAt, last_try_at AS lastTryAt, state, message
      FROM freshness`);
    this.#raise = db.prepare(`
      INSERT INTO alarms (key, message, raised_at, changed_at) VALUES (?, ?, ?, ?)
      ON CONFLICT (key) DO UPDATE SET message = excluded.message, changed_at = excluded.changed_at
        WHERE message <> excluded.message`);
    this.#lower = db.prepare('DELETE FROM alarms WHERE key = ?');
    this.#alarms = db.prepare(
      'SELECT key, message, raised_at AS raisedAt, changed_at AS changedAt FROM alarms ORDER BY raised_at, key',
    );
    this.#notePoll = db.prepare(
      "INSERT INTO marks (name, value) VALUES ('orders.asked-ms', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    );
    this.#lastPoll = db.prepare<[], number>("SELECT value FROM marks WHERE name = 'orders.asked-ms'").pluck();
  }

  /** `askedMs`: on the platform's clock. */
  notePoll(askedMs: number): void {
    this.#notePoll.run(Math.round(askedMs));
  }

  lastPollAskedMs(): number | undefined {
    return this.#lastPoll.get();
  }

  /** `lastOkAt` null leaves the one that is there. */
  setFreshness(freshness: Freshness): void {
    this.#setFreshness.run(freshness);
  }

  freshness(): Freshness[] {
    return this.#freshness.all();
  }

  raise(key: AlarmKey, message: string, at: string): void {
    this.#raise.run(key, message, at, at);
  }

  lower(key: AlarmKey): void {
    this.#lower.run(key);
  }

  /** Oldest first. */
  alarms(): RaisedAlarm[] {
    return this.#alarms.all();
  }
}

/** The statements of every table family on one connection; a connection that is opened anew gets new ones. */
export interface MirrorTables {
  db: Database.Database;
  merge: OrderMerge;
  queries: OrderQueries;
  quarantine: QuarantineRows;
  board: BoardRows;
}

const made = new WeakMap<Database.Database, MirrorTables>();

export function mirrorTables(db: Database.Database): MirrorTables {
  const known = made.get(db);
  if (known) return known;
  const tables = {
    db,
    merge: new OrderMerge(db),
    queries: new OrderQueries(db),
    quarantine: new QuarantineRows(db),
    board: new BoardRows(db),
  };
  made.set(db, tables);
  return tables;
}

const REOPEN_AFTER_MS = 500;
const INODE_CHECK_MS = 1_000;
/** Events between two notes of how far the feed has got; far below the leap of a feed that has lost its mirror. */
const NOTE_EVERY_EVENTS = 10_000;

/** Referenced here for the life of the process, so that no garbage collection closes them early. */
const keepers = new Set<Database.Database>();

export interface MirrorFileOptions {
  path: string;
  clock: Clock;
  readonly: boolean;
  group: string | undefined;
  /** Without it a mirror that is made anew begins at 1. */
  feed?: FeedMemory | undefined;
  /** Told after each transaction of this process, whatever it was for. Must not throw. */
  onWritten?: ((db: Database.Database) => void) | undefined;
  /** Told when a transaction gave up waiting for another process. Must not throw. */
  onLocked?: (() => void) | undefined;
}

interface OpenFile {
  tables: MirrorTables;
  keeper: Database.Database | undefined;
  inode: number;
  run: <T>(action: (tables: MirrorTables) => T) => T;
  readTogether: <T>(action: (tables: MirrorTables) => T) => T;
}

/**
 * The main thread's connection to the mirror. States: open; failed (the disk or the file refused, so the
 * connection was closed and the next use after a pause opens it anew); closed for good.
 */
export class MirrorFile {
  readonly gate = new WriteGate();
  readonly path: string;
  readonly clock: Clock;
  readonly readonly: boolean;
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
    this.readonly = options.readonly;
    this.#open = this.#openFile();
  }

  /** One or a few short reads, at once. */
  read<T>(action: (tables: MirrorTables) => T): T {
    return this.#guarded((file) => action(file.tables));
  }

  /** Many short reads, at once and of one state: each by itself would lock the file and let it go again. */
  readTogether<T>(action: (tables: MirrorTables) => T): T {
    return this.#guarded((file) => file.readTogether(action));
  }

  /**
   * One transaction, on the disk when the promise resolves. Waits, without blocking the event loop, for the
   * import's worker thread and for other processes. `action` may run more than once, each time from the start.
   */
  async write<T>(action: (tables: MirrorTables) => T, signal?: AbortSignal): Promise<T> {
    await this.gate.enter();
    let result: T;
    try {
      result = await whenFree(this.clock, () => this.#guarded((file) => file.run(action)), undefined, signal);
    } catch (error) {
      if (hasCode(error, 'storage-busy')) this.#options.onLocked?.();
      throw error;
    } finally {
      this.gate.leave();
    }
    if (this.#open) this.#options.onWritten?.(this.#open.tables.db);
    this.noteFeed();
    return result;
  }

  /** Remembers outside of the mirror how far the feed has got, where that is much further than what was noted. */
  noteFeed(): void {
    const { feed } = this.#options;
    if (!feed || !this.#open) return;
    try {
      const newest = this.#open.tables.queries.newestSeq();
      if (newest - this.#notedSeq < NOTE_EVERY_EVENTS) return;
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
    if (this.readonly && hasCode(error, 'storage-readonly')) return;
    this.#failure = { error, untilMs: this.clock.monotonicMs() + REOPEN_AFTER_MS };
    this.#release();
  }

  #openFile(): OpenFile {
    const db = openConnection(this.#options);
    try {
      const tables = mirrorTables(db);
      tables.queries.newestSeq();
      if (!this.readonly) settleWal(db);
      if (!this.readonly) this.#beginFeed(db);
      const keeper = this.readonly ? undefined : openKeeper(this.path);
      if (keeper) keepers.add(keeper);
      const transaction = db.transaction((action: (tables: MirrorTables) => unknown) => action(tables));
      return {
        tables,
        keeper,
        inode: inodeOf(this.path),
        run: <T>(action: (tables: MirrorTables) => T) => transaction.immediate(action) as T,
        readTogether: <T>(action: (tables: MirrorTables) => T) => transaction.deferred(action) as T,
      };
    } catch (error) {
      closeLeavingFiles(db, this.#options);
      throw error;
    }
  }

  #beginFeed(db: Database.Database): void {
    const { feed } = this.#options;
    if (!feed) return;
    const highestSeq = feed.highestSeq();
    const newest = beginFeed(db, highestSeq);
    if (highestSeq === undefined || newest - highestSeq >= NOTE_EVERY_EVENTS) feed.noteSeq(newest);
    this.#notedSeq = feed.highestSeq() ?? 0;
  }

  /** The writer first, the keeper last; a failing disk must not keep either from being let go. */
  #release(): void {
    const { tables, keeper } = this.#open ?? {};
    this.#open = undefined;
    const actions = [
      () => tables && !this.readonly && truncateWal(tables.db),
      () => tables?.db.close(),
      () => keeper?.close(),
    ];
    if (keeper) keepers.delete(keeper);
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

/** How far the feed of the mirror has got, as one row. */
export class FeedRows implements FeedMemory {
  readonly #select: Database.Statement<[], number>;
  readonly #raise: Database.Statement<[number]>;

  constructor({ db }: { db: Database.Database }) {
    this.#select = db.prepare<[], number>('SELECT seq FROM feed').pluck();
    this.#raise = db.prepare(`
      INSERT INTO feed (one, seq) VALUES (1, ?)
      ON CONFLICT DO UPDATE SET seq = excluded.seq WHERE excluded.seq > seq`);
  }

  highestSeq(): number | undefined {
    return storing(() => this.#select.get());
  }

  noteSeq(seq: number): void {
    storing(() => this.#raise.run(seq));
  }
}
