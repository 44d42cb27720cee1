import type { Log } from '../../domain/log.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { ServiceManager } from './sd-notify.ts';

export interface WatchdogOptions {
  manager: ServiceManager;
  /** Names of the loops that have been silent for too long. */
  stalledLoops: () => readonly string[];
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}

/** Two signs of life may be late before systemd acts. */
const SIGNS_PER_LIMIT = 3;

/**
 * Gives systemd its sign of life while every loop gives its own. A process whose event loop is blocked, or whose
 * loops are dead, stays silent and is started anew. Ends with the signal, or at once when nobody waits.
 */
export async function watchdogLoop(options: WatchdogOptions): Promise<void> {
  const { manager, stalledLoops, clock, log, signal } = options;
  if (manager.watchdogMs === undefined) return;
  let wasStalled = false;
  while (!signal.aborted) {
    const stalled = stalledLoops();
    if (stalled.length === 0) manager.tell({ WATCHDOG: '1' });
    else if (!wasStalled) {
      log.error({ loops: stalled }, 'loops give no sign of life; systemd will start tillsync anew');
      manager.tell({ STATUS: `No sign of life from: ${stalled.join(', ')}` });
    }
    wasStalled = stalled.length > 0;
    await clock.sleep(manager.watchdogMs / SIGNS_PER_LIMIT, signal);
  }
}
