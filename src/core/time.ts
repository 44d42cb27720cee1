/**
 * Clocks, passed as a parameter so that a test can let a month pass in a second. Rate limits use the monotonic clock,
 * because the wall clock may jump.
 */
export interface Clock {
  /** Wall clock in milliseconds since the epoch. Used for people, dates and tokens, never for rate limits. */
  nowMs(): number;
  /** Monotonic clock in milliseconds with fractions, the same for all processes of one boot. Used for rate limits. */
  monotonicMs(): number;
  /** Id of the boot to which `monotonicMs` belongs. Monotonic times of different boots cannot be compared. */
  readonly bootId: string;
  /** Waits about `ms` or longer. Ends early, without an error, if `signal` aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** Returns a function that calls `look` and caches its result for `ms`. It does not cache an error or undefined. */
export function keptFor<T>(ms: number, clock: Pick<Clock, 'monotonicMs'>, look: () => T): () => T {
  let kept: { found: T; untilMonoMs: number } | undefined;
  return () => {
    if (kept?.found === undefined || clock.monotonicMs() >= kept.untilMonoMs) {
      kept = { found: look(), untilMonoMs: clock.monotonicMs() + ms };
    }
    return kept.found;
  };
}

/** Source of random numbers, passed as a parameter. Tests pass one with a seed, so that a run can be repeated. */
export interface Random {
  /** Returns a number in [0, 1), uniformly distributed. */
  next(): number;
}

let lastMs = Number.NaN;
let lastText = '';

/**
 * Returns a time as ISO 8601 in UTC with milliseconds, the form of all times in the mirror. The last result is cached,
 * because many rows have the same time.
 */
export function isoUtc(epochMs: number): string {
  if (epochMs !== lastMs) {
    lastText = new Date(epochMs).toISOString();
    lastMs = epochMs;
  }
  return lastText;
}

const UNIT_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses `"500ms"`, `"1s"`, `"2m"`, `"1h"` or `"7d"` to milliseconds. Returns undefined for any other text. */
export function parseDurationMs(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text.trim());
  if (!match) return undefined;
  const ms = Number(match[1]) * (UNIT_MS[match[2] as string] as number);
  return Number.isSafeInteger(Math.round(ms)) ? Math.round(ms) : undefined;
}

/** Returns a duration as text for people: `1m 12s`, `2d 3h`, `850ms`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}ms`;
  let rest = Math.ceil(ms / 1000);
  const parts: string[] = [];
  for (const [unit, seconds] of [
    ['d', 86_400],
    ['h', 3600],
    ['m', 60],
    ['s', 1],
  ] as const) {
    const n = Math.floor(rest / seconds);
    rest -= n * seconds;
    if (n > 0) parts.push(`${n}${unit}`);
    if (parts.length === 2) break;
  }
  return parts.join(' ');
}

/** Due times of a cron expression in a time zone. */
export interface Schedule {
  /** Returns the first due time strictly after `afterMs`; both in milliseconds since the epoch. */
  nextAfter(afterMs: number): number;
}

const HOUR_MS = 3_600_000;
/** Every time zone differs from UTC by less than this, and no zone changes its clock twice within this time. */
const REACH_MS = 26 * HOUR_MS;
const OFFSETS_MAX = 100;

/** Canonical names of time zones, by the given names. A process uses few zones, and Intl resolves a name slowly. */
const zones = new Map<string, string>();

/** Returns the canonical name of the zone's rules. Throws a RangeError for an unknown zone. */
export function canonicalZone(timeZone: string): string {
  const zone = zones.get(timeZone) ?? new Intl.DateTimeFormat('en', { timeZone }).resolvedOptions().timeZone;
  zones.set(timeZone, zone);
  return zone;
}

/** Calendars by zone. A process uses few zones. */
const calendars = new Map<string, ZoneCalendar>();

/** Returns the calendar of a zone by its IANA name. Throws a RangeError for an unknown zone. */
export function zoneCalendar(timeZone: string): ZoneCalendar {
  const calendar = calendars.get(timeZone) ?? new ZoneCalendar(timeZone);
  calendars.set(timeZone, calendar);
  return calendar;
}

