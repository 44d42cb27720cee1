import type { Config } from '../../config/config-type.ts';
import { isSetUp } from '../../config/sample-config.ts';
import type { DiskSpace } from '../../domain/health/disk-space.ts';
import { type Verdict, type VerdictFacts, verdictOf } from '../../domain/health/verdict.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { storageSpace } from '../storage/storage-space.ts';
import { ordersStaleAfterMs } from './orders-stale.ts';
import { readStores } from './read-stores.ts';
import type { Readers } from './readers.ts';

export interface StoredVerdictOptions {
  readers: Readers;
  config: Config;
  clock: Clock;
  /** From state.db; null where it cannot be read. */
  tokens: VerdictFacts['tokens'];
  running: boolean | null;
  /** What is wrong with state.db itself; null: nothing, or this user may not look. */
  stateFault?: string | null;
}

/** The verdict of the status page from what is stored, with or without a running daemon. */
export function storedVerdict(options: StoredVerdictOptions): { verdict: Verdict; disk: DiskSpace | null } {
  const { readers, config, clock, tokens, running, stateFault } = options;
  const { mirror } = readers;
  const disk = storageSpace(config.storage.directory);
  const verdict = verdictOf({
    nowMs: clock.nowMs(),
    isSetUp: isSetUp(config),
    freshness: mirror.freshness(),
    alarms: readers.alarms(),
    tokens,
    outbox: readStores(mirror, config, clock).read(({ queries }) => queries.counts()),
    quarantine: readers.counts().quarantine,
    disk,
    running,
    stateFault,
    ordersStaleAfterMs: ordersStaleAfterMs({ config, lastPollOkMs: mirror.lastPollOkMs() }),
  });
  return { verdict, disk };
}
