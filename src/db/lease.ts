import { readFileSync, readlinkSync } from 'node:fs';
import type Database from 'better-sqlite3';
import { whenFree } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { sqlOf, storing } from './sqlite.ts';

export type Leases = Pick<LeaseRows, 'acquire' | 'renew' | 'release'>;

/** Names the process that took a slot or lease, and checks whether another one still runs. */
export interface Holders {
  readonly self: string;
  /**
   * Whether the holder's process runs; undefined if this process cannot see it, and then the lease ends by its time
   * alone.
   */
  isAlive(holder: string): boolean | undefined;
}

/** Process ids are comparable only within a PID namespace; a container has its own. */
const NAMESPACE = pidNamespace();

/**
 * Names processes by id, start time and PID namespace, so that a reused id is not mistaken for the old process.
 * Holders written by older versions have no namespace and count as this one's.
 */
export const systemHolders: Holders = {
  self: `${process.pid}.${startTimeOf(process.pid) ?? ''}.${NAMESPACE}`,
  isAlive(holder) {
    const [pid, startTime, namespace = NAMESPACE] = holder.split('.');
    if (!pid || !/^[1-9]\d*$/.test(pid) || namespace !== NAMESPACE) return undefined;
    try {
      process.kill(Number(pid), 0);
    } catch (error) {
      // EPERM: the process runs, as another user.
      if (error instanceof Error && 'code' in error && error.code === 'ESRCH') return false;
    }
    const now = startTimeOf(Number(pid));
    return now === undefined || startTime === '' || now === startTime;
  },
};

/** Returns a holder's process id; undefined if it has none that is valid here. */
export function pidOf(holder: string): number | undefined {
  const [, pid, namespace = NAMESPACE] = /^([1-9]\d*)\.\d*(?:\.(\d*))?$/.exec(holder) ?? [];
  return pid === undefined || namespace !== NAMESPACE ? undefined : Number(pid);
}

/** Returns the inode of the PID namespace; empty if the system does not tell. */
function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '';
  } catch {
    return '';
  }
}

/** Returns the start time in clock ticks since boot; undefined if the system does not tell. */
function startTimeOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The program's name, in brackets, may contain spaces; the start time is the 20th field after it.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}

/**
 * Makes stored monotonic times comparable with now. Every transaction that reads them calls it first.
 *
 * A time stored under another boot is dated to this boot's beginning. So an interval, a window entry or a block ends
 * once the machine has been up for its full length. That waits too long at worst, and needs no wall clock, which may
 * be wrong after a start. A lease ends at once: its holder died with its boot, and a request of that process is
 * answered or lost long before a machine is up again.
 */
