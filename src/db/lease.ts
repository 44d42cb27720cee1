import { readFileSync, readlinkSync } from 'node:fs';
import type Database from 'better-sqlite3';
import { whenFree } from '../core/loop.ts';
import type { Clock } from '../core/time.ts';
import { factOf, setFact } from './facts.ts';
import { sqlOf, storing } from './sqlite.ts';

export type Leases = Pick<LeaseRows, 'acquire' | 'renew' | 'release'>;

/** Names this process as holder of rate slots and leases, and checks whether other holders still run. */
export interface Holders {
  readonly self: string;
  /**
   * Whether the process of a holder runs. Returns undefined if this process cannot see it; then a lease ends only when
   * it expires.
   */
  isAlive(holder: string): boolean | undefined;
}

/** PID namespace of this process, such as a container's. Process ids can be compared only within one namespace. */
const NAMESPACE = pidNamespace();

/**
 * Names a process by its id, start time and PID namespace, so that a process with a reused id is a different holder. A
 * name with the id alone, such as that of a file, is of a process of this namespace.
 */
export const systemHolders: Holders = {
  self: `${process.pid}.${statOf(process.pid)[1] ?? ''}.${NAMESPACE}`,
  isAlive(holder) {
    const [pid, startTime, namespace = NAMESPACE] = holder.split('.');
    if (!pid || !/^[1-9]\d*$/.test(pid) || namespace !== NAMESPACE) return undefined;
    try {
      process.kill(Number(pid), 0);
    } catch (error) {
      // The error EPERM means that the process runs as another user.
      if (error instanceof Error && 'code' in error && error.code === 'ESRCH') return false;
    }
    const [state, now] = statOf(Number(pid));
    // A process that has ended stays in the list until its parent has asked how.
    if (state === 'Z') return false;
    return now === undefined || startTime === '' || now === startTime;
  },
};

/** Returns the process id of a holder; undefined if the holder is invalid or of another PID namespace. */
export function pidOf(holder: string): number | undefined {
  const [, pid, namespace] = /^([1-9]\d*)\.\d*\.(\d*)$/.exec(holder) ?? [];
  return pid === undefined || namespace !== NAMESPACE ? undefined : Number(pid);
}

/** Returns the inode of this process's PID namespace; '' if the system does not show it. */
function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '';
  } catch {
    return '';
  }
}

/** Returns the state of a process and its start time in clock ticks since boot, as far as the system shows them. */
function statOf(pid: number): [state?: string, startTime?: string] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The program's name in brackets may contain spaces. The state is the first field after it, the start time the 20th.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return [fields[0], fields[19]] as [string, string];
  } catch {
    return [];
  }
}

/**
 * Makes stored monotonic times comparable with the present one. Every transaction that reads such times calls `now`,
 * or knows by `bootId` that there is nothing to do.
 *
 * After a reboot, each stored time is set to the start of this boot. So an interval, a window entry or a block ends
 * when the machine has been up for its full length. The wait may be too long, but it needs no wall clock, which may be
 * wrong after a start. A lease ends at once, because its holder and the holder's calls ended with the earlier boot.
 */
