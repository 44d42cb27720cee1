import { asTillsyncError, hasCode } from '../domain/errors.ts';
import type { Alarms } from '../domain/health/alarm.ts';
import type { Log } from '../domain/log.ts';
import type { Clock } from '../domain/time/clock.ts';

const LOOK_EVERY_MS = 500;
const FAILED_REST_MS = 5_000;

/** What came out of one look into the inbox. */
export interface InboxTaken {
  taken: number;
  rejected: number;
  acknowledged: number;
  /** Whether more rows may be waiting. */
  more: boolean;
  /** What happened to the file and is not over yet, for a person; null: nothing. */
  trouble: string | null;
}

export interface InboxLoopOptions {
  /** Copies what a POS has inserted, durably and each row once, then empties it. */
  takeIn: () => Promise<InboxTaken>;
  alarms: Alarms;
  /** Told when changes were put in line. */
  onLine: () => void;
  /** How often it looks for what another process did; without it, as a store needs it. */
  lookEveryMs?: number | undefined;
  clock: Clock;
  log: Log;
  beat: () => void;
}

/** Empties the inbox into the outbox. A POS that holds its lock, or breaks the file, stops this loop alone. */
export async function inboxLoop(options: InboxLoopOptions, signal: AbortSignal): Promise<void> {
  const { takeIn, alarms, onLine, lookEveryMs = LOOK_EVERY_MS, clock, log, beat } = options;
  let told: string | null | undefined;
  const tell = (trouble: string | null) => {
    if (trouble === told) return;
    told = trouble;
    if (trouble === null) alarms.lower('inbox.damaged');
    else alarms.raise('inbox.damaged', trouble);
  };
  let isFailing = false;
  while (!signal.aborted) {
    beat();
    try {
      const report = await takeIn();
      if (report.taken + report.acknowledged > 0) {
        log.info({ ...report }, 'took changes from the inbox');
        onLine();
      }
      isFailing = false;
      tell(report.trouble);
      if (!report.more) await clock.sleep(lookEveryMs, signal);
    } catch (error) {
      if (hasCode(error, 'storage-busy')) {
        await clock.sleep(lookEveryMs, signal);
        continue;
      }
      const { message, hint } = asTillsyncError(error);
      if (!isFailing) log.error({ err: error }, 'the inbox cannot be used; everything else goes on');
      isFailing = true;
      tell([message, hint].filter(Boolean).join(' '));
      await clock.sleep(FAILED_REST_MS, signal);
    }
  }
}
