import { copyFileSync, existsSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import type Database from 'better-sqlite3';
import { openMirror } from '../app/mirror.ts';
import { openState } from '../app/state.ts';
import { RUNNING, storagePaths } from '../app/storage.ts';
import { companyHost } from '../config/roles.ts';
import { hasCode, TillsyncError } from '../core/errors.ts';
import { freeName, openWhenFree, stampOf } from '../core/files.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { systemHolders } from '../db/lease.ts';
import { lookInto, openDatabase, storing } from '../db/sqlite.ts';
import { MIRROR_FILE, makeScratch } from './backup.ts';
import { daemonRuns, type RestoreOptions, type RestoreReport, restoreFrom } from './restore.ts';
import { checkMirrorCopy, swapDatabase } from './restored-mirror.ts';

/** Suffix of the copy that an upgrade makes of a database before changing it. */
const SUFFIX = '.before-upgrade';
const STATE_MODE = 0o600;

export interface BeforeUpgradeReport {
  directory: string;
  /** Result for the mirror; null if this version can read the mirror, which then stays. */
  mirror: RestoreReport | null;
  /** Path of the newer state.db; null if this version can read state.db, which then stays. */
  stateKeptAt: string | null;
}

/**
 * Restores the databases from before the last upgrade, after the earlier version was installed again. From the newer
 * state.db it copies every column that this version has, above all tokens and limits; from the newer mirror.db
 * acknowledgements, feed numbers and unsent changes. The newer files are kept. A second run continues after a crash.
 * Throws `usage` if the daemon runs or no database is newer, `not-found` without a copy, `storage-…`.
 */
export async function restoreBeforeUpgrade(options: RestoreOptions): Promise<BeforeUpgradeReport> {
  const newer = await newerFiles(options);
  if (newer.length === 0) {
    throw new TillsyncError(
      'usage',
      'The databases are of this version of tillsync already. Nothing was changed.',
      {
        hint: 'Install the earlier version first, then run this again.',
      },
    );
  }
  for (const path of newer) {
    if (existsSync(path + SUFFIX)) continue;
    throw new TillsyncError('not-found', `There is no copy ${path}${SUFFIX}. Nothing was changed.`, {
      hint: 'Install the newer version again, or restore a backup: {tillsync} restore FILE',
    });
  }
  const { directory } = options.config.storage;
  const { mirror, state } = storagePaths(directory);
  const stateKeptAt = newer.includes(state) ? restoreState(state, directory, options.clock) : null;
  return {
    directory,
    stateKeptAt,
    mirror: newer.includes(mirror) ? await restoreMirror(mirror, options) : null,
  };
}

/** Returns the paths of the databases that this version cannot read. */
async function newerFiles({ config, clock }: RestoreOptions): Promise<string[]> {
  const { mirror, state } = storagePaths(config.storage.directory);
  // Waits until the files are free, because a POS that opens or closes the mirror locks it for a moment.
  const isMirrorNewer = await isNewer(clock, () => openMirror({ path: mirror, clock }));
  const isStateNewer = await isNewer(clock, () => openState({ path: state, clock }));
  return [...(isMirrorNewer ? [mirror] : []), ...(isStateNewer ? [state] : [])];
}

async function isNewer(clock: Clock, open: () => { close(): unknown }): Promise<boolean> {
  try {
    const opened = await openWhenFree(clock, open);
    await opened.close();
    return false;
  } catch (error) {
    if (hasCode(error, 'storage-newer')) return true;
    throw error;
  }
}

async function restoreMirror(path: string, options: RestoreOptions): Promise<RestoreReport> {
  const copy = `${path}${SUFFIX}`;
  const { size, mtimeMs } = statSync(copy);
  const manifest = {
    format: 'tillsync-backup' as const,
    formatVersion: 1,
    name: basename(copy),
    createdAt: isoUtc(mtimeMs),
    tillsync: 'the version before',
    platform: companyHost(options.config),
    files: [{ name: MIRROR_FILE, bytes: size, sha256: '' }],
    mirror: checkMirrorCopy(copy),
    inbox: null,
    hasConfig: false,
    hasTokens: false,
    handedIn: [],
  };
  const stage = async (into: string) => copyFileSync(copy, join(into, MIRROR_FILE));
  return await restoreFrom({ name: basename(copy), manifest, stage }, options);
}

/** Restores state.db; returns the path at which the newer file is kept. */
function restoreState(path: string, directory: string, clock: Clock): string {
  refuseWhileRunning(path, directory);
  const staging = makeScratch(directory, '.restore-', 2 * statSync(path).size, {
    say: (room, needed) => `${room}; the restore needs ${needed}. Nothing was changed.`,
    hint: 'Free some space and restore again.',
  });
  try {
    const fresh = join(staging, 'state.db');
    copyFileSync(path + SUFFIX, fresh);
    const pragmas = { journal_mode: 'delete' };
    const db = openDatabase({ path: fresh, mode: STATE_MODE, busyTimeoutMs: 100, pragmas });
    try {
      storing(() => takeOverRows(db, path));
    } finally {
      db.close();
    }
    const kept = freeName(`${path}.before-restore-${stampOf(clock.nowMs())}`);
    swapDatabase(fresh, path, kept);
    return kept;
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

function refuseWhileRunning(path: string, directory: string): void {
  const holder = lookInto(path, (db) =>
    db
      .prepare<[string], string>('SELECT holder FROM leases WHERE name = ? AND held = 1')
      .pluck()
      .get(RUNNING),
  );
  if (holder === undefined || systemHolders.isAlive(holder) === false) return;
  throw daemonRuns(directory);
}

/** Replaces each table's rows by those of a newer file, in the columns that both files have. */
function takeOverRows(db: Database.Database, newer: string): void {
  db.prepare('ATTACH ? AS newer').run(newer);
  const columnsOf = (schema: string, table: string) =>
    db
      .prepare<[string, string], string>('SELECT name FROM pragma_table_info(?, ?)')
      .pluck()
      .all(table, schema);
  const tables = db
    .prepare<[], string>(
      "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name <> '_schema_migrations'",
    )
    .pluck()
    .all();
  db.pragma('foreign_keys = 0');
  db.transaction(() => {
    for (const table of tables) {
      const there = new Set(columnsOf('newer', table));
      const columns = columnsOf('main', table)
        .filter((column) => there.has(column))
        .join(', ');
      if (columns === '') continue;
      db.exec(
        `DELETE FROM main.${table}; INSERT INTO main.${table} (${columns}) SELECT ${columns} FROM newer.${table}`,
      );
    }
  }).immediate();
  db.exec('DETACH newer');
}
