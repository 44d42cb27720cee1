import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fchmodSync,
  fchownSync,
  fsyncSync,
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
import { TillsyncError } from '../domain/errors.ts';
import { isoUtc } from '../domain/time/clock.ts';

/** Holds no secret, and support reads it. */
const NEW_MODE = 0o644;

export interface Replaced {
  /** False: the file had this text already and was not touched. */
  changed: boolean;
  /** Where the text before is kept; null when there was none or nothing was changed. */
  keptAt: string | null;
}

/**
 * Puts the text in place of the file, all or nothing: the old one stays until the new one is whole on the disk and
 * `judge` has read it there without a throw. Mode and owner stay; the text before is kept beside it as `.bak-TIME`.
 * Throws `config-invalid` when the file cannot be written, and what `judge` throws.
 */
export function replaceFile(
  path: string,
  text: string,
  judge: (file: string) => void,
  nowMs: number,
): Replaced {
  let part: string | undefined;
  try {
    const there = statSync(path, { throwIfNoEntry: false });
    const target = there ? realpathSync(path) : path;
    const before = there ? readFileSync(target, 'utf8') : null;
    if (before === text) {
      judge(target);
      return { changed: false, keptAt: null };
    }
    mkdirSync(dirname(target), { recursive: true });
    part = `${target}.${randomBytes(4).toString('hex')}.part`;
    const owner = there ?? { mode: NEW_MODE, ...ownerOf(dirname(target)) };
    writeDurably(part, text, owner);
    judge(part);
    const keptAt = before === null ? null : freeName(`${target}.bak-${stampOf(nowMs)}`);
    if (before !== null && keptAt !== null) {
      const copy = `${part}.bak`;
      try {
        writeDurably(copy, before, owner);
        renameSync(copy, keptAt);
      } finally {
        rmSync(copy, { force: true });
      }
    }
    renameSync(part, target);
    syncDirectory(dirname(target));
    return { changed: true, keptAt };
  } catch (cause) {
    if (cause instanceof TillsyncError) throw cause;
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('config-invalid', `${path} cannot be written (${why}); it is as it was.`, {
      cause,
      hint: 'Run it as root (sudo), or name another file with --config FILE.',
    });
  } finally {
    if (part !== undefined) rmSync(part, { force: true });
  }
}

/** No earlier copy is lost. */
function freeName(path: string): string {
  let free = path;
  for (let n = 2; existsSync(free); n++) free = `${path}-${n}`;
  return free;
}

/** Such as 20261122T081500Z, which sorts by time and needs no quotes. */
function stampOf(nowMs: number): string {
  return isoUtc(nowMs).replaceAll(/[-:]|\.\d+/g, '');
}

function ownerOf(directory: string): { uid: number; gid: number } {
  const { uid, gid } = statSync(directory);
  return process.geteuid?.() === 0 ? { uid, gid } : { uid: process.geteuid?.() ?? uid, gid: -1 };
}

function writeDurably(path: string, text: string, owner: { mode: number; uid: number; gid: number }): void {
  const file = openSync(path, 'wx', 0o600);
  try {
    writeFileSync(file, text);
    if (process.geteuid?.() === 0) fchownSync(file, owner.uid, owner.gid);
    fchmodSync(file, owner.mode & 0o7777);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

function syncDirectory(directory: string): void {
  const handle = openSync(directory, 'r');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}
