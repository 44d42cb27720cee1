import type Database from 'better-sqlite3';
import type { Clock } from '../../domain/time/clock.ts';

/**
 * Makes stored monotonic times comparable with now; every transaction that reads them calls it first.
 *
 * What was stored under another boot happened before this boot began, so it is dated to the boot's beginning:
 * an interval, a window entry or a block ends once the machine has been up for its full length. That waits too
 * long at most, and needs no wall clock, which may be wrong just after a start. A lease ends at once: whoever
 * had it died with its boot, and a request it sent is answered or lost long before a machine is up again.
 */
export class BootTime {
  readonly #clock: Clock;
  readonly #read: Database.Statement<[], string>;
  readonly #steps: Database.Statement<unknown[]>[];
  readonly #clamps: Database.Statement<unknown[]>[];
  readonly #write: Database.Statement<[string]>;

  constructor(options: { db: Database.Database; clock: Clock }) {
    const { db } = options;
    this.#clock = options.clock;
    this.#read = db.prepare<[], string>('SELECT boot_id FROM boot').pluck();
    this.#write = db.prepare<[string]>(
      'INSERT INTO boot VALUES (1, ?) ON CONFLICT DO UPDATE SET boot_id = excluded.boot_id',
    );
    this.#steps = [
      `UPDATE lanes SET taken_mono_ms = NULL, taken_until_mono_ms = NULL, settled_mono_ms = 0,
         held_from_mono_ms = iif(held_from_mono_ms IS NULL, NULL, 0)`,
      'UPDATE calls SET counts_from_mono_ms = 0',
      'UPDATE blocks SET from_mono_ms = 0',
      'UPDATE leases SET held = 0, until_mono_ms = 0',
    ].map((sql) => db.prepare<unknown[]>(sql));
    this.#clamps = [
      'UPDATE lanes SET taken_mono_ms = :now, taken_until_mono_ms = :now WHERE taken_mono_ms > :now',
      'UPDATE lanes SET settled_mono_ms = :now WHERE settled_mono_ms > :now',
      'UPDATE lanes SET held_from_mono_ms = :now WHERE held_from_mono_ms > :now',
      'UPDATE calls SET counts_from_mono_ms = :now WHERE counts_from_mono_ms > :now',
      'UPDATE blocks SET from_mono_ms = :now WHERE from_mono_ms > :now',
    ].map((sql) => db.prepare<unknown[]>(sql));
  }

  /** The moment now, to which everything stored is comparable afterwards. Inside a transaction only. */
  now(): number {
    const bootId = this.#read.get();
    if (bootId !== this.#clock.bootId) {
      for (const step of bootId === undefined ? [] : this.#steps) step.run();
      this.#write.run(this.#clock.bootId);
    }
    return this.#clock.monotonicMs();
  }

  /** A machine set back to an earlier moment of the same boot: nothing may have happened after now. */
  clamp(nowMs: number): void {
    for (const clamp of this.#clamps) clamp.run({ now: nowMs });
  }
}
