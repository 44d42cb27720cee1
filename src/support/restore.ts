import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import { prepareStorage, RUNNING, type StoragePaths } from '../app/storage.ts';
import { openState, type State } from '../app/stores.ts';
import type { Config } from '../config/config-type.ts';
import { TillsyncError } from '../core/errors.ts';
import { freeName, giveToGroup, groupId, openWhenFree, stampOf } from '../core/files.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { openMirror } from '../orders/mirror.ts';
import { FEED_JUMP } from '../orders/order.ts';
import { asWebhookMemory, NO_WEBHOOK_MEMORY } from '../orders/webhook.ts';
import { lookIntoInbox } from '../outbox/inbox-process.ts';
import {
  ACKS_FILE,
  type Manifest,
  MIRROR_FILE,
  PRODUCT_FILE,
  readBackup,
  refuseWithoutRoom,
  removeLeftOvers,
  STOCK_FILE,
  TOKENS_FILE,
  tokensSchema,
} from './backup.ts';
import { knownSince, prepareRestoredMirror, type RestoredMirror, swapMirror } from './restored-mirror.ts';

const ackSchema = z.object({ orderId: z.string().min(1), key: z.string() });
type Ack = z.infer<typeof ackSchema>;

export interface KeptChanges {
  kind: 'stock' | 'products';
  path: string;
}

/**
 * What a POS had handed over when the backup was made. Changes become files for a person: by themselves they would
 * put older values over newer ones. Returns those files.
 */
function keepChanges(staging: string, directory: string, stamp: string): KeptChanges[] {
  const kinds = [
    { kind: 'stock', name: STOCK_FILE },
    { kind: 'products', name: PRODUCT_FILE },
  ] as const;
  return kinds
    .filter(({ name }) => existsSync(join(staging, name)))
    .map(({ kind, name }) => {
      const path = join(directory, name.replace('.ndjson', `.from-backup-${stamp}.ndjson`));
      renameSync(join(staging, name), path);
      return { kind, path };
    });
}

/** What is handed to the inbox, from where the daemon takes it: an order that was booked stays booked. */
function acksToRestore(staging: string, ackedSince: readonly string[]): Ack[] {
  const file = join(staging, ACKS_FILE);
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : [];
  return [
    ...lines.map((line) => ackSchema.parse(JSON.parse(line))),
    ...ackedSince.map((orderId) => ({ orderId, key: randomUUID() })),
  ].map(({ orderId, key }) => ({ orderId, key: key.replace(/^ack:/, '') }));
}

/**
 * - `none`: the backup has none
 * - `taken`: they are used from now on
 * - `own-kept`: this machine has a pair that works, and the newer pair always wins
 */
export type TokensRestored = 'none' | 'taken' | 'own-kept';

/** Tokens and webhook secrets of a backup, where this machine has none that are of use. */
function restoreTokens(file: string, state: Pick<State, 'tokens' | 'webhook'>): TokensRestored {
  const { tokens, webhook } = tokensSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  if (isDeepStrictEqual(state.webhook.read(), NO_WEBHOOK_MEMORY)) {
    // What a tillsync of another version remembers more or less than this one.
    state.webhook.update(() => asWebhookMemory(webhook));
  }
  if (tokens === null) return 'none';
  const own = state.tokens.read();
  if (own !== null && own.lockedOut === null) {
    return own.refreshToken === tokens.refreshToken ? 'taken' : 'own-kept';
  }
  if (own?.refreshToken === tokens.refreshToken) return 'own-kept';
  state.tokens.save(tokens, null);
  return 'taken';
}

const RESTORE_TAKES_AT_MOST_MS = 3_600_000;
const ACKS_AT_ONCE = 5_000;
const STAGING = '.restore-';

