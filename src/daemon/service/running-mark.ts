import { whenFree } from '../../domain/busy.ts';
import type { Leases } from '../../domain/leases.ts';
import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';

/** The lease that the daemon holds for as long as it runs; it ends with its process, whatever that dies of. */
export const RUNNING = 'daemon';
/** How long a daemon in another container, whose end nobody here can see, counts as running after its last renewal. */
const HOLD_MS = 180_000;
const RENEW_EVERY_MS = 60_000;

export interface RunningMarkOptions {
  leases: Leases;
  clock: Clock;
  log: Log;
}

/** Lets everybody see that the daemon runs; what it returns takes that back. */
export async function markRunning(options: RunningMarkOptions): Promise<() => Promise<void>> {
  const { leases, clock, log } = options;
  const acquire = () => whenFree(clock, () => leases.acquire(RUNNING, HOLD_MS));
  let fence = await acquire();
  if (fence === undefined) {
    log.warn(
      {},
      'another tillsync runs on this storage directory; both keep the limits, one of them is enough',
    );
  }
  const over = new AbortController();
  const keep = async () => {
    for (;;) {
      await clock.sleep(RENEW_EVERY_MS, over.signal);
      if (over.signal.aborted) return;
      try {
        const held = fence;
        const isKept =
          held !== undefined && (await whenFree(clock, () => leases.renew(RUNNING, held, HOLD_MS)));
        // The other one may have ended since.
        if (!isKept) fence = await acquire();
      } catch (error) {
        log.debug({ err: error }, 'the mark of the running tillsync could not be renewed');
      }
    }
  };
  const kept = keep();
  return async () => {
    over.abort();
    await kept;
    const held = fence;
    if (held !== undefined) await whenFree(clock, () => leases.release(RUNNING, held));
  };
}
