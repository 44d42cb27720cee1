import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  mkdirSync,
  openSync,
  readdirSync,
  statSync,
} from 'node:fs';
import { dirname, resolve } from 'node:path';
import { TillsyncError } from '../../domain/errors.ts';
import { typedWords } from '../../domain/installation.ts';
import { groupName, namedUser, serviceUserOf, type UnixUser } from '../service/service-user.ts';

/**
 * What is in a storage directory belongs to the user of the service, who may put links and files there as he likes. So
 * root does nothing in it: a process of root that is to work there becomes its owner first.
 */
export interface StorageUserOptions {
  directory: string;
  /** The configuration file, whose unit says who the service runs as. */
  configFile: string;
  /** Whether files will be made there: the directory is made, too, for the user of the service. */
  writes: boolean;
}

/** Acts as the owner from now on, for good. Nothing happens unless this is root and the directory another's. */
export function becomeStorageUser(options: StorageUserOptions): void {
  const owner = ownerFor(options);
  if (owner === undefined) return;
  setGroups(owner);
  process.setgid?.(owner.gid);
  process.setuid?.(owner.uid);
}

/** The same, but single steps can still be done as root by `asRoot`. */
export function actAsStorageUser(options: StorageUserOptions): void {
  const owner = asRoot(() => ownerFor(options));
  if (process.getuid?.() !== 0) return;
  process.seteuid?.(0);
  process.setegid?.(0);
  if (owner === undefined) return;
  setGroups(owner);
  process.setegid?.(owner.gid);
  process.seteuid?.(owner.uid);
}

/**
 * Does one step as root where root acts as the owner of a storage directory, else as whoever this is. The step must
 * be over when it returns, for the whole process is root meanwhile; a program that it starts runs as root to its end.
 */
export function asRoot<T>(step: () => T): T {
  const { geteuid, getegid, seteuid, setegid } = process;
  if (!isActing() || !geteuid || !getegid || !seteuid || !setegid) return step();
  const [uid, gid] = [geteuid(), getegid()];
  seteuid(0);
  setegid(0);
  try {
    return step();
  } finally {
    setegid(gid);
    seteuid(uid);
  }
}

/** Does one step as another user, which only root can; it must be over when it returns. */
export function asUser<T>(user: UnixUser, step: () => T): T {
  const groups = process.getgroups?.() ?? [];
  setGroups(user);
  process.setegid?.(user.gid);
  process.seteuid?.(user.uid);
  try {
    return step();
  } finally {
    process.seteuid?.(0);
    process.setegid?.(0);
    process.setgroups?.(groups);
  }
}

/** Whether root acts as the owner of a storage directory just now. */
export function isActing(): boolean {
  return process.getuid?.() === 0 && process.geteuid?.() !== 0;
}

const MODE = 0o2750;
/** For a user without a name whose directory has root's group. */
const NO_GROUP = 65_534;

function ownerFor({ directory, configFile, writes }: StorageUserOptions): UnixUser | undefined {
  if (process.geteuid?.() !== 0) return undefined;
  // Read now: afterwards the configuration may be out of reach.
  typedWords();
  const path = resolve(directory);
  const { at, stats } = standing(path);
  if (at === path && stats.uid !== 0) return owner(stats);
  const service = serviceUserOf(configFile);
  if (service === undefined) return stats.uid === 0 ? undefined : owner(stats);
  if (service.uid === 0) return undefined;
  if (at !== path) {
    if (writes && stats.uid === 0) makeFor(service, path);
    return service;
  }
  if (writes && readdirSync(path).length === 0) giveTo(service, path);
  else if (writes) throw ofRoot(path, service);
  // Nobody but root can have put anything into it.
  else return undefined;
  return service;
}

/** The path, or the nearest above it that is there. */
function standing(path: string): { at: string; stats: { uid: number; gid: number } } {
  for (let at = path; ; at = dirname(at)) {
    const stats = statSync(at, { throwIfNoEntry: false });
    if (stats !== undefined) return { at, stats };
  }
}

function owner({ uid, gid }: { uid: number; gid: number }): UnixUser {
  return namedUser(String(uid)) ?? { uid, gid: gid === 0 ? NO_GROUP : gid, name: null };
}

function setGroups({ name, gid }: UnixUser): void {
  if (name === null) process.setgroups?.([gid]);
  else (process as { initgroups?: (user: string, gid: number) => void }).initgroups?.(name, gid);
}

/** Below a directory of root's, where nobody else can exchange what is made. */
function makeFor(user: UnixUser, path: string): void {
  const above: string[] = [];
  for (let at = path; statSync(at, { throwIfNoEntry: false }) === undefined; at = dirname(at))
    above.unshift(at);
  for (const directory of above) mkdirSync(directory, { mode: 0o755 });
  giveTo(user, path);
}

function giveTo({ uid, gid }: UnixUser, path: string): void {
  const directory = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    fchownSync(directory, uid, gid);
    fchmodSync(directory, MODE);
  } finally {
    closeSync(directory);
  }
}

function ofRoot(path: string, { name, uid, gid }: UnixUser): TillsyncError {
  const user = name ?? uid;
  return new TillsyncError(
    'storage-readonly',
    `${path} belongs to root, but the service runs as ${user} and could not write what is made there now. Nothing was changed.`,
    { hint: `Give it to the service first: sudo chown -R ${user}:${groupName(gid)} ${path}` },
  );
}
