import type { Clock } from '../core/time.ts';

/**
 * Decides whether the POS of a store is silent. A sign of life is whatever only a running POS does: a batch, an
 * acknowledgement, a request to the API, a row in `pos_alive`.
 */

/** Signs of life of one store's POS. */
export interface PosSigns {
  /** Name of the store; '' if the signs name none. */
  store: string;
  /** Time of the last sign, ISO 8601 UTC. */
  lastAt: string;
  /**
   * The hours with a sign in the last weeks, in UTC, such as `2026-01-15T12`, without those of acknowledgements alone:
   * a POS that only acknowledges is quiet whenever no order comes.
   */
  hours: ReadonlySet<string>;
}

export interface SilentPos {
  store: string;
  lastAt: string;
}

/** Converts between UTC and the clock of the shop. */
interface Calendar {
  wallMs(instantMs: number): number;
  firstInstantMs(wallMs: number): number;
}

const HOUR_MS = 3_600_000;
const WEEK_MS = 7 * 24 * HOUR_MS;
/** Number of earlier weeks that are looked at, and in how many of them an hour must have a sign to count as usual. */
const WEEKS = 3;
const WEEKS_MIN = 2;
/** Number of usual hours that pass without a sign until a POS counts as silent. */
const HOURS_MIN = 2;
/** Longest silence that is examined. After it, the same hours come again. */
const EXAMINED_MAX_MS = WEEK_MS;

function hourOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 13);
}

/**
 * Returns whether a silence is unusual: two whole hours of the shop's day passed without a sign in which the POS gave
 * one in two of the three weeks before, at the same hour of the same weekday. So nights and closed days do not count.
 */
function isUnusual(
  hours: ReadonlySet<string>,
  { fromMs, nowMs }: { fromMs: number; nowMs: number },
  calendar: Calendar,
): boolean {
  const beginMs = Math.max(fromMs, nowMs - EXAMINED_MAX_MS);
  let missed = 0;
  for (let ms = Math.ceil(beginMs / HOUR_MS) * HOUR_MS; ms + HOUR_MS <= nowMs; ms += HOUR_MS) {
    const wallMs = calendar.wallMs(ms);
    let weeks = 0;
    for (let week = 1; week <= WEEKS; week++) {
      if (hours.has(hourOf(calendar.firstInstantMs(wallMs - week * WEEK_MS)))) weeks += 1;
    }
    if (weeks >= WEEKS_MIN) missed += 1;
    if (missed >= HOURS_MIN) return true;
  }
  return false;
}

/**
 * Watches for silence while this process runs. It counts by the monotonic clock since the last sign or the start, so
 * neither a clock that is set nor a time in which tillsync was off makes a POS silent.
 */
export class PosWatch {
  readonly #clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly #calendar: Calendar;
  readonly #after: 'auto' | number;
  readonly #seen = new Map<string, { lastAt: string; monoMs: number }>();

  /** `after` is `alarms.pos_silent_after` in milliseconds; 0 means never. */
  constructor(
    clock: Pick<Clock, 'nowMs' | 'monotonicMs'>,
    { calendar, after }: { calendar: Calendar; after: 'auto' | number },
  ) {
    this.#clock = clock;
    this.#calendar = calendar;
    this.#after = after;
  }

  /** Returns the stores whose POS is silent now. Called every few seconds. */
  look(stores: readonly PosSigns[]): SilentPos[] {
    const monoMs = this.#clock.monotonicMs();
    const nowMs = this.#clock.nowMs();
    return stores.flatMap(({ store, lastAt, hours }) => {
      const seen = this.#seen.get(store);
      if (seen?.lastAt !== lastAt) this.#seen.set(store, { lastAt, monoMs });
      const silentMs = seen?.lastAt === lastAt ? monoMs - seen.monoMs : 0;
      return this.#isTooLong(silentMs, nowMs, hours) ? [{ store, lastAt }] : [];
    });
  }

  #isTooLong(silentMs: number, nowMs: number, hours: ReadonlySet<string>): boolean {
    if (this.#after !== 'auto') return this.#after > 0 && silentMs >= this.#after;
    return isUnusual(hours, { fromMs: nowMs - silentMs, nowMs }, this.#calendar);
  }
}
