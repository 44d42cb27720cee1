import { chmodSync, chownSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { TillsyncError } from '../../domain/errors.ts';
import { makeDirectory } from '../../store/make-directory.ts';
import { giveToGroup, groupId } from '../../store/unix-group.ts';

/** Group may list and read; new files get the directory's group, so that the POS can read them. */
const MODE = 0o2750;

/** Where the databases of one company live. */
export interface StoragePaths {
  mirror: string;
  state: string;
  inbox: string;
}

/**
 * Makes the storage directory when it is not there. One that exists keeps its owner and mode: the package or the
 * operator chose them. Its group becomes `group` (`storage.group`), so that its members come to the files in it.
 * Throws `storage-failed`, `config-invalid`.
 */
export function prepareStorage(directory: string, group?: string): StoragePaths {
  const gid = group === undefined ? undefined : groupId(group);
  try {
    const isNew = !statSync(directory, { throwIfNoEntry: false });
    if (isNew) makeDirectory(directory, MODE & 0o777);
    if (gid !== undefined) giveToGroup(gid, directory);
    if (isNew) chmodSync(directory, MODE);
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
 * Makes a storage directory that is not there for the user that the service will run as, if this machine has that
 * user and root asks; files that root makes in it are then the user's, too. Else nothing happens. Throws as
 * `prepareStorage`.
 */
export function prepareForService(directory: string, user: string): void {
  if (process.geteuid?.() !== 0 || statSync(directory, { throwIfNoEntry: false })) return;
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((each) => each.startsWith(`${user}:`));
  const [, , uid, gid] = line?.split(':').map(Number) ?? [];
  if (uid === undefined || gid === undefined) return;
  prepareStorage(directory);
  chownSync(directory, uid, gid);
  chmodSync(directory, MODE);
}

/** Throws `config-invalid` for a group (`storage.group`) that this machine does not have; empty is none. */
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
