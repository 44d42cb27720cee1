import { closeSync, copyFileSync, existsSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { programVersion } from '../app/installation.ts';
import { openMirror } from '../app/mirror.ts';
import { openState } from '../app/state.ts';
import { runningElsewhere, storagePaths } from '../app/storage.ts';
import type { Config } from '../config/config-type.ts';
import { companyHost, roleOf } from '../config/roles.ts';
import { asTillsyncError } from '../core/errors.ts';
import { openWhenFree } from '../core/files.ts';
import type { Log } from '../core/log.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { setAside } from '../db/damaged-files.ts';
import { lacksTables, mendHead } from '../db/mirror-head.ts';
import { openDatabase, storing, walBytes } from '../db/sqlite.ts';
import { type Manifest, MIRROR_FILE, makeScratch, openBackup } from './backup.ts';
import { type Differential, readDifferentialsFor } from './differential.ts';
import { openingBy } from './encryption.ts';
import { type RestoreOptions, type RestoreReport, restoreBackup, restoreFrom } from './restore.ts';
import { checkMirrorCopy, type KnownSince, readableOf } from './restored-mirror.ts';

/**
 * A mirror whose first page is damaged cannot be opened, although nearly all of it is sound. The daemon sets it aside at
 * its start, and makes another: of the old file with a repaired head, else of the newest backup that this machine opens,
 * else of nothing. What can still be read of the old file is taken over in each case.
 */

/** Largest file that is read again, so that the start takes less than a minute. */
const READ_MAX_BYTES = 1024 ** 3;
const EPOCH = '1970-01-01T00:00:00.000Z';

export interface RescueOptions {
  config: Config;
  clock: Clock;
  log: Log;
  /** Backups of this shop, oldest first. */
  backups: () => Promise<string[]>;
  /** Passphrase of this machine for its backups; undefined if it has none. */
  passphrase: string | undefined;
}

/**
 * Sets a mirror aside that its damaged head keeps from being opened, and makes another. Returns what happened as a text
 * for people; undefined if another process runs on the mirror.
 */
export async function rescueMirror(damage: string, options: RescueOptions): Promise<string | undefined> {
  const { config, clock, log } = options;
  const { mirror: path, state } = storagePaths(config.storage.directory);
  if (await isInUse(state, clock)) return undefined;
  const keptAt = setAside(path, clock);
  const message = `${path} was damaged at its beginning and is kept as ${keptAt}.`;
  log.error({ damage, keptAt }, 'the mirror is damaged at its beginning; it is set aside');
  const made = await remade(keptAt, options).catch((error: unknown) => {
    log.error({ err: asTillsyncError(error) }, 'nothing of the damaged mirror could be taken over');
    return NOTHING;
  });
  return `${message} ${made}`;
}

const NOTHING =
  'The new one is read from the platform. What the POS acknowledged is not in it. To have that of a backup, stop tillsync and run: {tillsync} restore FILE';

async function isInUse(path: string, clock: Clock): Promise<boolean> {
  if (!existsSync(path)) return false;
  const state = await openWhenFree(clock, () => openState({ path, clock }));
  try {
    return runningElsewhere(state.leases) !== undefined;
  } finally {
    state.close();
  }
}

/** Makes the mirror anew. Returns where it comes from, as a text for people. */
async function remade(keptAt: string, options: RescueOptions): Promise<string> {
  const { config, clock } = options;
  const bytes = statSync(keptAt).size + walBytes(keptAt);
  const scratch = makeScratch(config.storage.directory, '.rescue-', bytes, {
    say: (room, needed) => `${room}; to read the damaged mirror needs ${needed}.`,
    hint: 'Free some space.',
  });
  try {
    const restoring: RestoreOptions = { config, clock, who: 'tillsync' };
    const copy = bytes <= READ_MAX_BYTES ? mendedCopy(keptAt, scratch) : undefined;
    const platform = companyHost(config);
    if (copy?.isSound) {
      const manifest = manifestOf(basename(keptAt), { platform, mirror: checkMirrorCopy(copy.path) });
      const stage = async (into: string) => copyFileSync(copy.path, join(into, MIRROR_FILE));
      const report = await restoreFrom({ name: basename(keptAt), manifest, stage }, restoring);
      return `All that is in it could be read and is in the new one.${heldText(report)}`;
    }
    const known = copy && readable(copy.path, clock);
    const differentials = known ? [asDifferential(known, basename(keptAt), { platform, clock })] : [];
    const restored = await fromBackup(options, restoring, differentials);
    if (restored) {
      const { manifest, acks } = restored;
      return `The new one is of the backup ${manifest.name}, with ${acks} acknowledgements since.${heldText(restored)}`;
    }
    const empty = { schema: [], orders: 0, events: 0, products: 0, unsentChanges: 0, newestSeq: 0 };
    const manifest = manifestOf(basename(keptAt), { platform, mirror: { ...empty, newestEvent: null } });
    const stage = (into: string) => makeEmpty(join(into, MIRROR_FILE), options);
    const report = await restoreFrom({ name: basename(keptAt), manifest, differentials, stage }, restoring);
    if (!known?.acks) return NOTHING;
    return `The new one is read from the platform. ${report.acks} acknowledgements of the POS could be read and are taken over.${heldText(report)}`;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function heldText({ held, changes }: RestoreReport): string {
  const files = changes.map(({ path }) => path).join(', ');
  return [
    held > 0 ? ' Changes that were not sent are held: {tillsync} outbox list --state held' : '',
    files === '' ? '' : ` Changes that were not sent are in ${files}.`,
  ].join('');
}

/** Copies a damaged mirror and repairs the bytes of its head that every mirror has alike. */
function mendedCopy(from: string, scratch: string): { path: string; isSound: boolean } | undefined {
  const path = join(scratch, MIRROR_FILE);
  copyFileSync(from, path);
  if (existsSync(`${from}-wal`)) copyFileSync(`${from}-wal`, `${path}-wal`);
  mendHead(path);
  try {
    const db = openDatabase({ path, mode: 0o600, busyTimeoutMs: 0 });
    try {
      const verdict = storing(() => db.pragma('integrity_check(1)', { simple: true }));
      const isSound = verdict === 'ok' && !lacksTables(db);
      storing(() => db.pragma('wal_checkpoint(TRUNCATE)'));
      return { path, isSound };
    } finally {
      db.close();
    }
  } catch {
    // Single tables of it may be readable all the same.
    return { path, isSound: false };
  }
}

/** Returns what can be read of a damaged mirror, each part by itself; undefined if it cannot be opened at all. */
function readable(path: string, clock: Clock): ReturnType<typeof readableOf> | undefined {
  try {
    const db = openDatabase({ path, mode: 0o600, busyTimeoutMs: 0 });
    try {
      // Lets SQLite use the tables whose definitions can be read.
      db.unsafeMode(true);
      db.pragma('writable_schema = 1');
      return readableOf(db, { since: EPOCH, clock });
    } finally {
      db.close();
    }
  } catch {
    return undefined;
  }
}

function asDifferential(
  { newestSeq, newestSettled, acks, unsent, prepared, audited }: ReturnType<typeof readableOf>,
  name: string,
  { platform, clock }: { platform: string; clock: Clock },
): Differential {
  const known: KnownSince = {
    newestSeq: newestSeq ?? 0,
    newestSettled: newestSettled ?? 0,
    acks: acks ?? [],
    unsent: unsent ?? [],
    prepared: prepared ?? [],
    audited: audited ?? [],
  };
  return {
    format: 'tillsync-differential',
    formatVersion: 1,
    name,
    createdAt: isoUtc(clock.nowMs()),
    since: EPOCH,
    tillsync: programVersion(),
    platform,
    mark: null,
    known,
  };
}

function manifestOf(name: string, of: Pick<Manifest, 'platform' | 'mirror'>): Manifest {
  return {
    format: 'tillsync-backup',
    formatVersion: 1,
    name,
    createdAt: EPOCH,
    tillsync: programVersion(),
    ...of,
    files: [],
    inbox: null,
    hasConfig: false,
    hasTokens: false,
    handedIn: [],
  };
}

async function makeEmpty(path: string, { config, clock }: RescueOptions): Promise<void> {
  await openMirror({ path, clock, role: roleOf(config) }).close();
}

/**
 * Restores the newest backup that this machine opens. A machine whose backups are encrypted takes no plain one, which
 * anyone can have put there, and one whose backups a phrase opens takes none.
 */
async function fromBackup(
  { config, log, backups, passphrase }: RescueOptions,
  restoring: RestoreOptions,
  known: readonly Differential[],
): Promise<RestoreReport | undefined> {
  if (config.backup.recipient !== '') return undefined;
  const openBy = passphrase === undefined ? undefined : await openingBy(passphrase);
  const isSecret = openBy !== undefined;
  for (const path of (await backups()).reverse()) {
    const opening = openBy?.(path);
    let file: number | undefined;
    try {
      file = openBackup(path);
      const differentials = await readDifferentialsFor(path, openBy, { isSecret });
      return await restoreBackup({
        ...restoring,
        ...{ path, file, opening, isSecret },
        differentials: [...differentials, ...known],
      });
    } catch (error) {
      log.warn({ err: asTillsyncError(error), path }, 'a backup could not be used for the damaged mirror');
    } finally {
      if (file !== undefined) closeSync(file);
    }
  }
  return undefined;
}
