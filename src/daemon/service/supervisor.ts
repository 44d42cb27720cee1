import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';

const RESTART_AFTER_MS = 5_000;

/** A loop under supervision, as the health endpoint and the watchdog see it. */
export interface SupervisedLoop {
  name: string;
  /** Monotonic time of its last sign of life. */
  lastBeatMs(): number;
  /** Resolves once the loop has ended after its signal. */
  ended: Promise<void>;
}

export interface SupervisorOptions {
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  /** Loops rest until then (default: at once). */
  begin?: Promise<void>;
}

/**
 * Runs a loop until the signal ends it. A loop that throws or returns by itself is started again after a rest;
 * what it was doing is safe, since every loop starts from what is durable. Ending at once after each start is no
 * sign of life.
 */
export function supervise(
  name: string,
  run: (signal: AbortSignal, beat: () => void) => Promise<void>,
  options: SupervisorOptions,
): SupervisedLoop {
  const { clock, log, signal, begin } = options;
  let lastBeatMs = clock.monotonicMs();
  const beat = () => {
    lastBeatMs = clock.monotonicMs();
  };
  const ended = (async () => {
    await begin;
    while (!signal.aborted) {
      const before = { beatMs: lastBeatMs, monoMs: clock.monotonicMs() };
      try {
        await run(signal, beat);
        if (!signal.aborted) log.error({ loop: name }, 'a loop ended by itself; starting it again');
      } catch (error) {
        if (!signal.aborted) log.error({ loop: name, err: error }, 'a loop failed; starting it again');
      }
      if (clock.monotonicMs() - before.monoMs < RESTART_AFTER_MS) lastBeatMs = before.beatMs;
      if (!signal.aborted) await clock.sleep(RESTART_AFTER_MS, signal);
    }
  })();
  return { name, lastBeatMs: () => lastBeatMs, ended };
}
