import { existsSync, mkdirSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import type { Config } from '../../config/config-type.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import { knownSince } from '../../store/backup/mirror-facts.ts';
import { prepareRestoredMirror, type RestoredMirror } from '../../store/backup/prepare-restored.ts';
import { giveToOwnerOf } from '../../store/directory-owner.ts';
import { openMirror } from '../../store/mirror/mirror.ts';
import { openState, type State } from '../../store/state/open-state.ts';
import { giveToGroup, groupId } from '../../store/unix-group.ts';
import { RUNNING } from '../service/running-mark.ts';
import { openWhenFree } from '../storage/open-when-free.ts';
import { prepareStorage, type StoragePaths } from '../storage/storage-directory.ts';
import { type Manifest, MIRROR_FILE, TOKENS_FILE } from './manifest.ts';
import { readBackup } from './read-backup.ts';
import { type KeptChanges, keepChanges, restoreAcks } from './restored-inbox.ts';
import { restoreTokens, type TokensRestored } from './restored-tokens.ts';
import { swapMirror } from './swap-mirror.ts';

/**
 * How far the order feed jumps when nothing tells how far it came: more events than a busy store has in years, and
 * two thousand such jumps still fit into a 32-bit number of a POS.
 */
export const FEED_JUMP = 1_000_000;
const RESTORE_TAKES_AT_MOST_MS = 3_600_000;
const ROOM_TO_SPARE_BYTES = 64 * 1024 * 1024;

export interface RestoreOptions {
  path: string;
  config: Config;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

export interface RestoreReport extends Omit<RestoredMirror, 'facts'> {
  manifest: Manifest;
  directory: string;
  /** Where the mirror is kept that was there; null: there was none. */
  keptAt: string | null;
  /** Whether the feed had to jump, since nothing told how far it came. */
  feedJumped: boolean;
  tokens: TokensRestored;
  acks: number;
  changes: KeptChanges[];
}

/**
 * Puts the mirror of a backup in the place of what is there, for a stopped daemon. All of the backup is read and
 * checked before anything is touched. The memory of the platform's limits and a pair of tokens that works stay as
 * they are. Throws `usage` while the daemon runs, what readBackup throws, `storage-…`.
 */
export async function restoreBackup(options: RestoreOptions): Promise<RestoreReport> {
  const { path, config, clock, signal } = options;
  const { manifest } = await readBackup(path, { signal });
  const { directory, group } = config.storage;
  const paths = prepareStorage(directory, group || undefined);
  const state = await openWhenFree(clock, () => openState({ path: paths.state, clock }));
  try {
    const fence = state.leases.acquire(RUNNING, RESTORE_TAKES_AT_MOST_MS);
    if (fence === undefined) throw daemonRuns(directory);
    try {
      return await restoreInto({ ...options, manifest, paths, state });
    } finally {
      state.leases.release(RUNNING, fence);
    }
  } finally {
    state.close();
  }
}

interface Restoring extends RestoreOptions {
  manifest: Manifest;
  paths: StoragePaths;
  state: State;
}

async function restoreInto(restoring: Restoring): Promise<RestoreReport> {
  const { path, config, clock, signal, manifest, paths, state } = restoring;
  const { directory, group } = config.storage;
  refuseWithoutRoom(directory, manifest);
  removeLeftOvers(directory);
  const staging = join(directory, `${STAGING}${process.pid}`);
  mkdirSync(staging, { mode: 0o700 });
  try {
    await readBackup(path, { into: staging, signal });
    const at = isoUtc(clock.nowMs());
    const stamp = at.replace(/[-:]/g, '').replace(/\..*/, 'Z');
    const fresh = join(staging, MIRROR_FILE);
    const { continueAfterSeq, feedJumped, ackedOrderIds } = planFrom(paths.mirror, manifest);
    const { held, continuesAfterSeq } = prepareRestoredMirror(fresh, { continueAfterSeq, at });
    giveToOwnerOf(directory, fresh);
    if (group !== '') giveToGroup(groupId(group), fresh);
    const keptAt = freeName(`${paths.mirror}.before-restore-${stamp}`);
    const wasThere = swapMirror(fresh, paths.mirror, keptAt);
    // Leaves -wal and -shm behind, so that the POS can read it before the daemon starts.
    await openMirror({ path: paths.mirror, clock, ...(group !== '' && { group }) }).close();
    const acks = restoreAcks({ staging, inbox: paths.inbox, group: group || undefined, ackedOrderIds });
    const changes = keepChanges(staging, directory, stamp);
    const tokens = manifest.hasTokens ? restoreTokens(join(staging, TOKENS_FILE), state) : 'none';
    return {
      ...{ manifest, directory, keptAt: wasThere ? keptAt : null, feedJumped, continuesAfterSeq, held },
      ...{ tokens, acks, changes },
    };
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/**
 * What is taken over from the mirror that is there: after which number the feed goes on, so that none is given out
 * twice, and what the POS has booked since.
 */
function planFrom(mirror: string, { mirror: backup, createdAt }: Manifest) {
  try {
    const { newestSeq, isSameHistory, ackedOrderIds } = knownSince(mirror, backup.newestEvent, createdAt);
    const newest = Math.max(newestSeq, backup.newestSeq);
    const continueAfterSeq = isSameHistory ? newest : newest + FEED_JUMP;
    return { continueAfterSeq, feedJumped: !isSameHistory, ackedOrderIds };
  } catch {
    // It is not there, or cannot be read: that may be why there is a restore.
    return { continueAfterSeq: backup.newestSeq + FEED_JUMP, feedJumped: true, ackedOrderIds: [] };
  }
}

function daemonRuns(directory: string): TillsyncError {
  return new TillsyncError('usage', `tillsync runs on ${directory}. Nothing was changed.`, {
    hint: 'Stop it first (systemctl stop tillsync.socket tillsync.service), restore, and start it again.',
  });
}

function refuseWithoutRoom(directory: string, { files }: Manifest): void {
  const neededBytes = files.reduce((sum, { bytes }) => sum + bytes, ROOM_TO_SPARE_BYTES);
  const { bavail, bsize } = statfsSync(directory);
  if (bavail * bsize >= neededBytes) return;
  const mib = (bytes: number) => `${Math.ceil(bytes / 1024 / 1024)} MiB`;
  throw new TillsyncError(
    'storage-full',
    `${directory} has room for ${mib(bavail * bsize)}; the restore needs ${mib(neededBytes)}. Nothing was changed.`,
    { hint: 'Free some space and restore again.', retryable: false },
  );
}

/** What was kept a moment ago stays, too. */
function freeName(path: string): string {
  let free = path;
  for (let n = 2; existsSync(free); n++) free = `${path}-${n}`;
  return free;
}

const STAGING = '.restore-';

/** What a restore left that was killed; only one runs at a time. */
function removeLeftOvers(directory: string): void {
  for (const name of readdirSync(directory)) {
    if (name.startsWith(STAGING)) rmSync(join(directory, name), { recursive: true, force: true });
  }
}
