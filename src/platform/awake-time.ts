import type { Clock } from '../domain/time/clock.ts';

const STEP_MS = 1_000;

/**
 * Waits until this process has been awake for about `ms`; ends early when `signal` aborts. Time in which it stood still
 * (a paused machine, a blocked event loop, SIGSTOP) does not count: what arrived meanwhile is not read yet.
 */
export async function awakeFor(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  for (let restMs = ms; restMs > 0 && !signal.aborted; ) {
    const stepMs = Math.min(STEP_MS, restMs);
    const beginMs = clock.monotonicMs();
    await clock.sleep(stepMs, signal);
    const stoodStill = clock.monotonicMs() - beginMs > stepMs + STEP_MS;
    if (!stoodStill) restMs -= stepMs;
  }
}
