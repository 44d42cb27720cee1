/** Tests src/daemon/service.ts. */

import { describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { serviceManager, watchdogLoop } from '../../src/daemon/service.ts';
import { FakeClock } from '../support/fake-clock.ts';

function watch(watchdogMs: number | undefined) {
  const clock = new FakeClock();
  const told: Partial<Record<'WATCHDOG' | 'STATUS' | 'READY' | 'STOPPING', string>>[] = [];
  const stalled: string[] = [];
  const stop = new AbortController();
  const ended = watchdogLoop({
    manager: { tell: (news) => told.push(news), watchdogMs },
    stalledLoops: () => stalled,
    clock,
    log: silentLog,
    signal: stop.signal,
  });
  const signs = () => told.filter((news) => news.WATCHDOG === '1').length;
  return { clock, told, stalled, stop, ended, signs };
}

describe('watchdogLoop', () => {
  it('gives three signs of life within the limit', async () => {
    const { clock, signs, stop, ended } = watch(30_000);
    await clock.advance(29_999);
    expect(signs()).toBe(3);
    stop.abort();
    await ended;
  });

  it('stays silent while a loop is dead, says which one once, and goes on when it lives again', async () => {
    const { clock, told, stalled, signs, stop, ended } = watch(30_000);
    await clock.advance(1);
    const before = signs();
    stalled.push('orders');
    await clock.advance(60_000);
    expect(signs()).toBe(before);
    expect(told.filter((news) => news.STATUS?.includes('orders'))).toHaveLength(1);
    stalled.pop();
    await clock.advance(10_000);
    expect(signs()).toBeGreaterThan(before);
    stop.abort();
    await ended;
  });

  it('ends at once when nobody waits for a sign', async () => {
    const { told, ended } = watch(serviceManager({ env: {}, pid: 1 }).watchdogMs);
    await ended;
    expect(told).toEqual([]);
  });
});
