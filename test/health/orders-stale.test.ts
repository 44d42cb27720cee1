/** Tests src/app/read-only-services.ts. */

import { expect, it } from 'vitest';
import { ordersStaleAfterMs } from '../../src/app/read-only-services.ts';
import { demoConfig } from '../../src/demo/sandbox-platform.ts';

const demo = demoConfig({ baseUrl: 'http://x', directory: '/x', webhookPort: 1 });
const stale = (poll: string, lastPollOk: string | null, ordersIntervalMs = 120_000) =>
  ordersStaleAfterMs(
    {
      ...demo,
      orders: { ...demo.orders, poll, timezone: 'UTC' },
      limits: { ...demo.limits, ordersIntervalMs },
    },
    {
      polls: {
        lastOkMs: () => (lastPollOk === null ? null : Date.parse(lastPollOk)),
        hubStaleAfterMs: () => undefined,
      },
    },
  );

it('waits for the next poll that is due and eight minutes more, ten in all at least', () => {
  expect(stale('*/2 * * * *', '2026-01-15T12:00:00.000Z')).toBe(120_000 + 480_000);
  expect(stale('*/2 * * * *', '2026-01-15T12:01:30.000Z')).toBe(600_000);
  expect(stale('*/2 * * * *', null)).toBe(600_000);
});

it('does not miss orders in a night without polls', () => {
  expect(stale('*/2 8-22 * * *', '2026-01-15T22:58:00.000Z')).toBe(9 * 3_600_000 + 120_000 + 480_000);
});

it('is as patient as the platform is slow', () => {
  expect(stale('*/2 * * * *', null, 900_000)).toBe(2_700_000);
});

it.each([2, 5, 60])('polling every %i minutes, takes no line for gone that is cut for six', (minutes) => {
  // The connection is cut just before a poll is due, and works again six minutes later.
  const poll = minutes === 60 ? '0 * * * *' : `*/${minutes} * * * *`;
  expect(stale(poll, '2026-01-15T12:00:01.000Z')).toBeGreaterThan((minutes + 7) * 60_000);
});
