import { existsSync } from 'node:fs';
import type { Config } from '../../config/config-type.ts';
import { asTillsyncError, hasCode } from '../../domain/errors.ts';
import type { Verdict } from '../../domain/health/verdict.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { describeTokens, type TokenStatus } from '../../platform/token-status.ts';
import { pidOf } from '../../store/state/holder.ts';
import { openState } from '../../store/state/open-state.ts';
import { openReaders, type Readers } from '../reading/readers.ts';
import { storedVerdict } from '../reading/stored-verdict.ts';
import { RUNNING } from '../service/running-mark.ts';
import { openWhenFree } from '../storage/open-when-free.ts';
import { storagePaths } from '../storage/storage-directory.ts';
import { type Outcome, skipped } from './check.ts';
import { lockedAway } from './databases.ts';

/** Whether the daemon runs on this directory, by the mark that it holds, and as which process. */
export interface RunningMark {
  /** null when state.db cannot be read. */
  running: boolean | null;
  pid: number | undefined;
}

/** Looks at the mark; makes no file that is not there. */
export async function readRunningMark(directory: string, clock: Clock): Promise<RunningMark> {
  const { state: path } = storagePaths(directory);
  if (lockedAway(path)) return { running: null, pid: undefined };
  if (!existsSync(path)) return { running: false, pid: undefined };
  try {
    const state = await openWhenFree(clock, () => openState({ path, clock }));
    try {
      const holder = state.leases.holder(RUNNING);
      return { running: holder !== undefined, pid: holder === undefined ? undefined : pidOf(holder) };
    } finally {
      state.close();
    }
  } catch {
    // The check of state.db says what is wrong with it.
    return { running: null, pid: undefined };
  }
}

/** What the mirror and state.db tell, opened for looking. */
export interface Stored {
  readers: Readers;
  verdict: Verdict;
  tokens: TokenStatus | null;
}

/** Opens what is stored, or says why that cannot be looked at. */
export async function openStored(
  config: Config,
  clock: Clock,
  running: boolean | null,
): Promise<Stored | Outcome> {
  const { mirror, state } = storagePaths(config.storage.directory);
  const away = lockedAway(mirror);
  if (away) return away;
  if (!existsSync(mirror)) return skipped('There is no mirror yet.', null);
  try {
    const readers = await openReaders({ config, clock });
    try {
      const tokens = lockedAway(state) ? null : tokensOf(readers, clock);
      const { verdict } = storedVerdict({ readers, config, clock, tokens, running });
      return { readers, verdict, tokens };
    } catch (error) {
      await readers.close();
      throw error;
    }
  } catch (thrown) {
    const { message } = asTillsyncError(thrown);
    return skipped('The mirror cannot be looked into.', null, { cause: message });
  }
}

function tokensOf(readers: Readers, clock: Clock): TokenStatus | null {
  try {
    return readers.tokens();
  } catch (error) {
    if (hasCode(error, 'not-found')) return describeTokens(null, null, clock.nowMs());
    return null;
  }
}
