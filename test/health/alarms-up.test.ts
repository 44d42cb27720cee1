/** Tests src/health/facts.ts. */

import { expect, it } from 'vitest';
import { openReadOnlyServices } from '../../src/app/read-only-services.ts';
import { markRunning } from '../../src/app/storage.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Finding } from '../../src/health/facts.ts';
import type { FindingCode } from '../../src/health/findings.ts';
import { CurrentAssessment } from '../../src/health/notifier.ts';
import { tempState } from '../platform/temp-state.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { storeRig } from '../support/store-rig.ts';

const HELD: Finding = {
  code: 'outbox.held',
  level: 'amber',
  message: '1 change.',
  remedy: '',
  detail: null,
  count: 1,
  since: '2026-01-01T00:00:00.000Z',
};

it('tells of a mirror that cannot be read, and takes nothing else for over meanwhile', async () => {
  const clock = new FakeClock();
  let fault: TillsyncError | undefined;
  const now = new CurrentAssessment(() => {
    if (fault) throw fault;
    return { findings: [HELD], hidden: new Set<FindingCode>() };
  }, clock);
  expect(now.read().findings).toEqual([HELD]);
  fault = new TillsyncError('storage-busy', 'Busy.');
  expect(() => now.read()).toThrow('Busy.');
  fault = new TillsyncError('storage-corrupt', 'It is damaged.');
  const failing = {
    code: 'storage.failing',
    level: 'red',
    detail: 'The mirror cannot be read: It is damaged.',
    since: '2026-01-15T12:00:00.000Z',
  };
  expect(now.read().findings).toMatchObject([failing, HELD]);
  await clock.advance(60_000);
  expect(now.read().findings).toMatchObject([failing, HELD]);
  fault = undefined;
  expect(now.read().findings).toEqual([HELD]);
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

it('what the mirror did not take is told by commands as long as the daemon runs', async () => {
  const { clock, services: open } = storeRig();
  const { config, state } = await open();
  state.alarms.setAside([
    { key: 'orders.unbooked', message: 'One waits.', level: null, raisedAt: '2026-01-15T12:00:00.000Z' },
  ]);
  const told = async () => {
    const readers = await openReadOnlyServices({ config, clock });
    const keys = readers.alarms().map(({ key }) => key);
    await readers.close();
    return keys;
  };
  expect(await told()).toEqual([]);
  const unmark = await markRunning({ leases: state.leases, directory: '/d', clock, log: silentLog });
  expect(await told()).toEqual(['orders.unbooked']);
  await unmark();
  expect(await told()).toEqual([]);
});

it.each([
  ['was asleep for two minutes', 2, false],
  ['was busy for half a minute', 0.5, true],
])('orders that grew old while the machine %s are told: %#', async (_what, minutes, isTold) => {
  const clock = new FakeClock();
  const stale: Finding = { ...HELD, code: 'orders.stale', level: 'red' };
  const now = new CurrentAssessment(() => ({ findings: [stale], hidden: new Set<FindingCode>() }), clock);
  for (let looks = 0; looks < 20; looks++) {
    now.read();
    await clock.advance(15_000);
  }
  expect(now.read().findings).toEqual([stale]);
  await clock.advance(minutes * 60_000);
  const { findings, hidden } = now.read();
  expect(findings).toEqual(isTold ? [stale] : []);
  expect(hidden.has('orders.stale')).toBe(!isTold);
});
