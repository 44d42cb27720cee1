import { chmodSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { keepCompiledCode } from './compiled-code.ts';

const MEMORY = '/dev/shm';
/**
 * Free memory that `/dev/shm` must have to be used. A test run writes some hundred megabytes before its files are
 * deleted.
 */
const ROOM_MIN_BYTES = 2 * 1024 ** 3;
/**
 * Gives a test run files in memory if the machine has room, so that no test waits for the disk, and keeps the
 * compiled code of processes that tests start. Returns a function that removes the files.
 */
export default function fastFiles(): () => void {
  const directory = mkdtempSync(path.join(fastRoot(), 'tillsync-tests-'));
  // The directory has the rights of /tmp, because some tests read as another Unix user.
  chmodSync(directory, 0o1777);
  process.env.TMPDIR = directory;
  keepCompiledCode();
  return () => rmSync(directory, { recursive: true, force: true });
}

/** Returns the directory with the quickest files, which is in memory or the usual temporary one. */
export function fastRoot(): string {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return bavail * bsize >= ROOM_MIN_BYTES ? MEMORY : tmpdir();
  } catch {
    return tmpdir();
  }
}
