import type { AlarmKey, Alarms } from '../core/alarm.ts';
import { asTillsyncError, hasCode, type TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';

const LOOK_EVERY_MS = 500;
const FAILED_REST_MS = 5_000;
/** A POS that stores a delivery may need a moment; one that holds its lock for longer has forgotten it. */
const LOCKED_MAX_MS = 30_000;

/** What came out of one look into the inbox. */
export interface InboxTaken {
  taken: number;
  rejected: number;
  acknowledged: number;
  /** Orders among these that the mirror does not know. */
  unheard: readonly string[];
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
  const { takeIn, onLine, lookEveryMs = LOOK_EVERY_MS, clock, log, beat } = options;
  const damaged = teller(options, 'inbox.damaged');
  const locked = teller(options, 'inbox.locked');
  let lockedSinceMs: number | undefined;
  while (!signal.aborted) {
    beat();
    try {
      const { trouble, more, unheard, ...counts } = await takeIn();
      if (counts.taken + counts.acknowledged > 0) {
        log.info({ ...counts, unheard: unheard.length }, 'took changes from the inbox');
        if (unheard.length > 0) {
          const orders = unheard.slice(0, 10);
          log.warn(
            { orders, all: unheard.length },
            'the POS acknowledged orders that the mirror does not know',
          );
        }
        onLine();
      }
      lockedSinceMs = undefined;
      locked(null);
      damaged(trouble);
      if (!more) await clock.sleep(lookEveryMs, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (hasCode(error, 'storage-busy')) {
        if (lockedSinceMs === undefined) log.debug({ err: error }, 'the inbox is locked; it is tried again');
        lockedSinceMs ??= clock.monotonicMs();
        if (clock.monotonicMs() - lockedSinceMs >= LOCKED_MAX_MS) locked(error);
        await clock.sleep(lookEveryMs, signal);
        continue;
      }
      lockedSinceMs = undefined;
      locked(null);
      damaged(asTillsyncError(error));
      await clock.sleep(FAILED_REST_MS, signal);
    }
  }
}

/** Raises the alarm with the words of what is wrong, and lowers it when nothing is; an error is logged once. */
function teller({ alarms, log }: InboxLoopOptions, key: AlarmKey) {
  let told: string | null | undefined;
  let isFailing = false;
  return (trouble: string | TillsyncError | null): void => {
    const isError = typeof trouble === 'object' && trouble !== null;
    if (isError && !isFailing)
      log.error({ err: trouble }, 'the inbox cannot be used; everything else goes on');
    isFailing = isError;
    const words = isError ? [trouble.message, trouble.hint].filter(Boolean).join(' ') : trouble;
    if (words === told) return;
    told = words;
    if (words === null) alarms.lower(key);
    else alarms.raise(key, words);
  };
}