export interface RestoreOptions {
  path: string;
  /** Descriptor of the backup. */
  file: number;
  config: Config;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

export interface RestoreReport extends RestoredMirror {
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
  const { path, file, config, clock, signal } = options;
  const { manifest } = await readBackup(path, { file, signal });
  const { directory, group } = config.storage;
  const paths = prepareStorage(directory, group || undefined);
  const state = await openWhenFree(clock, () => openState({ path: paths.state, clock }));
  try {
    const fence = state.leases.acquire(RUNNING, RESTORE_TAKES_AT_MOST_MS);
    if (fence === undefined) {
      throw new TillsyncError('usage', `tillsync runs on ${directory}. Nothing was changed.`, {
        hint: 'Stop it first ({stop}), restore, and start it again.',
      });
    }
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
  const { path, file, config, clock, signal, manifest, paths, state } = restoring;
  const { directory, group } = config.storage;
  const bytes = manifest.files.reduce((sum, each) => sum + each.bytes, 0);
  refuseWithoutRoom(directory, bytes, {
    say: (room, needed) => `${room}; the restore needs ${needed}. Nothing was changed.`,
    hint: 'Free some space and restore again.',
  });
  removeLeftOvers(directory, STAGING);
  const staging = join(directory, `${STAGING}${process.pid}`);
  mkdirSync(staging, { mode: 0o700 });
  try {
    await readBackup(path, { file, into: staging, signal });
    const nowMs = clock.nowMs();
    const stamp = stampOf(nowMs);
    const fresh = join(staging, MIRROR_FILE);
    const plan = planFrom(paths.mirror, manifest, state.feed.highestSeq() ?? 0);
    const { continueAfterSeq, feedJumped } = plan;
    const prepared = prepareRestoredMirror(fresh, { continueAfterSeq, at: isoUtc(nowMs) });
    if (group !== '') giveToGroup(groupId(group), fresh);
    // Before anything is changed: what lies in an inbox that is there is newer than any backup and stays.
    const acks = acksToRestore(staging, plan.ackedOrderIds);
    await handOver(acks, restoring);
    const keptAt = freeName(`${paths.mirror}.before-restore-${stamp}`);
    const wasThere = swapMirror(fresh, paths.mirror, keptAt);
    // Leaves -wal and -shm behind, so that the POS can read it before the daemon starts.
    const { feed } = state;
    await openMirror({ path: paths.mirror, clock, feed, ...(group !== '' && { group }) }).close();
    const changes = keepChanges(staging, directory, stamp);
    const tokens = manifest.hasTokens ? restoreTokens(join(staging, TOKENS_FILE), state) : 'none';
    return {
      ...{ manifest, directory, keptAt: wasThere ? keptAt : null, feedJumped, ...prepared },
      ...{ tokens, acks: acks.length, changes },
    };
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

function handOver(acks: readonly Ack[], { config, paths, clock, signal }: Restoring): Promise<void> {
  const options = { path: paths.inbox, group: config.storage.group || undefined, clock, signal };
  return lookIntoInbox(options, async (ask) => {
    for (let i = 0; i < acks.length; i += ACKS_AT_ONCE) {
      await ask({ do: 'insertAcks', acks: acks.slice(i, i + ACKS_AT_ONCE) });
    }
  });
}

/**
 * What is taken over from the mirror that is there: after which number the feed goes on, so that none is given out
 * twice, and what the POS has booked since. `noted`: how far the feed is known to have got, whatever is there now.
 */
function planFrom(mirror: string, { mirror: backup, createdAt }: Manifest, noted: number) {
  const newest = Math.max(backup.newestSeq, noted);
  try {
    const { newestSeq, isSameHistory, ackedOrderIds } = knownSince(mirror, backup.newestEvent, createdAt);
    const feedJumped = !isSameHistory || newestSeq < noted;
    const after = Math.max(newestSeq, newest);
    return { continueAfterSeq: feedJumped ? after + FEED_JUMP : after, feedJumped, ackedOrderIds };
  } catch {
    // It is not there, or cannot be read: that may be why there is a restore.
    return { continueAfterSeq: newest + FEED_JUMP, feedJumped: true, ackedOrderIds: [] };
  }
}
