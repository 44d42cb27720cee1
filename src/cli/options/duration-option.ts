import { TillsyncError } from '../../domain/errors.ts';
import { parseDurationMs } from '../../domain/time/duration.ts';

/** Milliseconds from an option such as `--orders-every 5s`; throws `usage` for anything else. */
export function durationOption(name: string): (text: string) => number {
  return (text) => {
    const ms = parseDurationMs(text);
    if (ms !== undefined) return ms;
    throw new TillsyncError(
      'usage',
      `${name}: found "${text}"; allowed: a duration such as "500ms", "5s" or "2m".`,
    );
  };
}
