import { systemClock } from '../../src/core/system-clock.ts';
import type { Clock } from '../../src/core/time.ts';

/**
 * Returns a clock that runs `factor` times as fast, for tests of the daemon and the platform in one process with the
 * platform's published limits.
 */
export function hastyClock(factor: number): Clock {
  const startMonoMs = systemClock.monotonicMs();
  const startWallMs = systemClock.nowMs();
  const passedMs = () => (systemClock.monotonicMs() - startMonoMs) * factor;
  return {
    bootId: `hasty-${startMonoMs}`,
    nowMs: () => Math.floor(startWallMs + passedMs()),
    monotonicMs: () => startMonoMs + passedMs(),
    sleep: (ms, signal) => systemClock.sleep(ms / factor, signal),
  };
}
