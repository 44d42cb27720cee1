import { lstatSync, readdirSync, renameSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { freeName, stampOf } from '../core/files.ts';
import type { Clock } from '../core/time.ts';
import { storing, syncPath, toStorageError } from './sqlite.ts';

/** Endings of the files that SQLite has beside a database. */
export const SIDE_FILES = ['-journal', '-wal', '-shm'];
const NAMES_MAX = 20;

/** Renames a damaged file and its journal. Returns the new path. */
export function setAside(path: string, clock: Pick<Clock, 'nowMs'>): string {
  const kept = freeName(`${path}.damaged-${stampOf(clock.nowMs())}`);
  return storing(() => {
    for (const suffix of ['', ...SIDE_FILES]) {
      if (lstatSync(path + suffix, { throwIfNoEntry: false })) renameSync(path + suffix, kept + suffix);
    }
    syncPath(dirname(path));
    return kept;
  });
}

/** Returns the paths of damaged files that were renamed and still exist; if there are many, the oldest ones. */
export function keptFiles(path: string): string[] {
  const prefix = `${basename(path)}.damaged-`;
  const isOne = (name: string) => name.startsWith(prefix) && !/-(journal|wal|shm)$/.test(name);
  try {
    return readdirSync(dirname(path))
      .filter(isOne)
      .sort()
      .slice(0, NAMES_MAX)
      .map((name) => join(dirname(path), name));
  } catch (error) {
    throw toStorageError(error, path);
  }
}