export class BootTime {
  readonly #db: Database.Database;
  readonly #clock: Clock;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#db = db;
    this.#clock = clock;
  }

  /**
   * Returns the present monotonic time, and makes all stored times comparable with it. Must be called inside a
   * transaction.
   */
  now(): number {
    const { bootId } = this.#clock;
    const stored = sqlOf(this.#db).value<string>('SELECT boot_id FROM boot');
    if (bootId !== stored) {
      if (stored !== undefined) this.#db.exec(BEFORE_THIS_BOOT);
      const sql = 'INSERT INTO boot VALUES (1, ?) ON CONFLICT DO UPDATE SET boot_id = excluded.boot_id';
      sqlOf(this.#db).run(sql, bootId);
    }
    return this.#clock.monotonicMs();
  }

  /**
   * Lowers stored times that are later than now, as after a virtual machine was reset to an earlier moment of the same
   * boot.
   */
  clamp(nowMs: number): void {
    for (const [table, column] of MOMENTS) {
      const also = column === 'taken_mono_ms' ? ', taken_until_mono_ms = :now' : '';
      const sql = `UPDATE ${table} SET ${column} = :now${also} WHERE ${column} > :now`;
      this.#db.prepare(sql).run({ now: nowMs });
    }
  }
}

const BEFORE_THIS_BOOT = `
  UPDATE lanes SET taken_mono_ms = NULL, taken_until_mono_ms = NULL, settled_mono_ms = 0,
    held_from_mono_ms = iif(held_from_mono_ms IS NULL, NULL, 0);
  UPDATE calls SET counts_from_mono_ms = 0;
  UPDATE blocks SET from_mono_ms = 0;
  UPDATE leases SET held = 0, until_mono_ms = 0;`;
/** Columns that hold the time of an event. */
const MOMENTS = [
  ['lanes', 'taken_mono_ms'],
  ['lanes', 'settled_mono_ms'],
  ['lanes', 'held_from_mono_ms'],
  ['calls', 'counts_from_mono_ms'],
  ['blocks', 'from_mono_ms'],
];

/**
 * Named leases in state.db, for work that only one process may do at a time. The fence rises with each holder and is
 * never reused. A dead process's lease ends at once.
 */
export class LeaseRows {
  readonly #db: Database.Database;
  readonly #time: BootTime;
  readonly #holders: Holders;
  /** Leases whose release the disk refused, by name. They are released later, and not held for this process's life. */
  readonly #owed = new Map<string, number>();

  constructor({ db, time, holders }: { db: Database.Database; time: BootTime; holders: Holders }) {
    this.#db = db;
    this.#time = time;
    this.#holders = holders;
  }

  /** Returns the fence of the lease, or undefined while another process has it. */
  acquire(name: string, holdMs: number): number | undefined {
    return this.#immediately((nowMs) => {
      const held = this.#held(name);
      if (held && this.#holders.isAlive(held.holder) === false) {
        sqlOf(this.#db).run('UPDATE leases SET held = 0 WHERE name = ?', name);
      }
      return sqlOf(this.#db).value(
        `INSERT INTO leases VALUES (?, 1, 1, ?, ?)
           ON CONFLICT DO UPDATE SET fence = fence + 1, held = 1, until_mono_ms = excluded.until_mono_ms,
             holder = excluded.holder
             WHERE held = 0 OR until_mono_ms <= ?
         RETURNING fence`,
        name,
        nowMs + holdMs,
        this.#holders.self,
        nowMs,
      );
    });
  }

  /**
   * Extends a lease, also an expired one that no other process acquired. Returns false if another process has acquired
   * it.
   */
  renew(name: string, fence: number, holdMs: number): boolean {
    const sql = 'UPDATE leases SET until_mono_ms = ? WHERE name = ? AND fence = ? AND held = 1';
    return this.#immediately((nowMs) => sqlOf(this.#db).run(sql, nowMs + holdMs, name, fence).changes === 1);
  }

  /** Whether a process holds the lease and is alive, or may be alive if that is not visible here. */
  isHeld(name: string): boolean {
    return this.holder(name) !== undefined;
  }

  /**
   * Returns the holder of the lease, in the form of `Holders`; undefined if none. A living holder has it beyond its
   * time, for example while frozen, until another process acquires it.
   */
  holder(name: string): string | undefined {
    return this.#immediately((nowMs) => {
      const held = this.#held(name);
      return held && (this.#holders.isAlive(held.holder) ?? held.untilMs > nowMs) ? held.holder : undefined;
    });
  }

  /** If the release cannot be written now, it is written before the next use of any lease. */
  release(name: string, fence: number): void {
    this.#owed.set(name, fence);
    this.#immediately(() => undefined);
  }

  #held(name: string): { holder: string; untilMs: number } | undefined {
    const sql = 'SELECT holder, until_mono_ms AS untilMs FROM leases WHERE name = ? AND held = 1';
    return sqlOf(this.#db).row<{ holder: string; untilMs: number }>(sql, name);
  }

  #immediately<T>(action: (nowMs: number) => T): T {
    const transaction = this.#db.transaction(() => {
      const sql = 'UPDATE leases SET held = 0 WHERE name = ? AND fence = ?';
      for (const [name, fence] of this.#owed) sqlOf(this.#db).run(sql, name, fence);
      return action(this.#time.now());
    });
    const result = storing(() => transaction.immediate());
    this.#owed.clear();
    return result;
  }
}

interface LeaseOptions {
  leases: Leases;
  clock: Clock;
  name: string;
  holdMs: number;
}

/**
 * A lease as this process holds it. It is renewed at half of its time, because it is safe only until it
 * expires.
 */
export class Lease {
  readonly #o: LeaseOptions;
  #fence: number | undefined;
  #renewDueMs = 0;
  #endsMs = 0;

  constructor(options: LeaseOptions) {
    this.#o = options;
  }

  /** Milliseconds until another process can take the lease, by this machine's clock; 0 or less if one can already. */
  get leftMs(): number {
    return this.#fence === undefined ? 0 : this.#endsMs - this.#o.clock.monotonicMs();
  }

  /** Acquires the lease when it is free, and renews it in time. Returns false if another process has it. */
  async hold(signal?: AbortSignal): Promise<boolean> {
    const { leases, clock, name, holdMs } = this.#o;
    const fence = this.#fence;
    const nowMs = clock.monotonicMs();
    if (fence === undefined) {
      this.#fence = await whenFree(clock, () => leases.acquire(name, holdMs), undefined, signal);
    } else if (nowMs < this.#renewDueMs) {
      return true;
    } else if (!(await whenFree(clock, () => leases.renew(name, fence, holdMs), undefined, signal))) {
      this.#fence = undefined;
    }
    this.#renewDueMs = nowMs + holdMs / 2;
    this.#endsMs = nowMs + holdMs;
    return this.#fence !== undefined;
  }

  /** A lease that could not be released ends by itself. */
  async release(): Promise<void> {
    const { leases, clock, name } = this.#o;
    const fence = this.#fence;
    this.#fence = undefined;
    if (fence !== undefined) await whenFree(clock, () => leases.release(name, fence)).catch(() => {});
  }
}
