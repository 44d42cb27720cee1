import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  lchownSync,
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
import { TillsyncError, whenFree } from './errors.ts';
import { type Clock, isoUtc } from './time.ts';

/**
 * Returns the number of a Unix group given by name or number. Throws `config-invalid` if the machine has no such
 * group.
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

/** Value of `chown` that leaves the owner unchanged. */
const KEPT = -1;

/**
 * Changes the group of files and directories, except of those that already have it. Does not follow links to files.
 * Throws `config-invalid` if tillsync's user may not.
 */
export function giveToGroup(gid: number, ...paths: string[]): void {
  for (const path of paths) {
    const there = statSync(path);
    if (there.gid === gid) continue;
    telling(gid, path, () => {
      // A file is changed without a descriptor, because closing one would release this process's SQLite locks on the
      // file.
      if (!there.isDirectory()) lchownSync(path, KEPT, gid);
      else withDirectory(path, 0, (directory) => fchownSync(directory, KEPT, gid));
    });
  }
}

/** Gives an open file to a group. Throws `config-invalid` if tillsync's user may not. */
export function giveOpenToGroup(gid: number, file: number, path: string): void {
  telling(gid, path, () => fchownSync(file, KEPT, gid));
}

/**
 * Sets a directory's mode. Throws if the path is a link. A hardened service may not set the group bit, so a directory
 * that inherited the right mode is left alone.
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

/** Mode of a new configuration, which has no secret and which support reads. */
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
  /** Owner and mode of a new file; by default the directory's owner, and mode 0644. */
  owner?: Owner;
  /** Checks the new file before it gets its name. */
  judge?: (file: string) => void;
}

export interface Replaced {
  /** False if the file had this text already and was not touched. */
  changed: boolean;
  /** Path of the copy of the old text; null if there was none or nothing changed. */
  keptAt: string | null;
}

/**
 * Replaces a file's text, all or nothing: the old file stays until the new one is on the disk and `judge` accepted
 * it. Mode and owner stay; the old text is kept as `.bak-TIME`. Throws the system's error, or what `judge` throws.
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
    withDirectory(dirname(target), 0, fsyncSync);
    return { changed: true, keptAt };
  } finally {
    for (const left of [part, copy]) rmSync(left, { force: true });
  }
}

/**
 * Writes a secret, all or nothing, readable only by this user. The old content is not kept. Throws the system's
 * error.
 */
export function replaceSecret(path: string, secret: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const part = `${path}.${randomBytes(4).toString('hex')}.part`;
  try {
    writeDurably(part, `${secret}\n`, { mode: 0o600, uid: process.geteuid?.() ?? -1, gid: -1 });
    renameSync(part, path);
    withDirectory(dirname(path), 0, fsyncSync);
  } finally {
    rmSync(part, { force: true });
  }
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
 * Returns the path, or the first free path with a number behind it, so that no earlier copy is overwritten. A broken
 * link also counts as taken.
 */
export function freeName(path: string): string {
  let free = path;
  for (let n = 2; lstatSync(free, { throwIfNoEntry: false }); n++) free = `${path}-${n}`;
  return free;
}

/** Returns the time of a stamp such as 20261122T081500Z in milliseconds; 0 for another text. */
export function stampMs(stamp: string): number {
  const [, ...parts] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(stamp) ?? [];
  const [year, month, day, hour, minute, second] = parts;
  return second === undefined ? 0 : Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
}

/** Returns a time such as 20261122T081500Z, which sorts by time and needs no quotes. */
export function stampOf(nowMs: number): string {
  return isoUtc(nowMs).replaceAll(/[-:]|\.\d+/g, '');
}
