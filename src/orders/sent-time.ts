import { zoneCalendar } from '../core/time.ts';

/*
 * Times as a platform may send them, to ISO 8601 in UTC. What is no time is undefined: a till that sorts or compares a
 * column of times must find nothing else in it.
 */

const UTC_WITH_MS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const CLOCK = String.raw`(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?:\s*([ap])\.?\s?m\.?)?`;
const ZONE = String.raw`(?:\s?(Z|[+-]\d{2}(?::?\d{2})?))?`;
const YEAR_FIRST = new RegExp(String.raw`^(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:T|,?\s+)${CLOCK}${ZONE}$`, 'i');
/** A day before its month, as where the platform is at home; 11/23/2026 is no time. */
const DAY_FIRST = new RegExp(
  String.raw`^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?:T|,?\s+)${CLOCK}${ZONE}$`,
  'i',
);
/** As programs print dates: `Mon, 23 Nov 2026 10:00:00 GMT`, `Mon Nov 23 2026 10:00:00 GMT-0300 (…)`. */
const PRINTED = /^[A-Z][a-z]{2},? .*\d{2}:\d{2}:\d{2} (?:GMT|UTC)\b/;
const SENT_LENGTH_MAX = 80;

/** A time without a zone is one of the clock in `timezone`; undefined: then it is none. */
export function timeReader(timezone: string | undefined): (value: unknown) => string | undefined {
  return (value) => {
    if (typeof value === 'number') return epochTime(value);
    if (typeof value !== 'string' || value.length > SENT_LENGTH_MAX) return undefined;
    // Nearly always as the mirror writes times; the 31st of February is printed as another day.
    if (value.length === 24 && UTC_WITH_MS.test(value)) {
      const ms = Date.parse(value);
      return Number.isNaN(ms) || new Date(ms).toISOString() !== value ? undefined : value;
    }
    const sent = value.trim();
    if (/^\d{10}(\d{3})?$/.test(sent)) return epochTime(Number(sent));
    const yearFirst = YEAR_FIRST.exec(sent);
    if (yearFirst) {
      const [, year, month, day, ...rest] = yearFirst;
      return clockTime([year, month, day], rest, timezone);
    }
    const dayFirst = DAY_FIRST.exec(sent);
    if (dayFirst) {
      const [, day, month, year, ...rest] = dayFirst;
      return clockTime([year, month, day], rest, timezone);
    }
    return PRINTED.test(sent) ? isoOf(Date.parse(sent)) : undefined;
  };
}

type Part = string | undefined;

function clockTime(
  [year, month, day]: readonly Part[],
  [hours, minutes, seconds = '0', fraction = '0', half, zone]: readonly Part[],
  timezone: string | undefined,
): string | undefined {
  const twelve = half === undefined ? Number(hours) : twelveHours(Number(hours), half);
  if (twelve === undefined || twelve > 23 || Number(minutes) > 59 || Number(seconds) > 59) return undefined;
  const dayMs = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const isDay =
    new Date(dayMs).getUTCDate() === Number(day) && new Date(dayMs).getUTCMonth() === Number(month) - 1;
  if (!isDay) return undefined;
  const wallMs =
    dayMs +
    ((twelve * 60 + Number(minutes)) * 60 + Number(seconds)) * 1000 +
    Math.trunc(Number(`0.${fraction}`) * 1000);
  if (zone !== undefined) return isoOf(wallMs - offsetMs(zone));
  return timezone === undefined ? undefined : isoOf(zoneCalendar(timezone).firstInstantMs(wallMs));
}

function twelveHours(hours: number, half: string): number | undefined {
  if (hours < 1 || hours > 12) return undefined;
  return (hours % 12) + (half.toLowerCase() === 'p' ? 12 : 0);
}

function offsetMs(zone: string): number {
  if (zone.toUpperCase() === 'Z') return 0;
  const minutes = Number(zone.slice(1, 3)) * 60 + Number(zone.slice(3).replace(':', '') || 0);
  return (zone.startsWith('-') ? -minutes : minutes) * 60_000;
}

/** Seconds and milliseconds since the epoch differ by their size from 1973 to 5138. */
function epochTime(value: number): string | undefined {
  if (value >= 1e8 && value < 1e11) return isoOf(value * 1000);
  return value >= 1e11 && value < 1e14 ? isoOf(value) : undefined;
}

function isoOf(ms: number): string | undefined {
  return Number.isNaN(ms) ? undefined : new Date(ms).toISOString();
}
