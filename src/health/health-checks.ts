import { MAPPINGS_FOR_MS } from '../catalog/unmapped.ts';
import type { AlarmKey, Alarms, Freshness } from '../core/alarm.ts';
import { type Clock, keptFor } from '../core/time.ts';
import type { Look, Repeated, Sights } from './facts.ts';
import { FINDINGS } from './findings.ts';
import { PushMonitor } from './push-monitor.ts';

/** What the health checks read, and where they note what they find. */
export interface AlarmFacts extends Omit<Sights, 'pushFails' | 'upMs'> {
  alarms: Alarms;
  /** Returns the freshness of each flow. May throw `storage-…`. */
  freshness: () => readonly Freshness[];
  clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
}

const HOUR_MS = 3_600_000;
const RECENT_MAX = 1_000;

/** Remembers events of the last hour, each with its time and origin. */
export class Recently {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #times: { atMonoMs: number; where: string }[] = [];

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock;
  }

  note(where: string): void {
    this.#times.push({ atMonoMs: this.#clock.monotonicMs(), where });
    if (this.#times.length > RECENT_MAX) this.#times.shift();
  }

  /** Counts the events of the last hour. `where` is the origin of the last event. */
  of(): Repeated {
    const fromMs = this.#clock.monotonicMs() - HOUR_MS;
    this.#times = this.#times.filter(({ atMonoMs }) => atMonoMs >= fromMs);
    const [first, last] = [this.#times[0], this.#times.at(-1)];
    if (!first || !last) return { count: 0, forMs: 0, where: '' };
    return { count: this.#times.length, forMs: last.atMonoMs - first.atMonoMs, where: last.where };
  }
}

/** Time for which a day of orders is not read again, because that takes longer than other looks. */
const DAY_OF_ORDERS_FOR_MS = 5 * 60_000;
/** Time for which the fields of payloads are not looked at again, because that reads whole orders. */
const FIELDS_FOR_MS = 3_600_000;

const LOOKS = (Object.keys(FINDINGS) as AlarmKey[]).flatMap((key): [AlarmKey, Look][] => {
  const { look } = FINDINGS[key];
  return look ? [[key, look]] : [];
});

/**
 * Looks at the store by the rules of the table of findings, and notes what they find in the mirror, where all readers
 * see it, and since when. Measures what needs a clock over time. Methods throw the errors of the facts.
 */
export class HealthChecks {
  readonly #alarms: Alarms;
  readonly #seen: Sights;

  constructor({ alarms, freshness, ...facts }: AlarmFacts) {
    const { clock } = facts;
    const startMonoMs = clock.monotonicMs();
    const pushMonitor = new PushMonitor(clock.nowMs());
    this.#alarms = alarms;
    this.#seen = {
      ...facts,
      sumsOfOrders: keptFor(DAY_OF_ORDERS_FOR_MS, clock, facts.sumsOfOrders),
      missingCodes: keptFor(DAY_OF_ORDERS_FOR_MS, clock, facts.missingCodes),
      fieldNews: keptFor(FIELDS_FOR_MS, clock, facts.fieldNews),
      branchMappings: keptFor(MAPPINGS_FOR_MS, clock, facts.branchMappings),
      pushFails: () => pushMonitor.judge(freshness(), clock.nowMs()),
      upMs: () => clock.monotonicMs() - startMonoMs,
    };
  }

  /**
   * Looks by all rules. If facts cannot be read, the other rules still hold, and the first error is thrown at the end.
   */
  run(): void {
    const failed: unknown[] = [];
    for (const [key, look] of LOOKS) {
      try {
        const found = look(this.#seen);
        if (found !== undefined) this.#alarms.note(key, found?.words ?? null, found?.level);
      } catch (error) {
        failed.push(error);
      }
    }
    if (failed.length > 0) throw failed[0];
  }
}
