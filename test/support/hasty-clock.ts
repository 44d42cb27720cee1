import { systemClock } from '../../src/core/system-clock.ts';
import type { Clock } from '../../src/core/time.ts';

/** Makes a clock that runs `factor` times as fast, for daemon and platform in one process with the true limits. */
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
