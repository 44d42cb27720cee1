import { expect, it } from 'vitest';
import { Waker } from '../../src/core/loop.ts';
import { FakeClock } from '../support/fake-clock.ts';

const HOUR_MS = 3_600_000;

it('looks at the wall clock at moments that all loops share', async () => {
  const clock = new FakeClock();
  const abort = new AbortController();
  const looks: number[][] = [[], []];
  const wait = (of: number) => {
    const note = () => looks[of]?.push(clock.monotonicMs());
    return new Waker(clock).until(() => clock.nowMs() + HOUR_MS, abort.signal, note);
  };
  const first = wait(0);
  await clock.advance(4_321);
  const second = wait(1);
  await clock.advance(60_000);
  expect(looks[0]?.slice(1)).toHaveLength(4);
  expect(looks[1]?.slice(1)).toEqual(looks[0]?.slice(1));
  abort.abort();
  await Promise.all([first, second]);
});

it('notices within a quarter of a minute that the wall clock went past what was due', async () => {
  const clock = new FakeClock();
  const dueMs = clock.nowMs() + HOUR_MS;
  let isOver = false;
  const waiting = new Waker(clock)
    .until(() => dueMs, new AbortController().signal)
    .then(() => {
      isOver = true;
    });
  await clock.advance(1_000);
  clock.jumpWall(HOUR_MS);
  await clock.advance(15_000);
  expect(isOver).toBe(true);
  await waiting;
});
