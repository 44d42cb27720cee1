import { TillsyncError } from '../../domain/errors.ts';
import { isoUtc } from '../../domain/time/clock.ts';

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const LOCAL = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?$/;
const ZONED = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})$/;
const DAY_MS = 86_400_000;

/**
 * An option's day or time as ISO 8601 UTC: a day is its beginning, or with `end` the beginning of the next one, and
 * without a zone both are of the calendar in `timeZone`. Throws `usage`.
 */
export async function instantOption(
  name: string,
  text: string | undefined,
  { timeZone, end }: { timeZone: string; end: boolean },
): Promise<string | undefined> {
  if (text === undefined) return undefined;
  const { zoneCalendar } = await import('../../domain/time/zone-calendar.ts');
  const isDay = DAY.test(text);
  const wallMs = isDay || LOCAL.test(text) ? Date.parse(isDay ? text : `${text}Z`) : Number.NaN;
  const ms = Number.isNaN(wallMs)
    ? Date.parse(ZONED.test(text) ? text : '')
    : zoneCalendar(timeZone).firstInstantMs(wallMs + (isDay && end ? DAY_MS : 0));
  if (!Number.isNaN(ms)) return isoUtc(ms);
  throw new TillsyncError(
    'usage',
    `${name}: found "${text}"; allowed: a day such as 2026-03-01, or a time such as 2026-03-01T18:30 or 2026-03-01T21:30Z.`,
  );
}
