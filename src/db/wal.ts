import { statSync } from 'node:fs';
import type Database from 'better-sqlite3';
import type { Alarms } from '../core/alarm.ts';
import type { Clock } from '../core/time.ts';
import { type Bytes, LOCKING, type LockHolder, lockHolders, namesOf, READ_MARKS } from './file-locks.ts';
import { walBytes } from './sqlite.ts';

/** Returns other processes that read the mirror now; Linux only. */
export function findWalReaders(path: string): LockHolder[] {
  return findHolders(path, READ_MARKS);
}

function findHolders(path: string, bytes: readonly Bytes[]): LockHolder[] {
  const inode = statSync(`${path}-shm`, { throwIfNoEntry: false })?.ino;
  return inode === undefined ? [] : lockHolders(bytes.map((each) => ({ inode, ...each })));
}

export const WAL_BYTES_MAX = 16 * 1024 * 1024;
const TEND_EVERY_MS = 1_000;

interface WalMaintenanceOptions {
  path: string;
  clock: Clock;
  alarms: Alarms;
}

/**
 * Keeps the write-ahead log small. While a reader is open, the log cannot shrink and grows with each write. Only ending
 * that reader helps, so an alarm names it.
 */
export class WalMaintenance {
  readonly #options: WalMaintenanceOptions;
  #checkedMs = Number.NEGATIVE_INFINITY;
  /**
   * Whether the last check raised the alarm; undefined before the first, because an earlier run may have left
   * it raised.
   */
  #wasLarge: boolean | undefined;

  constructor(options: WalMaintenanceOptions) {
    this.#options = options;
  }

  /** Checks at most once a second; cheap while the log is small. */
  checkpoint(db: Database.Database): void {
    const { clock, path, alarms } = this.#options;
    const nowMs = clock.monotonicMs();
    if (nowMs - this.#checkedMs < TEND_EVERY_MS) return;
    this.#checkedMs = nowMs;
    if (walBytes(path) > WAL_BYTES_MAX) tryToTruncate(db);
    const bytes = walBytes(path);
    const isLarge = bytes > WAL_BYTES_MAX;
    if (!isLarge && this.#wasLarge === false) return;
    this.#wasLarge = isLarge;
    alarms.note('mirror.reader-holds-wal', isLarge ? sentence(path, bytes) : null);
  }
}

/** A failed truncation loses nothing that was committed. */
function tryToTruncate(db: Database.Database): void {
  try {
    truncateWal(db);
  } catch {
    // An error of the disk is ignored here, because the next write meets it too and reports it.
  }
}

/**
 * Runs at busy timeout 0; with any other, a reader would make it block every writer. Returns false if a process holds
 * the log.
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

function sentence(path: string, bytes: number): string {
  const who = namesOf(findWalReaders(path)) || 'a program that could not be named';
  const mib = Math.round(bytes / 1024 / 1024 / 16) * 16;
  return `The mirror's log grew to about ${mib} MiB because ${who} keeps a read of it open; end that read.`;
}

const AGAIN_AFTER_MS = 1_000;

interface LockWatchOptions extends WalMaintenanceOptions {
  /** Writes the data that waits for the lock. */
  tryAgain: () => Promise<void>;
}

/**
 * Reports that another program keeps the mirror locked. A read lock is enough for that, and every user who may read
 * the mirror can take one. So it cannot be prevented, only reported, with the program's name.
 */
export class LockMonitor {
  readonly #options: LockWatchOptions;
  /**
   * Whether the last check raised the alarm; undefined before the first, because an earlier run may have left
   * it raised.
   */
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
    const names = namesOf(findHolders(path, LOCKING));
    const who = names === '' ? 'A program that could not be named keeps' : `${names} keeps`;
    alarms.note(
      'mirror.locked',
      `${who} mirror.db locked: callbacks are put off (503), and polls keep nothing.`,
    );
    if (isNews) void this.#tryUntilFree();
  }

  /** Called when a transaction is on the disk. */
  free(): void {
    if (this.#isUp === false) return;
    this.#isUp = false;
    this.#options.alarms.note('mirror.locked', null);
  }

  close(): void {
    this.#closed.abort();
  }

  /** Retries until the lock is gone, because without another write the alarm would stay raised. */
  async #tryUntilFree(): Promise<void> {
    const { signal } = this.#closed;
    while (this.#isUp && !signal.aborted) {
      await this.#options.clock.sleep(AGAIN_AFTER_MS, signal);
      if (!signal.aborted) await this.#options.tryAgain();
    }
  }
}
