import type { Alarms } from '../../domain/health/alarm.ts';
import { type DiskSpace, diskVerdict } from '../../domain/health/disk-space.ts';
import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';

export interface StandingWatchOptions {
  alarms: Alarms;
  /** Of the storage directory; null where the system does not tell. */
  disk: () => DiskSpace | null;
  /** Whether no tokens were ever handed in. May throw `storage-…`. */
  hasNoTokens: () => boolean;
  /** How often it looks; without it, as a store needs it. */
  lookEveryMs?: number | undefined;
  clock: Clock;
  log: Log;
  beat: () => void;
}

const LOOK_EVERY_MS = 15_000;
/** A disk counts as well again only with a tenth more room than the mark, so that it does not flap around it. */
const ROOM_TO_HEAL = 0.9;

/** Raises and lowers the alarms that no flow notices by itself: room on the disk, and tokens that never came. */
export async function standingWatch(options: StandingWatchOptions, signal: AbortSignal): Promise<void> {
  const { lookEveryMs = LOOK_EVERY_MS, clock, log, beat } = options;
  while (!signal.aborted) {
    beat();
    lookAtDisk(options);
    try {
      lookAtTokens(options);
    } catch (error) {
      log.debug({ err: error }, 'the tokens cannot be looked at now');
    }
    await clock.sleep(lookEveryMs, signal);
  }
}

function lookAtDisk({ alarms, disk }: StandingWatchOptions): void {
  const space = disk();
  if (space === null) return;
  const { code, message } = diskVerdict(space);
  const nearly = diskVerdict({ ...space, freeBytes: space.freeBytes * ROOM_TO_HEAL }).code;
  if (code !== null) alarms.raise(code, message);
  if (nearly !== 'storage.full') alarms.lower('storage.full');
  // Nearly full is not over when the disk is full.
  if (nearly === null) alarms.lower('storage.low');
}

function lookAtTokens({ alarms, hasNoTokens }: StandingWatchOptions): void {
  if (hasNoTokens()) {
    alarms.raise('auth.none', 'No tokens were handed over yet. Hand them over with: tillsync auth set');
  } else {
    alarms.lower('auth.none');
  }
}
