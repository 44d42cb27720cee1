import { describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { type RetentionStore, retentionLoop } from '../../src/health/retention.ts';
import { type RetentionCuts, retentionCuts } from '../../src/orders/retention-rules.ts';
import { FakeClock } from '../support/fake-clock.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const SETTINGS = {
  ...{ eventsMs: 90 * DAY_MS, payloadsMs: 30 * DAY_MS, ordersMs: 0, outboxMs: 0, quarantineMs: 90 * DAY_MS },
  maxBytes: 1_000,
};

function begin() {
  const clock = new FakeClock();
  const startMs = clock.monotonicMs();
  const state = { usedBytes: 10, keys: [] as number[], fail: false };
  const looks: { atMs: number; cuts: RetentionCuts }[] = [];
  const drops: number[][] = [];
  const beats: number[] = [];
  const leases = { held: [] as string[], taken: 0 };
  const store: RetentionStore = {
    families: ['events'],
    look(_family, cuts, from) {
      looks.push({ atMs: clock.monotonicMs() - startMs, cuts });
      if (state.fail) throw new Error('the disk');
      const keys = state.keys.filter((key) => key > from).slice(0, 4);
      return { keys, next: keys.length < 4 ? undefined : keys.at(-1) };
    },
    dropsAtOnce: () => 3,
    async drop(_family, _cuts, keys) {
      expect(leases.held).toEqual(['mirror.retention']);
      drops.push([...keys]);
      state.usedBytes -= keys.length;
      return keys.length;
    },
    usedBytes: () => state.usedBytes,
    isLogHeld: () => false,
  };
  const stop = new AbortController();
  const ended = retentionLoop(
    {
      store,
      settings: SETTINGS,
      leases: {
        acquire: (name) => leases.held.push(name) && ++leases.taken,
        renew: () => true,
        release: (name) => void leases.held.splice(leases.held.indexOf(name), 1),
      },
      alarms: { raise() {}, lower() {} },
      clock,
      log: silentLog,
      beat: () => beats.push(clock.monotonicMs() - startMs),
    },
    stop.signal,
  );
  const hours = () => looks.map(({ atMs }) => Math.round(atMs / HOUR_MS));
  return { clock, state, looks, drops, beats, leases, hours, stop, ended };
}

describe('the loop of retention', () => {
  it('looks some minutes after the start and once a day, gives signs of life, and ends at once', async () => {
    const loop = begin();
    await loop.clock.advance(4 * MINUTE_MS);
    expect(loop.hours()).toEqual([]);
    await loop.clock.advance(50 * HOUR_MS);
    expect(loop.hours()).toEqual([0, 24, 48]);
    const gaps = loop.beats.map((beat, i) => beat - (loop.beats[i - 1] ?? 0));
    expect(Math.max(...gaps)).toBeLessThanOrEqual(30_000);
    expect(loop.leases.taken).toBe(0);
    loop.stop.abort();
    await loop.ended;
  });

  it('deletes in small parts under its lease, and gives that back', async () => {
    const loop = begin();
    loop.state.keys = [1, 2, 3, 4, 5, 6];
    await loop.clock.advance(HOUR_MS / 2);
    expect(loop.drops).toEqual([[1, 2, 3], [4], [5, 6]]);
    expect(loop.leases).toEqual({ held: [], taken: 1 });
    loop.stop.abort();
    await loop.ended;
  });

  it('comes within the hour when there is no room, with ever shorter times, and again after a failure', async () => {
    const loop = begin();
    await loop.clock.advance(HOUR_MS / 2);
    loop.state.usedBytes = 2_000;
    loop.looks.length = 0;
    await loop.clock.advance(HOUR_MS);
    const events = loop.looks.map(
      ({ cuts }) => (loop.clock.nowMs() - Date.parse(cuts.events ?? '')) / DAY_MS,
    );
    expect(events.map(Math.round)).toEqual([90, 45, 23, 11, 7, 7, 7, 7]);
    loop.state.usedBytes = 10;
    await loop.clock.advance(24 * HOUR_MS);
    loop.state.fail = true;
    loop.looks.length = 0;
    await loop.clock.advance(26 * HOUR_MS);
    loop.state.fail = false;
    await loop.clock.advance(2 * HOUR_MS);
    expect(loop.looks.length).toBeGreaterThan(1);
    loop.stop.abort();
    await loop.ended;
  });

  it('knows no end for what stays for ever, but for want of room', () => {
    const settings = { ...SETTINGS, eventsMs: 0 };
    const nowMs = Date.UTC(2026, 0, 1);
    expect(retentionCuts(settings, nowMs, 0)).toMatchObject({ events: null, orders: null });
    expect(retentionCuts(settings, nowMs, 7)).toMatchObject({
      events: '2025-12-25T00:00:00.000Z',
      orders: null,
    });
    expect(retentionCuts({ ...settings, payloadsMs: DAY_MS / 2 }, nowMs, 3).payloads).toBe(
      new Date(nowMs - DAY_MS / 2).toISOString(),
    );
  });
});
