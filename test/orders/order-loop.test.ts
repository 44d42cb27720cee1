import { describe, expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { OrderLoop } from '../../src/orders/receiving/order-loop.ts';
import type { OrderPoll, PollReport } from '../../src/orders/receiving/order-poll.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';

type PollRequest = NonNullable<Parameters<OrderPoll['poll']>[0]>;

const TWO_MINUTES_MS = 120_000;
const every = (ms: number) => ({ nextAfter: (afterMs: number) => (Math.floor(afterMs / ms) + 1) * ms });
const report: PollReport = {
  window: { startDate: '2026-01-13', endDate: '2026-01-16' },
  pages: 1,
  records: 0,
  created: 0,
  changed: 0,
  confirmed: 0,
  superseded: 0,
  repeated: 0,
  unreadLists: [],
  unlisted: [],
  unreadable: 0,
  createdIds: [],
  morePages: false,
  mayBeCut: false,
  codes: null,
};

function setUp(poll: (request: PollRequest) => Promise<PollReport>, everyMs = TWO_MINUTES_MS) {
  const clock = new FakeClock();
  const calls: { atMs: number; wide: boolean; runningDay: boolean; from?: string }[] = [];
  const errors: string[] = [];
  const usable = { yes: true };
  const gaps: number[][] = [];
  const old: PollReport['window'][] = [];
  const judged: number[] = [];
  const loop = new OrderLoop({
    poll: {
      poll: (request) => {
        const { wide = false, runningDay = false, window } = request ?? {};
        calls.push({ atMs: clock.nowMs(), wide, runningDay, ...(window && { from: window.startDate }) });
        return poll(request ?? {});
      },
      oldWindows: () => old,
    },
    schedule: every(everyMs),
    watch: { polled() {} },
    newGaps: () => gaps.shift() ?? [],
    judgeHeld: async () => void judged.push(clock.nowMs()),
    mayCall: () => usable.yes,
    clock,
    random: seededRandom(1),
    log: { ...silentLog, error: (_fields, message) => void errors.push(message) },
    wideEveryMs: 3_600_000,
    beat() {},
  });
  const controller = new AbortController();
  const ended = loop.run(controller.signal);
  const stop = async () => {
    controller.abort();
    await ended;
    expect(clock.sleeping).toBe(0);
  };
  return { clock, calls, errors, usable, gaps, old, judged, loop, stop };
}

describe('OrderLoop', () => {
  it('polls at start, then at each due moment, wide once an hour', async () => {
    const { clock, calls, stop } = setUp(async () => report);
    await clock.advance(2 * 3_600_000 - 1);
    expect(calls).toHaveLength(60);
    expect(calls.filter((call) => call.wide).map((call) => call.atMs - (calls[0]?.atMs ?? 0))).toEqual([
      0, 3_600_000,
    ]);
    await stop();
  });

  it('is neither stalled nor hurried by a wall clock that jumps an hour', async () => {
    for (const jumpMs of [-3_600_000, 3_600_000, -50 * 365 * 86_400_000]) {
      const { clock, calls, stop } = setUp(async () => report);
      await clock.advance(TWO_MINUTES_MS * 2 + 1_000);
      const before = calls.length;
      clock.jumpWall(jumpMs);
      await clock.advance(TWO_MINUTES_MS * 5);
      expect(calls.length - before).toBeGreaterThanOrEqual(4);
      expect(calls.length - before).toBeLessThanOrEqual(6);
      await stop();
    }
  });

  it('asks for days of old open orders in turn, seldom, and never before new ones may be missing', async () => {
    const { clock, calls, loop, old, stop } = setUp(async () => report);
    const windows = ['2025-05-01', '2025-06-01', '2025-07-01'].map((startDate) => ({
      startDate,
      endDate: startDate,
    }));
    old.push(...windows);
    const asked = () => calls.flatMap(({ from, atMs }) => (from ? [[from, Math.round(atMs / 60_000)]] : []));
    const startMin = Math.round(clock.nowMs() / 60_000);
    await clock.advance(3_600_000);
    // With three windows, each is due once in an hour.
    expect(asked().map(([from]) => from)).toEqual(['2025-05-01', '2025-06-01', '2025-07-01']);
    const minutes = asked().map(([, at]) => Number(at) - startMin);
    expect(minutes[0]).toBeLessThanOrEqual(4);
    expect(Number(minutes[1]) - Number(minutes[0])).toBeGreaterThanOrEqual(20);
    // Between two of them, every poll is for new orders.
    const kinds = calls.map(({ from }) => (from ? 'o' : 'n')).join('');
    expect(kinds).not.toContain('oo');
    expect(kinds.replaceAll('o', '').length).toBeGreaterThan(20);
    for (let n = 0; n < 60; n++) old.push({ startDate: `2025-08-${n}`, endDate: '' });
    const before = calls.length;
    await clock.advance(6 * 3_600_000);
    const share = calls.slice(before).filter(({ from }) => from).length / (calls.length - before);
    expect(share).toBeGreaterThan(0.1);
    expect(share).toBeLessThan(0.25);
    // A poll that a held callback or a gap wants comes first.
    await clock.advance(600_000);
    const woken = calls.length;
    loop.wake();
    await clock.advance(1_000);
    expect(calls[woken]?.from).toBeUndefined();
    await stop();
  });

  it('polls sooner when woken, and again wide after a gap in the order numbers', async () => {
    const { clock, calls, gaps, loop, stop } = setUp(async () => report);
    await clock.advance(10_000);
    gaps.push([17]);
    loop.wake();
    await clock.advance(1_000);
    expect(calls).toHaveLength(2);
    await clock.advance(TWO_MINUTES_MS);
    expect(calls.map((call) => call.wide)).toEqual([true, false, true]);
    await stop();
  });

  it.each([
    ['wide', 'wwlrr'],
    ['look-back', 'wllrrr'],
  ] as const)('does a %s poll again if a wish for one came during it', async (kind, wanted) => {
    const answer = Promise.withResolvers<void>();
    const { clock, calls, loop, stop } = setUp(async ({ wide = false, runningDay = false }) => {
      if (kind === 'wide' ? wide : !wide && !runningDay) await answer.promise;
      return { ...report, records: runningDay ? 800 : 6_000 };
    });
    await clock.advance(TWO_MINUTES_MS * 1.5);
    loop.wake(kind === 'wide');
    answer.resolve();
    await clock.advance(TWO_MINUTES_MS * 3);
    const kinds = calls.map(({ wide, runningDay }) => (wide ? 'w' : runningDay ? 'r' : 'l')).join('');
    expect(kinds).toBe(wanted);
    await stop();
  });

  it('asks for the running day alone while the look-back has many orders, and for that every ten minutes', async () => {
    const { clock, calls, loop, stop } = setUp(async ({ runningDay }) => ({
      ...report,
      records: runningDay ? 800 : 6_000,
    }));
    await clock.advance(3_600_000 - 1);
    const kinds = calls.map(({ wide, runningDay }) => (wide ? 'w' : runningDay ? 'r' : 'l')).join('');
    expect(kinds).toBe('wlrrrrlrrrrlrrrrlrrrrlrrrrlrrr');
    // The missing order may be from yesterday, so the whole look-back is polled.
    const before = calls.length;
    await clock.advance(10_000);
    loop.wake();
    await clock.advance(1_000);
    expect(calls.slice(before).some(({ wide, runningDay }) => !wide && !runningDay)).toBe(true);
    await stop();
  });

  it('asks for the whole look-back each time while it has few, whatever a wide look brought', async () => {
    const { clock, calls, stop } = setUp(async ({ wide }) => ({ ...report, records: wide ? 90_000 : 4_000 }));
    await clock.advance(2 * 3_600_000);
    expect(calls.filter(({ runningDay }) => runningDay)).toEqual([]);
    await stop();
  });

  it.each(['wide', 'look-back'] as const)(
    'goes on polling while each %s poll fails, and tries that every ten minutes',
    async (failing) => {
      const mayFail = { yes: failing === 'wide' };
      const { clock, calls, stop } = setUp(async ({ wide = false, runningDay = false }) => {
        const isFailing = failing === 'wide' ? wide : !wide && !runningDay;
        if (mayFail.yes && isFailing)
          throw new TillsyncError('platform-failed', 'The platform answered 504.');
        return { ...report, records: runningDay ? 800 : 6_000 };
      });
      // Lets the first poll of the look-back succeed, so that the loop knows that there are many orders.
      await clock.advance(TWO_MINUTES_MS);
      mayFail.yes = true;
      await clock.advance(3_600_000);
      const kinds = calls.map(({ wide, runningDay }) => (wide ? 'w' : runningDay ? 'r' : 'l')).join('');
      const wanted = {
        wide: `wlrrrr${'wrlrrr'.repeat(5)}wrl`,
        'look-back': `wlrrrr${'lrrrrr'.repeat(4)}lrrrrwr`,
      };
      expect(kinds).toBe(wanted[failing]);
      await stop();
    },
  );

  it('tries again after a failure', async () => {
    const failing = { yes: true };
    const { clock, calls, stop } = setUp(async () => {
      if (failing.yes) throw new TillsyncError('platform-failed', 'The platform answered 500.');
      return report;
    });
    await clock.advance(60_000);
    expect(calls.length).toBeGreaterThanOrEqual(3);
    await clock.advance(900_000);
    const before = calls.length;
    failing.yes = false;
    await clock.advance(TWO_MINUTES_MS * 3);
    expect(calls.length - before).toBeGreaterThanOrEqual(2);
    await stop();
  });

  it('has the callbacks that wait judged after each poll, and while polls cannot be sent', async () => {
    let isDown = false;
    const { clock, calls, usable, judged, stop } = setUp(async () => {
      if (isDown) throw new TillsyncError('platform-failed', 'The platform answered 500.');
      return report;
    });
    await clock.advance(10 * 60_000);
    isDown = true;
    await clock.advance(10 * 60_000);
    expect(calls.length).toBeGreaterThan(8);
    expect(judged).toEqual(calls.map(({ atMs }) => atMs));
    usable.yes = false;
    await clock.advance(10 * 60_000);
    expect(judged.length).toBeGreaterThan(calls.length + 9);
    await stop();
  });

  it('stops asking while only a person can bring tokens, and goes on by itself when they are there', async () => {
    let locked = false;
    const { clock, calls, usable, stop } = setUp(async () => {
      if (locked) throw new TillsyncError('auth-required', 'The platform refused the refresh token.');
      return report;
    });
    locked = true;
    usable.yes = false;
    await clock.advance(3_600_000);
    expect(calls).toHaveLength(2);
    locked = false;
    usable.yes = true;
    await clock.advance(10_000);
    expect(calls).toHaveLength(3);
    await stop();
  });

  it('leaves it to the keeper of the tokens to tell of refused ones, and tells once that there are none', async () => {
    const refused = setUp(async () => {
      throw new TillsyncError('auth-required', 'Refused.', { httpStatus: 401 });
    });
    await refused.clock.advance(600_000);
    expect(refused.errors).toEqual([]);
    await refused.stop();
    const none = setUp(async () => {
      throw new TillsyncError('auth-required', 'No tokens have been handed in yet.');
    });
    await none.clock.advance(600_000);
    expect(none.errors).toEqual(['No tokens have been handed in yet.']);
    await none.stop();
  });
});
