import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { unitOf } from '../installation.ts';

/** A Unix user of this machine. */
export interface UnixUser {
  uid: number;
  gid: number;
  /** null: the machine has no name for the number. */
  name: string | null;
}

/** As the package makes it. */
const PACKAGED_USER = 'tillsync';
const TIMEOUT_MS = 5_000;

/**
 * The user that the service of a configuration file runs as: `User=` of its unit, or the package's own where systemd
 * does not tell. undefined where no unit serves the file, or the machine has no such user.
 */
export function serviceUserOf(configFile: string): UnixUser | undefined {
  const unit = unitOf(resolve(configFile));
  return unit === null ? undefined : namedUser(userOfUnit(unit) ?? PACKAGED_USER);
}

/** A user by name or number. */
export function namedUser(name: string): UnixUser | undefined {
  return users().find((user) => user.name === name || String(user.uid) === name);
}

/** Name of a user; its number where the machine has no name for it. */
export function userName(uid: number): string {
  return users().find((user) => user.uid === uid)?.name ?? String(uid);
}

/** Name of a group; its number where the machine has no name for it. */
export function groupName(gid: number): string {
  return entries('/etc/group').find(([, , id]) => Number(id) === gid)?.[0] ?? String(gid);
}

function users(): UnixUser[] {
  return entries('/etc/passwd').map(([name = '', , uid, gid]) => ({
    name,
    uid: Number(uid),
    gid: Number(gid),
  }));
}

function entries(file: string): string[][] {
  try {
    return readFileSync(file, 'utf8')
      .split('\n')
      .map((line) => line.split(':'))
      .filter((fields) => fields.length > 3);
  } catch {
    return [];
  }
}

function userOfUnit(unit: string): string | undefined {
  if (!existsSync('/run/systemd/system')) return undefined;
  try {
    const words = ['show', unit, '--property=LoadState,User'];
    const text = execFileSync('systemctl', words, {
      timeout: TIMEOUT_MS,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    if (!text.includes('LoadState=loaded')) return undefined;
    // A unit without User= runs as root.
    return /^User=(.+)$/m.exec(text)?.[1] ?? 'root';
  } catch {
    return undefined;
  }
}
