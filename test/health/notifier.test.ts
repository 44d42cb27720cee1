import { describe, expect, it } from 'vitest';
import type { AlarmKey } from '../../src/core/alarm.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { type AlarmMemory, NOTHING_SENT } from '../../src/health/notification-policy.ts';
import { Notifier } from '../../src/health/notifier.ts';
import { assess } from '../../src/health/verdict.ts';
import { FakeClock } from '../support/fake-clock.ts';

/** Facts without any fault, except the alarms that a test adds. */
const WELL = {
  nowMs: 0,
  freshness: [],
  alarms: [],
  tokens: null,
  outbox: null,
  quarantine: 0,
  ordersStaleAfterMs: 600_000,
};

function rig() {
  const clock = new FakeClock();
  const stop = new AbortController();
  const it = {
    clock,
    up: [] as AlarmKey[],
    told: [] as string[],
    tries: 0,
    isDown: false,
    isDiskFull: false,
    unreadable: null as TillsyncError | null,
    stored: NOTHING_SENT as AlarmMemory,
    teller: () =>
      new Notifier({
        receiver: {
          name: 'url',
          description: '',
          async tell(report) {
            it.tries += 1;
            if (it.isDown) throw new TillsyncError('internal', 'Down.');
            it.told.push(`${report.state} ${report.key}`);
          },
        },
        rules: { level: 'amber', settleMs: 0, repeatMs: 0, dailyMax: 20 },
        rows: {
          memory: () => {
            if (it.unreadable) throw it.unreadable;
            return it.stored;
          },
          remember(_receiver, memory) {
            if (it.isDiskFull) throw new TillsyncError('storage-full', 'Full.');
            it.stored = memory;
          },
        },
        report: ({ state, key }) => ({ state, key }) as never,
        dayOf: () => 'one day',
        onNotified() {},
        clock,
        log: silentLog,
      }),
    /** Runs the notifier every second until the test ends it. */
    async run() {
      const teller = it.teller();
      while (!stop.signal.aborted) {
        await teller.notify(
          assess({
            ...WELL,
            alarms: it.up.map((key) => ({ key, message: '', raisedAt: '2026-11-21T10:00:00.000Z' })),
          }),
          stop.signal,
        );
        await clock.sleep(1_000, stop.signal);
      }
    },
    end: () => stop.abort(),
  };
  return it;
}

describe('telling of alarms', () => {
  it('tries again, ever more rarely, until it is taken', async () => {
    const place = rig();
    Object.assign(place, { isDown: true, up: ['orders.stale'] });
    const running = place.run();
    await place.clock.advance(3_600_000);
    expect(place.told).toEqual([]);
    expect(place.tries).toBeGreaterThan(8);
    expect(place.tries).toBeLessThan(14);
    place.isDown = false;
    await place.clock.advance(600_000);
    expect(place.told).toEqual(['raised orders.stale']);
    place.end();
    await running;
  });

  it('tells of a full disk although it cannot write that it did, and does not repeat itself', async () => {
    const place = rig();
    Object.assign(place, { isDiskFull: true, up: ['storage.full'] });
    const running = place.run();
    await place.clock.advance(600_000);
    expect(place.told).toEqual(['raised storage.full']);
    place.isDiskFull = false;
    await place.clock.advance(2_000);
    expect(Object.keys(place.stored.told)).toEqual(['storage.full']);
    place.up = [];
    await place.clock.advance(2_000);
    expect(place.told).toEqual(['raised storage.full', 'healed storage.full']);
    expect(place.stored).toMatchObject({ told: {}, sent: 2 });
    place.end();
    await running;
  });

  it('waits for memory that another process has locked, and tells again rather than never what is lost', async () => {
    const told = async (unreadable: TillsyncError) => {
      const place = rig();
      place.up = ['storage.full'];
      const running = place.run();
      await place.clock.advance(2_000);
      place.end();
      await running;
      expect(place.told).toEqual(['raised storage.full']);
      const again = rig();
      Object.assign(again, { up: ['storage.full'], stored: place.stored, unreadable });
      const runningAgain = again.run();
      await again.clock.advance(60_000);
      again.end();
      await runningAgain;
      return again.told;
    };
    expect(await told(new TillsyncError('storage-busy', 'Locked.'))).toEqual([]);
    expect(await told(new TillsyncError('storage-corrupt', 'Damaged.'))).toEqual(['raised storage.full']);
  });
});

describe('a receiver that does not take alarms', () => {
  it('is told of after a minute of tries, is not told of itself, and ends when it takes them or nothing waits', async () => {
    const place = rig();
    Object.assign(place, { isDown: true, up: ['orders.stale', 'alarms.untold'] });
    const teller = place.teller();
    const { signal } = new AbortController();
    const alarms = () => place.up.map((key) => ({ key, message: '', raisedAt: '2026-11-21T10:00:00.000Z' }));
    const pass = async (ms: number) => {
      for (const endMs = place.clock.monotonicMs() + ms; place.clock.monotonicMs() < endMs; ) {
        await teller.notify(assess({ ...WELL, alarms: alarms() }), signal);
        await place.clock.advance(5_000);
      }
    };
    await pass(30_000);
    expect(teller.trouble()).toBeNull();
    await pass(90_000);
    expect(teller.trouble()).toBe('Down.');
    place.isDown = false;
    await pass(600_000);
    expect(place.told[0]).toBe('raised orders.stale');
    expect(teller.trouble()).toBeNull();

    Object.assign(place, { isDown: true, up: ['orders.stale', 'outbox.full', 'alarms.untold'] });
    await pass(200_000);
    expect(teller.trouble()).toBe('Down.');
    place.up = ['orders.stale', 'alarms.untold'];
    await pass(700_000);
    expect(teller.trouble()).toBeNull();
  });
});
