import {
  closeSync,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ReadableStream, type TransformStream } from 'node:stream/web';
import { createGzip } from 'node:zlib';
import { createTarDecoder, createTarPacker, type ParsedTarEntry } from 'modern-tar';
import { asRoot } from '../app/installation.ts';
import { TillsyncError } from '../core/errors.ts';
import { syncPath, toStorageError } from '../db/sqlite.ts';
import { removeLeftOvers } from './backup-files.ts';

/** A file of an archive. `content` must yield exactly `bytes` bytes. */
export interface TarFile {
  name: string;
  bytes: number;
  content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

/** Yields a tar archive in chunks. Owner (root) and time are fixed, so that the same files make the same bytes. */
export async function* writeTar(
  files: Iterable<TarFile> | AsyncIterable<TarFile>,
  { modifiedMs, mode }: { modifiedMs: number; mode: number },
): AsyncGenerator<Uint8Array> {
  const { readable, controller } = createTarPacker();
  const fill = async () => {
    for await (const { name, bytes, content } of files) {
      const entry = controller.add({ name, size: bytes, mode, mtime: new Date(modifiedMs) });
      await ReadableStream.from<Uint8Array>(content).pipeTo(entry);
    }
    controller.finalize();
  };
  const filled = fill().catch((error) => controller.error(error));
  try {
    yield* readable;
  } finally {
    await filled;
  }
}

/** Returns a text as a file of an archive. */
export function textFile(name: string, text: string): TarFile {
  const content = Buffer.from(text);
  return { name, bytes: content.length, content: [content] };
}

export interface TarEntry {
  name: string;
  bytes: number;
  /** Must be read before the next entry is requested; the rest is skipped. */
  content: AsyncIterable<Uint8Array>;
}

/** Thrown for something that is no archive, or an incomplete one. */
export class TarFault extends Error {
  override readonly name = 'TarFault';
}

/** An entry of an archive, as it is read. */
interface Entry {
  header: ParsedTarEntry['header'];
  body: ReadableStream<Uint8Array>;
}

/** Yields the plain files of an archive in order, without holding a complete file in memory. Throws TarFault. */
export async function* readTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  // The package's types are those of a browser, which differ where bytes are shared between threads.
  const decoder = createTarDecoder({ strict: true }) as unknown as TransformStream<Uint8Array, Entry>;
  const entries = ReadableStream.from(source).pipeThrough(decoder);
  for await (const { header, body } of judged(entries)) {
    const { name, size, type } = header;
    if (type !== 'file') throw new TarFault(`${name} in it is no plain file`);
    const content = judged(body);
    yield { name, bytes: size, content };
    for await (const _ of content);
  }
}

/**
 * Turns an error of the library into a TarFault. Library errors have no code; an error of the source has one and is
 * passed on.
 */
async function* judged<T>(stream: ReadableStream<T>): AsyncGenerator<T> {
  try {
    yield* stream;
  } catch (cause) {
    if (!(cause instanceof Error) || 'code' in cause) throw cause;
    const isCut = cause.message === 'Tar archive is truncated.';
    throw new TarFault(isCut ? 'it ends too early' : 'it is no archive, or was altered', { cause });
  }
}

const MODE = 0o600;

/** Turns bytes into other bytes, such as encrypted ones. */
export type Convert = (source: AsyncIterable<Uint8Array>) => AsyncIterable<Uint8Array>;

export interface MakeFileOptions {
  path: string;
  /** Whether an existing file is replaced. */
  force: boolean;
  modifiedMs: number;
  signal?: AbortSignal | undefined;
  /** Encrypts the compressed archive. */
  encrypt?: Convert | undefined;
  /** Checks the open file before it gets its name; throws to refuse it. */
  verify?: (file: number) => Promise<unknown>;
}

/**
 * Writes a compressed archive (mode 0600), which gets its name only when it is complete and on the disk. Returns its
 * size in bytes. `files` may use the temporary directory, unless root acts as the owner of a storage directory: then
 * `files` runs as that owner, but root owns the archive. Throws `usage` for an existing file, `storage-…`, `aborted`.
 */
export async function makeArchive(
  options: MakeFileOptions,
  files: (directory: string) => Iterable<TarFile> | AsyncIterable<TarFile>,
): Promise<number> {
  const { force, modifiedMs, signal, encrypt, verify } = options;
  const path = resolve(options.path);
  asRoot(() => refuseExisting(path, force));
  const directory = `${path}.part-${process.pid}`;
  const whole = join(directory, 'archive.tar.gz');
  let file: number | undefined;
  try {
    file = asRoot(() => {
      removeLeftOvers(dirname(path), `${basename(path)}.part-`);
      rmSync(directory, { recursive: true, force: true });
      mkdirSync(directory, { mode: 0o700 });
      return openSync(whole, 'wx+', MODE);
    });
    const fd = file;
    // `makeArchive` closes the descriptor itself; a stream would close it a second time after an error.
    const keep = async (packed: AsyncIterable<Uint8Array>) => {
      for await (const piece of packed) writeFileSync(fd, piece);
    };
    const tar = writeTar(files(directory), { modifiedMs, mode: MODE });
    const packed = createGzip({ level: 4 });
    const stop = signal ? [{ signal }] : [];
    if (encrypt) await pipeline(tar, packed, encrypt, keep, ...stop);
    else await pipeline(tar, packed, keep, ...stop);
    fsyncSync(fd);
    await verify?.(fd);
    const { size } = fstatSync(file);
    asRoot(() => place(whole, path, force));
    return size;
  } catch (error) {
    if (signal?.aborted) throw new TillsyncError('aborted', `Stopped; ${path} was not written.`);
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

/** Throws `usage` if the directory of the path is missing, or if the path exists and may not be overwritten. */
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

/** Returns the status of the path; undefined if there is no file. Throws `usage` if the path is not accessible. */
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

/**
 * Gives the complete file its name. Without `force`, a hard link is used, which fails if the name exists meanwhile. On
 * a disk without hard links, such as a USB stick, the file is renamed, because such a disk has only one writer.
 */
function place(whole: string, path: string, force: boolean): void {
  try {
    if (force) renameSync(whole, path);
    else linkSync(whole, path);
  } catch (error) {
    if (force) throw error;
    refuseExisting(path, false);
    renameSync(whole, path);
  }
  syncPath(dirname(path));
}