export class BootTime {
  readonly clock: Clock;
  /** Boot of which all stored times are, as a transaction found it; undefined before the first one that did. */
  bootId: string | undefined;
  readonly #db: Database.Database;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#db = db;
    this.clock = clock;
  }

  /**
   * Returns the present monotonic time, after making all stored times comparable with it. Must be called inside a
   * transaction.
   */
  now(): number {
    const { bootId } = this.clock;
    const stored = factOf(this.#db, 'boot');
    // Remembered only once it was read, because the transaction that sets it may be undone.
    if (bootId === stored) this.bootId = bootId;
    else {
      if (stored !== undefined) this.#db.exec(BEFORE_THIS_BOOT);
      setFact(this.#db, 'boot', bootId);
    }
    return this.clock.monotonicMs();
  }

  /**
   * Lowers stored times that are in the future. This happens if a virtual machine is reset to an earlier moment of the
   * same boot.
   */
  clamp(nowMs: number): void {
    for (const sql of IN_THE_FUTURE) this.#db.prepare(sql).run({ now: nowMs });
  }
}

/**
 * SQL for a block that has ended for certain, because a later call was answered. The start of the machine must not
 * begin such a block again.
 */
const HAS_ENDED = 'others_answered OR endpoint_answered';
const BEFORE_THIS_BOOT = `
  UPDATE lanes SET taken_mono_ms = NULL, taken_until_mono_ms = NULL, settled_mono_ms = 0,
    held_from_mono_ms = iif(held_from_mono_ms IS NULL OR settled_mono_ms > held_from_mono_ms + held_ms, NULL, 0);
  UPDATE calls SET counts_from_mono_ms = 0;
  UPDATE blocks SET from_mono_ms = iif(${HAS_ENDED}, -duration_ms, 0);
  UPDATE leases SET held = 0, until_mono_ms = 0;`;
/** Sets times of past events to now if they are in the future. */
const IN_THE_FUTURE = [
  'UPDATE lanes SET taken_mono_ms = :now, taken_until_mono_ms = :now WHERE taken_mono_ms > :now',
  'UPDATE lanes SET settled_mono_ms = :now WHERE settled_mono_ms > :now',
  'UPDATE lanes SET held_from_mono_ms = :now WHERE held_from_mono_ms > :now',
  'UPDATE calls SET counts_from_mono_ms = :now WHERE counts_from_mono_ms > :now',
  `UPDATE blocks SET from_mono_ms = iif(${HAS_ENDED}, :now - duration_ms, :now) WHERE from_mono_ms > :now`,
];

/**
 * Leases by name in state.db, for work that only one process at a time may do. The fence is a number that rises with
 * each holder and is never reused. The lease of a dead process ends at once.
 */
export class LeaseRows {
  readonly #db: Database.Database;
  readonly #time: BootTime;
  readonly #holders: Holders;
  /** Fences of the leases, by name, whose release could not be written to the disk. The release is written later. */
  readonly #owed = new Map<string, number>();

  constructor({ db, time, holders }: { db: Database.Database; time: BootTime; holders: Holders }) {
    this.#db = db;
    this.#time = time;
    this.#holders = holders;
  }

  /** Acquires the lease and returns its fence; undefined while another process holds the lease. */
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

  /** Extends a lease, even if it has expired. Returns false if another process has acquired it since. */
  renew(name: string, fence: number, holdMs: number): boolean {
    const sql = 'UPDATE leases SET until_mono_ms = ? WHERE name = ? AND fence = ? AND held = 1';
    return this.#immediately((nowMs) => sqlOf(this.#db).run(sql, nowMs + holdMs, name, fence).changes === 1);
  }

  /** Whether a process holds the lease and runs, as far as this process can see. */
  isHeld(name: string): boolean {
    return this.holder(name) !== undefined;
  }

  /**
   * Returns the holder of a lease, as `Holders` names it; undefined if there is none. A running holder keeps an expired
   * lease until another process acquires it.
   */
  holder(name: string): string | undefined {
    return this.#immediately((nowMs) => {
      const held = this.#held(name);
      return held && (this.#holders.isAlive(held.holder) ?? held.untilMs > nowMs) ? held.holder : undefined;
    });
  }

  /** Releases the lease. If this cannot be written now, it is written before the next use of any lease. */
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

/** A lease that this process holds. It is renewed after half of its time, because it protects only until it expires. */
export class Lease {
  readonly #o: LeaseOptions;
  #fence: number | undefined;
  #renewDueMs = 0;
  #endsMs = 0;

  constructor(options: LeaseOptions) {
    this.#o = options;
  }

  /** Milliseconds until another process can acquire the lease, by this machine's clock; 0 or less if it can already. */
  get leftMs(): number {
    return this.#fence === undefined ? 0 : this.#endsMs - this.#o.clock.monotonicMs();
  }

  /** Acquires the lease if it is free, and renews it in time. Returns false while another process holds it. */
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

  /** Releases the lease. If that fails, the lease ends when it expires. */
  async release(): Promise<void> {
    const { leases, clock, name } = this.#o;
    const fence = this.#fence;
    this.#fence = undefined;
    if (fence !== undefined) await whenFree(clock, () => leases.release(name, fence)).catch(() => {});
  }
}
