import { expect, it } from 'vitest';
import { CrossBranchListing } from '../../src/catalog/cross-branch.ts';
import type { Branch } from '../../src/catalog/product.ts';
import { SweepTrigger, sweepLoop } from '../../src/catalog/sweep-loop.ts';
import { cronSchedule } from '../../src/config/schedule.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { FakeClock, seededRandom } from '../support/fake-clock.ts';

const begin = (branches: readonly Branch[]) => ({
  largestFirst: [...branches],
  soFar: {
    cover: new CrossBranchListing(branches),
    mark: { push: 0, orderSeq: 0 },
    startedAtMs: 0,
    readUntilMs: 0,
    asked: new Set<string>(),
    vanishing: { of: 0, vanished: 0 },
  },
});

const NOON_MS = Date.UTC(2026, 0, 15, 12);
const HOUR_MS = 3_600_000;

/** Starts the sweep loop at `startMs`, and records by the wall clock when it swept its only branch. */
function daemonAt(startMs: number, sweptMs: number | undefined) {
  const clock = new FakeClock(startMs);
  const ending = new AbortController();
  const sweptAt: number[] = [];
  const servedMs: (number | undefined)[] = [];
  const faults: TillsyncError[] = [];
  const trigger = new SweepTrigger(clock);
  const running = sweepLoop(
    {
      sweep: {
        begin,
        end: async () => {},
        sweep: async (branch, request) => {
          sweptAt.push(clock.nowMs());
          servedMs.push(request?.scheduledMs);
          const fault = faults.shift();
          if (fault) throw fault;
          return {
            branch,
            products: 1,
            pages: 1,
            written: 0,
            vanished: 0,
            doubted: 0,
            unreadable: 0,
            restarts: 0,
          };
        },
      },
      branches: [{ subsidiaryId: 's1', externalId: null }],
      freshness: { report: () => {}, ok: () => {} },
      schedule: cronSchedule('30 4 * * *', 'UTC'),
      sweptMs: () => sweptMs,
      mayCall: () => true,
      trigger,
      clock,
      random: seededRandom(1),
      log: silentLog,
      beat: () => {},
    },
    ending.signal,
  );
  const stop = async () => {
    ending.abort();
    await running;
  };
  return { clock, sweptAt, servedMs, faults, trigger, stop };
}

/** Starts a loop at noon and returns how often it swept its only branch within this many hours. */
async function sweepsAfter(hours: number, sweptMs: number | undefined): Promise<number> {
  const { clock, sweptAt, stop } = daemonAt(NOON_MS, sweptMs);
  await clock.advance(hours * HOUR_MS);
  await stop();
  return sweptAt.length;
}

it.each([
  ['was never read', undefined, 1],
  ['was read as planned', NOON_MS - 7.5 * HOUR_MS, 0],
  ['was to be read while nobody ran', NOON_MS - 31.5 * HOUR_MS, 1],
  ['was read, by a clock that was ahead', NOON_MS + 90 * 24 * HOUR_MS, 0],
])('a catalogue that %s is due in the hour after the start accordingly', async (_what, sweptMs, sweeps) => {
  expect(await sweepsAfter(1, sweptMs)).toBe(sweeps);
  expect(await sweepsAfter(17, sweptMs)).toBe(sweeps + 1);
});

it('a catalogue that was read by a clock two months ahead is read the next night once that is set right', async () => {
  const aheadMs = 60 * 24 * HOUR_MS;
  const { clock, sweptAt, stop } = daemonAt(NOON_MS + aheadMs, NOON_MS - 31.5 * HOUR_MS);
  await clock.advance(60_000);
  expect(sweptAt).toHaveLength(1);
  clock.jumpWall(-aheadMs);
  await clock.advance(41 * HOUR_MS);
  await stop();
  expect(sweptAt.slice(1)).toEqual([NOON_MS + 16.5 * HOUR_MS, NOON_MS + 40.5 * HOUR_MS]);
});

it('a reading serves a time of the schedule only if it was due then, also when it is tried again', async () => {
  const { clock, sweptAt, servedMs, faults, trigger, stop } = daemonAt(NOON_MS, NOON_MS - 7.5 * HOUR_MS);
  trigger.request();
  await clock.advance(1_000);
  expect(servedMs).toEqual([undefined]);
  faults.push(new TillsyncError('platform-failed', 'It failed.'));
  await clock.advance(17 * HOUR_MS);
  const nightMs = NOON_MS + 16.5 * HOUR_MS;
  expect(servedMs).toEqual([undefined, nightMs, nightMs]);
  expect(sweptAt[2]).toBeGreaterThan(nightMs);
  faults.push(new TillsyncError('platform-failed', 'It failed.'));
  trigger.request();
  await clock.advance(HOUR_MS);
  expect(servedMs).toEqual([undefined, nightMs, nightMs, undefined, undefined]);
  await stop();
});

it.each([
  ['failed at the platform', 'platform-failed'],
  ['met nobody', 'platform-unreachable'],
] as const)(
  'a reading that %s is tried again in minutes, however often somebody wishes for it',
  async (_what, code) => {
    const clock = new FakeClock(NOON_MS);
    const ending = new AbortController();
    const trigger = new SweepTrigger(clock);
    const reports: string[] = [];
    let tries = 0;
    let isDown = true;
    const running = sweepLoop(
      {
        sweep: {
          begin,
          end: async () => {},
          sweep: async (branch) => {
            tries += 1;
            if (isDown) throw new TillsyncError(code, 'It failed.');
            return {
              branch,
              products: 1,
              pages: 1,
              written: 0,
              vanished: 0,
              doubted: 0,
              unreadable: 0,
              restarts: 0,
            };
          },
        },
        branches: [{ subsidiaryId: 's1', externalId: null }],
        freshness: {
          report: (subject, state, _message, failure) => void reports.push(`${subject} ${state} ${failure}`),
          ok: (subject) => void reports.push(`${subject} ok`),
        },
        schedule: cronSchedule('30 4 * * *', 'UTC'),
        sweptMs: () => undefined,
        mayCall: () => true,
        trigger,
        clock,
        random: seededRandom(1),
        log: silentLog,
        beat: () => {},
      },
      ending.signal,
    );
    for (let second = 0; second < 300; second++) {
      await clock.advance(1_000);
      trigger.request();
    }
    expect(tries).toBeGreaterThanOrEqual(4);
    expect(tries).toBeLessThan(12);
    expect(new Set(reports)).toEqual(new Set([`catalog.sweep failing ${code}`]));
    isDown = false;
    await clock.advance(300_000);
    expect(reports.at(-1)).toBe('catalog.sweep ok');
    ending.abort();
    await running;
  },
);
