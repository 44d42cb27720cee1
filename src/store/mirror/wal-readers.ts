import { statSync } from 'node:fs';
import { holderPids, type LockedBytes, type LockHolder, lockHolders } from '../lock-holders.ts';

type Bytes = Omit<LockedBytes, 'inode'>;

/** Bytes of -shm on which SQLite's readers hold their locks (WAL-index format, read marks 0 to 4). */
const READ_MARKS: readonly Bytes[] = [{ first: 123, last: 127, kind: 'READ', isWaitingToo: true }];
/** Those that a writer and a recovery need, and a lock on a reader's byte that shuts readers out. */
const LOCKING: readonly Bytes[] = [
  { first: 120, last: 120 },
  { first: 122, last: 122 },
  { first: 123, last: 127, kind: 'WRITE' },
];

/** Other processes that are reading the mirror at this moment, by the kernel's table of locks; Linux only. */
export function findWalReaders(path: string, ownPid = process.pid): LockHolder[] {
  return others(path, READ_MARKS, ownPid);
}

/** Other processes that keep this one from writing the mirror at this moment; Linux only. */
export function findLockHolders(path: string, ownPid = process.pid): LockHolder[] {
  return others(path, LOCKING, ownPid);
}

/** Processes with a read of the log whose -shm has this number, from the text of /proc/locks. */
export function readerPids(locks: string, inode: number): number[] {
  return READ_MARKS.flatMap((bytes) => holderPids(locks, { inode, ...bytes }));
}

/** The same of those who hold a lock that a writer needs. */
export function lockingPids(locks: string, inode: number): number[] {
  const pids = LOCKING.flatMap((bytes) => holderPids(locks, { inode, ...bytes }));
  return [...new Set(pids)].sort((a, b) => a - b);
}

function others(path: string, bytes: readonly Bytes[], ownPid: number): LockHolder[] {
  const inode = statSync(`${path}-shm`, { throwIfNoEntry: false })?.ino;
  if (inode === undefined) return [];
  return lockHolders(
    bytes.map((each) => ({ inode, ...each })),
    ownPid,
  );
}
