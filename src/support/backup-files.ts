import { readdirSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type Database from 'better-sqlite3';
import { TillsyncError } from '../core/errors.ts';
import { stampMs } from '../core/files.ts';
import { systemHolders } from '../db/lease.ts';
import { mark, setMark } from '../db/marks.ts';

/** Name of an automatic backup: the shop's label, the time, and whether the backup is differential. */
const NAME = /^(tillsync-.+-)(\d{8}T\d{6}Z)(\.differential)?\.tar\.gz(?:\.age)?$/;

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
 */
export function differentialsFor(path: string): string[] {
  const [, shop, stamp = '', isDifferential] = NAME.exec(basename(path)) ?? [];
  if (shop === undefined || isDifferential !== undefined) return [];
  return namesIn(dirname(path))
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
  const acked = value('SELECT max(acked_at) FROM order_acks');
  const acks = value(`SELECT count(*) FROM order_acks WHERE acked_at = '${acked}'`);
  const audited = value('SELECT max(audit_id) FROM audit');
  const outbox = ['outbox.version', 'outbox.settled'].map((name) => mark(db, name));
  return { notedMs, news: [notedMs, acked, acks, audited, ...outbox].join(' ') };
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

/** Notes that the hub has the newest backups of this branch. */
export function noteAtHub(db: Database.Database, atMs: number): void {
  setMark(db, 'backup.hub', atMs);
}

/** Returns when the hub had the newest backups of this branch; undefined if it never did. */
export function atHubMs(db: Database.Database): number | undefined {
  return mark(db, 'backup.hub');
}

/** Deletes files of killed processes. A file's name is `start` and the id of its process. */
export function removeLeftOvers(directory: string, start: string): void {
  for (const name of readdirSync(directory)) {
    const pid = name.startsWith(start) ? name.slice(start.length) : '';
    if (systemHolders.isAlive(`${pid}.`) !== false) continue;
    rmSync(join(directory, name), { recursive: true, force: true });
  }
}
