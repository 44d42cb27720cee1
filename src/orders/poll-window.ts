import { zoneCalendar } from '../core/time.ts';

/** A window of GET /order/all: calendar dates, both inclusive. */
export interface PollWindow {
  /** YYYY-MM-DD */
  startDate: string;
  endDate: string;
}

interface PollWindowInput {
  /** This machine's wall clock. */
  nowMs: number;
  /** The platform's wall clock, which dates its orders; left out if unknown. */
  platformNowMs?: number;
  /** IANA zone of the company's calendar. */
  timezone: string;
  /**
   * Minimum of whole days to look back. If null, the window reaches back only as far as `reachBackToMs`
   * demands.
   */
  lookbackDays: number | null;
  /** A time on the platform's clock that the window must include, such as the last complete poll; null if none. */
  reachBackToMs: number | null;
  /** Maximum days to look back, however old `reachBackToMs` is. */
  lookbackDaysMax: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** An order may become visible this long after its creation. It also covers differences between clocks. */
const OVERLAP_MS = HOUR_MS;
/** The calendars furthest behind and ahead of UTC. */
const BEHIND_MS_MAX = 12 * HOUR_MS;
const AHEAD_MS_MAX = 14 * HOUR_MS;

/**
 * Computes the dates to request by both clocks, the platform's and this machine's, because either may be wrong. If
 * they differ by more than the maximum, only the platform's counts; otherwise the answer could be of any size.
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

/** Whether a window contains every date of another one. */
export function covers(outer: PollWindow, inner: PollWindow): boolean {
  return outer.startDate <= inner.startDate && inner.endDate <= outer.endDate;
}

/**
 * Computes the window for one clock. The document does not say in whose calendar the platform reads dates. Two
 * calendars differ by one date, or two near the date line. So the window is one day wider at both ends, and no zone,
 * midnight or clock change can hide an order.
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

/** Whether a time's date lies within the window in every calendar. */
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

/** Returns the calendar date of a time in a zone, as YYYY-MM-DD. */
export function dateIn(timezone: string, epochMs: number): string {
  return new Date(zoneCalendar(timezone).wallMs(epochMs)).toISOString().slice(0, 10);
}

/** Adds days to a YYYY-MM-DD date, independent of any zone. */
export function addDays(date: string, days: number): string {
  return new Date(Date.parse(`${date}T00:00:00Z`) + days * DAY_MS).toISOString().slice(0, 10);
}

/** Whether the text is an existing date, written YYYY-MM-DD. */
export function isDate(text: string): boolean {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return false;
  const ms = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text);
}
