import { chownSync, readFileSync, statSync } from 'node:fs';
import { TillsyncError } from '../domain/errors.ts';

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

/**
 * Gives files to a group; those that are its own already are left alone. Throws `config-invalid` where the user
 * of tillsync may not.
 */
export function giveToGroup(gid: number, ...paths: string[]): void {
  for (const path of paths) {
    const { uid, gid: before } = statSync(path);
    if (before === gid) continue;
    try {
      chownSync(path, uid, gid);
    } catch (cause) {
      if (!(cause instanceof Error && 'code' in cause && cause.code === 'EPERM')) throw cause;
      throw new TillsyncError('config-invalid', `${path} cannot be given to the group ${gid}.`, {
        cause,
        hint: 'Make the user of tillsync a member of storage.group, or change the group of the file yourself.',
      });
    }
  }
}
