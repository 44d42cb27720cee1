import { readdirSync, rmSync, statSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import { stampMs } from '../core/files.ts';
import { sleepAwake } from '../core/loop.ts';
import type { Clock } from '../core/time.ts';
import { systemHolders } from '../db/lease.ts';
import { mark, setMark } from '../db/marks.ts';

/** Name of an automatic backup: the shop's label, the time, and whether the backup is differential. */
const NAME = /^(tillsync-.+-)(\d{8}T\d{6}Z)(\.differential)?\.tar\.gz(?:\.age)?$/;

/** Returns whether a file is named as automatic backups are. */
export function isAutomatic(name: string): boolean {
  return NAME.test(name);
}

/** Returns the name of a differential backup, without the ending of encrypted files. */
export function differentialName(label: string, stamp: string): string {
  return `tillsync-${label}-${stamp}.differential.tar.gz`;
}

/** Returns the time in the name of one of this shop's differential backups; undefined for other names. */
export function differentialStampMs(name: string, label: string): number | undefined {
  const [, shop, stamp = '', differential] = NAME.exec(name) ?? [];
  if (shop !== `tillsync-${label}-` || differential === undefined) return undefined;
  return stampMs(stamp);
}

/**
 * Returns the paths of the differential backups that belong to the whole backup `path`, oldest first: those of the same
 * shop and directory with the same or a later time. None belong to a backup made by hand, which is named otherwise.
 * `names` are the names in the directory, which is read if they are left out.
 */
export function differentialsFor(path: string, names?: readonly string[]): string[] {
  const [, shop, stamp = '', isDifferential] = NAME.exec(basename(path)) ?? [];
  if (shop === undefined || isDifferential !== undefined) return [];
  return (names ?? namesIn(dirname(path)))
    .filter((name) => {
      const [, ofShop, at = '', differential] = NAME.exec(name) ?? [];
      return differential !== undefined && ofShop === shop && at >= stamp;
    })
    .sort()
    .map((name) => join(dirname(path), name));
}

/**
 * Returns the newest full backup if `path` is a directory, otherwise `path` unchanged. A backup with a time after `nowMs`
 * counts only if there is no other, because the clock was wrong when it was made. Throws `not-found`, `usage`.
 */
export function newestBackup(path: string, nowMs: number): string {
  if (!isDirectory(path)) return path;
  const newest = new Map<string, string>();
  for (const name of namesIn(path).sort()) {
    const [, shop, stamp = '', differential] = NAME.exec(name) ?? [];
    if (shop === undefined || differential !== undefined) continue;
    if (stampMs(stamp) <= nowMs || !newest.has(shop)) newest.set(shop, join(path, name));
  }
  const [first, ...others] = [...newest.values()];
  if (first === undefined) {
    throw new TillsyncError('not-found', `There is no backup in ${path}. Nothing was changed.`);
  }
  if (others.length === 0) return first;
  throw new TillsyncError('usage', `In ${path} are backups of several shops. Nothing was changed.`, {
    hint: `Name one of them: ${[first, ...others].join(', ')}`,
  });
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (cause) {
    throw new TillsyncError('usage', `You may not list ${directory}. Nothing was changed.`, {
      hint: 'Run it again with sudo.',
      cause,
    });
  }
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    // The caller opens the path next, and the error of opening says what is wrong.
    return false;
  }
}

/**
 * Returns `notedMs`, the time of the last whole backup that the mirror noted (undefined before the first one), and
 * `news`, a text that changes whenever a differential backup would have something new.
 */
export function differentialState(db: Database.Database): { notedMs: number | undefined; news: string } {
  const value = (sql: string) => db.prepare<[], number | string | null>(sql).pluck().get() ?? '';
  const notedMs = mark(db, 'backup.noted');
  const acked = value('SELECT max(acked_at) FROM _order_acks');
  const acks = value(`SELECT count(*) FROM _order_acks WHERE acked_at = '${acked}'`);
  const audited = value('SELECT max(audit_id) FROM _audit');
  const prepared = value("SELECT sum(seq) FROM _hooks WHERE event = 'order.prepare'");
  const outbox = ['outbox.version', 'outbox.settled'].map((name) => mark(db, name));
  return { notedMs, news: [notedMs, acked, acks, audited, prepared, ...outbox].join(' ') };
}

/**
 * Notes the time of a whole backup before it is made, so that the backup's copy of the mirror has the time too. Later
 * differential backups have this time in their names, so that they never overwrite those of another machine.
 */
export function noteBackup(db: Database.Database, atMs: number): void {
  setMark(db, 'backup.noted', atMs);
}

/** Notes the time in the name of the backup for which `backup.after` succeeded. */
export function noteHandedOn(db: Database.Database, atMs: number): void {
  setMark(db, 'backup.handed-on', atMs);
}

/** Returns the time that `noteHandedOn` noted last; undefined if none. */
export function handedOnMs(db: Database.Database): number | undefined {
  return mark(db, 'backup.handed-on');
}

/** Deletes files of killed processes. A file's name is `start` and the id of its process. */
export function removeLeftOvers(directory: string, start: string): void {
  for (const name of readdirSync(directory)) {
    if (isLeftOver(name, start)) rmSync(join(directory, name), { recursive: true, force: true });
  }
}

/** Returns whether a file is named `start` and the id of a process that has ended. */
export function isLeftOver(name: string, start: string): boolean {
  const pid = name.startsWith(start) ? name.slice(start.length) : '';
  return systemHolders.isAlive(`${pid}.`) === false;
}

/** Makes a call to the file system, with the limits of `BackupDisk.reach`. */
export type Reach = <T>(call: () => Promise<T>) => Promise<T>;

const ANSWERS_WITHIN_MS = 60_000;

/**
 * Limits the calls to `backup.directory`. A call to a network disk that is off blocks one of the few threads for files,
 * so only one call runs at a time.
 */
export class BackupDisk {
  readonly #directory: string;
  readonly #clock: Clock;
  /** Resolves when the open call returns, with or without an error. */
  #open: Promise<void> | undefined;

  constructor(directory: string, clock: Clock) {
    this.#directory = directory;
    this.#clock = clock;
  }

  /**
   * Makes a call once no other is open, and returns its result. Throws the call's error, `storage-failed` if it has not
   * returned after a minute, and `aborted`. A call that was given up may still return later.
   */
  async reach<T>(call: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const waiting = new AbortController();
    const end = () => waiting.abort();
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    const late = sleepAwake(this.#clock, ANSWERS_WITHIN_MS, waiting.signal).then(() => {
      if (signal.aborted) throw new TillsyncError('aborted', 'Stopped while a disk was waited for.');
      throw new TillsyncError(
        'storage-failed',
        `backup.directory (${this.#directory}) has not answered for a minute. See that its disk is on and can be reached.`,
      );
    });
    late.catch(() => {});
    try {
      while (this.#open) await Promise.race([this.#open, late]);
      if (signal.aborted) return await late;
      const result = call();
      const over = () => {
        this.#open = undefined;
      };
      this.#open = result.then(over, over);
      return await Promise.race([result, late]);
    } finally {
      signal.removeEventListener('abort', end);
      end();
    }
  }
}

/** Returns the names in a directory; none if it does not exist or cannot be read. Throws the errors of `reach`. */
export async function namesAt(directory: string, reach: Reach): Promise<string[]> {
  try {
    return await reach(() => readdir(directory));
  } catch (error) {
    if (error instanceof TillsyncError) throw error;
    return [];
  }
}
