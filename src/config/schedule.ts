import { createTask, parse } from 'node-cron';
import { TillsyncError } from '../core/errors.ts';
import { type Schedule, zoneCalendar } from '../core/time.ts';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const PUT_BACK_MAX_MS = 4 * HOUR_MS;
/** 29 February on a given weekday comes round within 40 years whatever century year lies between. */
const SEARCH_MS = 40 * 366 * DAY_MS;

/**
 * When a cron expression is due in a time zone, by node-cron's reading of its fields. Over daylight saving it
 * keeps what is meant: an expression for every hour follows real time; one for certain hours runs once on each
 * of its days, at the end of the gap when the clock skips its time, and only the first time when the clock
 * shows it twice. Throws `config-invalid` for an expression that can never be due.
 */
export function cronSchedule(expression: string, timezone: string): Schedule {
  const name = `${expression} ${timezone}`;
  const schedule = schedules.get(name) ?? makeSchedule(expression, timezone);
  schedules.set(name, schedule);
  return schedule;
}

/** Those of one configuration are a handful, and each heartbeat asks for one. */
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
        // What the clock showed long ago names no later instant, even when it was put back meanwhile.
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
        // Short steps only near midnight, where the clock may be put.
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
 * Whether the expression is due at `timeMs`, a time of its own, on a day, given as that day's midnight on the clock
 * face. Asks node-cron, on a clock without daylight saving.
 */
function dayMatcher(expression: string, timeMs: number): (dayMs: number) => boolean {
  const { dayOfMonth, month, dayOfWeek } = parse(expression);
  if (dayOfMonth.length === 31 && month.length === 12 && dayOfWeek.length === 7) return () => true;
  let known: { dayMs: number; matches: boolean } | undefined;
  return (dayMs) => {
    if (!month.includes(new Date(dayMs).getUTCMonth() + 1)) return false;
    if (known?.dayMs === dayMs) return known.matches;
    // A task of node-cron stays in its registry for ever unless it is destroyed.
    const task = createTask(expression, () => {}, { timezone: 'UTC' });
    known = { dayMs, matches: task.match(new Date(dayMs + timeMs)) };
    void task.destroy();
    return known.matches;
  };
}
