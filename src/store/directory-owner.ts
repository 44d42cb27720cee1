import { chownSync, fchownSync, fstatSync, statSync } from 'node:fs';

const SETGID = 0o2000;

/**
 * Gives what root has just made in a directory to the directory's owner: the service that runs as that user has to
 * write it. `made` is an open file or the path of a directory. For anybody else nothing happens.
 */
export function giveToOwnerOf(directory: string, made: number | string): void {
  if (process.geteuid?.() !== 0) return;
  const { uid, gid, mode } = statSync(directory);
  if (uid === 0) return;
  // A directory with the setgid bit has given its group already.
  const before = typeof made === 'number' ? fstatSync(made) : statSync(made);
  const group = (mode & SETGID) === 0 ? gid : before.gid;
  if (typeof made === 'number') fchownSync(made, uid, group);
  else chownSync(made, uid, group);
}
