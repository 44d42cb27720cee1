import { whenFree } from '../../domain/busy.ts';
import type { Clock } from '../../domain/time/clock.ts';

const OPEN_DEADLINE_MS = 30_000;

/** Opens a database; another process may be creating or upgrading it right now. */
export function openWhenFree<T>(clock: Clock, open: () => T): Promise<T> {
  return whenFree(clock, open, OPEN_DEADLINE_MS);
}
