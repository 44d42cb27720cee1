import type { Alarms } from '../../domain/health/alarm.ts';
import { type DiskSpace, diskVerdict } from '../../domain/health/disk-space.ts';
import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { formatDuration } from '../../domain/time/duration.ts';

export interface StandingWatchOptions {
  alarms: Alarms;
  /** Of the storage directory; null where the system does not tell. */
  disk: () => DiskSpace | null;
  /** Whether no tokens were ever handed in. May throw `storage-…`. */
  hasNoTokens: () => boolean;
  /** Platform's wall clock minus ours; undefined: not known. */
  clockSkewMs: () => number | undefined;
  /** Of which companies the orders are; undefined: none says. May throw `storage-…`. */
  orderCompanies: () => { oldest: string; newest: string } | undefined;
  /** How often it looks; without it, as a store needs it. */
  lookEveryMs?: number | undefined;
  clock: Clock;
  log: Log;
  beat: () => void;
}

const LOOK_EVERY_MS = 15_000;
/** A disk counts as well again only with a tenth more room than the mark, so that it does not flap around it. */
const ROOM_TO_HEAL = 0.9;

/** From here on a clock is not right, and from there on it is wrong: orders are looked for on other days. */
const CLOCK_OFF_MS = 5 * 60_000;
const CLOCK_WRONG_MS = 12 * 3_600_000;

/** Raises and lowers the alarms that no flow notices by itself: room on the disk, the clock, tokens that never came. */
export async function standingWatch(options: StandingWatchOptions, signal: AbortSignal): Promise<void> {
  const { lookEveryMs = LOOK_EVERY_MS, clock, log, beat } = options;
  while (!signal.aborted) {
    beat();
    lookAtDisk(options);
    lookAtClock(options);
    try {
      lookAtTokens(options);
      lookAtCompany(options);
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

function lookAtClock({ alarms, clockSkewMs }: StandingWatchOptions): void {
  const skewMs = clockSkewMs();
  if (skewMs === undefined) return;
  const offMs = Math.abs(skewMs);
  const code = offMs > CLOCK_WRONG_MS ? 'clock.wrong' : offMs > CLOCK_OFF_MS ? 'clock.off' : null;
  // In whole minutes, so that the words stay the same from one look to the next.
  const off = formatDuration(Math.round(offMs / 60_000) * 60_000);
  if (code) alarms.raise(code, `It is ${off} ${skewMs > 0 ? 'behind' : 'ahead of'} the platform's clock.`);
  for (const other of ['clock.wrong', 'clock.off'] as const) if (other !== code) alarms.lower(other);
}

function lookAtCompany({ alarms, orderCompanies }: StandingWatchOptions): void {
  const companies = orderCompanies();
  if (companies === undefined || companies.oldest === companies.newest) alarms.lower('auth.other-company');
  else {
    const { oldest, newest } = companies;
    alarms.raise(
      'auth.other-company',
      `The orders were of company ${oldest}, and the newest is of ${newest}.`,
    );
  }
}

function lookAtTokens({ alarms, hasNoTokens }: StandingWatchOptions): void {
  if (hasNoTokens()) {
    alarms.raise('auth.none', 'No tokens were handed over yet. Hand them over with: {tillsync} auth set');
  } else {
    alarms.lower('auth.none');
  }
}
