/** Tests src/outbox/sending/outbox-queries.ts and src/support/doctor/stored.ts. */

import { expect, it } from 'vitest';
import type { LastSent } from '../../src/outbox/sending/outbox-queries.ts';
import { sentOutcome } from '../../src/support/doctor/stored.ts';
import { FakeClock } from '../support/fake-clock.ts';

const clock = new FakeClock(Date.UTC(2026, 0, 2, 12));
const refused = { changeId: 4, at: '2026-01-02T11:58:00.000Z', message: 'Product not found' };
const trouble = { changeId: 5, attempts: 3, message: 'Not known to have arrived (HTTP 500).' };

const stock = (last: Partial<LastSent>) =>
  sentOutcome({ takenAt: null, refused: null, trouble: null, ...last }, 'stock', clock);

it('says when the platform last took a change, without sending one', () => {
  expect(stock({})).toMatchObject({ level: 'skipped', message: 'No stock was sent yet.' });
  expect(stock({ takenAt: '2026-01-02T11:57:00.000Z' })).toMatchObject({
    level: 'ok',
    message: 'Last taken 3m ago.',
  });
});

it('says why one was refused, and warns while that is the last word', () => {
  expect(stock({ takenAt: '2026-01-02T11:57:00.000Z', refused })).toMatchObject({
    level: 'warn',
    message: 'The last stock that was sent was refused 2m ago: "Product not found". Last taken 3m ago.',
    remedy: expect.stringContaining('--state rejected'),
  });
  expect(stock({ takenAt: '2026-01-02T11:59:00.000Z', refused })).toMatchObject({
    level: 'ok',
    message: 'Last taken 1m ago. One was refused 2m ago: "Product not found".',
  });
});

it('warns of a change that did not arrive again and again', () => {
  expect(stock({ trouble })).toMatchObject({
    level: 'warn',
    message: expect.stringContaining('HTTP 500'),
  });
  const once = { ...trouble, attempts: 1 };
  expect(stock({ takenAt: '2026-01-02T11:57:00.000Z', trouble: once })).toMatchObject({ level: 'ok' });
});
