/**
 * Time as a port, so that a month can pass in a second and pacing never follows a wall clock that jumps.
 */
export interface Clock {
  /** Wall clock, milliseconds since the epoch. For people, dates and tokens; never for pacing. */
  nowMs(): number;
  /** Monotonic milliseconds (fractional), comparable between all processes of one boot. For pacing. */
  monotonicMs(): number;
  /** Names the boot in which `monotonicMs` counts; a value stored under another boot is not comparable. */
  readonly bootId: string;
  /** Waits at least about `ms`; ends early, without throwing, when `signal` aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** Chance as a port: seeded in tests, so that a run can be repeated from its printed seed. */
export interface Random {
  /** Uniform in [0, 1). */
  next(): number;
}

/** ISO 8601 in UTC with milliseconds, as every time in the mirror is written. */
export function isoUtc(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
