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

/** Reads the zone's rules from Intl. Throws a RangeError for a zone that it does not know. */
export function zoneCalendar(timeZone: string): ZoneCalendar {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    calendar: 'gregory',
    numberingSystem: 'latn',
    hourCycle: 'h23',
    era: 'short',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  });

  const wallMs = (instantMs: number): number => {
    const part: Record<string, number> = {};
    for (const { type, value } of format.formatToParts(instantMs)) part[type] = Number(value);
    const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = part;
    const milliseconds = ((instantMs % 1000) + 1000) % 1000;
    return Date.UTC(year, month - 1, day, hour, minute, second) + milliseconds;
  };
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
