/** Tests src/core/loop.ts. */

import { expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { retryDelayMs } from '../../src/core/loop.ts';

const failed = (retryAfterMs?: number) =>
  new TillsyncError('rate-limited', 'HTTP 429.', retryAfterMs === undefined ? {} : { retryAfterMs });

it('doubles from five seconds to five minutes, and is never shorter than what was asked for', () => {
  const longest = { next: () => 1 };
  expect([1, 2, 3, 20].map((failures) => retryDelayMs(failures, failed(), longest))).toEqual([
    5_000, 10_000, 20_000, 300_000,
  ]);
  expect(retryDelayMs(1, failed(90_000), longest)).toBe(90_000);
  expect(retryDelayMs(9, failed(90_000), { next: () => 0 })).toBe(150_000);
});
