import { expect, test } from 'vitest';
import { openState } from '../../src/app/state.ts';
import { markRunning, RUNNING } from '../../src/app/storage.ts';
import { silentLog } from '../../src/core/log.ts';
import { tempState } from '../platform/temp-state.ts';
import { FakeClock } from '../support/fake-clock.ts';

test('a daemon of another container is seen to run for as long as it does, and little longer', async () => {
  const clock = new FakeClock();
  const own = tempState(clock);
  // Neither process can find out whether the other one is alive.
  const holders = { self: 'elsewhere', isAlive: () => undefined };
  const there = openState({ path: own.path, clock, holders });
  const here = openState({ path: own.path, clock, holders: { ...holders, self: 'here' } });
  const end = await markRunning({ leases: there.leases, directory: '/d', clock, log: silentLog });
  for (let hour = 0; hour < 3; hour++) {
    await clock.advance(3_600_000);
    expect(here.leases.isHeld(RUNNING)).toBe(true);
  }
  await end();
  expect(here.leases.isHeld(RUNNING)).toBe(false);

  await markRunning({ leases: there.leases, directory: '/d', clock, log: silentLog });
  const { leases } = here;
  await clock.advance(61_000);
  there.close();
  await clock.advance(200_000);
  expect(leases.isHeld(RUNNING)).toBe(false);
  here.close();
});

test('the mark passes to the daemon that is left', async () => {
  const clock = new FakeClock();
  const { leases } = tempState(clock);
  const endFirst = await markRunning({ leases, directory: '/d', clock, log: silentLog });
  const endSecond = await markRunning({ leases, directory: '/d', clock, log: silentLog });
  await endFirst();
  await clock.advance(61_000);
  expect(leases.isHeld(RUNNING)).toBe(true);
  await endSecond();
  expect(leases.isHeld(RUNNING)).toBe(false);
});
