import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  lchownSync,
  openSync,
  readFileSync,
  statSync,
} from 'node:fs';
import { TillsyncError, whenFree } from './errors.ts';
import type { Clock } from './time.ts';

/** Number of a Unix group given by name or number. Throws `config-invalid` when the machine has no such group. */
export function groupId(group: string): number {
  if (/^\d+$/.test(group)) return Number(group);
  const line = readFileSync('/etc/group', 'utf8')
    .split('\n')
    .find((each) => each.startsWith(`${group}:`));
  const gid = Number(line?.split(':')[2]);
  if (line === undefined || !Number.isInteger(gid)) {
    throw new TillsyncError('config-invalid', `There is no group "${group}" on this machine.`, {
      hint: 'Name the group whose members may read the mirror, or leave it out.',
    });
  }
  return gid;
}

/** Of `chown`: the owner stays as it is. */
const KEPT = -1;

/**
 * Gives files and directories to a group; those that are its own already are left alone. A link to a file is not
 * followed. Throws `config-invalid` where the user of tillsync may not.
 */
export function giveToGroup(gid: number, ...paths: string[]): void {
  for (const path of paths) {
    const there = statSync(path);
    if (there.gid === gid) continue;
    telling(gid, path, () => {
      // Not through a descriptor: closing one would take away the locks that SQLite has on the file in this process.
      if (!there.isDirectory()) lchownSync(path, KEPT, gid);
      else withDirectory(path, 0, (directory) => fchownSync(directory, KEPT, gid));
    });
  }
}

/** Gives an open file to a group. Throws `config-invalid` where the user of tillsync may not. */
export function giveOpenToGroup(gid: number, file: number, path: string): void {
  telling(gid, path, () => fchownSync(file, KEPT, gid));
}

/** Sets the permissions of a directory; of a link in its place nothing is followed, and it throws. */
export function setDirectoryMode(path: string, mode: number): void {
  withDirectory(path, constants.O_NOFOLLOW, (directory) => fchmodSync(directory, mode));
}

function withDirectory(path: string, flags: number, use: (directory: number) => void): void {
  const directory = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | flags);
  try {
    use(directory);
  } finally {
    closeSync(directory);
  }
}

function telling(gid: number, path: string, change: () => void): void {
  try {
    change();
  } catch (cause) {
    if (!(cause instanceof Error && 'code' in cause && cause.code === 'EPERM')) throw cause;
    throw new TillsyncError('config-invalid', `${path} cannot be given to the group ${gid}.`, {
      cause,
      hint: 'Make the user of tillsync a member of storage.group, or change the group of the file yourself.',
    });
  }
}

const OPEN_DEADLINE_MS = 30_000;

/** Opens a database; another process may be creating or upgrading it right now. */
export function openWhenFree<T>(clock: Clock, open: () => T): Promise<T> {
  return whenFree(clock, open, OPEN_DEADLINE_MS);
}
