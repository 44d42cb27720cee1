import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { bootIdFrom, systemClock, systemRandom } from '../../src/daemon/system-clock.ts';

const hidden = () => {
  throw new Error('ENOENT');
};

test('the boot has one name whichever way it is read', () => {
  const fromKernel = bootIdFrom({
    readBootIdFile: () => '2FA5D1C4-0b1e-4c8e-9d53-0a7a7a2f2b11\n',
    fromEnvironment: undefined,
    nowMs: 0,
    uptimeS: 0,
  });
  const fromUnit = bootIdFrom({
    readBootIdFile: hidden,
    fromEnvironment: '2fa5d1c40b1e4c8e9d530a7a7a2f2b11',
    nowMs: 0,
    uptimeS: 0,
  });
  expect(fromKernel).toBe(fromUnit);
});

test('without a name the moment of boot stands for it, the same later in that boot', () => {
  const at = (nowMs: number, uptimeS: number) =>
    bootIdFrom({ readBootIdFile: hidden, fromEnvironment: '', nowMs, uptimeS });
  expect(at(1_800_000_000_000, 1000)).toBe(at(1_800_000_500_000, 1500));
  expect(at(1_800_000_000_000, 1000)).not.toBe(at(1_800_000_000_000, 10));
});

test('monotonic time and boot are shared with another process', () => {
  const script = `const { systemClock } = await import(process.argv[1]);
    console.log(systemClock.monotonicMs() + ' ' + systemClock.bootId)`;
  const before = systemClock.monotonicMs();
  const module = new URL('../../src/daemon/system-clock.ts', import.meta.url).href;
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
