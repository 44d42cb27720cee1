const HOUR_MS = 3_600_000;
/** No zone is further than this from UTC, and none puts its clock twice within so short a time. */
const REACH_MS = 26 * HOUR_MS;

/** The clock face of one time zone, written as the milliseconds that the same face would be in UTC. */
export interface ZoneCalendar {
  wallMs(instantMs: number): number;
  /**
   * The first instant at which the clock shows `wallMs`. When the clock skips it, the instant at which it was
   * put forward.
   */
  firstInstantMs(wallMs: number): number;
}

/** The name by which the zone's rules are kept. Throws a RangeError for a zone that is not known. */
export function canonicalZone(timeZone: string): string {
  known ??= new Set(['UTC', ...Intl.supportedValuesOf('timeZone')]);
  if (known.has(timeZone)) return timeZone;
  // Other spellings and older names.
  return new Intl.DateTimeFormat('en', { timeZone }).resolvedOptions().timeZone;
}

let known: ReadonlySet<string> | undefined;

/** The clock of a zone by its IANA name. Throws a RangeError for a zone that is not known. */
export function zoneCalendar(timeZone: string): ZoneCalendar {
  const kept = calendars.get(timeZone);
  if (kept) return kept;
  const calendar = newCalendar(canonicalZone(timeZone));
  calendars.set(timeZone, calendar);
  return calendar;
}

/** Those asked for, few in one process. */
const calendars = new Map<string, ZoneCalendar>();

function newCalendar(zone: string): ZoneCalendar {
  const wallMs = withinTheHour(
    hostHasZones() ? (instantMs: number) => hostWallMs(zone, instantMs) : intlClock(zone),
  );
  const offsetMs = (instantMs: number) => wallMs(instantMs) - instantMs;

  return {
    wallMs,
    firstInstantMs(wall) {
      const beforeMs = offsetMs(wall - REACH_MS);
      const afterMs = offsetMs(wall + REACH_MS);
      const early = wall - beforeMs;
      if (beforeMs === afterMs || wallMs(early) === wall) return early;
      const late = wall - afterMs;
      if (wallMs(late) === wall) return late;
      return changeMs(wall - REACH_MS, wall + REACH_MS, (instantMs) => offsetMs(instantMs) === beforeMs);
    },
  };
}

/** Keeps what was found of an hour in which the clock is not put: asking a zone costs much more than adding. */
function withinTheHour(wallMs: ZoneCalendar['wallMs']): ZoneCalendar['wallMs'] {
  let known: { hourMs: number; offsetMs: number } | undefined;
  return (instantMs) => {
    const hourMs = Math.floor(instantMs / HOUR_MS) * HOUR_MS;
    if (known?.hourMs !== hourMs) {
      const offsetMs = wallMs(hourMs) - hourMs;
      if (wallMs(hourMs + HOUR_MS) - (hourMs + HOUR_MS) !== offsetMs) return wallMs(instantMs);
      known = { hourMs, offsetMs };
    }
    return Math.trunc(instantMs) + known.offsetMs;
  };
}

/**
 * The clock face by Date in the given zone. The same rules as Intl's, without its locales, which cost a process
 * 8 MB and a tenth of its start.
 */
function hostWallMs(zone: string, instantMs: number): number {
  return inZone(zone, () => {
    const at = new Date(instantMs);
    return Date.UTC(
      at.getFullYear(),
      at.getMonth(),
      at.getDate(),
      at.getHours(),
      at.getMinutes(),
      at.getSeconds(),
      at.getMilliseconds(),
    );
  });
}

/** Nothing else runs meanwhile, so nothing else sees the zone. */
function inZone<T>(zone: string, use: () => T): T {
  const { TZ: before } = process.env;
  process.env.TZ = zone;
  try {
    return use();
  } finally {
    if (before === undefined) delete process.env.TZ;
    else process.env.TZ = before;
  }
}

/** A worker thread has a copy of the environment, which does not reach Date. */
function hostHasZones(): boolean {
  return inZone('Etc/GMT-14', () => new Date(0).getTimezoneOffset()) === -14 * 60;
}

function intlClock(timeZone: string): ZoneCalendar['wallMs'] {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    calendar: 'gregory',
    numberingSystem: 'latn',
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  });
  return (instantMs) => {
    const part: Record<string, number> = {};
    for (const { type, value } of format.formatToParts(instantMs)) part[type] = Number(value);
    const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = part;
    const milliseconds = ((instantMs % 1000) + 1000) % 1000;
    return Date.UTC(year, month - 1, day, hour, minute, second) + milliseconds;
  };
}

/** The first whole second between the two at which `before` holds no more. */
function changeMs(fromMs: number, toMs: number, before: (instantMs: number) => boolean): number {
  let low = Math.floor(fromMs / 1000);
  let high = Math.ceil(toMs / 1000);
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (before(middle * 1000)) low = middle;
    else high = middle;
  }
  return high * 1000;
}
