import { expect, it } from 'vitest';
import { PlatformClock } from '../../src/platform/answers.ts';
import { FakeClock } from '../support/fake-clock.ts';

const HOUR_MS = 3_600_000;
const ANSWERS = 3;

it('takes two answers for enough where the clock was right before it was set', async () => {
  const clock = new FakeClock();
  const platform = new PlatformClock({ clock, store: { wasHandedIn: () => false } });
  const answer = async (aheadMs: number) => {
    await clock.advance(120_000);
    platform.observe(clock.nowMs() + aheadMs);
    return platform.agreedSkewMs();
  };
  for (let i = 0; i < ANSWERS; i++) await answer(0);
  clock.jumpWall(HOUR_MS);
  expect(await answer(-HOUR_MS)).toBeUndefined();
  expect(await answer(-HOUR_MS)).toBe(-HOUR_MS);
  // From here on, two servers differ and the clock is not set, so the smallest error of three answers counts.
  expect(await answer(0)).toBe(0);
  expect(await answer(-HOUR_MS)).toBe(0);
});

it('says nothing of a machine that slept, and after three answers what is wrong with a clock that was set', async () => {
  const clock = new FakeClock();
  const platform = new PlatformClock({ clock, store: { wasHandedIn: () => false } });
  const platformNow = { aheadMs: 0 };
  const answers = async () => {
    for (let i = 0; i < ANSWERS; i++) {
      await clock.advance(120_000);
      platform.observe(clock.nowMs() + platformNow.aheadMs);
    }
  };
  await answers();
  expect(platform.agreedSkewMs()).toBe(0);
  // The wall clock of a sleeping machine advances; its monotonic clock does not.
  clock.jumpWall(13 * HOUR_MS);
  expect(platform.agreedSkewMs()).toBeUndefined();
  await answers();
  expect(platform.agreedSkewMs()).toBe(0);
  clock.jumpWall(13 * HOUR_MS);
  platformNow.aheadMs = -13 * HOUR_MS;
  expect(platform.agreedSkewMs()).toBeUndefined();
  await answers();
  expect(platform.agreedSkewMs()).toBe(-13 * HOUR_MS);
});
