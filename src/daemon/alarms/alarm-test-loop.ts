import { whenFree } from '../../domain/busy.ts';
import { asTillsyncError } from '../../domain/errors.ts';
import type { AlarmTestResult, AlarmTestWish, AlarmTestWishes } from '../../domain/health/alarm-test.ts';
import type { Clock } from '../../domain/time/clock.ts';

/** Whoever asked has given up after this. */
const WISH_HOLDS_MS = 60_000;
const LOOK_EVERY_MS = 1_000;
const LOOK_FOR_ANSWER_MS = 100;

export interface AlarmTestLoopOptions {
  wishes: AlarmTestWishes;
  test: (signal: AbortSignal) => Promise<AlarmTestResult[]>;
  clock: Clock;
  beat: () => void;
}

/** Sends the test messages that commands ask for, as the service and from within its sandbox. */
export async function alarmTestLoop(options: AlarmTestLoopOptions, signal: AbortSignal): Promise<void> {
  const { wishes, test, clock, beat } = options;
  while (!signal.aborted) {
    beat();
    const wish = await whenFree(clock, () => wishes.read(), undefined, signal);
    if (wish && isOpen(wish) && Math.abs(clock.nowMs() - wish.askedAtMs) < WISH_HOLDS_MS) {
      const done = await tried(test, signal);
      await whenFree(clock, () => wishes.write({ ...wish, ...done }));
    }
    await clock.sleep(LOOK_EVERY_MS, signal);
  }
}

async function tried(
  test: AlarmTestLoopOptions['test'],
  signal: AbortSignal,
): Promise<Pick<AlarmTestWish, 'results' | 'fault'>> {
  try {
    return { results: await test(signal), fault: null };
  } catch (error) {
    return { results: null, fault: asTillsyncError(error).message };
  }
}

/** Asks the running daemon for a test; undefined: it did not answer within `patienceMs`. */
export async function askForTest(options: {
  wishes: AlarmTestWishes;
  clock: Clock;
  patienceMs: number;
  signal: AbortSignal;
}): Promise<AlarmTestWish | undefined> {
  const { wishes, clock, patienceMs, signal } = options;
  const askedAtMs = clock.nowMs();
  const endMs = clock.monotonicMs() + patienceMs;
  await whenFree(clock, () => wishes.write({ askedAtMs, results: null, fault: null }), undefined, signal);
  while (!signal.aborted && clock.monotonicMs() < endMs) {
    await clock.sleep(LOOK_FOR_ANSWER_MS, signal);
    const wish = await whenFree(clock, () => wishes.read(), undefined, signal);
    if (wish?.askedAtMs === askedAtMs && !isOpen(wish)) return wish;
  }
  return undefined;
}

function isOpen({ results, fault }: AlarmTestWish): boolean {
  return results === null && fault === null;
}
