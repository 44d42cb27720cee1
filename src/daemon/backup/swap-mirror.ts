import { existsSync, linkSync, renameSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { MIRROR_MODE } from '../../store/mirror/open-connection.ts';
import { openDatabase, storing, syncPath } from '../../store/sqlite.ts';

/**
 * Puts a database in the place of the mirror and keeps the one that was there under `kept`. Dying on the way leaves
 * the old one or the new one whole; readers that have the old one open keep it until they open it anew. Returns
 * whether there was one. For a stopped daemon. Throws `storage-…`.
 */
export function swapMirror(fresh: string, path: string, kept: string): boolean {
  return storing(() => {
    const isThere = existsSync(path) || existsSync(`${path}-wal`);
    if (isThere && foldLog(path) && linked(path, kept)) {
      // Empty by now. The names must be free: a reader of the new mirror may not share them with one of the old.
      for (const suffix of ['-wal', '-shm']) rmSync(path + suffix, { force: true });
    } else if (isThere) {
      // The database first: its log alone is refused at a start, never taken for an empty mirror.
      for (const suffix of ['', '-wal', '-shm']) {
        if (existsSync(path + suffix)) renameSync(path + suffix, kept + suffix);
      }
    }
    renameSync(fresh, path);
    syncPath(dirname(path));
    return isThere;
  });
}

/** Brings everything out of the log into the database. False where that cannot be done. */
function foldLog(path: string): boolean {
  try {
    const db = openDatabase({ path, mode: MIRROR_MODE, busyTimeoutMs: 0 });
    try {
      const [result] = db.pragma('wal_checkpoint(TRUNCATE)') as { busy: number }[];
      return result?.busy === 0;
    } finally {
      db.close();
    }
  } catch {
    return false;
  }
}

function linked(path: string, kept: string): boolean {
  try {
    linkSync(path, kept);
    return true;
  } catch {
    return false;
  }
}
