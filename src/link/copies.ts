import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { appendFile, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { TillsyncError } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { toStorageError } from '../db/sqlite.ts';
import { type DiskSpace, diskVerdict, formatBytes } from '../health/facts.ts';
import { COPY_PART_BYTES, type CopyQuestion, isForAKey } from './link.ts';

/** Directory of the copies inside the hub's storage directory, with one directory for each branch. */
const COPIES = 'copies';

/** Name of a stored file: the backup's name, the hash of its content, and `.part` until the file is complete. */
const STORED = /^(tillsync-.+-(\d{8}T\d{6}Z)(\.differential)?\.tar\.gz\.age)\.([0-9a-f]{64})(\.part)?$/;

/** Number of full backups, and of differential backups, that are stored for each branch. */
const WHOLE_KEPT = 2;
const DIFFERENTIAL_KEPT = 4;
/** Bytes that all branches together may send in a second, so that orders are not slowed. */
const BYTES_PER_SECOND = 2 * 1024 * 1024;

interface Stored {
  path: string;
  name: string;
  /** Time in the backup's name, such as `20261125T080000Z`. */
  stamp: string;
  isDifferential: boolean;
  sha256: string;
  isPart: boolean;
  bytes: number;
  /** When the last part of the file arrived, milliseconds since 1970. */
  atMs: number;
}

export interface CopyStoreOptions {
  /** The hub's storage directory. */
  storage: string;
  /** Maximum number of bytes that are stored for one branch. */
  maxBytes: number;
  /** Returns the room on the disk; null if the system does not report it. */
  space: () => DiskSpace | null;
  clock: Pick<Clock, 'monotonicMs'>;
}

/**
 * Stores the newest backups of the branches at the hub, encrypted for a key that the hub does not have. A file arrives
 * in parts under a temporary name, and replaces an older one only when it is complete.
 */
export class CopyStore {
  readonly #o: CopyStoreOptions;
  /** Monotonic time at which all parts received so far would have arrived at the allowed rate. */
  #paidMs = 0;

  constructor(options: CopyStoreOptions) {
    this.#o = options;
  }

  /** Answers a branch's question. Call it again for the same branch only after the answer. Throws `storage-…`. */
  async answer(branch: string, asked: CopyQuestion): Promise<object> {
    const directory = join(this.#o.storage, COPIES, branch);
    try {
      if (asked.do === 'put') {
        return { have: await this.#put(directory, asked), waitMs: this.#waitMs(asked.part.length) };
      }
      if (asked.do === 'get') return { part: await read(directory, asked) };
      const whole = (await storedIn(directory)).filter(({ isPart }) => !isPart);
      return {
        files: whole.map(({ name, bytes, sha256, atMs }) => ({ name, bytes, sha256, at: isoUtc(atMs) })),
      };
    } catch (error) {
      throw toStorageError(error, directory);
    }
  }

  /** Appends a part to a file. Returns how many bytes of the file the hub has. */
  async #put(
    directory: string,
    { name, bytes, sha256, at, part }: Extract<CopyQuestion, { do: 'put' }>,
  ): Promise<number> {
    const files = await storedIn(directory);
    const same = files.filter((file) => file.name === name && file.sha256 === sha256);
    if (same.some(({ isPart }) => !isPart)) return bytes;
    let have = same[0]?.bytes ?? 0;
    if (have === 0) await this.#makeRoom(files, { name, bytes });
    const data = Buffer.from(part, 'base64');
    const whole = join(directory, `${name}.${sha256}`);
    if (data.length > 0 && at === have) {
      if (at === 0 && !isForAKey(data)) {
        throw new TillsyncError('storage-corrupt', 'The hub takes only copies that are encrypted for a key.');
      }
      await mkdir(directory, { recursive: true, mode: 0o700 });
      await appendFile(`${whole}.part`, data, { mode: 0o600 });
      have += data.length;
    }
    if (have < bytes) return have;
    if (have > bytes || (await sha256Of(`${whole}.part`)) !== sha256) {
      await rm(`${whole}.part`, { force: true });
      throw new TillsyncError('storage-corrupt', 'The copy arrived altered; it is sent again.');
    }
    await sync(`${whole}.part`);
    await rename(`${whole}.part`, whole);
    await sync(directory);
    for (const { path } of await superfluous(directory)) await rm(path, { force: true });
    return bytes;
  }

  /**
   * Makes room for a new file: deletes abandoned parts, and old copies if the branch would exceed its limit, but never
   * the newest backup. Throws `storage-full`.
   */
  async #makeRoom(files: readonly Stored[], { name, bytes }: Pick<Stored, 'name' | 'bytes'>): Promise<void> {
    const { maxBytes, space } = this.#o;
    const isDifferential = name.includes('.differential.');
    // A branch sends one full and one differential backup at a time, so it no longer sends an earlier unfinished one.
    const given = files.filter((file) => file.isPart && file.isDifferential === isDifferential);
    const newest = files.find((file) => !file.isPart && !file.isDifferential);
    const older = files.filter((file) => !file.isPart && newest && file.atMs < newest.atMs).reverse();
    let sum = bytes + files.reduce((total, file) => total + file.bytes, 0);
    for (const file of [...given, ...older]) {
      if (!given.includes(file) && sum <= maxBytes) break;
      await rm(file.path, { force: true });
      sum -= file.bytes;
    }
    if (sum > maxBytes) {
      throw new TillsyncError(
        'storage-full',
        `The copy has ${formatBytes(bytes)}, and the hub keeps at most ${formatBytes(maxBytes)} of a branch (hub.copies_max_bytes).`,
      );
    }
    const room = space();
    if (room && diskVerdict({ ...room, freeBytes: room.freeBytes - bytes }).level !== 'ok') {
      const free = formatBytes(room.freeBytes);
      const message = `The disk of the hub has no room for a copy of ${formatBytes(bytes)}: ${free} are free.`;
      throw new TillsyncError('storage-full', message);
    }
  }

  #waitMs(bytes: number): number {
    const nowMs = this.#o.clock.monotonicMs();
    this.#paidMs = Math.max(nowMs, this.#paidMs) + (bytes * 1_000) / BYTES_PER_SECOND;
    return Math.round(this.#paidMs - nowMs);
  }
}

/** Returns the directories in which the hub at `storage` keeps copies, one for each branch. */
export async function copyDirectories(storage: string): Promise<string[]> {
  const names = await readdir(join(storage, COPIES)).catch(nothingIfMissing);
  return names.sort().map((name) => join(storage, COPIES, name));
}

/** Returns a branch's files, last arrived first; none if the directory does not exist. */
async function storedIn(directory: string): Promise<Stored[]> {
  const names = await readdir(directory).catch(nothingIfMissing);
  const files: Stored[] = [];
  for (const each of names) {
    const [, name, stamp, differential, sha256, part] = STORED.exec(each) ?? [];
    if (name === undefined || stamp === undefined || sha256 === undefined) continue;
    const path = join(directory, each);
    const { size: bytes, mtimeMs: atMs } = await stat(path);
    const isDifferential = differential !== undefined;
    files.push({ path, name, stamp, isDifferential, sha256, isPart: part !== undefined, bytes, atMs });
  }
  return files.sort((a, b) => b.atMs - a.atMs);
}

function nothingIfMissing(error: unknown): string[] {
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
  throw error;
}

/**
 * Returns the complete files that newer ones replace. The newer file is the one that arrived later, because the clock
 * of a branch, and so the time in a file's name, may be wrong.
 */
async function superfluous(directory: string): Promise<Stored[]> {
  const all = (await storedIn(directory)).filter(({ isPart }) => !isPart);
  const files = [...new Map(all.toReversed().map((file) => [file.name, file])).values()].reverse();
  const backups = files.filter(({ isDifferential }) => !isDifferential).slice(0, WHOLE_KEPT);
  const [since = ''] = backups.map(({ stamp }) => stamp).sort();
  const differentials = files.filter(({ isDifferential, stamp }) => isDifferential && stamp >= since);
  const kept = new Set([...backups, ...differentials.slice(0, DIFFERENTIAL_KEPT)]);
  return all.filter((file) => !kept.has(file));
}

async function read(
  directory: string,
  { name, sha256, at }: Extract<CopyQuestion, { do: 'get' }>,
): Promise<string> {
  const file = await open(join(directory, `${name}.${sha256}`), 'r').catch((cause: unknown) => {
    throw new TillsyncError('storage-failed', `The hub has no copy ${name} any more.`, { cause });
  });
  try {
    const { buffer, bytesRead } = await file.read(
      Buffer.alloc(COPY_PART_BYTES.down),
      0,
      COPY_PART_BYTES.down,
      at,
    );
    return buffer.subarray(0, bytesRead).toString('base64');
  } finally {
    await file.close();
  }
}

async function sha256Of(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk);
  return hash.digest('hex');
}

async function sync(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
