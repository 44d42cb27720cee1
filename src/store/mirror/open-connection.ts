import { existsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type Database from 'better-sqlite3';
import { makeDirectory } from '../make-directory.ts';
import { migrate } from '../migrate.ts';
import { createWithMode, openDatabase, storing } from '../sqlite.ts';
import { giveToGroup, groupId, setDirectoryMode } from '../unix-group.ts';

export const MIRROR_MODE = 0o640;
const DIRECTORY_MODE = 0o2750;
const BUSY_TIMEOUT_MS = 10;
/** An order with its items touches some ten trees; larger pages make them flatter and each commit cheaper. */
const PAGE_BYTES = 8192;
/** Checkpoints come seldom, but before the log reaches the size that is cut back. */
const AUTOCHECKPOINT_PAGES = 1_900;

export interface ConnectionOptions {
  path: string;
  readonly: boolean;
  /** Unix group, by name or number, that may read; undefined: the directory decides. */
  group: string | undefined;
}

/** Opens the mirror with its schema brought up to date. Throws `storage-…` errors. */
export function openConnection(options: ConnectionOptions): Database.Database {
  const { path, readonly } = options;
  const gid = options.group === undefined || readonly ? undefined : groupId(options.group);
  if (!readonly) storing(() => create(path, gid));
  const db = openDatabase({
    path,
    mode: MIRROR_MODE,
    readonly,
    busyTimeoutMs: BUSY_TIMEOUT_MS,
    pragmas: {
      // It can be chosen only while there is nothing in the file.
      ...(!readonly && statSync(path).size === 0 && { page_size: PAGE_BYTES }),
      journal_mode: 'wal',
      recursive_triggers: 1,
      ...(!readonly && { wal_autocheckpoint: AUTOCHECKPOINT_PAGES }),
    },
  });
  try {
    migrate(db, {
      directory: new URL('./migrations/', import.meta.url),
      name: 'mirror.db',
      keepCopyAt: `${path}.before-upgrade`,
    });
    if (gid !== undefined) storing(() => giveToGroup(gid, `${path}-wal`, `${path}-shm`));
    return db;
  } catch (error) {
    closeLeavingFiles(db, options);
    throw error;
  }
}

/** Closes a connection that is of no use, without taking -wal and -shm from the readers of the mirror. */
export function closeLeavingFiles(db: Database.Database, { path, readonly }: ConnectionOptions): void {
  let keeper: Database.Database | undefined;
  try {
    if (!readonly) keeper = openKeeper(path);
  } catch {
    // A file that cannot be read has no readers to think of.
  }
  db.close();
  keeper?.close();
}

/** For the import's worker thread, on a mirror that is open. */
export function openSecondConnection(path: string): Database.Database {
  return openDatabase({
    path,
    mode: MIRROR_MODE,
    busyTimeoutMs: BUSY_TIMEOUT_MS,
    pragmas: { journal_mode: 'wal', recursive_triggers: 1, wal_autocheckpoint: 0, cache_size: -32_768 },
  });
}

/**
 * A connection that never writes and is closed last: the one that closes last deletes -wal and -shm if it can,
 * and without them another Unix user cannot read the mirror while tillsync is stopped.
 */
export function openKeeper(path: string): Database.Database {
  const keeper = openDatabase({ path, mode: MIRROR_MODE, readonly: true, busyTimeoutMs: BUSY_TIMEOUT_MS });
  storing(() => keeper.prepare('SELECT count(*) FROM sqlite_schema').get());
  return keeper;
}

function create(path: string, gid: number | undefined): void {
  const directory = dirname(path);
  if (!existsSync(directory)) {
    makeDirectory(directory, 0o755);
    if (gid !== undefined) giveToGroup(gid, directory);
    setDirectoryMode(directory, DIRECTORY_MODE);
  }
  createWithMode(path, MIRROR_MODE);
  // Also where the group was named after the first start.
  if (gid !== undefined) giveToGroup(gid, path);
}
