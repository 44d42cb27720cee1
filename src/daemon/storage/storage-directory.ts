import { statSync } from 'node:fs';
import { join } from 'node:path';
import { TillsyncError } from '../../domain/errors.ts';
import { makeDirectory } from '../../store/make-directory.ts';
import { giveToGroup, groupId, setDirectoryMode } from '../../store/unix-group.ts';

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
