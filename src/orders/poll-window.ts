import { zoneCalendar } from '../core/time.ts';

/** A window of GET /order/all: calendar dates, both inclusive. */
export interface PollWindow {
  /** YYYY-MM-DD */
  startDate: string;
  endDate: string;
}

export interface PollWindowInput {
  /** This machine's wall clock. */
  nowMs: number;
  /** The platform's wall clock, by which its orders are dated; left out: not known. */
  platformNowMs?: number;
  /** IANA zone of the company's calendar. */
  timezone: string;
  /** Whole days to look back at least; null: only so far that nothing ordered since `reachBackToMs` is missed. */
  lookbackDays: number | null;
  /** A moment of the platform's clock the window must reach back to, such as the last complete poll; null: none. */
  reachBackToMs: number | null;
  /** However far `reachBackToMs` lies back, never more days than this. */
  lookbackDaysMax: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Orders may be heard of so much later than they were made, and clocks may differ by less. */
const OVERLAP_MS = HOUR_MS;
/** The calendars of the world that are behind and ahead of UTC the most. */
const BEHIND_MS_MAX = 12 * HOUR_MS;
const AHEAD_MS_MAX = 14 * HOUR_MS;

/**
 * The dates to ask for, by the platform's clock and by this machine's: either may be wrong. Beyond what a window may
 * reach back to the platform's alone counts, for the answer would be of any size.
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

/** Whether a window holds every date of another one. */
export function covers(outer: PollWindow, inner: PollWindow): boolean {
  return outer.startDate <= inner.startDate && inner.endDate <= outer.endDate;
}

/**
 * In whose calendar the platform reads them is not shown. Two calendars are one date apart at
 * most, or two for an hour or two where they are of the far sides of the date line, so the window is one day wider at
 * both ends and holds every calendar's date: no zone, midnight or daylight-saving change can hide an order.
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
  // Dates in this form compare as text.
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

/** Whether a moment's date lies within the window in whichever calendar it is read. */
export function liesWithin({ startDate, endDate }: PollWindow, epochMs: number): boolean {
  return (
    startDate <= dateIn('UTC', epochMs - BEHIND_MS_MAX) && dateIn('UTC', epochMs + AHEAD_MS_MAX) <= endDate
  );
}

function earliest(one: string, other: string): string {
  return one < other ? one : other;
}

function latest(one: string, other: string): string {
  return one > other ? one : other;
}

/** The calendar date of a moment in a zone, as YYYY-MM-DD. */
export function dateIn(timezone: string, epochMs: number): string {
  return new Date(zoneCalendar(timezone).wallMs(epochMs)).toISOString().slice(0, 10);
}

/** Calendar arithmetic on YYYY-MM-DD, free of any zone. */
export function addDays(date: string, days: number): string {
  return new Date(Date.parse(`${date}T00:00:00Z`) + days * DAY_MS).toISOString().slice(0, 10);
}

/** Whether the text is a date that exists, written YYYY-MM-DD. */
export function isDate(text: string): boolean {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return false;
  const ms = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text);
}
