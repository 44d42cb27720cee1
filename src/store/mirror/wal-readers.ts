import { readFileSync, statSync } from 'node:fs';

export interface WalReader {
  pid: number;
  /** Name of the program; empty when it cannot be seen. */
  program: string;
}

/** Bytes of -shm on which SQLite's readers hold their locks (WAL-index format, read marks 0 to 4). */
const FIRST_LOCK_BYTE = 123;
const LAST_LOCK_BYTE = 127;

/** Other processes that are reading the mirror at this moment, by the kernel's table of locks; Linux only. */
export function findWalReaders(path: string, ownPid = process.pid): WalReader[] {
  let locks: string;
  let inode: number;
  try {
    inode = statSync(`${path}-shm`).ino;
    locks = readFileSync('/proc/locks', 'utf8');
  } catch {
    return [];
  }
  const pids = new Set(readerPids(locks, inode));
  pids.delete(ownPid);
  return [...pids].map((pid) => ({ pid, program: programOf(pid) }));
}

/** Reads lines such as `4: POSIX  ADVISORY  READ 812 fe:01:1311 124 124`. */
export function readerPids(locks: string, inode: number): number[] {
  const pids: number[] = [];
  for (const line of locks.split('\n')) {
    const match =
      /^\d+:\s+(?:->\s+)?(?:POSIX|OFDLCK)\s+\S+\s+READ\s+(\d+)\s+\S+:(\d+)\s+(\d+)\s+(\d+|EOF)/.exec(line);
    if (!match || Number(match[2]) !== inode) continue;
    const last = match[4] === 'EOF' ? Number.POSITIVE_INFINITY : Number(match[4]);
    if (Number(match[3]) <= LAST_LOCK_BYTE && last >= FIRST_LOCK_BYTE) pids.push(Number(match[1]));
  }
  return pids;
}

function programOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return '';
  }
}
