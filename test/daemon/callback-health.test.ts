/** Tests src/daemon/callback-health.ts. */

import { describe, expect, it } from 'vitest';
import { CALLBACKS_SILENT } from '../../src/core/alarm.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { CallbackHealth } from '../../src/daemon/callback-health.ts';
import { openTestMirror } from '../orders/open-test-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';

const DAY_MS = 86_400_000;

function setUp() {
  const clock = new FakeClock();
  const { mirror } = openTestMirror({ clock });
  const health = () => new CallbackHealth({ mirror, clock, log: silentLog });
  const state = () => mirror.health.freshness().find(({ subject }) => subject === 'orders.webhook')?.state;
  const alarms = () => mirror.health.raised().map(({ key }) => key);
  return { clock, mirror, health, state, alarms };
}

const unreadable = (receivedAtMs: number) => ({
  kind: 'unreadable' as const,
  unreadable: { source: 'webhook' as const, receivedAtMs, reason: 'No order id was found.', payload: '{}' },
});

describe('CallbackHealth', () => {
  it('leaves nothing of an earlier run that is true no more', () => {
    const { mirror, health, state } = setUp();
    health().begin({ enabled: false, hasSecret: true, isOff: false });
    expect(state()).toBe('off');
    health().begin({ enabled: true, hasSecret: false, isOff: false });
    expect(state()).toBe('degraded');
    health().begin({ enabled: true, hasSecret: true, isOff: false });
    expect(state()).toBe('unknown');
    mirror.health.ok('orders.webhook');
    health().begin({ enabled: true, hasSecret: true, isOff: false });
    expect(state()).toBe('ok');
  });

  it('leaves a silence to the callback that ends it', () => {
    const { mirror, health, state } = setUp();
    mirror.health.report('orders.webhook', 'degraded', 'None came.', CALLBACKS_SILENT);
    health().begin({ enabled: true, hasSecret: true, isOff: false });
    expect(state()).toBe('degraded');
  });

  it('tells of an unreadable callback until the quarantine holds none', async () => {
    const { clock, mirror, health } = setUp();
    const mine = health();
    expect(mine.unreadableTrouble()).toBeNull();
    await mirror.save([unreadable(clock.nowMs())]);
    mine.unreadable('No order id was found.');
    expect(mine.unreadableTrouble()).toContain('No order id was found.');
    await mirror.quarantine.remove(mirror.quarantine.list(1)[0]?.quarantineId ?? 0);
    expect(mine.unreadableTrouble()).toBeNull();
  });

  it('tells of it for a day, over a restart, and again when it comes once more', async () => {
    const { clock, mirror, health } = setUp();
    await mirror.save([unreadable(clock.nowMs())]);
    health().unreadable('No order id was found.');
    const restarted = health();
    await clock.advance(DAY_MS - 1);
    expect(restarted.unreadableTrouble()).toContain('No order id was found.');
    await clock.advance(1);
    expect(restarted.unreadableTrouble()).toBeNull();
    await mirror.save([unreadable(clock.nowMs())]);
    restarted.unreadable('No order id was found.');
    expect(restarted.unreadableTrouble()).toContain('No order id was found.');
  });

  it('tells that callbacks cannot be stored, and when they can be again', () => {
    const { health, alarms } = setUp();
    const mine = health();
    mine.kept();
    mine.putOff(new TillsyncError('storage-busy', 'Locked for a moment.'));
    expect(alarms()).toEqual([]);
    mine.putOff(new TillsyncError('storage-full', 'The disk is full.'));
    expect(alarms()).toEqual(['storage.failing']);
    health().kept();
    expect(alarms()).toEqual([]);
  });

  it('takes the disk for well again after good polls between which none was put off', () => {
    const { health, alarms } = setUp();
    const mine = health();
    for (const _round of [1, 2]) {
      mine.putOff(new TillsyncError('storage-full', 'The disk is full.'));
      mine.settle();
      expect(alarms()).toEqual(['storage.failing']);
    }
    mine.settle();
    expect(alarms()).toEqual([]);
    // An earlier process may have left the alarm raised.
    mine.putOff(new TillsyncError('storage-full', 'The disk is full.'));
    health().settle();
    expect(alarms()).toEqual([]);
  });
});
