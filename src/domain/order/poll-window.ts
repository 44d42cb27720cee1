import { zoneCalendar } from '../time/zone-calendar.ts';

/** A window of GET /order/all: calendar dates, both inclusive. */
export interface PollWindow {
  /** YYYY-MM-DD */
  startDate: string;
  endDate: string;
}

export interface PollWindowInput {
  nowMs: number;
  /** IANA zone of the company's calendar. */
  timezone: string;
  /** Whole days to look back at least. */
  lookbackDays: number;
  /** A moment the window must reach back to, such as the last complete poll; null: none. */
  reachBackToMs: number | null;
  /** However far `reachBackToMs` lies back, never more days than this. */
  lookbackDaysMax: number;
}

const DAY_MS = 86_400_000;

/**
 * The dates to ask for. In whose calendar the platform reads them is not shown, and any two calendars are at
 * most one date apart, so the window is one day wider at both ends: no zone, midnight or daylight-saving change
 * can hide an order.
 */
export function pollWindow(input: PollWindowInput): PollWindow {
  const today = dateIn(input.timezone, input.nowMs);
  const floor = addDays(today, -input.lookbackDaysMax);
  let start = addDays(today, -input.lookbackDays);
  if (input.reachBackToMs !== null && input.reachBackToMs < input.nowMs) {
    const reach = dateIn(input.timezone, input.reachBackToMs);
    // Dates in this form compare as text.
    if (reach < start) start = [reach, floor].toSorted()[1] as string;
  }
  return { startDate: addDays(start, -1), endDate: addDays(today, 1) };
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
