import { statSync } from 'node:fs';
import type Database from 'better-sqlite3';
import type { Alarms } from '../core/alarm.ts';
import type { Clock } from '../core/time.ts';
import { type Bytes, LOCKING, type LockHolder, lockHolders, namesOf, READ_MARKS } from './file-locks.ts';
import { walBytes } from './sqlite.ts';

/** Returns other processes that are reading the mirror. It works on Linux only. */
export function findWalReaders(path: string): LockHolder[] {
  return findHolders(path, READ_MARKS);
}

function findHolders(path: string, bytes: readonly Bytes[]): LockHolder[] {
  const inode = statSync(`${path}-shm`, { throwIfNoEntry: false })?.ino;
  return inode === undefined ? [] : lockHolders(bytes.map((each) => ({ inode, ...each })));
}

export const WAL_BYTES_MAX = 16 * 1024 * 1024;

/** Truncates the log. A failure is ignored, because no commit is lost. */
function tryToTruncate(db: Database.Database): void {
  try {
    truncateWal(db);
  } catch {
    // The next write meets an error of the disk too, and reports it.
  }
}

/**
 * Truncates the log. The busy timeout is 0 meanwhile, because otherwise the checkpoint would wait for a reader and
 * block every writer. Returns false if another process uses the log.
 */
export function truncateWal(db: Database.Database): boolean {
  if (walBytes(db.name) === 0) return true;
  const timeoutMs = Number(db.pragma('busy_timeout', { simple: true }));
  db.pragma('busy_timeout = 0');
  try {
    return db.pragma('wal_checkpoint(TRUNCATE)', { simple: true }) === 0;
  } finally {
    db.pragma(`busy_timeout = ${timeoutMs}`);
  }
}

/** Returns whether the log may grow. A large one is truncated first, which a reader may prevent. */
export function hasRoomInWal(db: Database.Database): boolean {
  return walBytes(db.name) <= WAL_BYTES_MAX || truncateWal(db);
}

function sentence(path: string, bytes: number): string {
  const who = namesOf(findWalReaders(path)) || 'a program that could not be named';
  const mib = Math.round(bytes / 1024 / 1024 / 16) * 16;
  return `The mirror's log grew to about ${mib} MiB because ${who} keeps a read of it open; end that read.`;
}

const AGAIN_AFTER_MS = 1_000;

interface MirrorWatchOptions {
  path: string;
  clock: Clock;
  /** Alarms, with what is done about those that cannot be written while the mirror is locked. */
  alarms: Alarms & { flush(): Promise<void>; notifyUnwritten(): void };
}

/**
 * Acts on programs that keep a read or a lock of the mirror. Every user who may read the mirror can do so, and tillsync
 * cannot prevent it, so an alarm names the program.
 */
export class MirrorWatch {
  readonly #options: MirrorWatchOptions;
  #isLocked = false;
  readonly #closed = new AbortController();

  constructor(options: MirrorWatchOptions) {
    this.#options = options;
  }

  /**
   * Truncates a large log; returns whether it stays large, and raises or clears the alarm. While a reader has a read
   * open, the log grows with each write and cannot shrink. Only the end of that read helps.
   */
  truncate(db: Database.Database): boolean {
    const { path, alarms } = this.#options;
    if (walBytes(path) > WAL_BYTES_MAX) tryToTruncate(db);
    const bytes = walBytes(path);
    const isLarge = bytes > WAL_BYTES_MAX;
    alarms.note('mirror.reader-holds-wal', isLarge ? sentence(path, bytes) : null);
    return isLarge;
  }

  /** Must be called when a transaction failed because of a lock. Raises the alarm. */
  locked(): void {
    const { path, alarms } = this.#options;
    const isNews = !this.#isLocked;
    this.#isLocked = true;
    const names = namesOf(findHolders(path, LOCKING));
    const who = names === '' ? 'A program that could not be named keeps' : `${names} keeps`;
    alarms.note(
      'mirror.locked',
      `${who} mirror.db locked: callbacks are put off (503), and polls keep nothing.`,
    );
    if (isNews) void this.#tryUntilFree();
    alarms.notifyUnwritten();
  }

  /** Must be called when a transaction was committed again. Clears the alarm. */
  free(): void {
    this.#isLocked = false;
    this.#options.alarms.note('mirror.locked', null);
  }

  close(): void {
    this.#closed.abort();
  }

  /** Writes what could not be written until the lock is gone. Otherwise the alarm would stay until the next write. */
  async #tryUntilFree(): Promise<void> {
    const { clock, alarms } = this.#options;
    const { signal } = this.#closed;
    while (this.#isLocked && !signal.aborted) {
      await clock.sleep(AGAIN_AFTER_MS, signal);
      if (!signal.aborted) await alarms.flush();
    }
  }
}
