import { formatDuration } from '../../domain/time/duration.ts';

/** An ISO time as a person in the company's zone reads it: `2026-01-02 00:04:05`; other text as it is. */
export function when(iso: string | null | undefined, timeZone: string): string | null {
  if (iso === null || iso === undefined || iso === '') return null;
  const ms = Date.parse(iso);
  if (Number.isNaN(ms)) return iso;
  return new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' }).format(ms);
}

/** The same with the zone, where no column says it. */
export function whenIn(iso: string | null | undefined, timeZone: string): string | null {
  const text = when(iso, timeZone);
  return text === null || text === iso ? text : `${text} (${timeZone})`;
}

/** Head of a column of times: `CREATED (America/Santiago)`. */
export function timeTitle(title: string, timeZone: string): string {
  return `${title} (${timeZone})`;
}

/** How long ago, or how soon: `3m ago`, `in 29d 3h`. */
export function ago(iso: string, nowMs: number): string {
  const ms = nowMs - Date.parse(iso);
  if (Number.isNaN(ms)) return iso;
  if (Math.abs(ms) < 1000) return 'just now';
  return ms > 0 ? `${formatDuration(ms)} ago` : `in ${formatDuration(-ms)}`;
}
