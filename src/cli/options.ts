import { TillsyncError } from '../core/errors.ts';
import { isoUtc, parseDurationMs, zoneCalendar } from '../core/time.ts';
import { isDate, type PollWindow } from '../orders/receiving/poll-window.ts';

function wrong(name: string, found: string, allowed: string): TillsyncError {
  return new TillsyncError('usage', `${name}: found "${found}"; allowed: ${allowed}.`);
}

/** Returns a function that reads whole numbers of at least `min`, and throws `usage` for anything else. */
export function wholeNumber(name: string, min: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && Number.isSafeInteger(value) && value >= min) return value;
    throw wrong(name, text, `a whole number from ${min}`);
  };
}

/** Returns a function that reads durations such as `5s`, and throws `usage` for anything else. */
export function duration(name: string): (text: string) => number {
  return (text) => {
    const ms = parseDurationMs(text);
    if (ms !== undefined) return ms;
    throw wrong(name, text, 'a duration such as "500ms", "5s" or "2m"');
  };
}

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const LOCAL = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?$/;
const ZONED = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})$/;
const DAY_MS = 86_400_000;

/**
 * Returns the time of an option as ISO 8601 UTC. A day becomes its beginning, or with `end` the beginning of the next
 * day. Text without a zone is in `timeZone`. Throws `usage`.
 */
export function instant(
  name: string,
  text: string | undefined,
  timeZone: string,
  ofDay: 'beginning' | 'end' = 'beginning',
): string | undefined {
  if (text === undefined) return undefined;
  const isDay = DAY.test(text);
  const wallMs = isDay || LOCAL.test(text) ? Date.parse(isDay ? text : `${text}Z`) : Number.NaN;
  const ms = Number.isNaN(wallMs)
    ? Date.parse(ZONED.test(text) ? text : '')
    : zoneCalendar(timeZone).firstInstantMs(wallMs + (isDay && ofDay === 'end' ? DAY_MS : 0));
  if (!Number.isNaN(ms)) return isoUtc(ms);
  const allowed = 'a day such as 2026-03-01, or a time such as 2026-03-01T18:30 or 2026-03-01T21:30Z';
  throw wrong(name, text, allowed);
}

/** Returns the days of `--from` and `--to`; undefined if both are left out. Throws `usage`. */
export function windowOf(from: string | undefined, to: string | undefined): PollWindow | undefined {
  if (from === undefined && to === undefined) return undefined;
  if (from === undefined) throw new TillsyncError('usage', '--to needs --from, the first day to ask for.');
  const window = { startDate: day('--from', from), endDate: day('--to', to ?? from) };
  if (window.endDate < window.startDate) {
    throw new TillsyncError('usage', `--to ${window.endDate} lies before --from ${window.startDate}.`);
  }
  return window;
}

function day(name: string, text: string): string {
  if (isDate(text)) return text;
  throw wrong(name, text, 'a day such as 2026-03-01');
}

/** Returns the error of a command with `--no-wait` that would have had to wait. */
export function notNow(why: string, retryAfterMs?: number): TillsyncError {
  return new TillsyncError('rate-limited', `Nothing was asked: ${why}.`, {
    hint: 'Try again then; without --no-wait the command waits for its turn.',
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}
