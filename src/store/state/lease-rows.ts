import type Database from 'better-sqlite3';
import type { Leases } from '../../domain/leases.ts';
import { storing } from '../sqlite.ts';
import type { BootTime } from './boot-time.ts';
import type { Holders } from './holder.ts';

/** Named leases; a fence rises with each holder and is never used twice. A dead process's lease ends at once. */
export class LeaseRows implements Leases {
  readonly #transaction: Database.Transaction<(action: () => unknown) => unknown>;
  readonly #time: BootTime;
  readonly #holders: Holders;
  readonly #acquire: Database.Statement<[string, number, string, number], number>;
  readonly #holder: Database.Statement<[string], string>;
  readonly #held: Database.Statement<[string], { holder: string; until_mono_ms: number }>;
  readonly #free: Database.Statement<[string]>;
  readonly #renew: Database.Statement<[number, string, number]>;
  readonly #release: Database.Statement<[string, number]>;

  constructor(options: { db: Database.Database; time: BootTime; holders: Holders }) {
    const { db } = options;
    this.#transaction = db.transaction((action) => action());
    this.#time = options.time;
    this.#holders = options.holders;
    this.#acquire = db
      .prepare<[string, number, string, number], number>(
        `INSERT INTO leases VALUES (?, 1, 1, ?, ?)
           ON CONFLICT DO UPDATE SET fence = fence + 1, held = 1, until_mono_ms = excluded.until_mono_ms,
             holder = excluded.holder
             WHERE held = 0 OR until_mono_ms <= ?
         RETURNING fence`,
      )
      .pluck();
    this.#holder = db
      .prepare<[string], string>('SELECT holder FROM leases WHERE name = ? AND held = 1')
      .pluck();
    this.#held = db.prepare('SELECT holder, until_mono_ms FROM leases WHERE name = ? AND held = 1');
    this.#free = db.prepare('UPDATE leases SET held = 0 WHERE name = ?');
    this.#renew = db.prepare('UPDATE leases SET until_mono_ms = ? WHERE name = ? AND fence = ? AND held = 1');
    this.#release = db.prepare('UPDATE leases SET held = 0 WHERE name = ? AND fence = ?');
  }

  acquire(name: string, holdMs: number): number | undefined {
    return this.#immediately(() => {
      const nowMs = this.#time.now();
      const holder = this.#holder.get(name);
      if (holder !== undefined && this.#holders.isAlive(holder) === false) this.#free.run(name);
      return this.#acquire.get(name, nowMs + holdMs, this.#holders.self, nowMs);
    });
  }

  /** Also an expired lease that nobody took meanwhile is kept on. */
  renew(name: string, fence: number, holdMs: number): boolean {
    return this.#immediately(() => this.#renew.run(this.#time.now() + holdMs, name, fence).changes === 1);
  }

  /** Whether a process has the lease and lives, or may live where that cannot be seen from here. */
  isHeld(name: string): boolean {
    return this.holder(name) !== undefined;
  }

  /**
   * The process that has the lease, as `Holders` names it; undefined when none does. One that is seen to live has it also
   * beyond its time, as when it stands still, until another one takes it.
   */
  holder(name: string): string | undefined {
    return this.#immediately(() => {
      const nowMs = this.#time.now();
      const held = this.#held.get(name);
      if (held === undefined) return undefined;
      const isHeld = this.#holders.isAlive(held.holder) ?? held.until_mono_ms > nowMs;
      return isHeld ? held.holder : undefined;
    });
  }

  release(name: string, fence: number): void {
    storing(() => this.#release.run(name, fence));
  }

  #immediately<T>(action: () => T): T {
    return storing(() => this.#transaction.immediate(action) as T);
  }
}
