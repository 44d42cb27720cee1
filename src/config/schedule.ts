import { createTask, parse } from 'node-cron';
import { TillsyncError } from '../core/errors.ts';
import { type Schedule, zoneCalendar } from '../core/time.ts';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const PUT_BACK_MAX_MS = 4 * HOUR_MS;
/**
 * Longest search for a due day. 29 February falls on a given weekday within 40 years, even across a century year
 * without a leap day.
 */
const SEARCH_MS = 40 * 366 * DAY_MS;

/**
 * Returns the due times of a cron expression in a time zone; node-cron reads its fields. When clocks change, an hourly
 * expression follows real time. An expression for certain hours runs once on each of its days: at the end of a skipped
 * hour, and only the first time in a repeated hour. `nextAfter` throws `config-invalid` if none is ever due.
 */
export function cronSchedule(expression: string, timezone: string): Schedule {
  const name = `${expression} ${timezone}`;
  const schedule = schedules.get(name) ?? makeSchedule(expression, timezone);
  schedules.set(name, schedule);
  return schedule;
}

/** Schedules by expression and zone. A configuration has few, but each heartbeat asks for one. */
const schedules = new Map<string, Schedule>();

function makeSchedule(expression: string, timezone: string): Schedule {
  const fields = parse(expression);
  const calendar = zoneCalendar(timezone);
  const rising = (values: readonly number[], unitMs: number) =>
    values.map((value) => value * unitMs).toSorted((a, b) => a - b);
  const minutes = rising(fields.minute, MINUTE_MS);
  const seconds = rising(fields.second, SECOND_MS);
  const times = rising(fields.hour, HOUR_MS).flatMap((hour) => minutes.map((minute) => hour + minute));
  const onDay = dayMatcher(expression, (times[0] ?? 0) + (seconds[0] ?? 0));

  const nextOfCertainHours = (afterMs: number): number | undefined => {
    const afterWallMs = calendar.wallMs(afterMs);
    const firstDayMs = Math.floor(afterWallMs / DAY_MS) * DAY_MS - DAY_MS;
    for (let dayMs = firstDayMs; dayMs < firstDayMs + SEARCH_MS; dayMs += DAY_MS) {
      if (!onDay(dayMs)) continue;
      for (const time of times) {
        // A local time more than four hours ago cannot occur again, even if clocks were set back in between.
        if (dayMs + time < afterWallMs - PUT_BACK_MAX_MS) continue;
        const due = seconds.map((second) => calendar.firstInstantMs(dayMs + time + second));
        const dueMs = due.find((instantMs) => instantMs > afterMs);
        if (dueMs !== undefined) return dueMs;
      }
    }
    return undefined;
  };

  const nextOfEveryHour = (afterMs: number): number | undefined => {
    const fromMs = Math.floor(afterMs / MINUTE_MS) * MINUTE_MS;
    for (let minuteMs = fromMs; minuteMs < fromMs + SEARCH_MS; minuteMs += MINUTE_MS) {
      const wallMs = calendar.wallMs(minuteMs);
      const timeMs = wallMs % DAY_MS;
      if (!onDay(wallMs - timeMs)) {
        // On a day that is not due, the search jumps to 21:00. Near midnight it goes on minute by minute, because
        // clocks may change there.
        const restMs = 21 * HOUR_MS - timeMs;
        if (restMs > 15 * MINUTE_MS) minuteMs += Math.floor(restMs / MINUTE_MS) * MINUTE_MS - MINUTE_MS;
      } else if (minutes.includes(Math.floor((wallMs % HOUR_MS) / MINUTE_MS) * MINUTE_MS)) {
        const due = seconds.find((second) => minuteMs + second > afterMs);
        if (due !== undefined) return minuteMs + due;
      }
    }
    return undefined;
  };

  const next = fields.hour.length === 24 ? nextOfEveryHour : nextOfCertainHours;
  return {
    nextAfter(afterMs) {
      const dueMs = next(afterMs);
      if (dueMs !== undefined) return dueMs;
      throw new TillsyncError('config-invalid', `The cron expression "${expression}" is never due.`, {
        hint: 'Its day, month and weekday never fall together; correct it in the configuration.',
      });
    },
  };
}

/**
 * Returns a function that checks whether the expression is due at `timeMs` of a day, which is given by its midnight in
 * local time. node-cron is asked in UTC, which has no daylight saving.
 */
function dayMatcher(expression: string, timeMs: number): (dayMs: number) => boolean {
  const { dayOfMonth, month, dayOfWeek } = parse(expression);
  if (dayOfMonth.length === 31 && month.length === 12 && dayOfWeek.length === 7) return () => true;
  let known: { dayMs: number; matches: boolean } | undefined;
  return (dayMs) => {
    if (!month.includes(new Date(dayMs).getUTCMonth() + 1)) return false;
    if (known?.dayMs === dayMs) return known.matches;
    // node-cron keeps a task for ever unless it is destroyed.
    const task = createTask(expression, () => {}, { timezone: 'UTC' });
    known = { dayMs, matches: task.match(new Date(dayMs + timeMs)) };
    void task.destroy();
    return known.matches;
  };
}
