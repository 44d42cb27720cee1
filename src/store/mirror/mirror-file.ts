import { statSync } from 'node:fs';
import type Database from 'better-sqlite3';
import { whenFree } from '../../domain/busy.ts';
import { hasCode, TillsyncError } from '../../domain/errors.ts';
import type { FeedMemory } from '../../domain/order/feed-memory.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { settleWal } from '../settle-wal.ts';
import { storing, toStorageError } from '../sqlite.ts';
import { beginFeed } from './feed-start.ts';
import { type MirrorTables, mirrorTables } from './mirror-tables.ts';
import { closeLeavingFiles, openConnection, openKeeper } from './open-connection.ts';
import { truncateWal } from './wal-care.ts';
import { WriteGate } from './write-gate.ts';

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
