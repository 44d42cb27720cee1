import { formatDuration } from '../../domain/time/duration.ts';
import { type Check, failed, type Outcome, skipped, warned, well } from './check.ts';

/** The Date header has whole seconds, and an answer takes its time. */
const NOTICED_MS = 30_000;
const HARMFUL_MS = 3_600_000;
const REMEDY = 'Have this machine keep its clock right by itself: timedatectl set-ntp true';

export interface ClockReading {
  /** The platform's wall clock minus ours. */
  skewMs: number;
  /** From an answer just now, or from the last token refresh. */
  source: 'answer' | 'refresh';
}

export function clockCheck(read: () => ClockReading | null): Check {
  return { id: 'platform.clock', run: () => clockOutcome(read()) };
}

export function clockOutcome(reading: ClockReading | null): Outcome {
  if (!reading) return skipped('The platform told no time to compare with.');
  const { skewMs, source } = reading;
  const facts = { skewMs, source };
  const offMs = Math.abs(skewMs);
  const then = source === 'refresh' ? ', as of the last token refresh' : '';
  if (offMs < NOTICED_MS) return well(`This machine's clock agrees with the platform's${then}.`, facts);
  const message = `This machine's clock is ${formatDuration(offMs)} ${skewMs > 0 ? 'behind' : 'ahead of'} the platform's${then}`;
  if (offMs < HARMFUL_MS)
    return warned(`${message}; the times in the mirror are off by that.`, REMEDY, facts);
  return failed(
    `${message}, so times are wrong and orders may be looked for on the wrong day.`,
    REMEDY,
    facts,
  );
}
