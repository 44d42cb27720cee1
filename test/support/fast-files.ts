import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const MEMORY = '/dev/shm';
/** A run leaves some hundred megabytes at the most before they are removed. */
const ROOM_MIN_BYTES = 2 * 1024 ** 3;
/** Vitest imports each test file under a name of its own in each run, and the code of every one of them is kept. */
const COMPILED_FILES_MAX = 8_000;
const ROOT = path.resolve(import.meta.dirname, '../..');

/**
 * Gives a test run files in memory where the machine has room, so that no test waits for the disk, and keeps the
 * compiled code of the processes that tests start. Returns what removes the files.
 */
export default function fastFiles(): () => void {
  const directory = mkdtempSync(path.join(fastRoot(), 'tillsync-tests-'));
  // As /tmp is: some tests read as another Unix user.
  chmodSync(directory, 0o1777);
  process.env.TMPDIR = directory;
  const compiled = path.join(ROOT, 'node_modules/.cache/compiled');
  if (existsSync(compiled) && readdirSync(compiled, { recursive: true }).length > COMPILED_FILES_MAX)
    rmSync(compiled, { recursive: true, force: true });
  process.env.NODE_COMPILE_CACHE ??= compiled;
  return () => rmSync(directory, { recursive: true, force: true });
}

/** Where files are quickest here: in memory, or where all temporary files are. */
export function fastRoot(): string {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return bavail * bsize >= ROOM_MIN_BYTES ? MEMORY : tmpdir();
  } catch {
    return tmpdir();
  }
}
