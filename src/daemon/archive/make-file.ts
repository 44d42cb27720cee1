import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { TillsyncError } from '../../domain/errors.ts';
import { syncPath, toStorageError } from '../../store/sqlite.ts';
import { asRoot } from '../storage/storage-user.ts';
import { type TarFile, writeTar } from './tar-writer.ts';

const MODE = 0o600;

export interface MakeFileOptions {
  path: string;
  /** Takes the place of a file that is there. */
  force: boolean;
  modifiedMs: number;
  signal?: AbortSignal | undefined;
  /** Looks at the open file before it gets its name; throws when it may not have it. */
  verify?: (file: number) => Promise<void>;
}

/**
 * Makes a compressed archive under its name when it is whole and on the disk, else not at all. Where root acts as
 * the owner of a storage directory, the file is root's all the same, and `files` are read as that owner. Else they may
 * put what they need into a directory beside it, which is gone afterwards. Mode 0600. Returns its size in bytes. Throws
 * `usage` when the file is there already, `storage-…`, `aborted`.
 */
export async function makeArchive(
  options: MakeFileOptions,
  files: (directory: string) => Iterable<TarFile> | AsyncIterable<TarFile>,
): Promise<number> {
  const path = resolve(options.path);
  asRoot(() => refuseExisting(path, options.force));
  const directory = `${path}.part-${process.pid}`;
  const whole = join(directory, 'archive.tar.gz');
  let file: number | undefined;
  try {
    file = asRoot(() => {
      removeLeftOvers(path);
      rmSync(directory, { recursive: true, force: true });
      mkdirSync(directory, { mode: 0o700 });
      return openSync(whole, 'wx+', MODE);
    });
    await write(file, files(directory), options);
    await options.verify?.(file);
    const { size } = fstatSync(file);
    asRoot(() => place(whole, path, options.force));
    return size;
  } catch (error) {
    if (options.signal?.aborted) throw new TillsyncError('aborted', `Stopped; ${path} was not written.`);
    throw judge(error, path);
  } finally {
    if (file !== undefined) closeSync(file);
    asRoot(() => rmSync(directory, { recursive: true, force: true }));
  }
}

function judge(error: unknown, path: string): TillsyncError {
  const fault = toStorageError(error, path);
  if (fault.code !== 'storage-full') return fault;
  return new TillsyncError('storage-full', `The disk has no room for ${path}; nothing was written.`, {
    cause: fault,
    hint: 'Free some space there, or name a file on another disk.',
    retryable: false,
  });
}

async function write(
  fd: number,
  files: Iterable<TarFile> | AsyncIterable<TarFile>,
  { modifiedMs, signal }: MakeFileOptions,
): Promise<void> {
  const tar = writeTar(files, { modifiedMs, mode: MODE });
  // A stream would close the descriptor when it fails.
  const keep = async (packed: AsyncIterable<Uint8Array>) => {
    for await (const piece of packed) writeFileSync(fd, piece);
  };
  await pipeline(tar, createGzip({ level: 4 }), keep, ...(signal ? [{ signal }] : []));
  fsyncSync(fd);
}

/** Throws `usage` for a file that is there and will not be overwritten. */
export function refuseExisting(path: string, force: boolean): void {
  if (!lookAt(dirname(path))?.isDirectory()) {
    throw new TillsyncError('usage', `There is no directory ${dirname(path)}; nothing was written.`, {
      hint: 'Make it, or name a file in another one.',
    });
  }
  const there = lookAt(path);
  if (there === undefined || (force && there.isFile())) return;
  throw new TillsyncError('usage', `${path} is there already; it was left as it is.`, {
    hint: there.isFile() ? 'Name another file, or take its place with --force.' : 'Name a file.',
  });
}

/** What is at the path; undefined: nothing. Throws `usage` where it cannot even be looked at. */
function lookAt(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown reason';
    const name = path.length > 200 ? `${path.slice(0, 200)}…` : path;
    throw new TillsyncError('usage', `${name} cannot be used (${code}); nothing was written.`, {
      hint: 'Name a file in a directory that you may use.',
      cause,
    });
  }
}

/** A link refuses a name that has come up meanwhile; a stick without links has only one writer. */
function place(whole: string, path: string, force: boolean): void {
  if (force) renameSync(whole, path);
  else {
    try {
      linkSync(whole, path);
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : '';
      if (code === 'EEXIST' || existsSync(path)) refuseExisting(path, false);
      renameSync(whole, path);
    }
  }
  syncPath(dirname(path));
}

/** What a process left that was killed while it wrote this file. */
function removeLeftOvers(path: string): void {
  const start = `${basename(path)}.part-`;
  for (const name of readdirSync(dirname(path))) {
    const pid = Number(name.startsWith(start) ? name.slice(start.length) : Number.NaN);
    if (!Number.isInteger(pid) || isAlive(pid)) continue;
    rmSync(join(dirname(path), name), { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return !(error instanceof Error && 'code' in error && error.code === 'ESRCH');
  }
}
