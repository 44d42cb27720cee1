import type { Config } from '../../config/config-type.ts';
import type { KeptCallback } from '../../domain/callback.ts';
import { asTillsyncError, TillsyncError } from '../../domain/errors.ts';
import type { AlarmUp } from '../../domain/health/alarm-news.ts';
import type { Wait } from '../../domain/platform/call.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { describeTokens, type TokenStatus } from '../../platform/token-status.ts';
import { type Mirror, openMirror } from '../../store/mirror/mirror.ts';
import { openState, type State } from '../../store/state/open-state.ts';
import { RUNNING } from '../service/running-mark.ts';
import { openWhenFree } from '../storage/open-when-free.ts';
import { isReadable, requireRights } from '../storage/rights.ts';
import { storagePaths } from '../storage/storage-directory.ts';
import { type MirrorCounts, mirrorCounts } from './mirror-counts.ts';

export type { TokenStatus };

export interface ReadersOptions {
  config: Config;
  clock: Clock;
}

/** What a command needs that only looks: nothing is created, upgraded or written. */
export interface Readers {
  mirror: Mirror;
  /** From state.db; throw `not-found` before there is one, `storage-…` when this user may not read it. */
  tokens(): TokenStatus;
  waits(): Wait[];
  /** Whether the daemon runs on these files now. */
  isRunning(): boolean;
  /** Alarms that are up, those included that the mirror did not take from the daemon that runs. */
  alarms(): AlarmUp[];
  /** After `id`, oldest first; throw as `tokens` does. */
  callbacks(after: number, limit: number): KeptCallback[];
  /** Rows of the mirror. */
  counts(): MirrorCounts;
  close(): Promise<void>;
}

/** Opens the stored files for looking, also beside a running daemon. Throws `not-found` before the first start. */
export async function openReaders({ config, clock }: ReadersOptions): Promise<Readers> {
  const { directory } = config.storage;
  const { mirror: path, state: statePath } = storagePaths(directory);
  requireRights(directory, 'read');
  if (!isReadable(path)) throw noMirror(directory);
  const mirror = await openWhenFree(clock, () => openMirror({ path, clock, readonly: true }));
  const state = await stateOf(statePath, clock);
  return {
    mirror,
    tokens: () => {
      const { tokens } = orThrow(state);
      const pair = tokens.read();
      const platformNowMs = clock.nowMs() + (pair?.clockSkewMs ?? 0);
      return describeTokens(pair, tokens.readIntent()?.startedAtMs ?? null, platformNowMs);
    },
    waits: () => orThrow(state).ledger.waits(config.limits),
    isRunning: () => orThrow(state).leases.isHeld(RUNNING),
    alarms: () => {
      const stored = mirror.raisedAlarms();
      const isMissing = ({ key }: AlarmUp) => !stored.some((alarm) => alarm.key === key);
      return [...asideOf(state).filter(isMissing), ...stored];
    },
    callbacks: (after, limit) => orThrow(state).callbacks.list(after, limit),
    counts: () => mirrorCounts(mirror),
    close: async () => {
      if (!(state instanceof TillsyncError)) state.close();
      await mirror.close();
    },
  };
}

/** Before the first start. */
export function noMirror(directory: string): TillsyncError {
  return new TillsyncError('not-found', `There is no mirror in ${directory} yet.`, {
    hint: 'Start tillsync first ({start}), or look into another directory with --config FILE.',
  });
}

async function stateOf(path: string, clock: Clock): Promise<State | TillsyncError> {
  try {
    if (isReadable(path)) return await openWhenFree(clock, () => openState({ path, clock }));
    return new TillsyncError('not-found', 'No tokens were ever stored here.', {
      hint: 'Hand over a refresh token: {tillsync} auth set < FILE',
    });
  } catch (error) {
    return asTillsyncError(error);
  }
}

/** None where this user may not look, or the daemon ended before it could take them back. */
function asideOf(state: State | TillsyncError): AlarmUp[] {
  if (state instanceof TillsyncError || !state.leases.isHeld(RUNNING)) return [];
  return state.aside.list();
}

function orThrow(state: State | TillsyncError): State {
  if (state instanceof TillsyncError) throw state;
  return state;
}
