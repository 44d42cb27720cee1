import { expect, it } from 'vitest';
import type { AlarmUp } from '../../src/core/alarm.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { AlarmsUp } from '../../src/health/notifier.ts';
import { tempState } from '../platform/temp-state.ts';
import { FakeClock } from '../support/fake-clock.ts';

const HELD: AlarmUp = { key: 'outbox.held', message: '1 change.', raisedAt: '2026-01-01T00:00:00.000Z' };

it('tells of a mirror that cannot be read, and takes no other alarm for over meanwhile', async () => {
  const clock = new FakeClock();
  let fault: TillsyncError | undefined;
  const alarms = new AlarmsUp(() => {
    if (fault) throw fault;
    return [HELD];
  }, clock);
  expect(alarms.read()).toEqual([HELD]);
  fault = new TillsyncError('storage-busy', 'Busy.');
  expect(() => alarms.read()).toThrow('Busy.');
  fault = new TillsyncError('storage-corrupt', 'It is damaged.');
  const failing = {
    key: 'storage.failing',
    message: 'The mirror cannot be read: It is damaged.',
    raisedAt: '2026-01-15T12:00:00.000Z',
  };
  expect(alarms.read()).toEqual([HELD, failing]);
  await clock.advance(60_000);
  expect(alarms.read()).toEqual([HELD, failing]);
  fault = undefined;
  expect(alarms.read()).toEqual([HELD]);
});

it('what the mirror did not take keeps its level beside it', () => {
  const { alarms } = tempState(new FakeClock());
  const alarm = {
    key: 'orders.unbooked',
    message: 'One waits.',
    raisedAt: '2026-01-15T12:00:00.000Z',
  } as const;
  for (const level of ['red', 'amber', null] as const) {
    alarms.setAside([{ ...alarm, level }]);
    expect(alarms.aside()).toEqual([{ ...alarm, level }]);
  }
  alarms.setAside([]);
  expect(alarms.aside()).toEqual([]);
});
