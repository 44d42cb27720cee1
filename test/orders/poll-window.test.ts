import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { dateIn } from '../../src/core/time.ts';
import {
  addDays,
  isDate,
  liesWithin,
  oldWindows,
  pollWindow,
} from '../../src/orders/receiving/poll-window.ts';
import { runsOf } from '../support/seed.ts';

const zones = [
  'Etc/GMT+12',
  'America/Santiago',
  'Pacific/Kiritimati',
  'Pacific/Pago_Pago',
  'UTC',
  'Australia/Lord_Howe',
];
const moment = fc.integer({ min: Date.UTC(2024, 0, 1), max: Date.UTC(2030, 0, 1) });

describe('pollWindow', () => {
  it('is one date wider at both ends than the look-back', () => {
    expect(
      pollWindow({
        nowMs: Date.UTC(2026, 2, 10, 15),
        timezone: 'America/Santiago',
        lookbackDays: 1,
        reachBackToMs: null,
        lookbackDaysMax: 30,
      }),
    ).toEqual({ startDate: '2026-03-08', endDate: '2026-03-11' });
  });

  it('reaches back over an outage, but not beyond its cap', () => {
    const base = { nowMs: Date.UTC(2026, 2, 31, 15), timezone: 'UTC', lookbackDays: 1, lookbackDaysMax: 10 };
    expect(pollWindow({ ...base, reachBackToMs: Date.UTC(2026, 2, 25) }).startDate).toBe('2026-03-24');
    expect(pollWindow({ ...base, reachBackToMs: Date.UTC(2025, 2, 25) }).startDate).toBe('2026-03-20');
  });

  it('holds the dates of both sides of the date line, which are two apart for an hour', () => {
    const base = { lookbackDays: 0, reachBackToMs: null, lookbackDaysMax: 10 };
    const nowMs = Date.UTC(2028, 2, 8, 10, 30);
    expect(dateIn('Pacific/Pago_Pago', nowMs)).toBe('2028-03-07');
    expect(pollWindow({ ...base, nowMs, timezone: 'Pacific/Pago_Pago' })).toEqual({
      startDate: '2028-03-06',
      endDate: '2028-03-09',
    });
    expect(dateIn('Pacific/Kiritimati', nowMs)).toBe('2028-03-09');
    expect(pollWindow({ ...base, nowMs, timezone: 'Pacific/Kiritimati' })).toEqual({
      startDate: '2028-03-07',
      endDate: '2028-03-10',
    });
  });

  it('holds, in whatever calendar the platform reads the dates, all orders of the look-back', () => {
    fc.assert(
      fc.property(
        moment,
        fc.constantFrom(...zones),
        fc.constantFrom(...zones),
        fc.integer({ min: 0, max: 20 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (nowMs, ours, theirs, lookbackDays, share) => {
          const window = pollWindow({
            nowMs,
            timezone: ours,
            lookbackDays,
            reachBackToMs: null,
            lookbackDaysMax: 30,
          });
          const createdMs = nowMs - share * lookbackDays * 86_400_000;
          const theirDate = dateIn(theirs, createdMs);
          expect(theirDate >= window.startDate && theirDate <= window.endDate).toBe(true);
        },
      ),
      { numRuns: runsOf(2_000) },
    );
  });

  it('of the running day holds all that was ordered since the last poll, in whatever calendar, and no day more', () => {
    const windowOf = (nowMs: number, reachBackToMs: number) =>
      pollWindow({
        nowMs,
        timezone: 'America/Santiago',
        lookbackDays: null,
        reachBackToMs,
        lookbackDaysMax: 30,
      });
    // In Chile, `afternoon` is 13:00 and `morning` is 09:00.
    const afternoon = Date.UTC(2026, 2, 10, 16);
    expect(windowOf(afternoon, afternoon - 120_000)).toEqual({
      startDate: '2026-03-10',
      endDate: '2026-03-11',
    });
    const morning = Date.UTC(2026, 2, 10, 12);
    expect(windowOf(morning, morning - 120_000)).toEqual({ startDate: '2026-03-09', endDate: '2026-03-11' });
    fc.assert(
      fc.property(
        moment,
        fc.constantFrom(...zones),
        fc.nat(7 * 24 * 60),
        fc.nat(60),
        (nowMs, zone, since, late) => {
          const reachBackToMs = nowMs - since * 60_000;
          const window = windowOf(nowMs, reachBackToMs);
          for (const createdMs of [reachBackToMs - late * 60_000, nowMs]) {
            const date = dateIn(zone, createdMs);
            expect(date >= window.startDate && date <= window.endDate).toBe(true);
          }
        },
      ),
    );
  });

  it('has windows for the days of old orders that hold each order in every calendar, none of them large', () => {
    const nowMs = Date.UTC(2026, 5, 15, 12);
    const wideStart = '2026-05-15';
    expect(oldWindows(['2026-03-03', '2026-03-04', '2026-04-20', '2026-06-14'], wideStart, nowMs)).toEqual([
      { startDate: '2026-03-02', endDate: '2026-03-05' },
      { startDate: '2026-04-19', endDate: '2026-04-21' },
    ]);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 400 * 24 * 60 }), { maxLength: 200 }), (minutes) => {
        const times = minutes.map((each) => nowMs - each * 60_000);
        const days = [...new Set(times.map((ms) => dateIn('UTC', ms)))].sort();
        const windows = oldWindows(days, wideStart, nowMs);
        const starts = windows.map(({ startDate }) => startDate);
        expect(starts).toEqual([...new Set(starts)].sort());
        for (const ms of times) {
          const isWide = liesWithin({ startDate: wideStart, endDate: '2026-06-17' }, ms);
          const isTooOld = nowMs - ms > 366 * 86_400_000;
          if (!isWide && !isTooOld) expect(windows.some((window) => liesWithin(window, ms))).toBe(true);
        }
        for (const { startDate, endDate } of windows) {
          expect(startDate < wideStart && startDate >= addDays('2026-06-15', -367)).toBe(true);
          expect(endDate <= addDays(startDate, 7)).toBe(true);
        }
      }),
      { numRuns: runsOf(200) },
    );
  });

  it('says of a moment whether every calendar has it within', () => {
    const window = { startDate: '2026-03-09', endDate: '2026-03-10' };
    expect(liesWithin(window, Date.UTC(2026, 2, 9, 12))).toBe(true);
    expect(liesWithin(window, Date.UTC(2026, 2, 9, 11, 59))).toBe(false);
    expect(liesWithin(window, Date.UTC(2026, 2, 10, 9, 59))).toBe(true);
    expect(liesWithin(window, Date.UTC(2026, 2, 10, 10))).toBe(false);
  });

  it('knows dates that exist', () => {
    expect(isDate('2024-02-29')).toBe(true);
    expect(isDate('2026-02-29')).toBe(false);
    expect(isDate('2026-2-1')).toBe(false);
    expect(addDays('2026-02-28', 1)).toBe('2026-03-01');
  });
});
