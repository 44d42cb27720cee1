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

/**
 * Decides which thread may take the mirror's write lock: the main thread or the worker of the import. Both use the same
 * cells of shared memory. The main thread waits for at most one transaction: it announces that it wants the lock, and
 * the worker ends its transaction early and waits until nobody wants the lock. When the main thread has gone first
 * `PASSED_MAX` times while the worker waited, the worker goes first, so that callbacks without end cannot stop the
 * import.
 *
 * Each side first announces itself and then checks the other side, so that they never both start.
 */

/** Index of the cell with the number of calls on the main thread that want or hold the lock. */
const WANTED = 0;
/** Index of the cell that is 1 while the worker is in a transaction. */
const WORKING = 1;
const ABORTED = 2;
/** Index of the cell that is 1 while the worker waits for its turn. */
const WAITING = 3;
/** Index of the cell with the number of times that the main thread went before the waiting worker. */
const PASSED = 4;
const CELLS = 5;

const PASSED_MAX = 8;
/** Interval at which a waiting side checks the cells again, in case a wake-up was missed. */
const LOOK_AGAIN_MS = 50;

export class WriteGate {
  /** Memory that is passed to the worker thread, which makes its own `WriteGate` from it. */
  readonly memory: SharedArrayBuffer;
  readonly #cells: Int32Array;

  constructor(memory = new SharedArrayBuffer(CELLS * Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#cells = new Int32Array(memory);
  }

  /** For the main thread: waits until the worker has no transaction. The worker cannot start one until `leave`. */
  async enter(): Promise<void> {
    while (this.#is(WAITING) && Atomics.load(this.#cells, PASSED) >= PASSED_MAX) await this.#changed(WAITING);
    if (this.#is(WAITING)) Atomics.add(this.#cells, PASSED, 1);
    Atomics.add(this.#cells, WANTED, 1);
    while (this.#is(WORKING)) await this.#changed(WORKING);
  }

  leave(): void {
    if (Atomics.sub(this.#cells, WANTED, 1) === 1) Atomics.notify(this.#cells, WANTED);
  }

  /** For the main thread: resets the gate after the worker ended, also if it died in a transaction. */
  reset(): void {
    Atomics.store(this.#cells, ABORTED, 0);
    this.#endWaiting();
    this.endWork();
  }

  abort(): void {
    Atomics.store(this.#cells, ABORTED, 1);
    Atomics.notify(this.#cells, ABORTED);
  }

  get aborted(): boolean {
    return this.#is(ABORTED);
  }

  /** For the worker thread: blocks until nobody wants the lock, then holds it until `endWork`. */
  beginWork(): void {
    Atomics.store(this.#cells, PASSED, 0);
    Atomics.store(this.#cells, WAITING, 1);
    for (;;) {
      const wanted = Atomics.load(this.#cells, WANTED);
      if (wanted > 0) {
        Atomics.wait(this.#cells, WANTED, wanted, LOOK_AGAIN_MS);
        continue;
      }
      Atomics.store(this.#cells, WORKING, 1);
      if (Atomics.load(this.#cells, WANTED) === 0) break;
      this.endWork();
    }
    this.#endWaiting();
  }

  endWork(): void {
    Atomics.store(this.#cells, WORKING, 0);
    Atomics.notify(this.#cells, WORKING);
  }

  /** For the worker thread: whether to end its transaction now. */
  get wanted(): boolean {
    return Atomics.load(this.#cells, WANTED) > 0;
  }

  /** For the worker thread: sleeps while another process holds the lock. */
  pause(ms: number): void {
    Atomics.wait(this.#cells, ABORTED, 0, ms);
  }

  #endWaiting(): void {
    Atomics.store(this.#cells, WAITING, 0);
    Atomics.notify(this.#cells, WAITING);
  }

  #is(cell: number): boolean {
    return Atomics.load(this.#cells, cell) === 1;
  }

  async #changed(cell: number): Promise<void> {
    const wait = Atomics.waitAsync(this.#cells, cell, 1, LOOK_AGAIN_MS);
    if (wait.async) await wait.value;
  }
}
