/** Tests src/core/time.ts. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { canonicalZone, localTimes, zoneCalendar } from '../../src/core/time.ts';

const ZONES = Intl.supportedValuesOf('timeZone');

function intlWall(timeZone: string, instantMs: number): string {
  return new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' }).format(
    instantMs,
  );
}

describe('the clock of a zone', () => {
  test('shows what Intl shows, in every zone and year', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...ZONES),
        fc.integer({ min: 0, max: Date.UTC(2100, 0, 1) / 1000 }),
        (zone, second) => {
          const wall = new Date(zoneCalendar(zone).wallMs(second * 1000)).toISOString();
          expect(wall.slice(0, 19).replace('T', ' ')).toBe(intlWall(zone, second * 1000));
        },
      ),
      { numRuns: 300 },
    );
  });

  test.each([
    ['America/Santiago', '2026-04-04T12:00Z'],
    ['America/Santiago', '2026-09-05T12:00Z'],
    ['Australia/Lord_Howe', '2026-10-03T00:00Z'],
    ['Africa/Monrovia', '1972-01-06T12:00Z'],
  ])('shows every minute of %s from %s, where the clock is put', (zone, from) => {
    const fromMs = Date.parse(from);
    for (let at = fromMs; at < fromMs + 36 * 3_600_000; at += 7 * 60_000) {
      const wall = new Date(zoneCalendar(zone).wallMs(at)).toISOString();
      expect(wall.slice(0, 19).replace('T', ' ')).toBe(intlWall(zone, at));
    }
  });
});

test('a zone is known by older names and in any spelling, and nothing else is a zone', () => {
  expect(canonicalZone('UTC')).toBe('UTC');
  expect(canonicalZone('america/santiago')).toBe('America/Santiago');
  expect(zoneCalendar('Chile/Continental').wallMs(0)).toBe(zoneCalendar('America/Santiago').wallMs(0));
  expect(() => canonicalZone('Santiago')).toThrow(RangeError);
  expect(() => canonicalZone('')).toThrow(RangeError);
});

test('localTimes: times in UTC become those of the zone, with the date where it is not today', () => {
  const nowMs = Date.parse('2026-01-16T01:30:00Z');
  const local = (text: string) => localTimes(text, 'America/Santiago', nowMs);
  expect(local('Since 2026-01-15 12:20 UTC; last 2026-01-15T12:20:59.123Z.')).toBe(
    'Since 09:20; last 09:20.',
  );
  expect(local('It ends at 2026-02-01T02:00:00.000Z.')).toBe('It ends at 2026-01-31 23:00.');
  expect(local('1005 (2026-01-15 21:10), 1004 (2026-01-14 21:10)')).toBe(
    '1005 (21:10), 1004 (2026-01-14 21:10)',
  );
  for (const other of [
    '2026-01-15',
    'until 2026-01-15 no more',
    '2026-13-45T99:99Z',
    'B-2026-01-15T12:20:00',
  ])
    expect(local(other)).toBe(other);
});
