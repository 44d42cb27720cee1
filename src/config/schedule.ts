import { createTask, type ParsedFields, parse, type ScheduledTask } from 'node-cron';
import { TillsyncError } from '../domain/errors.ts';
import type { Schedule } from '../domain/time/schedule.ts';
import { zoneCalendar } from '../domain/time/zone-calendar.ts';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const PUT_BACK_MAX_MS = 4 * HOUR_MS;
/** 29 February on a given weekday comes round within 40 years whatever century year lies between. */
const SEARCH_DAYS = 40 * 366;

/**
 * When a cron expression is due in a time zone, by node-cron's reading of its fields. Over daylight saving it
 * keeps what is meant: an expression for every hour follows real time; one for certain hours runs once on each
 * of its days, at the end of the gap when the clock skips its time, and only the first time when the clock
 * shows it twice. Throws `config-invalid` for an expression that can never be due.
 */
export function cronSchedule(expression: string, timezone: string): Schedule {
  const fields = sorted(parse(expression));
  const onDay = dayMatcher(expression, fields);
  const calendar = zoneCalendar(timezone);
  const everyHour = fields.hour.length === 24;
  const times = fields.hour.flatMap((hour) =>
    fields.minute.map((minute) => hour * HOUR_MS + minute * MINUTE_MS),
  );
  const seconds = fields.second.map((second) => second * SECOND_MS);

  const nextOfCertainHours = (afterMs: number): number | undefined => {
    const afterWallMs = calendar.wallMs(afterMs);
    const firstDayMs = Math.floor(afterWallMs / DAY_MS) * DAY_MS - DAY_MS;
    for (let dayMs = firstDayMs; dayMs < firstDayMs + SEARCH_DAYS * DAY_MS; dayMs += DAY_MS) {
      if (!onDay(dayMs)) continue;
      for (const time of times) {
        // What the clock showed long ago names no later instant, even when it was put back meanwhile.
        if (dayMs + time < afterWallMs - PUT_BACK_MAX_MS) continue;
        for (const second of seconds) {
          const dueMs = calendar.firstInstantMs(dayMs + time + second);
          if (dueMs > afterMs) return dueMs;
        }
      }
    }
    return undefined;
  };

  const minutes = new Set(fields.minute);
  const nextOfEveryHour = (afterMs: number): number | undefined => {
    let minuteMs = Math.floor(afterMs / MINUTE_MS) * MINUTE_MS;
    const endMs = minuteMs + SEARCH_DAYS * DAY_MS;
    while (minuteMs < endMs) {
      const wallMs = calendar.wallMs(minuteMs);
      const dayMs = Math.floor(wallMs / DAY_MS) * DAY_MS;
      if (!onDay(dayMs)) {
        minuteMs += untilNearMidnightMs(wallMs - dayMs);
        continue;
      }
      if (minutes.has(Math.floor((wallMs - dayMs) / MINUTE_MS) % 60)) {
        const due = seconds.find((second) => minuteMs + second > afterMs);
        if (due !== undefined) return minuteMs + due;
      }
      minuteMs += MINUTE_MS;
    }
    return undefined;
  };

  return {
    nextAfter(afterMs) {
      const dueMs = everyHour ? nextOfEveryHour(afterMs) : nextOfCertainHours(afterMs);
      if (dueMs !== undefined) return dueMs;
      throw new TillsyncError('config-invalid', `The cron expression "${expression}" is never due.`, {
        hint: 'Its day, month and weekday never fall together; correct it in the configuration.',
      });
    },
  };
}

/** `1,0` comes as it was written. */
function sorted(fields: ParsedFields): ParsedFields {
  const ascending = (values: number[]) => values.toSorted((a, b) => a - b);
  return {
    ...fields,
    second: ascending(fields.second),
    minute: ascending(fields.minute),
    hour: ascending(fields.hour),
  };
}

/** Strides over a day that does not match, and takes short steps near midnight, where the clock may be put. */
function untilNearMidnightMs(timeOfDayMs: number): number {
  const restMs = 21 * HOUR_MS - timeOfDayMs;
  return restMs > 15 * MINUTE_MS ? Math.floor(restMs / MINUTE_MS) * MINUTE_MS : MINUTE_MS;
}

/**
 * Whether the expression is due at some time of a day, given as that day's midnight on the clock face. Asks
 * node-cron at the first time of the day, on a clock without daylight saving.
 */
function dayMatcher(expression: string, fields: ParsedFields): (dayMs: number) => boolean {
  const firstMs =
    (fields.hour[0] ?? 0) * HOUR_MS +
    (fields.minute[0] ?? 0) * MINUTE_MS +
    (fields.second[0] ?? 0) * SECOND_MS;
  const every =
    fields.dayOfMonth.length === 31 && fields.month.length === 12 && fields.dayOfWeek.length === 7;
  if (every) return () => true;
  let known: { dayMs: number; matches: boolean } | undefined;
  const months = new Set(fields.month);
  return (dayMs) => {
    if (!months.has(new Date(dayMs).getUTCMonth() + 1)) return false;
    if (known?.dayMs !== dayMs) {
      known = { dayMs, matches: withTask(expression, (task) => task.match(new Date(dayMs + firstMs))) };
    }
    return known.matches;
  };
}

/** A task of node-cron stays in its registry for ever unless it is destroyed. */
function withTask<T>(expression: string, use: (task: ScheduledTask) => T): T {
  const task = createTask(expression, () => {}, { timezone: 'UTC' });
  try {
    return use(task);
  } finally {
    void task.destroy();
  }
}
