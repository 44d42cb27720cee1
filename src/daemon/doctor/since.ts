import type { Clock } from '../../domain/time/clock.ts';
import { formatDuration } from '../../domain/time/duration.ts';

/** How long ago, such as `3m ago`. */
export function since(iso: string, clock: Clock): string {
  const ms = clock.nowMs() - Date.parse(iso);
  return Number.isNaN(ms) ? `at ${iso}` : `${formatDuration(Math.max(ms, 0))} ago`;
}
