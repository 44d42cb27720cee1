import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  lchownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { TillsyncError } from './errors.ts';
import { whenFree } from './loop.ts';
import { type Clock, isoUtc } from './time.ts';

/**
 * Returns the id of a Unix group that is given by name or number. Throws `config-invalid` if the machine has no group
 * of this name; a number is not checked.
 */
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

/** Value for `chown` that leaves the owner or the group unchanged. */
const KEPT = -1;

/**
 * Gives files and directories to a group, except those that have it already. Does not follow a link to a file. Throws
 * `config-invalid` if tillsync's user is not permitted to do so.
 */
export function giveToGroup(gid: number, ...paths: string[]): void {
  for (const path of paths) {
    const there = statSync(path);
    if (there.gid === gid) continue;
    telling(gid, path, () => {
      // A file is changed by its path, because closing a descriptor of the file would release this process's SQLite
      // locks on it.
      if (!there.isDirectory()) lchownSync(path, KEPT, gid);
      else withDirectory(path, 0, (directory) => fchownSync(directory, KEPT, gid));
    });
  }
}

/** Gives an open file to a group. Throws `config-invalid` if tillsync's user is not permitted to do so. */
export function giveOpenToGroup(gid: number, file: number, path: string): void {
  telling(gid, path, () => fchownSync(file, KEPT, gid));
}

/**
 * Sets the mode of a directory. Throws if the path is a link. A directory that has the mode already is not changed,
 * because a hardened service may not set the set-group-id bit.
 */
export function setDirectoryMode(path: string, mode: number): void {
  withDirectory(path, constants.O_NOFOLLOW, (directory) => {
    if ((fstatSync(directory).mode & 0o7777) !== mode) fchmodSync(directory, mode);
  });
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

/** Opens a database, and retries while another process creates or upgrades it. */
export function openWhenFree<T>(clock: Clock, open: () => T): Promise<T> {
  return whenFree(clock, open, OPEN_DEADLINE_MS);
}

/** Mode of a new configuration file. The file contains no secret, and support must be able to read it. */
const NEW_MODE = 0o644;

interface Owner {
  mode: number;
  uid: number;
  gid: number;
}

interface Replacement {
  path: string;
  text: string;
  nowMs: number;
  /** Owner and mode of a new file. If left out: the owner of the directory, and mode 0644. */
  owner?: Owner;
  /**
   * Checks the new file before it replaces the old one; if nothing changes, checks the existing file. Throws to refuse
   * it.
   */
  judge?: (file: string) => void;
}

export interface Replaced {
  /** False if the file had this text already and was not changed. */
  changed: boolean;
  /** Path of the copy of the old text; null if there was no old text or the file was not changed. */
  keptAt: string | null;
}

/**
 * Replaces the text of a file as a whole or not at all: the old file stays until the new one is on the disk and `judge`
 * has accepted it. Mode and owner stay. The old text is stored in `….bak-TIME`. Throws the system's error, or the error
 * of `judge`.
 */
export function replaceText({ path, text, nowMs, owner, judge }: Replacement): Replaced {
  const there = statSync(path, { throwIfNoEntry: false });
  const target = there ? realpathSync(path) : path;
  const before = there ? readFileSync(target, 'utf8') : null;
  if (before === text) {
    judge?.(target);
    return { changed: false, keptAt: null };
  }
  mkdirSync(dirname(target), { recursive: true });
  const part = `${target}.${randomBytes(4).toString('hex')}.part`;
  const copy = `${part}.bak`;
  const of = there ?? owner ?? { mode: NEW_MODE, ...ownerOf(dirname(target)) };
  try {
    writeDurably(part, text, of);
    judge?.(part);
    const keptAt = before === null ? null : freeName(`${target}.bak-${stampOf(nowMs)}`);
    if (before !== null && keptAt !== null) {
      writeDurably(copy, before, of);
      renameSync(copy, keptAt);
    }
    renameSync(part, target);
    syncDirectory(dirname(target));
    return { changed: true, keptAt };
  } finally {
    for (const left of [part, copy]) rmSync(left, { force: true });
  }
}

/**
 * Writes a secret to a file as a whole or not at all. Only this process's user can read the file. The old content is
 * lost. Throws the system's error.
 */
export function replaceSecret(path: string, secret: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const part = `${path}.${randomBytes(4).toString('hex')}.part`;
  try {
    writeDurably(part, `${secret}\n`, { mode: 0o600, uid: process.geteuid?.() ?? -1, gid: -1 });
    renameSync(part, path);
    syncDirectory(dirname(path));
  } finally {
    rmSync(part, { force: true });
  }
}

/** Mode of a secret that a group may read. */
export const GROUP_READS = 0o640;

/**
 * Writes a secret as a whole, or not at all, into a new file that its group can read. Changes nothing if the path
 * exists already. Throws the system's error, or `config-invalid` if the group cannot be set.
 */
export function createSecret(path: string, secret: string, gid: number | undefined): void {
  const part = `${path}.${randomBytes(4).toString('hex')}.part`;
  const file = openSync(part, 'wx+', 0o600);
  try {
    writeFileSync(file, `${secret}\n`);
    if (gid !== undefined) giveOpenToGroup(gid, file, path);
    fchmodSync(file, GROUP_READS);
    fsyncSync(file);
    // Unlike a rename, a link never replaces the file of another process that starts at the same time.
    linkSync(part, path);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  } finally {
    closeSync(file);
    rmSync(part, { force: true });
  }
}

/** Waits until the names in a directory outlast a power cut. */
export function syncDirectory(path: string): void {
  withDirectory(path, 0, fsyncSync);
}

function ownerOf(directory: string): { uid: number; gid: number } {
  const { uid, gid } = statSync(directory);
  return process.geteuid?.() === 0 ? { uid, gid } : { uid: process.geteuid?.() ?? uid, gid: -1 };
}

function writeDurably(path: string, text: string, { mode, uid, gid }: Owner): void {
  const file = openSync(path, 'wx', 0o600);
  try {
    writeFileSync(file, text);
    if (process.geteuid?.() === 0) fchownSync(file, uid, gid);
    fchmodSync(file, mode & 0o7777);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/**
 * Returns the path if it is free, else the first free path with a number: `x` → `x-2`. A broken link counts as not
 * free.
 */
export function freeName(path: string): string {
  let free = path;
  for (let n = 2; lstatSync(free, { throwIfNoEntry: false }); n++) free = `${path}-${n}`;
  return free;
}

/** Returns the time of a stamp such as 20261122T081500Z in milliseconds since the epoch; 0 for any other text. */
export function stampMs(stamp: string): number {
  const [, ...parts] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(stamp) ?? [];
  const [year, month, day, hour, minute, second] = parts;
  return second === undefined ? 0 : Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
}

/** Returns a stamp such as 20261122T081500Z. Stamps sort by time and need no quotes in a shell. */
export function stampOf(nowMs: number): string {
  return isoUtc(nowMs).replaceAll(/[-:]|\.\d+/g, '');
}
