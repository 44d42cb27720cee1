import { describe, expect, it } from 'vitest';
import type { AlarmKey } from '../../src/core/alarm.ts';
import { silentLog } from '../../src/core/log.ts';
import { standingWatch } from '../../src/health/alarm-teller.ts';
import { FakeClock } from '../support/fake-clock.ts';

const MIB = 1024 ** 2;

describe('what no flow notices by itself', () => {
  async function rig() {
    const clock = new FakeClock();
    const stop = new AbortController();
    const up = new Map<AlarmKey, string>();
    const at = { freeMib: 20_000, hasNoTokens: false };
    const running = standingWatch(
      {
        alarms: { raise: (key, message) => void up.set(key, message), lower: (key) => void up.delete(key) },
        disk: () => ({ freeBytes: at.freeMib * MIB, totalBytes: 10_000 * MIB }),
        hasNoTokens: () => at.hasNoTokens,
        clockSkewMs: () => undefined,
        orderCompanies: () => undefined,
        clock,
        log: silentLog,
        beat: () => {},
      },
      stop.signal,
    );
    return {
      at,
      up,
      later: async (freeMib: number) => {
        at.freeMib = freeMib;
        await clock.advance(15_000);
        return [...up.keys()];
      },
      async end() {
        stop.abort();
        await running;
      },
    };
  }

  it('is a disk that fills, is full, and has room again', async () => {
    const { later, up, end } = await rig();
    expect(await later(600)).toEqual([]);
    expect(await later(400)).toEqual(['storage.low']);
    expect(up.get('storage.low')).toContain('400 MiB');
    expect(await later(510)).toEqual(['storage.low']);
    expect(await later(10)).toEqual(['storage.low', 'storage.full']);
    expect(await later(52)).toEqual(['storage.low', 'storage.full']);
    expect(await later(100)).toEqual(['storage.low']);
    expect(await later(600)).toEqual([]);
    await end();
  });

  it('is a tillsync without tokens, until some are handed over', async () => {
    const { at, later, end } = await rig();
    at.hasNoTokens = true;
    expect(await later(9_000)).toEqual(['auth.none']);
    at.hasNoTokens = false;
    expect(await later(9_000)).toEqual([]);
    await end();
  });
});
