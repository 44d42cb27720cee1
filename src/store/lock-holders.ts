import { readFileSync } from 'node:fs';
import { basename } from 'node:path';

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

/** Other processes that hold such locks at this moment, by the kernel's table of locks; Linux only. */
export function lockHolders(bytes: readonly LockedBytes[], ownPid = process.pid): LockHolder[] {
  let locks: string;
  try {
    locks = readFileSync('/proc/locks', 'utf8');
  } catch {
    return [];
  }
  const pids = new Set(bytes.flatMap((each) => holderPids(locks, each)));
  pids.delete(ownPid);
  return [...pids].map((pid) => ({ pid, program: programOf(pid) }));
}

/** Reads lines such as `4: POSIX  ADVISORY  READ 812 fe:01:1311 124 124`. */
export function holderPids(locks: string, bytes: LockedBytes): number[] {
  const { inode, first, last, kind, isWaitingToo = false } = bytes;
  return locks.split('\n').flatMap((line) => {
    const match =
      /^\d+:\s+(->\s+)?(?:POSIX|OFDLCK)\s+\S+\s+(READ|WRITE)\s+(\d+)\s+\S+:(\d+)\s+(\d+)\s+(\d+|EOF)/.exec(
        line,
      );
    if (!match || Number(match[4]) !== inode || (kind !== undefined && match[2] !== kind)) return [];
    if (match[1] !== undefined && !isWaitingToo) return [];
    const end = match[6] === 'EOF' ? Number.POSITIVE_INFINITY : Number(match[6]);
    return Number(match[5]) <= last && end >= first ? [Number(match[3])] : [];
  });
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
