import { chmodSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const MEMORY = '/dev/shm';
/** A run leaves some hundred megabytes at the most before they are removed. */
const ROOM_MIN_BYTES = 2 * 1024 ** 3;
const ROOT = path.resolve(import.meta.dirname, '../..');

/**
 * Gives a test run files in memory where the machine has room, so that no test waits for the disk, and keeps the
 * compiled code of the processes that tests start. Returns what removes the files.
 */
export default function fastFiles(): () => void {
  const directory = mkdtempSync(path.join(hasRoom() ? MEMORY : tmpdir(), 'tillsync-tests-'));
  // As /tmp is: some tests read as another Unix user.
  chmodSync(directory, 0o1777);
  process.env.TMPDIR = directory;
  process.env.NODE_COMPILE_CACHE ??= path.join(ROOT, 'node_modules/.cache/compiled');
  return () => rmSync(directory, { recursive: true, force: true });
}

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return bavail * bsize >= ROOM_MIN_BYTES;
  } catch {
    return false;
  }
}
