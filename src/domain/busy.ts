import { hasCode, TillsyncError } from './errors.ts';
import type { Clock } from './time/clock.ts';

/**
 * Runs a short database action, trying again while another process holds the lock, without freezing the event
 * loop meanwhile. Throws `storage-busy` after `deadlineMs`, `aborted` when the signal ends it.
 */
export async function whenFree<T>(
  clock: Clock,
  action: () => T,
  deadlineMs = 10_000,
  signal?: AbortSignal,
): Promise<T> {
  const endMs = clock.monotonicMs() + deadlineMs;
  for (let attempt = 0; ; attempt++) {
    try {
      return action();
    } catch (error) {
      if (!hasCode(error, 'storage-busy') || clock.monotonicMs() >= endMs) throw error;
    }
    if (signal?.aborted) throw new TillsyncError('aborted', 'Stopped while waiting for the database.');
    await clock.sleep(Math.min(2 + attempt * 3, 50), signal);
  }
}
