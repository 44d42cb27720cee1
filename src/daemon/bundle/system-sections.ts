import { type Dirent, existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { arch, freemem, loadavg, release, totalmem, uptime, version } from 'node:os';
import { join, relative } from 'node:path';
import Database from 'better-sqlite3';
import { isoUtc } from '../../domain/time/clock.ts';
import { storageSpace } from '../storage/storage-space.ts';
import { programVersion } from '../version.ts';
import { orFault, type Section } from './section.ts';

const FILES_MAX = 1_000;
const DISTRIBUTION = '/etc/os-release';

/** Versions, the machine, and the files of the storage directory. */
export function systemSections({ directory }: { directory: string }): Section[] {
  return [
    {
      name: 'versions.json',
      what: 'versions of tillsync, Node, SQLite, kernel and distribution; memory and load',
      mayNamePeople: false,
      make: () => ({ document: versions() }),
    },
    {
      name: 'files.json',
      what: 'size, mode, owner and time of each file in the storage directory, and the room on the disk',
      mayNamePeople: true,
      make: () => ({ document: { directory, disk: storageSpace(directory), files: filesBelow(directory) } }),
    },
  ];
}

function versions(): unknown {
  const distribution = existsSync(DISTRIBUTION)
    ? (/^PRETTY_NAME="?(.*?)"?$/m.exec(readFileSync(DISTRIBUTION, 'utf8'))?.[1] ?? null)
    : null;
  return {
    tillsync: programVersion(),
    node: process.version,
    sqlite: orFault(sqliteVersion),
    kernel: `${release()} ${version()} ${arch()}`,
    distribution,
    user: { uid: process.getuid?.() ?? null, gid: process.getgid?.() ?? null },
    timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    uptimeSeconds: Math.round(uptime()),
    load: loadavg(),
    memory: { totalBytes: totalmem(), freeBytes: freemem() },
  };
}

function sqliteVersion(): unknown {
  const db = new Database(':memory:');
  try {
    return db.prepare('SELECT sqlite_version()').pluck().get();
  } finally {
    db.close();
  }
}

function filesBelow(directory: string): unknown {
  const found: unknown[] = [describe(directory, directory)];
  const look = (at: string) => {
    const entries = orFault(() => readdirSync(at, { withFileTypes: true }));
    if (!Array.isArray(entries)) {
      found.push({ name: relative(directory, at) || '.', ...entries });
      return;
    }
    for (const entry of entries as Dirent[]) {
      if (found.length >= FILES_MAX) return;
      const path = join(at, entry.name);
      found.push(describe(directory, path));
      if (entry.isDirectory()) look(path);
    }
  };
  look(directory);
  return found;
}

function describe(directory: string, path: string): unknown {
  return {
    name: relative(directory, path) || '.',
    ...orFault(() => {
      const { size, mode, uid, gid, mtimeMs } = lstatSync(path);
      return { bytes: size, mode: (mode & 0o7777).toString(8), uid, gid, changedAt: isoUtc(mtimeMs) };
    }),
  };
}
