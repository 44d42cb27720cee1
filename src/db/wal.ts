import { readFileSync, statSync } from 'node:fs';
import { basename } from 'node:path';
import type Database from 'better-sqlite3';
import type { Alarms } from '../core/alarm.ts';
import type { Clock } from '../core/time.ts';
import { walBytes } from './sqlite.ts';

/** A process that holds a lock on a file. */
export interface LockHolder {
  pid: number;
  /** Name of the program; empty when it cannot be seen. */
  program: string;
}

/** Locks that are looked for: on which file, on which of its bytes. */
export interface LockedBytes {
  inode: number;
  first: number;
  last: number;
  /** Left out: locks of any kind. */
  kind?: 'READ' | 'WRITE';
  /** Whether those who wait for such a lock count, too. */
  isWaitingToo?: boolean;
}

type Bytes = Omit<LockedBytes, 'inode'>;

/** Other processes that hold such locks at this moment, by the kernel's table of locks; Linux only. */
export function lockHolders(bytes: readonly LockedBytes[]): LockHolder[] {
  let locks: string;
  try {
    locks = readFileSync('/proc/locks', 'utf8');
  } catch {
    return [];
  }
  return lockPids(locks, bytes)
    .filter((pid) => pid !== process.pid)
    .map((pid) => ({ pid, program: programOf(pid) }));
}

const LOCK_LINE =
  /^\d+:\s+(->\s+)?(?:POSIX|OFDLCK)\s+\S+\s+(READ|WRITE)\s+(\d+)\s+\S+:(\d+)\s+(\d+)\s+(\d+|EOF)/;

/** Processes with such locks, from the text of /proc/locks: `4: POSIX  ADVISORY  READ 812 fe:01:1311 124 124`. */
export function lockPids(locks: string, bytes: readonly LockedBytes[]): number[] {
  const pids = locks.split('\n').flatMap((line) => {
    const [, waits, kind, pid, inode, from, to] = LOCK_LINE.exec(line) ?? [];
    const isOne = bytes.some(
      (each) =>
        Number(inode) === each.inode &&
        (each.kind ?? kind) === kind &&
        (waits === undefined || each.isWaitingToo) &&
        Number(from) <= each.last &&
        (to === 'EOF' || Number(to) >= each.first),
    );
    return isOne ? [Number(pid)] : [];
  });
  return [...new Set(pids)];
}

/** `php (process 812), a program (process 97)`. */
export function namesOf(holders: readonly LockHolder[]): string {
  return holders.map(({ pid, program }) => `${program || 'a program'} (process ${pid})`).join(', ');
}

/** Programs that Node runs call their first thread so. */
const NODE_THREAD = 'MainThread';

function programOf(pid: number): string {
  try {
    const name = readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
    if (name !== NODE_THREAD) return name;
    const [started = name] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    return basename(started);
  } catch {
    return '';
  }
}

/** Bytes of -shm on which SQLite's readers hold their locks (WAL-index format, read marks 0 to 4). */
export const READ_MARKS: readonly Bytes[] = [{ first: 123, last: 127, kind: 'READ', isWaitingToo: true }];
/** Those that a writer and a recovery need, and a lock on a reader's byte that shuts readers out. */
export const LOCKING: readonly Bytes[] = [
  { first: 120, last: 120 },
  { first: 122, last: 122 },
  { first: 123, last: 127, kind: 'WRITE' },
];

/** Other processes that are reading the mirror at this moment; Linux only. */
export function findWalReaders(path: string): LockHolder[] {
  return findHolders(path, READ_MARKS);
}

function findHolders(path: string, bytes: readonly Bytes[]): LockHolder[] {
  const inode = statSync(`${path}-shm`, { throwIfNoEntry: false })?.ino;
  return inode === undefined ? [] : lockHolders(bytes.map((each) => ({ inode, ...each })));
}

export const WAL_BYTES_MAX = 16 * 1024 * 1024;
const TEND_EVERY_MS = 1_000;

interface WalCareOptions {
  path: string;
  clock: Clock;
  alarms: Alarms;
}

/**
 * Keeps the write-ahead log small. A reader that stays open keeps it from shrinking; the log then grows with
 * each write, and only ending that reader helps, so an alarm names it.
 */
export class WalCare {
  readonly #options: WalCareOptions;
  #tendedMs = Number.NEGATIVE_INFINITY;
  /** undefined: an earlier run may have left the alarm up. */
  #isUp: boolean | undefined;

  constructor(options: WalCareOptions) {
    this.#options = options;
  }

  /** Looks at most once a second; cheap while the log is small. */
  tend(db: Database.Database): void {
    const { clock, path, alarms } = this.#options;
    const nowMs = clock.monotonicMs();
    if (nowMs - this.#tendedMs < TEND_EVERY_MS) return;
    this.#tendedMs = nowMs;
    if (walBytes(path) > WAL_BYTES_MAX) tryToTruncate(db);
    const bytes = walBytes(path);
    if (bytes > WAL_BYTES_MAX) {
      this.#isUp = true;
      alarms.note('mirror.reader-holds-wal', sentence(path, bytes));
    } else if (this.#isUp !== false) {
      this.#isUp = false;
      alarms.note('mirror.reader-holds-wal', null);
    }
  }
}

/** What was committed stays committed, whatever becomes of the log. */
function tryToTruncate(db: Database.Database): void {
  try {
    truncateWal(db);
  } catch {
    // A failing disk shows itself at the next write, where somebody waits for the answer.
  }
}

/** At busy timeout 0: with any other, a reader would make this block every writer. False: somebody holds the log. */
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

interface LockWatchOptions extends WalCareOptions {
  /** Writes what waits for the disk. */
  tryAgain: () => Promise<void>;
}

/**
 * Notifies that another program keeps the mirror locked. A read lock is enough for that, which whoever may read the
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
    const names = namesOf(findHolders(path, LOCKING));
    const who = names === '' ? 'A program that could not be named keeps' : `${names} keeps`;
    alarms.note(
      'mirror.locked',
      `${who} mirror.db locked: callbacks are put off (503), and polls keep nothing.`,
    );
    if (isNews) void this.#tryUntilFree();
  }

  /** A transaction is on the disk. */
  free(): void {
    if (this.#isUp === false) return;
    this.#isUp = false;
    this.#options.alarms.note('mirror.locked', null);
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
