import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { bootIdFrom, systemClock, systemRandom } from '../../src/core/system-clock.ts';
import { documentLimits, tempState } from '../platform/temp-state.ts';
import { FakeClock } from '../support/fake-clock.ts';

const hidden = () => {
  throw new Error('ENOENT');
};

test('the boot has one name whichever way it is read', () => {
  const fromKernel = bootIdFrom(() => '2FA5D1C4-0b1e-4c8e-9d53-0a7a7a2f2b11\n', undefined);
  const fromUnit = bootIdFrom(hidden, '2fa5d1c40b1e4c8e9d530a7a7a2f2b11');
  expect(fromKernel).toBe(fromUnit);
});

test('without a name of the boot, limits outlive a wall clock that is put right over a restart, and a reboot', async () => {
  const bootId = bootIdFrom(hidden, '');
  const clock = new FakeClock();
  clock.bootId = bootId;
  const first = tempState(clock);
  const { path } = first;
  const limits = { ...documentLimits, ordersIntervalMs: 120_000 };
  const grant = first.ledger.acquire('order.all', limits, 20_000);
  if (grant.granted) first.ledger.settle(grant.ticket, 'answered');
  first.close();
  clock.jumpWall(3 * 3_600_000);
  clock.bootId = bootIdFrom(hidden, undefined);
  const second = tempState(clock, path);
  expect(second.ledger.acquire('order.all', limits, 20_000)).toMatchObject({ granted: false });
  second.close();
  clock.reboot(0, 30_000);
  clock.bootId = bootId;
  const third = tempState(clock, path);
  expect(third.ledger.acquire('order.all', limits, 20_000)).toMatchObject({ granted: false });
  await clock.advance(121_000);
  expect(third.ledger.acquire('order.all', limits, 20_000)).toMatchObject({ granted: true });
});

test('monotonic time and boot are shared with another process', () => {
  const script = `const { systemClock } = await import(process.argv[1]);
    console.log(systemClock.monotonicMs() + ' ' + systemClock.bootId)`;
  const before = systemClock.monotonicMs();
  const module = new URL('../../src/core/system-clock.ts', import.meta.url).href;
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', script, module], {
    encoding: 'utf8',
  });
  const [monotonic, bootId] = output.trim().split(' ');
  expect(Number(monotonic)).toBeGreaterThan(before);
  expect(Number(monotonic)).toBeLessThan(systemClock.monotonicMs());
  expect(bootId).toBe(systemClock.bootId);
});

test('a sleep ends at its time, and at once without throwing when it is aborted', async () => {
  const start = systemClock.monotonicMs();
  await systemClock.sleep(15);
  expect(systemClock.monotonicMs() - start).toBeGreaterThan(13);
  const stop = new AbortController();
  const long = systemClock.sleep(2 ** 40, stop.signal);
  stop.abort();
  await long;
  await systemClock.sleep(2 ** 40, stop.signal);
  expect(systemClock.monotonicMs() - start).toBeLessThan(5000);
});

test('chance is uniform in [0, 1)', () => {
  const draws = Array.from({ length: 200 }, () => systemRandom.next());
  expect(draws.every((draw) => draw >= 0 && draw < 1)).toBe(true);
  expect(new Set(draws).size).toBeGreaterThan(190);
});
