import { statfsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { TillsyncError } from '../core/errors.ts';
import { giveToGroup, groupId, setDirectoryMode } from '../core/files.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';
import { Lease, type LeaseRows, pidOf } from '../db/lease.ts';
import { makeOpenDirectory } from '../db/sqlite.ts';
import type { DiskSpace } from '../health/facts.ts';

/**
 * Mode of the storage directory. Its group may list and read; new files get the same group, so that the POS can read
 * them.
 */
const MODE = 0o2750;

/** Paths of one company's databases. */
export interface StoragePaths {
  mirror: string;
  state: string;
  inbox: string;
}

/**
 * Creates the storage directory if it is missing. An existing directory keeps its owner and mode, which the package or
 * the operator chose, but its group becomes `group` (`storage.group`). Throws `storage-failed`, `config-invalid`.
 */
export function prepareStorage(directory: string, group?: string): StoragePaths {
  const gid = group === undefined ? undefined : groupId(group);
  try {
    const isNew = !statSync(directory, { throwIfNoEntry: false });
    if (isNew) makeOpenDirectory(directory, MODE & 0o777);
    if (gid !== undefined) giveToGroup(gid, directory);
    if (isNew) setDirectoryMode(directory, MODE);
  } catch (cause) {
    if (cause instanceof TillsyncError) throw cause;
    throw new TillsyncError('storage-failed', `The storage directory ${directory} cannot be made.`, {
      cause,
      hint: 'Make it for the user that tillsync runs as, or set storage.directory.',
    });
  }
  return storagePaths(directory);
}

/**
 * Throws `config-invalid` if this machine has no group of this name (`storage.group`). An empty name means no group,
 * and a number is not checked.
 */
export function checkGroup(group: string): void {
  if (group !== '') groupId(group);
}

export function storagePaths(directory: string): StoragePaths {
  return {
    mirror: join(directory, 'mirror.db'),
    state: join(directory, 'state.db'),
    inbox: join(directory, 'inbox', 'inbox.db'),
  };
}

/** Returns the path of the socket by which commands of the service's user and of root ask the daemon. */
export function ownSocket(directory: string): string {
  return join(directory, 'local.sock');
}

/**
 * File systems, by their magic number in statfs(2), on which SQLite's locks, syncs or shared memory do not work, so
 * that even a reader can destroy a database (sqlite.org/howtocorrupt.html, 2.1 and 3).
 */
const UNSAFE_FILE_SYSTEMS: ReadonlyMap<number, string> = new Map([
  [0x6969, 'NFS'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB'],
  [0x517b, 'SMB'],
  [0x01021997, '9p'],
  [0x65735546, 'FUSE'],
]);

/** Throws `config-invalid` if databases are not safe on the directory's file system. */
export function refuseUnsafe(directory: string): void {
  const { unsafe } = storageSpace(directory) ?? {};
  if (unsafe === undefined) return;
  const message = `${directory} is on ${unsafe}, which does not keep databases safe; nothing was changed.`;
  throw new TillsyncError('config-invalid', message, {
    hint: 'Name a directory on a disk of this machine, such as ext4 or XFS: --directory DIRECTORY.',
  });
}

/**
 * Returns the space that users other than root have on the disk of `directory`, which need not exist yet. Returns null
 * if the system does not report it.
 */
export function storageSpace(directory: string): DiskSpace | null {
  for (let at = directory; ; at = dirname(at)) {
    try {
      const { bavail, blocks, bsize, type } = statfsSync(at);
      const unsafe = UNSAFE_FILE_SYSTEMS.get(type);
      return { freeBytes: bavail * bsize, totalBytes: blocks * bsize, ...(unsafe && { unsafe }) };
    } catch {
      if (at === dirname(at)) return null;
    }
  }
}

/** Name of the lease that the daemon holds while it runs. The lease ends with the process, however the process ends. */
export const RUNNING = 'daemon';
/**
 * Time for which a daemon in another container counts as running after it last renewed the lease. Its process is not
 * visible here.
 */
const HOLD_MS = 180_000;
const RENEW_EVERY_MS = 60_000;

interface RunningMarkOptions {
  leases: LeaseRows;
  /** Path of the storage directory, for messages. */
  directory: string;
  clock: Clock;
  log: Log;
}

/** Returns the process id of another process that runs as daemon on these files; undefined if there is none. */
export function runningElsewhere(leases: Pick<LeaseRows, 'holder'>): number | undefined {
  const holder = leases.holder(RUNNING);
  const pid = holder === undefined ? undefined : pidOf(holder);
  return pid === process.pid ? undefined : pid;
}

/**
 * Marks the daemon as running for other processes. Returns a function that removes the mark. Throws `config-invalid` if
 * another process of this machine has the mark, because the two would share loops and files.
 */
export async function markRunning(options: RunningMarkOptions): Promise<() => Promise<void>> {
  const { leases, directory, clock, log } = options;
  const lease = new Lease({ leases, clock, name: RUNNING, holdMs: HOLD_MS });
  if (!(await lease.hold())) {
    const pid = runningElsewhere(leases);
    if (pid !== undefined) {
      throw new TillsyncError('config-invalid', `A tillsync runs on ${directory} already: process ${pid}.`, {
        hint: `For a second shop, set another storage.directory in its file. To end the other process, run: kill ${pid}`,
      });
    }
    // It may have ended with its container. If it runs, both keep the limits.
    log.warn(
      { directory },
      'a tillsync in another container has used this storage directory in the last minutes',
    );
  }
  const over = new AbortController();
  const keep = async () => {
    for (;;) {
      await clock.sleep(RENEW_EVERY_MS, over.signal);
      if (over.signal.aborted) return;
      try {
        // Tries twice, because another holder of the lease may have ended in the meantime.
        if (!(await lease.hold())) await lease.hold();
      } catch (error) {
        log.debug({ err: error }, 'the mark of the running tillsync could not be renewed');
      }
    }
  };
  const kept = keep();
  return async () => {
    over.abort();
    await kept;
    await lease.release();
  };
}
