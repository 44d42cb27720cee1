import { whenFree } from '../../domain/busy.ts';
import type { Leases } from '../../domain/leases.ts';
import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';

/** The lease that the daemon holds for as long as it runs; it ends with its process, whatever that dies of. */
export const RUNNING = 'daemon';
const AS_LONG_AS_IT_LIVES_MS = 100 * 365 * 86_400_000;

export interface RunningMarkOptions {
  leases: Leases;
  clock: Clock;
  log: Log;
}

/** Lets everybody see that the daemon runs; what it returns takes that back. */
export async function markRunning({ leases, clock, log }: RunningMarkOptions): Promise<() => Promise<void>> {
  const fence = await whenFree(clock, () => leases.acquire(RUNNING, AS_LONG_AS_IT_LIVES_MS));
  if (fence === undefined) {
    log.warn(
      {},
      'another tillsync runs on this storage directory; both keep the limits, one of them is enough',
    );
    return async () => {};
  }
  return () => whenFree(clock, () => leases.release(RUNNING, fence));
}
