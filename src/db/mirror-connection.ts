import { existsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type Database from 'better-sqlite3';
import { giveToGroup, groupId, setDirectoryMode } from '../core/files.ts';
import { migrate, type Role } from './migrate.ts';
import { createWithMode, makeDirectory, openDatabase, storing } from './sqlite.ts';

export const MIRROR_MODE = 0o640;
const DIRECTORY_MODE = 0o2750;
const BUSY_TIMEOUT_MS = 10;
/**
 * Size of a page. An order with its items changes about ten B-trees, which have fewer levels with larger pages, so
 * commits are cheaper.
 */
const PAGE_BYTES = 8192;
/**
 * Size of the log that starts a checkpoint. It is large, so that checkpoints are rare, but below the size at which the
 * log is truncated.
 */
const AUTOCHECKPOINT_PAGES = 1_900;

export interface ConnectionOptions {
  path: string;
  readonly: boolean;
  /** Unix group that may read the mirror, by name or number. If undefined, it is the group of the directory. */
  group: string | undefined;
  /** Role whose tables the mirror gets, if it has not them yet. */
  role?: Role | undefined;
}

/** Where the migrations of the mirror are. */
export const MIRROR_SCHEMA = {
  directory: new URL('./mirror/migrations/', import.meta.url),
  roles: {
    hub: new URL('./mirror/hub/', import.meta.url),
    branch: new URL('./mirror/branch/', import.meta.url),
  },
};

/** Opens the mirror and migrates its schema. Throws `storage-…` errors. */
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
      // SQLite accepts a page size only while the file is empty.
      ...(!readonly && statSync(path).size === 0 && { page_size: PAGE_BYTES }),
      journal_mode: 'wal',
      recursive_triggers: 1,
      ...(!readonly && { wal_autocheckpoint: AUTOCHECKPOINT_PAGES }),
    },
  });
  try {
    migrate(db, {
      ...MIRROR_SCHEMA,
      role: options.role,
      name: 'mirror.db',
      readonly,
      keepCopyAt: `${path}.before-upgrade`,
    });
    if (gid !== undefined) storing(() => giveToGroup(gid, `${path}-wal`, `${path}-shm`));
    return db;
  } catch (error) {
    closeLeavingFiles(db, options);
    throw error;
  }
}

/** Closes a connection without a keeper, and keeps the files -wal and -shm, which other readers of the mirror use. */
export function closeLeavingFiles(
  db: Database.Database,
  { path, readonly }: Pick<ConnectionOptions, 'path' | 'readonly'>,
): void {
  let keeper: Database.Database | undefined;
  try {
    if (!readonly) keeper = openKeeper(path);
  } catch {
    // An unreadable file has no readers, so its -wal and -shm may be deleted.
  }
  db.close();
  keeper?.close();
}

/** Opens a second connection to the mirror, for the worker thread of the import. */
export function openSecondConnection(path: string): Database.Database {
  return openDatabase({
    path,
    mode: MIRROR_MODE,
    busyTimeoutMs: BUSY_TIMEOUT_MS,
    pragmas: { journal_mode: 'wal', recursive_triggers: 1, wal_autocheckpoint: 0, cache_size: -32_768 },
  });
}

/**
 * Opens a read-only connection that is to be closed last. The last connection to close deletes -wal and -shm if it may
 * write. Without these files, another Unix user cannot read the mirror while tillsync is stopped.
 */
export function openKeeper(path: string): Database.Database {
  const keeper = openDatabase({ path, mode: MIRROR_MODE, readonly: true, busyTimeoutMs: BUSY_TIMEOUT_MS });
  // Reads the file's header, because SQLite opens the log with the first read.
  storing(() => keeper.pragma('schema_version'));
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
  // Existing files are given to the group too, because it may have been configured later.
  if (gid !== undefined) giveToGroup(gid, path);
}
