import { readFileSync } from 'node:fs';
import { basename } from 'node:path';

/** A process that holds a lock on a file. */
export interface LockHolder {
  pid: number;
  /** Name of the program; '' if it cannot be read. */
  program: string;
}

/** A range of bytes of a file whose locks are searched. */
interface LockedBytes {
  inode: number;
  first: number;
  last: number;
  /** Kind of the locks. If left out, locks of both kinds are searched. */
  kind?: 'READ' | 'WRITE';
  /** Whether processes that wait for such a lock are found too. */
  isWaitingToo?: boolean;
}

export type Bytes = Omit<LockedBytes, 'inode'>;

/**
 * Returns other processes that now hold locks on these bytes. Reads the kernel's table of locks, so it works on Linux
 * only.
 */
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

/**
 * Returns the ids of processes with locks on these bytes. `locks` is the text of /proc/locks, with lines such as `4:
 * POSIX ADVISORY READ 812 fe:01:1311 124 124`.
 */
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

/** Returns the names of processes: `php (process 812), a program (process 97)`. */
export function namesOf(holders: readonly LockHolder[]): string {
  return holders.map(({ pid, program }) => `${program || 'a program'} (process ${pid})`).join(', ');
}

/** Name of a Node program's first thread in /proc. */
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

/** Bytes of the -shm file that readers lock (WAL-index format of SQLite, read marks 0 to 4). */
export const READ_MARKS: readonly Bytes[] = [{ first: 123, last: 127, kind: 'READ', isWaitingToo: true }];

/**
 * Bytes of the -shm file that a writer or a recovery locks, and read marks that are locked so that no reader can use
 * them.
 */
export const LOCKING: readonly Bytes[] = [
  { first: 120, last: 120 },
  { first: 122, last: 122 },
  { first: 123, last: 127, kind: 'WRITE' },
];
