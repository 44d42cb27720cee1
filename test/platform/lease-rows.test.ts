import Database from 'better-sqlite3';
import { expect, onTestFinished, test } from 'vitest';
import { FakeClock } from '../support/fake-clock.ts';
import { tempState } from './temp-state.ts';

test('a lease ends by its time on the monotonic clock alone', async () => {
  const clock = new FakeClock();
  const a = tempState(clock).leases;
  const fence = a.acquire('poll', 1000) as number;
  clock.jumpWall(86_400_000);
  expect(a.acquire('poll', 1000)).toBe(undefined);
  expect(a.acquire('sweep', 1000)).toBe(1);
  await clock.advance(999);
  expect(a.acquire('poll', 1000)).toBe(undefined);
  await clock.advance(1);
  expect(a.acquire('poll', 1000)).toBe(fence + 1);
});

test('a holder that was overtaken can neither renew nor release', async () => {
  const clock = new FakeClock();
  const leases = tempState(clock).leases;
  const old = leases.acquire('poll', 1000) as number;
  expect(leases.renew('poll', old, 5000)).toBe(true);
  await clock.advance(4000);
  expect(leases.acquire('poll', 1000)).toBe(undefined);
  await clock.advance(1000);
  const fresh = leases.acquire('poll', 1000) as number;
  expect(leases.renew('poll', old, 5000)).toBe(false);
  leases.release('poll', old);
  expect(leases.acquire('poll', 1000)).toBe(undefined);
  leases.release('poll', fresh);
  expect(leases.renew('poll', fresh, 1000)).toBe(false);
  expect(leases.acquire('poll', 1000)).toBe(fresh + 1);
});

test('a lease of an earlier boot is over at once', () => {
  const clock = new FakeClock();
  const leases = tempState(clock).leases;
  const old = leases.acquire('poll', 3_600_000) as number;
  clock.reboot(1000);
  expect(leases.renew('poll', old, 1000)).toBe(false);
  expect(leases.acquire('poll', 1000)).toBe(old + 1);
});

test('a lease is held while its holder lives and nobody took it, also beyond its time', async () => {
  const clock = new FakeClock();
  const leases = tempState(clock).leases;
  expect(leases.isHeld('daemon')).toBe(false);
  const fence = leases.acquire('daemon', 1000) as number;
  expect(leases.isHeld('daemon')).toBe(true);
  await clock.advance(1000);
  expect(leases.isHeld('daemon')).toBe(true);
  expect(leases.renew('daemon', fence, 1000)).toBe(true);
  expect(leases.isHeld('daemon')).toBe(true);
  clock.reboot(1000);
  expect(leases.isHeld('daemon')).toBe(false);
});

test('a release that could not be written does not keep the lease', () => {
  const { leases, path } = tempState(new FakeClock());
  const fence = leases.acquire('poll', 600_000) as number;
  const other = new Database(path);
  onTestFinished(() => {
    other.close();
  });
  other.exec('BEGIN IMMEDIATE');
  expect(() => leases.release('poll', fence)).toThrow(expect.objectContaining({ code: 'storage-busy' }));
  other.exec('ROLLBACK');
  expect(leases.acquire('poll', 600_000)).toBe(fence + 1);
});
