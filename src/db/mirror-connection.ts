import { existsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type Database from 'better-sqlite3';
import { giveToGroup, groupId, setDirectoryMode } from '../core/files.ts';
import { migrate } from './migrate.ts';
import { createWithMode, makeDirectory, openDatabase, storing } from './sqlite.ts';

export const MIRROR_MODE = 0o640;
const DIRECTORY_MODE = 0o2750;
const BUSY_TIMEOUT_MS = 10;
/** An order with its items touches about ten trees; larger pages make them flatter and each commit cheaper. */
const PAGE_BYTES = 8192;
/** Checkpoints are rare, but come before the log reaches the size at which it is truncated. */
const AUTOCHECKPOINT_PAGES = 1_900;

export interface ConnectionOptions {
  path: string;
  readonly: boolean;
  /** Unix group that may read, by name or number. If undefined, the group of the directory may. */
  group: string | undefined;
}

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
      // The page size can be set only while the file is empty.
      ...(!readonly && statSync(path).size === 0 && { page_size: PAGE_BYTES }),
      journal_mode: 'wal',
      recursive_triggers: 1,
      ...(!readonly && { wal_autocheckpoint: AUTOCHECKPOINT_PAGES }),
    },
  });
  try {
    migrate(db, {
      directory: new URL('./mirror/migrations/', import.meta.url),
      schema: new URL('./mirror/schema.sql', import.meta.url),
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

/** Closes a connection that failed, without deleting -wal and -shm under the mirror's readers. */
export function closeLeavingFiles(db: Database.Database, { path, readonly }: ConnectionOptions): void {
  let keeper: Database.Database | undefined;
  try {
    if (!readonly) keeper = openKeeper(path);
  } catch {
    // An unreadable file has no readers.
  }
  db.close();
  keeper?.close();
}

/** Opens the mirror for the import's worker thread, while the main thread has it open. */
export function openSecondConnection(path: string): Database.Database {
  return openDatabase({
    path,
    mode: MIRROR_MODE,
    busyTimeoutMs: BUSY_TIMEOUT_MS,
    pragmas: { journal_mode: 'wal', recursive_triggers: 1, wal_autocheckpoint: 0, cache_size: -32_768 },
  });
}

/**
 * Opens a connection that never writes and is closed last. The last connection to close deletes -wal and -shm if it
 * may write, and without them another Unix user cannot read the mirror while tillsync is stopped.
 */
export function openKeeper(path: string): Database.Database {
  const keeper = openDatabase({ path, mode: MIRROR_MODE, readonly: true, busyTimeoutMs: BUSY_TIMEOUT_MS });
  // Reads only the file's header, which opens the log.
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
  // Existing files get the group too, since it may have been configured after the first start.
  if (gid !== undefined) giveToGroup(gid, path);
}

/**
 * Decides, in shared memory, which thread may take the mirror's write lock: the main thread or the import's worker.
 * The main thread waits for at most one transaction: it announces that it wants the lock, and the worker ends its
 * transaction early and waits until nobody wants it. After a number of such turns the worker goes first, so that
 * endless callbacks cannot starve the import.
 *
 * Each side first announces itself and then checks the other, so that they cannot both go ahead.
 */

/** Cell with the number of calls of the main thread that wait for the lock or have it. */
const WANTED = 0;
/** Cell that is 1 while the worker is in a transaction. */
const WORKING = 1;
const ABORTED = 2;
/** 1 while the worker waits for its turn. */
const WAITING = 3;
/** Cell with the number of times that the main thread passed the waiting worker. */
const PASSED = 4;
const CELLS = 5;

const PASSED_MAX = 8;
/** Interval at which a waiting side checks again, in case a wake-up is missed. */
const LOOK_AGAIN_MS = 50;

export class WriteGate {
  /** Passed to the worker thread, which builds its side from it. */
  readonly memory: SharedArrayBuffer;
  readonly #cells: Int32Array;

  constructor(memory = new SharedArrayBuffer(CELLS * Int32Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#cells = new Int32Array(memory);
  }

  /** Main thread: returns when the worker has no transaction, and keeps it from starting one until `leave`. */
  async enter(): Promise<void> {
    while (this.#is(WAITING) && Atomics.load(this.#cells, PASSED) >= PASSED_MAX) await this.#changed(WAITING);
    if (this.#is(WAITING)) Atomics.add(this.#cells, PASSED, 1);
    Atomics.add(this.#cells, WANTED, 1);
    while (this.#is(WORKING)) await this.#changed(WORKING);
  }

  leave(): void {
    if (Atomics.sub(this.#cells, WANTED, 1) === 1) Atomics.notify(this.#cells, WANTED);
  }

  /** Main thread: resets the gate after the worker ended, in whatever state it died. */
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

  /** Worker thread: blocks until nobody wants the lock, then holds it until `endWork`. */
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

  /** Worker thread, within its transaction: whether to end it now. */
  get wanted(): boolean {
    return Atomics.load(this.#cells, WANTED) > 0;
  }

  /** Worker thread: sleeps while another process has the lock. */
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
