import { expect, it } from 'vitest';
import type { LastSent } from '../../src/outbox/outbox-queries.ts';
import { sentChecks } from '../../src/support/doctor/stored.ts';
import { FakeClock } from '../support/fake-clock.ts';

const clock = new FakeClock(Date.UTC(2026, 0, 2, 12));
const refused = { changeId: 4, at: '2026-01-02T11:58:00.000Z', message: 'Product not found' };
const trouble = { changeId: 5, attempts: 3, message: 'Not known to have arrived (HTTP 500).' };

async function stock(last: Partial<LastSent>) {
  const lastSent = () => ({ takenAt: null, refused: null, trouble: null, ...last });
  const [check] = sentChecks(lastSent, clock);
  return await check?.run();
}

it('says when the platform last took a change, without sending one', async () => {
  expect(await stock({})).toMatchObject({ level: 'skipped', message: 'No stock was sent yet.' });
  expect(await stock({ takenAt: '2026-01-02T11:57:00.000Z' })).toMatchObject({
    ...{ level: 'ok', message: 'Last taken 3m ago.' },
  });
});

it('says why one was refused, and warns while that is the last word', async () => {
  expect(await stock({ takenAt: '2026-01-02T11:57:00.000Z', refused })).toMatchObject({
    level: 'warn',
    message: 'The last stock that was sent was refused 2m ago: "Product not found". Last taken 3m ago.',
    remedy: expect.stringContaining('--state rejected'),
  });
  expect(await stock({ takenAt: '2026-01-02T11:59:00.000Z', refused })).toMatchObject({
    level: 'ok',
    message: 'Last taken 1m ago. One was refused 2m ago: "Product not found".',
  });
});

it('warns of a change that did not arrive again and again', async () => {
  expect(await stock({ trouble })).toMatchObject({
    level: 'warn',
    message: expect.stringContaining('HTTP 500'),
  });
  const once = { ...trouble, attempts: 1 };
  expect(await stock({ takenAt: '2026-01-02T11:57:00.000Z', trouble: once })).toMatchObject({ level: 'ok' });
});
