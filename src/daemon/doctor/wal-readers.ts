import { formatBytes } from '../../domain/health/disk-space.ts';
import { FINDING_SENTENCES } from '../../domain/health/finding.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { type LockHolder, namesOf } from '../../store/lock-holders.ts';
import { WAL_BYTES_MAX } from '../../store/mirror/wal-care.ts';
import { findWalReaders } from '../../store/mirror/wal-readers.ts';
import { walBytes } from '../../store/settle-wal.ts';
import { type Check, type Outcome, warned, well } from './check.ts';
import { lockedAway } from './databases.ts';

/** Short reads end within it; who reads before and after holds the log. */
const BETWEEN_LOOKS_MS = 300;

export interface ReadersCheckOptions {
  mirrorPath: string;
  clock: Clock;
  signal: AbortSignal;
  /** Process of the daemon, whose own reads are none of a POS; undefined when it is not known. */
  daemonPid: number | undefined;
}

/** Which programs keep a read of the mirror open, so that its log cannot shrink. */
export function readersCheck({ mirrorPath, clock, signal, daemonPid }: ReadersCheckOptions): Check {
  return {
    id: 'storage.readers',
    async run() {
      const away = lockedAway(mirrorPath);
      if (away) return away;
      const before = new Set(findWalReaders(mirrorPath).map(({ pid }) => pid));
      await clock.sleep(BETWEEN_LOOKS_MS, signal);
      const held = findWalReaders(mirrorPath).filter(({ pid }) => before.has(pid) && pid !== daemonPid);
      return readersOutcome(held, walBytes(mirrorPath));
    },
  };
}

/** `held`: programs that keep a read open; `logBytes`: size of -wal. */
export function readersOutcome(held: readonly LockHolder[], logBytes: number): Outcome {
  const facts = { logBytes, logMaxBytes: WAL_BYTES_MAX, readers: held };
  const names = namesOf(held);
  const log = `write log: ${formatBytes(logBytes)}`;
  if (held.length === 0) return well(`No program is blocking the database (${log}).`, facts);
  if (logBytes <= WAL_BYTES_MAX) {
    return well(
      `Reading the database now: ${names} (${log}). That does no harm unless it takes long.`,
      facts,
    );
  }
  const { message, remedy } = FINDING_SENTENCES['mirror.reader-holds-wal'];
  return warned(`${message} It is held by ${names} (${log}).`, remedy, facts);
}
