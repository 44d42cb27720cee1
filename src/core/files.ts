import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
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

/** Of a configuration: it holds no secret, and support reads it. */
const NEW_MODE = 0o644;

interface Owner {
  mode: number;
  uid: number;
  gid: number;
}

export interface Replacement {
  path: string;
  text: string;
  nowMs: number;
  /** Of a file that is not there yet; else the owner of its directory, and mode 0644. */
  owner?: Owner;
  /** Reads the new file before it gets its name. */
  judge?: (file: string) => void;
}

export interface Replaced {
  /** False: the file had this text already and was not touched. */
  changed: boolean;
  /** Where the text before is kept; null when there was none or nothing was changed. */
  keptAt: string | null;
}

/**
 * Puts the text in place of the file, all or nothing: the old one stays until the new one is whole on the disk and
 * `judge` has read it there without a throw. Mode and owner stay; the text before is kept beside it as `.bak-TIME`.
 * Throws what the system says, and what `judge` throws.
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

/** Puts a secret there, all or nothing, for this user alone; what was there is not kept. Throws what the system says. */
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

/** The path, or the first with a number behind it that nothing has, not even a link to nowhere: no earlier copy is lost. */
export function freeName(path: string): string {
  let free = path;
  for (let n = 2; lstatSync(free, { throwIfNoEntry: false }); n++) free = `${path}-${n}`;
  return free;
}

/** Such as 20261122T081500Z, which sorts by time and needs no quotes. */
export function stampOf(nowMs: number): string {
  return isoUtc(nowMs).replaceAll(/[-:]|\.\d+/g, '');
}
