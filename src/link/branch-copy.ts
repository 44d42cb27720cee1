import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type * as z from 'zod';
import { hasCode, TillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { readAnswer } from './branch.ts';
import { COPY_PART_BYTES, GET_ANSWER, type HeldCopy, isForAKey, LIST_ANSWER, PUT_ANSWER } from './link.ts';

/** Time after which the hub is asked again whether it still has a file. */
const ASK_AGAIN_MS = 3_600_000;
/** Shortest pause between two parts, which keeps a branch below the hub's limit of questions. */
const PAUSE_MS = 150;
/** Number of bytes of a file that are read at once for its hash. */
const READ_BYTES = 65_536;
const TRIES = 20;
const AGAIN_AFTER_MS = 1_000;

/** Sends the hub a question of the schema `COPY` and returns the text of the answer. */
export type AskCopy = (question: object) => Promise<string>;

interface Known {
  /** Inode, size and modification time, which change whenever the file changes. */
  key: string;
  sha256: string;
  /** Monotonic time at which the hub confirmed that it has the complete file; undefined before. */
  atHubMs?: number;
}

export interface CopySenderOptions {
  ask: AskCopy;
  /** Makes a call to the disk of the backups, which may be a network disk. Throws an error if it does not answer. */
  reach: <T>(call: () => Promise<T>) => Promise<T>;
  clock: Clock;
  /** Reports to the watchdog that the loop runs. */
  beat: () => void;
}

/** Sends a branch's encrypted backups to its hub in small parts, with pauses for orders and stock counts in between. */
export class CopySender {
  readonly #o: CopySenderOptions;
  #known = new Map<string, Known>();
  /** Number of times that the hub confirmed a file as complete, whether the file was sent now or earlier. */
  sent = 0;

  constructor(options: CopySenderOptions) {
    this.#o = options;
  }

  /**
   * Sends the parts of these files that the hub lacks, for about `forMs`; the next call continues. Returns true once
   * the hub has all files. Throws `link-…`, `usage` (a file is not encrypted for a key) and the errors of
   * `reach`.
   */
  async send(files: readonly string[], forMs: number, signal: AbortSignal): Promise<boolean> {
    const endMs = this.#o.clock.monotonicMs() + forMs;
    this.#known = new Map([...this.#known].filter(([path]) => files.includes(path)));
    for (const path of files) if (!(await this.#sendOne(path, endMs, signal))) return false;
    return files.length > 0;
  }

  async #sendOne(path: string, endMs: number, signal: AbortSignal): Promise<boolean> {
    const { clock, reach } = this.#o;
    let opening: Promise<FileHandle> | undefined;
    try {
      const file = await reach(() => {
        opening = open(path, 'r');
        return opening;
      });
      const { ino, size: bytes, mtimeMs } = await reach(() => file.stat());
      const key = `${ino} ${bytes} ${mtimeMs}`;
      const before = this.#known.get(path);
      const known = before?.key === key ? before : { key, sha256: await this.#checked(file, path) };
      this.#known.set(path, known);
      const { atHubMs } = known;
      if (atHubMs !== undefined && clock.monotonicMs() < atHubMs + ASK_AGAIN_MS) return true;
      const part = Buffer.alloc(COPY_PART_BYTES.up);
      const put = { do: 'put', name: basename(path), bytes, sha256: known.sha256 };
      for (let have = await this.#put({ ...put, at: 0, part: '' }, signal); have < bytes; ) {
        if (signal.aborted || clock.monotonicMs() >= endMs) return false;
        const { bytesRead } = await reach(() => file.read(part, 0, part.length, have));
        const text = part.subarray(0, bytesRead).toString('base64');
        have = await this.#put({ ...put, at: have, part: text }, signal);
      }
      known.atHubMs = clock.monotonicMs();
      this.sent += 1;
      return true;
    } finally {
      // Not awaited, because a handle closes only when its last call has returned, which may be never.
      const closed = opening?.then((file) => file.close()).catch(() => {});
      if (closed) void reach(() => closed).catch(() => {});
    }
  }

  /**
   * Returns the hash of a file. Throws `usage` if the file must not leave this machine, because it is not encrypted for
   * a key.
   */
  async #checked(file: FileHandle, path: string): Promise<string> {
    const { reach, beat } = this.#o;
    const hash = createHash('sha256');
    const buffer = Buffer.alloc(READ_BYTES);
    for (let at = 0; ; ) {
      const { bytesRead } = await reach(() => file.read(buffer, 0, buffer.length, at));
      const chunk = buffer.subarray(0, bytesRead);
      if (at === 0 && bytesRead > 0 && !isForAKey(chunk)) {
        throw new TillsyncError('usage', `${path} is not encrypted for a recovery phrase, so it stays here.`);
      }
      if (bytesRead === 0) return hash.digest('hex');
      hash.update(chunk);
      at += bytesRead;
      beat();
    }
  }

  /** Sends one question, then pauses at least as long as the answer took, so that half of a slow line stays free. */
  async #put(question: object, signal: AbortSignal): Promise<number> {
    const { ask, clock, beat } = this.#o;
    const beganMs = clock.monotonicMs();
    const { have, waitMs } = readAnswer(await ask(question), PUT_ANSWER);
    beat();
    const tookMs = clock.monotonicMs() - beganMs;
    await clock.sleep(Math.max(PAUSE_MS, tookMs, waitMs), signal);
    return have;
  }
}

/**
 * Fetches this branch's newest backup, or the one called `name`, and all differential ones from its hub. `into` gets
 * their size in bytes and returns an empty directory. Throws `not-found`, `link-…`, `storage-corrupt`.
 */
export async function fetchCopies(
  into: (bytes: number) => string,
  {
    ask,
    clock,
    name,
    signal,
  }: { ask: AskCopy; clock: Clock; name?: string | undefined; signal: AbortSignal },
): Promise<void> {
  const again = async <T>(question: object, schema: z.ZodType<T>) => {
    for (let tries = 1; ; tries++) {
      try {
        return readAnswer(await ask(question), schema);
      } catch (error) {
        if (tries === TRIES || signal.aborted || !hasCode(error, 'link-down')) throw error;
        await clock.sleep(AGAIN_AFTER_MS, signal);
      }
    }
  };
  const { files } = await again({ do: 'list' }, LIST_ANSWER);
  const isDifferential = (each: HeldCopy) => each.name.includes('.differential.');
  const backups = files.filter((each) => !isDifferential(each));
  const backup = name === undefined ? backups[0] : backups.find((each) => each.name === name);
  if (!backup) throw noCopy(backups, name);
  const wanted = [backup, ...files.filter(isDifferential)];
  const newest = [...new Map(wanted.toReversed().map((each) => [each.name, each])).values()];
  const directory = into(newest.reduce((sum, { bytes }) => sum + bytes, 0));
  for (const { name: file, bytes, sha256 } of newest) {
    const path = join(directory, file);
    const hash = createHash('sha256');
    async function* parts(): AsyncGenerator<Buffer> {
      for (let at = 0; at < bytes; ) {
        const answer = await again({ do: 'get', name: file, sha256, at }, GET_ANSWER);
        const part = Buffer.from(answer.part, 'base64');
        if (part.length === 0) break;
        at += part.length;
        hash.update(part);
        yield part;
      }
    }
    await pipeline(parts, createWriteStream(path, { flags: 'wx', mode: 0o600 }), { signal });
    if (hash.digest('hex') === sha256) continue;
    throw new TillsyncError('storage-corrupt', `${file} came from the hub altered. Nothing was changed.`, {
      hint: 'Run it again.',
    });
  }
}

function noCopy(backups: readonly HeldCopy[], name: string | undefined): TillsyncError {
  const what = name === undefined ? 'no copy of this branch' : `no copy ${name}`;
  const names = backups.map((each) => `${each.name} (${each.at})`).join(', ');
  return new TillsyncError('not-found', `The hub has ${what}. Nothing was changed.`, {
    ...(names !== '' && { hint: `It has: ${names}` }),
  });
}
