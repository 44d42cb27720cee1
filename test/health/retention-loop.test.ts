/** Tests src/health/retention.ts. */

import { describe, expect, it } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { retentionLoop, type retentionRun } from '../../src/health/retention.ts';
import { retentionCuts } from '../../src/health/retention-rules.ts';
import { until } from '../hooks/event-receiver.ts';
import { observation, openTestMirror, sampleNotification } from '../orders/open-test-mirror.ts';

type RetentionOptions = Parameters<typeof retentionRun>[0];

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const SETTINGS = {
  eventsMs: 90 * DAY_MS,
  payloadsMs: 30 * DAY_MS,
  ordersMs: 0,
  outboxMs: 0,
  quarantineMs: 90 * DAY_MS,
  personalDataMs: 0,
  maxBytes: 1024 ** 3,
};
/**
 * Minimum number of reads in an hour that shows a run. A run reads each kind of rows; a check of the size is one read.
 */
const LOOKS = 5;

function begin(settings: Partial<typeof SETTINGS> = {}) {
  const { mirror, clock } = openTestMirror();
  const startMs = clock.monotonicMs();
  const state = { fail: false, holdsLog: false, skewMs: 0 as number | undefined };
  const reads: number[] = [];
  const drops: unknown[] = [];
  const beats: number[] = [];
  const alarms: string[] = [];
  const lowered: string[] = [];
  const leases = { held: [] as string[], taken: 0 };
  const watched: RetentionOptions['mirror'] = {
    read(action) {
      reads.push(Math.round((clock.monotonicMs() - startMs) / HOUR_MS));
      if (state.fail) throw new Error('the disk');
      return mirror.read(action);
    },
    async write(action) {
      expect(leases.held).toEqual(['mirror.retention']);
      const dropped = await mirror.write(action);
      drops.push(dropped);
      return dropped;
    },
    hasRoomInWal: () => !state.holdsLog,
    customers: mirror.customers,
  };
  const stop = new AbortController();
  const ended = retentionLoop(
    {
      mirror: watched,
      settings: { ...SETTINGS, ...settings },
      leases: {
        acquire: (name) => leases.held.push(name) && ++leases.taken,
        renew: () => true,
        release: (name) => void leases.held.splice(leases.held.indexOf(name), 1),
      },
      alarms: { note: (key, trouble) => (trouble === null ? lowered : alarms).push(key) },
      clock,
      skewMs: () => state.skewMs,
      log: silentLog,
      beat: () => beats.push(clock.monotonicMs() - startMs),
    },
    stop.signal,
  );
  /** Returns the hours in which the loop searched for rows to delete, and did not only check the size. */
  const runs = () =>
    [...new Set(reads)].filter((hour) => reads.filter((each) => each === hour).length >= LOOKS);
  return { clock, mirror, state, runs, drops, beats, alarms, lowered, leases, stop, ended };
}

describe('the loop of retention', () => {
  it('looks some minutes after the start and once a day, gives signs of life, and ends at once', async () => {
    const loop = begin();
    await loop.clock.advance(4 * MINUTE_MS);
    expect(loop.runs()).toEqual([]);
    await loop.clock.advance(50 * HOUR_MS);
    expect(loop.runs()).toEqual([0, 24, 48]);
    const gaps = loop.beats.map((beat, i) => beat - (loop.beats[i - 1] ?? 0));
    expect(Math.max(...gaps)).toBeLessThanOrEqual(30_000);
    expect(loop.leases.taken).toBe(0);
    loop.stop.abort();
    await loop.ended;
  });

  it('waits a day for somebody to tell whether the clock is right', async () => {
    const { clock, state, runs, stop, ended } = begin();
    state.skewMs = undefined;
    await clock.advance(20 * HOUR_MS);
    expect(runs()).toEqual([]);
    await clock.advance(5 * HOUR_MS);
    expect(runs()).toEqual([24]);
    stop.abort();
    await ended;
  });

  it('deletes in small parts under its lease, and gives that back', async () => {
    const loop = begin();
    for (let n = 0; n < 12; n++) {
      const receivedAtMs = loop.clock.nowMs() - 100 * DAY_MS;
      const unreadable = { source: 'webhook' as const, receivedAtMs, reason: 'unreadable', payload: `${n}` };
      await loop.mirror.save([{ kind: 'unreadable', unreadable }]);
    }
    await loop.clock.advance(HOUR_MS / 2);
    expect(loop.drops).toEqual([5, 5, 2]);
    expect(loop.leases).toEqual({ held: [], taken: 1 });
    loop.stop.abort();
    await loop.ended;
  });

  it('comes every hour while there is no room, and again after a failure', async () => {
    const loop = begin({ maxBytes: 1 });
    await loop.clock.advance(2.5 * HOUR_MS);
    expect(loop.runs()).toEqual([0, 1, 2]);
    expect(loop.alarms).toContain('mirror.too-large');
    loop.state.fail = true;
    await loop.clock.advance(2 * HOUR_MS);
    loop.state.fail = false;
    await loop.clock.advance(2 * HOUR_MS);
    expect(loop.runs()).toEqual([0, 1, 2, 5, 6]);
    loop.stop.abort();
    await loop.ended;
  });

  it('tells after a day of customers that could not go, and no more once they are gone', async () => {
    const loop = begin({ personalDataMs: 30 * DAY_MS });
    const ended = sampleNotification(1, { status: 'dispatched' });
    const observedAtMs = loop.clock.nowMs() - 30.5 * DAY_MS;
    await loop.mirror.save([{ kind: 'order', observation: observation('webhook', ended, { observedAtMs }) }]);
    loop.state.fail = true;
    await loop.clock.advance(10 * HOUR_MS);
    expect(loop.alarms).toEqual([]);
    await loop.clock.advance(10 * HOUR_MS);
    // Only the run fails; the check for overdue deletions works.
    loop.state.fail = false;
    loop.state.holdsLog = true;
    await loop.clock.advance(10 * HOUR_MS);
    expect(new Set(loop.alarms)).toEqual(new Set(['customers.not-forgotten']));
    loop.state.holdsLog = false;
    await loop.clock.advance(2 * HOUR_MS);
    // A thread of its own rewrites the file, so the alarm's end needs real time.
    await until(() => loop.lowered.includes('customers.not-forgotten'));
    loop.stop.abort();
    await loop.ended;
  });

  it('keeps things for ever shorter times while there is no room, down to a floor', () => {
    const nowMs = Date.UTC(2026, 0, 1);
    const days = [0, 1, 2, 3, 4, 5, 6, 7].map((pressure) => {
      const { events } = retentionCuts(SETTINGS, nowMs, pressure);
      return Math.round((nowMs - Date.parse(events ?? '')) / DAY_MS);
    });
    expect(days).toEqual([90, 45, 23, 11, 7, 7, 7, 7]);
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
