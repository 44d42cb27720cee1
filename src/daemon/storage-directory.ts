import { chmodSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { TillsyncError } from '../domain/errors.ts';

/** Group may list and read; new files get the directory's group, so that the POS can read them. */
const MODE = 0o2750;

/** Where the three databases of one company live. */
export interface StoragePaths {
  mirror: string;
  state: string;
}

/**
 * Makes the storage directory when it is not there. One that exists keeps its owner, group and mode: the package
 * or the operator chose them. Throws `storage-failed`.
 */
export function prepareStorage(directory: string): StoragePaths {
  try {
    const there = statSync(directory, { throwIfNoEntry: false });
    if (!there) {
      mkdirSync(directory, { recursive: true, mode: MODE & 0o777 });
      chmodSync(directory, MODE);
    }
  } catch (cause) {
    throw new TillsyncError('storage-failed', `The storage directory ${directory} cannot be made.`, {
      cause,
      hint: 'Make it for the user that tillsync runs as, or set storage.directory.',
    });
  }
  return storagePaths(directory);
}

export function storagePaths(directory: string): StoragePaths {
  return { mirror: join(directory, 'mirror.db'), state: join(directory, 'state.db') };
}
