/** Tests src/core/errors.ts. */

import { expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { whenFree } from '../../src/core/loop.ts';
import { FakeClock } from '../support/fake-clock.ts';

function locked(untilMonoMs: number, clock: FakeClock) {
  let tries = 0;
  const action = () => {
    tries += 1;
    if (tries > 5_000) throw new Error('It tries without a rest.');
    if (clock.monotonicMs() < untilMonoMs) throw new TillsyncError('storage-busy', 'locked');
    return 'written';
  };
  return { action, tries: () => tries };
}

it('waits while another process has the lock, and no longer than it may', async () => {
  const clock = new FakeClock();
  const short = locked(clock.monotonicMs() + 3_000, clock);
  const written = whenFree(clock, short.action);
  await clock.advance(3_100);
  expect(await written).toBe('written');
  const long = locked(clock.monotonicMs() + 60_000, clock);
  const refused = whenFree(clock, long.action, 2_000).catch((error) => error.code);
  await clock.advance(2_100);
  expect(clock.sleeping).toBe(0);
  expect(await refused).toBe('storage-busy');
});

it('ends at once when it is stopped, and never before it has tried', async () => {
  const clock = new FakeClock();
  const stopping = new AbortController();
  const { action, tries } = locked(clock.monotonicMs() + 60_000, clock);
  const waiting = whenFree(clock, action, undefined, stopping.signal).catch((error) => error.code);
  await clock.advance(500);
  stopping.abort();
  await clock.advance(0);
  const tried = tries();
  await clock.advance(1_000);
  expect(tries()).toBe(tried);
  expect(await waiting).toBe('aborted');
  expect(await whenFree(clock, () => 'free', undefined, stopping.signal)).toBe('free');
});