const UTC_TIME = /\b(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?)(?:Z\b| UTC\b)/g;

/** Replaces each UTC time in a text by the text that `write` returns. */
export function withTimes(text: string, write: (ms: number) => string): string {
  return text.replaceAll(UTC_TIME, (all, day: string, clock: string) => {
    const ms = Date.parse(`${day}T${clock}Z`);
    return Number.isNaN(ms) ? all : write(ms);
  });
}

/** Returns the calendar date of a time in a zone, as YYYY-MM-DD. */
export function dateIn(timezone: string, epochMs: number): string {
  return new Date(zoneCalendar(timezone).wallMs(epochMs)).toISOString().slice(0, 10);
}

/** Returns a time as the zone's clock shows it, such as `2026-01-15 09:30`. */
export function localTime(instantMs: number, timeZone: string): string {
  return isoUtc(zoneCalendar(timeZone).wallMs(instantMs)).slice(0, 16).replace('T', ' ');
}

/**
 * Replaces the UTC times in a text by times of the zone. The date is left out if it is today:
 * `2026-01-15T12:30:00.000Z` → `09:30`.
 */
export function localTimes(text: string, timeZone: string, nowMs: number): string {
  const today = dateIn(timeZone, nowMs);
  return withTimes(text, (ms) => localTime(ms, timeZone)).replaceAll(
    new RegExp(`\\b${today} (?=\\d{2}:\\d{2}\\b)`, 'g'),
    '',
  );
}

/**
 * Converts between UTC and the local time of a zone. A local time is expressed as the instant at which UTC shows the
 * same date and time.
 */
class ZoneCalendar {
  readonly #format: Intl.DateTimeFormat;
  /**
   * Offsets from UTC by the start of the hour, only of hours in which the clock does not change. This map is much
   * faster than Intl.
   */
  readonly #offsets = new Map<number, number>();

  constructor(timeZone: string) {
    this.#format = new Intl.DateTimeFormat('en-US', {
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
  }

  wallMs(instantMs: number): number {
    const hourMs = Math.floor(instantMs / HOUR_MS) * HOUR_MS;
    const known = this.#offsets.get(hourMs);
    if (known !== undefined) return Math.trunc(instantMs) + known;
    const offsetMs = this.#asked(hourMs) - hourMs;
    if (this.#asked(hourMs + HOUR_MS) - (hourMs + HOUR_MS) !== offsetMs) return this.#asked(instantMs);
    // The map is cleared when it is full. Calls ask for a few days around now, so few hours are needed at a time.
    if (this.#offsets.size >= OFFSETS_MAX) this.#offsets.clear();
    this.#offsets.set(hourMs, offsetMs);
    return Math.trunc(instantMs) + offsetMs;
  }

  /**
   * Returns the first instant at which the zone's clock shows `wallMs`. If the clock skips that time, returns the
   * instant of the change.
   */
  firstInstantMs(wallMs: number): number {
    const beforeMs = this.#offsetMs(wallMs - REACH_MS);
    const afterMs = this.#offsetMs(wallMs + REACH_MS);
    const early = wallMs - beforeMs;
    if (beforeMs === afterMs || this.wallMs(early) === wallMs) return early;
    const late = wallMs - afterMs;
    if (this.wallMs(late) === wallMs) return late;
    // Searches for the first second at which the earlier offset no longer applies.
    let low = Math.floor((wallMs - REACH_MS) / 1000);
    let high = Math.ceil((wallMs + REACH_MS) / 1000);
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (this.#offsetMs(middle * 1000) === beforeMs) low = middle;
      else high = middle;
    }
    return high * 1000;
  }

  #offsetMs(instantMs: number): number {
    return this.wallMs(instantMs) - instantMs;
  }

  #asked(instantMs: number): number {
    const part: Record<string, number> = {};
    for (const { type, value } of this.#format.formatToParts(instantMs)) part[type] = Number(value);
    const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = part;
    const milliseconds = ((instantMs % 1000) + 1000) % 1000;
    return Date.UTC(year, month - 1, day, hour, minute, second) + milliseconds;
  }
}
