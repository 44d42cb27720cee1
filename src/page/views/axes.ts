import type { TrendHour } from '../../orders/merging/mirrored-order.ts';

/** Least number of hours that are drawn, so that a single bar is not as wide as the drawing. */
const HOURS_MIN = 6;

/**
 * Returns the hours without those before the first order or change, which would fill most of the drawing on the first
 * day.
 */
export function sinceFirst(hours: readonly TrendHour[]): readonly TrendHour[] {
  const first = hours.findIndex(({ orders, pushed }) => orders > 0 || pushed > 0);
  if (first === -1) return hours;
  return hours.slice(Math.min(first, Math.max(0, hours.length - HOURS_MIN)));
}

/** Returns the ticks of an axis: round numbers from 0 to at least the highest value. */
export function axis(highest: number, ticks = 4): number[] {
  if (!(highest > 0)) return [0, 1];
  const rough = highest / ticks;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((each) => each * power >= rough) ?? 10) * power;
  return Array.from({ length: Math.ceil(highest / step) + 1 }, (_, i) => round(i * step));
}

/** Returns the ticks of an axis of durations in ms: round numbers of seconds, minutes or hours. */
export function durationAxis(highestMs: number): number[] {
  if (highestMs <= 1_000) return axis(highestMs <= 0 ? 1_000 : highestMs, 3);
  const step =
    CLOCK_STEPS_MS.find((each) => highestMs / each <= 4) ?? DAY_MS * Math.ceil(highestMs / DAY_MS / 4);
  return Array.from({ length: Math.ceil(highestMs / step) + 1 }, (_, i) => i * step);
}

const DAY_MS = 86_400_000;

const CLOCK_STEPS_MS = [
  0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200,
].map((seconds) => seconds * 1000);

/** Removes rounding errors of binary fractions. */
function round(value: number): number {
  return Number(value.toPrecision(12));
}
