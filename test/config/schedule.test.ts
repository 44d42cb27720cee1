import fc from 'fast-check';
import { createTask, getTasks } from 'node-cron';
import { afterEach, describe, expect, test } from 'vitest';
import { cronSchedule } from '../../src/config/schedule.ts';

function dues(expression: string, zone: string, after: string, count: number): string[] {
  const schedule = cronSchedule(expression, zone);
  const found: string[] = [];
  let at = Date.parse(after);
  for (let i = 0; i < count; i++) {
    at = schedule.nextAfter(at);
    found.push(new Date(at).toISOString().replace('.000Z', 'Z'));
  }
  return found;
}

afterEach(() => {
  expect(getTasks().size).toBe(0);
});

describe('when something is due', () => {
  test('is strictly later, even within a minute', () => {
    expect(dues('*/2 * * * *', 'UTC', '2026-03-01T10:00:00Z', 2)).toEqual([
      '2026-03-01T10:02:00Z',
      '2026-03-01T10:04:00Z',
    ]);
    expect(dues('*/2 * * * *', 'UTC', '2026-03-01T09:59:59.999Z', 1)).toEqual(['2026-03-01T10:00:00Z']);
  });

  test('may have seconds', () => {
    expect(dues('10,40 * * * * *', 'UTC', '2026-03-01T10:00:10Z', 3)).toEqual([
      '2026-03-01T10:00:40Z',
      '2026-03-01T10:01:10Z',
      '2026-03-01T10:01:40Z',
    ]);
    expect(dues('10,40 0 3 * * *', 'UTC', '2026-03-01T03:00:10Z', 2)).toEqual([
      '2026-03-01T03:00:40Z',
      '2026-03-02T03:00:10Z',
    ]);
    expect(dues('5 0 3 * * *', 'UTC', '2026-03-01T03:00:05Z', 1)).toEqual(['2026-03-02T03:00:05Z']);
  });

  test('is on the clock of the zone', () => {
    expect(dues('30 4 * * *', 'America/Santiago', '2026-01-10T00:00:00Z', 2)).toEqual([
      '2026-01-10T07:30:00Z',
      '2026-01-11T07:30:00Z',
    ]);
    expect(dues('15 * * * *', 'Asia/Kathmandu', '2026-01-10T00:00:00Z', 1)).toEqual(['2026-01-10T00:30:00Z']);
  });

  test('may be years away', () => {
    expect(dues('0 0 29 2 1', 'UTC', '2026-01-01T00:00:00Z', 1)).toEqual(['2044-02-29T00:00:00Z']);
    expect(dues('0 0 L * *', 'UTC', '2026-02-01T00:00:00Z', 1)).toEqual(['2026-02-28T00:00:00Z']);
    expect(dues('5 * 1 1 *', 'UTC', '2026-02-01T00:00:00Z', 1)).toEqual(['2027-01-01T00:05:00Z']);
  });

  test('agrees with node-cron at every minute of a day', () => {
    const field = (max: number) =>
      fc.oneof(
        fc.constant('*'),
        fc.integer({ min: 2, max: 30 }).map((n) => `*/${n}`),
        fc
          .uniqueArray(fc.integer({ min: 0, max }), { minLength: 1, maxLength: 3 })
          .map((list) => list.join(',')),
      );
    const zone = fc.constantFrom('UTC', 'America/Santiago', 'Asia/Kathmandu');
    fc.assert(
      fc.property(field(59), field(23), field(6), zone, (minute, hour, weekday, timezone) => {
        const expression = `${minute} ${hour} * * ${weekday}`;
        const schedule = cronSchedule(expression, timezone);
        const task = createTask(expression, () => {}, { timezone });
        const from = Date.UTC(2026, 5, 10, 7, 13);
        const to = from + 86_400_000;
        const expected: number[] = [];
        for (let at = from + 60_000; at <= to; at += 60_000) if (task.match(new Date(at))) expected.push(at);
        void task.destroy();
        const found: number[] = [];
        for (let at = schedule.nextAfter(from); at <= to; at = schedule.nextAfter(at)) found.push(at);
        expect(found).toEqual(expected);
      }),
      { numRuns: 5, seed: 20_260_610 },
    );
  });
});

describe('over daylight saving', () => {
  // Santiago puts its clock forward at 2026-09-06T04:00Z (midnight to 01:00) and back at 2026-04-05T03:00Z.
  test('a daily time that the clock skips runs once, at the end of the gap', () => {
    expect(dues('30 0 * * *', 'America/Santiago', '2026-09-05T05:00:00Z', 2)).toEqual([
      '2026-09-06T04:00:00Z',
      '2026-09-07T03:30:00Z',
    ]);
  });

  test('a daily time that the clock shows twice runs once, the first time', () => {
    expect(dues('30 23 * * *', 'America/Santiago', '2026-04-04T12:00:00Z', 2)).toEqual([
      '2026-04-05T02:30:00Z',
      '2026-04-06T03:30:00Z',
    ]);
    expect(dues('30 23 * * *', 'America/Santiago', '2026-04-05T03:10:00Z', 1)).toEqual([
      '2026-04-06T03:30:00Z',
    ]);
  });

  test('an expression for every hour follows real time', () => {
    expect(dues('*/30 * * * *', 'America/Santiago', '2026-04-05T02:00:00Z', 4)).toEqual([
      '2026-04-05T02:30:00Z',
      '2026-04-05T03:00:00Z',
      '2026-04-05T03:30:00Z',
      '2026-04-05T04:00:00Z',
    ]);
    expect(dues('*/30 * * * *', 'America/Santiago', '2026-09-06T03:30:00Z', 2)).toEqual([
      '2026-09-06T04:00:00Z',
      '2026-09-06T04:30:00Z',
    ]);
  });

  test('a day that the calendar skips does not hide what is due', () => {
    // Apia skipped 30 December 2011.
    expect(dues('0 12 * * *', 'Pacific/Apia', '2011-12-29T22:30:00Z', 2)).toEqual([
      '2011-12-30T10:00:00Z',
      '2011-12-30T22:00:00Z',
    ]);
  });

  test('every day has exactly one run, whatever the hour', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 23 }),
        fc.integer({ min: 0, max: 59 }),
        fc.constantFrom('America/Santiago', 'Europe/Madrid', 'Australia/Lord_Howe'),
        (hour, minute, zone) => {
          const schedule = cronSchedule(`${minute} ${hour} * * *`, zone);
          let at = Date.UTC(2026, 0, 1);
          let runs = 0;
          for (const end = Date.UTC(2027, 0, 1); at < end; runs++) at = schedule.nextAfter(at);
          expect(runs - 1).toBe(365);
        },
      ),
      { numRuns: 8, seed: 7 },
    );
  });
});
