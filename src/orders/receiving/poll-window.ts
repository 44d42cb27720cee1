import { dateIn } from '../../core/time.ts';

/** A window of GET /order/all: calendar dates, both inclusive. */
export interface PollWindow {
  /** First date, as YYYY-MM-DD. */
  startDate: string;
  endDate: string;
}

interface PollWindowInput {
  /** This machine's wall clock, milliseconds since 1970. */
  nowMs: number;
  /** The platform's wall clock, which gives orders their dates; missing if unknown. */
  platformNowMs?: number;
  /** IANA time zone of the company. */
  timezone: string;
  /** Minimum number of whole days to look back. If null, the window reaches back only to `reachBackToMs`. */
  lookbackDays: number | null;
  /** Time on the platform's clock that the window must include, such as the last complete poll; null if none. */
  reachBackToMs: number | null;
  /** Maximum number of days to look back, however old `reachBackToMs` is. */
  lookbackDaysMax: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/**
 * Time that the running day's window reaches back before `reachBackToMs`, because a new order may be missing from
 * answers for a while and clocks may differ.
 */
const OVERLAP_MS = HOUR_MS;
/** Offsets from UTC of the time zones furthest behind and furthest ahead. */
const BEHIND_MS_MAX = 12 * HOUR_MS;
const AHEAD_MS_MAX = 14 * HOUR_MS;

/**
 * Returns the dates to request, by both the platform's and this machine's clock, because either may be wrong. If the
 * clocks differ by more than `lookbackDaysMax`, only the platform's is used, to limit the size of the answer.
 */
export function pollWindow({ nowMs, platformNowMs = nowMs, ...input }: PollWindowInput): PollWindow {
  const byPlatform = windowAt(platformNowMs, input);
  if (Math.abs(platformNowMs - nowMs) > input.lookbackDaysMax * DAY_MS) return byPlatform;
  const byMachine = windowAt(nowMs, input);
  return {
    startDate: earliest(byPlatform.startDate, byMachine.startDate),
    endDate: latest(byPlatform.endDate, byMachine.endDate),
  };
}

/** Returns whether a window contains every date of another window. */
export function covers(outer: PollWindow, inner: PollWindow): boolean {
  return outer.startDate <= inner.startDate && inner.endDate <= outer.endDate;
}

/**
 * Returns the window for one clock. It is wide enough for every time zone, because the document does not say in which
 * one the platform reads dates; the dates of two time zones may differ by up to two.
 */
function windowAt(nowMs: number, input: Omit<PollWindowInput, 'nowMs' | 'platformNowMs'>): PollWindow {
  const { timezone, lookbackDays, lookbackDaysMax } = input;
  const reachMs = Math.min(input.reachBackToMs ?? nowMs, nowMs);
  const endMs = nowMs + AHEAD_MS_MAX;
  if (lookbackDays === null) {
    const startMs = Math.max(reachMs - OVERLAP_MS, nowMs - lookbackDaysMax * DAY_MS);
    return { startDate: dateIn('UTC', startMs - BEHIND_MS_MAX), endDate: dateIn('UTC', endMs) };
  }
  const today = dateIn(timezone, nowMs);
  const floor = addDays(today, -lookbackDaysMax);
  // Dates in the form YYYY-MM-DD can be compared as texts.
  const reach = latest(dateIn(timezone, reachMs), floor);
  const start = earliest(addDays(today, -lookbackDays), reach);
  const sinceMs = Math.min(
    nowMs - lookbackDays * DAY_MS,
    Math.max(reachMs, nowMs - lookbackDaysMax * DAY_MS),
  );
  return {
    startDate: earliest(addDays(start, -1), dateIn('UTC', sinceMs - BEHIND_MS_MAX)),
    endDate: latest(addDays(today, 1), dateIn('UTC', endMs)),
  };
}

/** Returns whether the window contains the date of a time in every time zone. */
export function liesWithin({ startDate, endDate }: PollWindow, epochMs: number): boolean {
  return (
    startDate <= dateIn('UTC', epochMs - BEHIND_MS_MAX) && dateIn('UTC', epochMs + AHEAD_MS_MAX) <= endDate
  );
}

/** Number of days that a look for an old order reaches back. */
const OLD_DAYS_MAX = 366;
/** Maximum number of dates in one window of old days, to limit the size of the answer. */
const OLD_WINDOW_DAYS = 7;

/**
 * Returns the windows for the days of old open orders that a wide poll, from `wideStart` on, does not reach, oldest
 * first. `days` are their days of creation in UTC, ascending. A window has the dates of its days in every time zone, and
 * neighbouring days share one: 3 and 4 May → 2 to 5 May.
 */
export function oldWindows(days: readonly string[], wideStart: string, nowMs: number): PollWindow[] {
  const floor = addDays(dateIn('UTC', nowMs), -OLD_DAYS_MAX);
  const windows: PollWindow[] = [];
  for (const day of days) {
    const startDate = addDays(day, -1);
    if (day < floor || startDate >= wideStart) continue;
    const endDate = addDays(day, 1);
    const last = windows.at(-1);
    const isNear = last !== undefined && startDate <= addDays(last.endDate, 1);
    if (isNear && endDate < addDays(last.startDate, OLD_WINDOW_DAYS)) last.endDate = endDate;
    else windows.push({ startDate, endDate });
  }
  return windows;
}

function earliest(one: string, other: string): string {
  return one < other ? one : other;
}

function latest(one: string, other: string): string {
  return one > other ? one : other;
}

/** Adds days to a YYYY-MM-DD date, without regard to any zone. */
export function addDays(date: string, days: number): string {
  return new Date(Date.parse(`${date}T00:00:00Z`) + days * DAY_MS).toISOString().slice(0, 10);
}

/** Returns whether the text is an existing date in the form YYYY-MM-DD. */
export function isDate(text: string): boolean {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return false;
  const ms = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text);
}
