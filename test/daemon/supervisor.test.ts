import { expect, it } from 'vitest';
import { stalledLoops } from '../../src/api/status-routes.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { type Log, silentLog } from '../../src/core/log.ts';
import { supervise, watchdogLoop } from '../../src/daemon/service.ts';
import { FakeClock } from '../support/fake-clock.ts';

const MINUTE_MS = 60_000;

/** Makes a loop with one round a minute. After `dies` is set, each start throws `error`. Counts the heartbeats. */
function setUp() {
  const clock = new FakeClock();
  const stop = new AbortController();
  const work = { dies: false, error: new Error('The loop is broken.'), starts: 0 };
  const logged: string[] = [];
  const log: Log = {
    ...silentLog,
    error: ({ err }: { err: Error }) => void logged.push(err.message),
  };
  const loop = supervise(
    'orders',
    async (signal, beat) => {
      work.starts += 1;
      while (!signal.aborted) {
        beat();
        if (work.dies) throw work.error;
        await clock.sleep(MINUTE_MS, signal);
      }
    },
    { clock, log, signal: stop.signal },
  );
  let signs = 0;
  const loopsAlive = () => [loop];
  const ended = watchdogLoop({
    manager: {
      tell({ WATCHDOG }) {
        if (WATCHDOG) signs += 1;
      },
      watchdogMs: 30_000,
    },
    stalledLoops: () => stalledLoops({ clock, loopsAlive }),
    clock,
    log: silentLog,
    signal: stop.signal,
  });
  const signsIn = async (ms: number) => {
    const before = signs;
    for (let at = 0; at < ms; at += 1_000) await clock.advance(1_000);
    return signs - before;
  };
  const end = async () => {
    stop.abort();
    await Promise.all([loop.ended, ended]);
  };
  return { work, logged, signsIn, end };
}

it('starts a loop again that threw, which costs no sign of life', async () => {
  const { work, signsIn, end } = setUp();
  await signsIn(5 * MINUTE_MS);
  work.dies = true;
  await signsIn(2 * MINUTE_MS);
  work.dies = false;
  expect(work.starts).toBeGreaterThan(5);
  expect(await signsIn(30 * MINUTE_MS)).toBeGreaterThan(150);
  await end();
});

it('takes no start for a sign of life that ends at once, so that the process is started anew', async () => {
  const { work, signsIn, end } = setUp();
  await signsIn(5 * MINUTE_MS);
  work.dies = true;
  await signsIn(12 * MINUTE_MS);
  expect(await signsIn(30 * MINUTE_MS)).toBe(0);
  await end();
});

it('starts nothing anew for a fault of set-up, and logs each once', async () => {
  const { work, logged, signsIn, end } = setUp();
  work.dies = true;
  const faults = ['ca.pem cannot be read (ENOENT).', 'ca.pem cannot be read (EACCES).'];
  for (const fault of faults) {
    work.error = new TillsyncError('config-invalid', fault);
    expect(await signsIn(30 * MINUTE_MS)).toBe(180);
  }
  expect(logged).toEqual(faults);
  expect(work.starts).toBeGreaterThan(700);
  await end();
});
