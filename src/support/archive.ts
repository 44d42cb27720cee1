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
import { asRoot } from '../app/installation.ts';
import { TillsyncError } from '../core/errors.ts';
import { syncPath, toStorageError } from '../db/sqlite.ts';

/** A file of an archive. `content` must give exactly `bytes` bytes. */
export interface TarFile {
  /** At most 100 bytes; no directories. */
  name: string;
  bytes: number;
  content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

export const BLOCK_BYTES = 512;
const NAME_BYTES_MAX = 100;
/** What eleven octal digits hold; larger sizes are written in binary, as every tar of today reads them. */
const OCTAL_SIZE_MAX = 0o77777777777;

/** A POSIX ustar archive, piece by piece. Throws `RangeError` when a content is not as long as was said. */
export async function* writeTar(
  files: Iterable<TarFile> | AsyncIterable<TarFile>,
  options: { modifiedMs: number; mode: number },
): AsyncGenerator<Uint8Array> {
  for await (const file of files) {
    yield headerOf(file, options);
    let written = 0;
    for await (const chunk of file.content) {
      written += chunk.length;
      yield chunk;
    }
    if (written !== file.bytes) {
      throw new RangeError(`${file.name} has ${written} bytes instead of ${file.bytes}.`);
    }
    yield Buffer.alloc((BLOCK_BYTES - (written % BLOCK_BYTES)) % BLOCK_BYTES);
  }
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

/** A text as a file of an archive. */
export function textFile(name: string, text: string): TarFile {
  const content = Buffer.from(text);
  return { name, bytes: content.length, content: [content] };
}

function headerOf({ name, bytes }: TarFile, { modifiedMs, mode }: { modifiedMs: number; mode: number }) {
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw new RangeError(`${name} is too long a name.`);
  const header = Buffer.alloc(BLOCK_BYTES);
  header.write(name, 0);
  header.write(octal(mode, 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  if (bytes <= OCTAL_SIZE_MAX) header.write(octal(bytes, 12), 124);
  else {
    header[124] = 0x80;
    header.writeBigUInt64BE(BigInt(bytes), 128);
  }
  header.write(octal(Math.floor(modifiedMs / 1000), 12), 136);
  header.write('        ', 148);
  header.write('0', 156);
  header.write('ustar\u000000', 257);
  header.write(`${octal(checksumOf(header), 7)}\0 `.slice(0, 8), 148);
  return header;
}

/** Sum of the header's bytes, with spaces where the sum itself stands. */
export function checksumOf(header: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < BLOCK_BYTES; i++) sum += i >= 148 && i < 156 ? 0x20 : (header[i] ?? 0);
  return sum;
}

/** Digits that fill a field of `length` bytes up to its closing NUL. */
function octal(value: number, length: number): string {
  return value.toString(8).padStart(length - 1, '0');
}

export interface TarEntry {
  name: string;
  bytes: number;
  /** To be read before the next entry is asked for; what is left over is skipped. */
  content: AsyncGenerator<Uint8Array>;
}

/** What is not an archive, or not a whole one. */
export class TarFault extends Error {
  override readonly name = 'TarFault';
}

/** The plain files of a ustar archive in their order, without ever holding one whole. Throws TarFault. */
export async function* readTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const bytes = new ByteSource(source);
  for (;;) {
    const header = await bytes.exactly(BLOCK_BYTES);
    if (header.every((byte) => byte === 0)) {
      await bytes.exactly(BLOCK_BYTES);
      // To the very end, so that a checksum behind it is looked at.
      while ((await bytes.atMost(65_536)) !== undefined);
      return;
    }
    const { name, size } = fieldsOf(header);
    let left = size;
    const content = (async function* () {
      while (left > 0) {
        const chunk = await bytes.atMost(left);
        if (chunk === undefined) throw new TarFault(`it ends within ${name}`);
        left -= chunk.length;
        yield chunk;
      }
    })();
    yield { name, bytes: size, content };
    for await (const _ of content);
    while (left > 0) left -= (await bytes.exactly(Math.min(left, BLOCK_BYTES))).length;
    await bytes.exactly((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
  }
}

function fieldsOf(header: Buffer): { name: string; size: number } {
  const text = (start: number, length: number) => {
    const field = header.toString('utf8', start, start + length);
    const end = field.indexOf('\0');
    return end === -1 ? field : field.slice(0, end);
  };
  if (text(257, 5) !== 'ustar' || Number.parseInt(text(148, 8), 8) !== checksumOf(header)) {
    throw new TarFault('it is no archive, or was altered');
  }
  const name = text(0, 100);
  const type = text(156, 1);
  if (type !== '0' && type !== '') throw new TarFault(`${name} in it is no plain file`);
  const size = header[124] === 0x80 ? Number(header.readBigUInt64BE(128)) : Number.parseInt(text(124, 12), 8);
  if (!Number.isSafeInteger(size) || size < 0) throw new TarFault(`${name} in it has no length`);
  return { name, size };
}

/** A stream by amounts. */
class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#chunks = source[Symbol.asyncIterator]();
  }

  /** Up to `max` bytes; undefined at the end. */
  async atMost(max: number): Promise<Buffer | undefined> {
    while (this.#rest.length === 0) {
      const { done, value } = await this.#chunks.next();
      if (done) return undefined;
      this.#rest = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    }
    const chunk = this.#rest.subarray(0, max);
    this.#rest = this.#rest.subarray(chunk.length);
    return chunk;
  }

  async exactly(length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let missing = length; missing > 0; ) {
      const chunk = await this.atMost(missing);
      if (chunk === undefined) throw new TarFault('it ends too early');
      parts.push(chunk);
      missing -= chunk.length;
    }
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
  }
}

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
