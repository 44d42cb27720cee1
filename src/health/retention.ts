import type Database from 'better-sqlite3';
import type { Alarms } from '../core/alarm.ts';
import { asTillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { pieceMs } from '../core/loop.ts';
import type { Clock } from '../core/time.ts';
import { Lease, type Leases } from '../db/lease.ts';
import {
  type FeedStanding,
  mayDropEvent,
  mayDropOrder,
  mayDropPayload,
  type OrderStanding,
  PRESSURE_MAX,
  type RetentionCuts,
  type RetentionSettings,
  retentionCuts,
} from '../orders/retention-rules.ts';

export const RETENTION_FAMILIES = ['orders', 'events', 'payloads', 'held', 'quarantine'] as const;
/** What goes by age. Orders before events: the events of an order that is gone follow it. */
export type RetentionFamily = (typeof RETENTION_FAMILIES)[number];

export interface RetentionLook {
  /** Keys of what may go, the oldest first. */
  keys: number[];
  /** Where the next look goes on; undefined: what follows is too young. */
  next: number | undefined;
}

interface OrderColumns {
  orderId: string | null;
  status: string | null;
  updatedAt: string | null;
  orderSeq: number | null;
  isAcknowledged: number;
  heldBackSeq: number | null;
}
interface Row extends Partial<OrderColumns> {
  key: number;
  /** When it was received or changed last. */
  at: string;
}

/** Rows of a family in the order in which they came, and how one of them goes. */
interface FamilyRows {
  after: Database.Statement<[number, number], Row>;
  one: Database.Statement<[number], Row>;
  cut: Exclude<keyof RetentionCuts, 'now'>;
  may: (row: Row, feed: FeedStanding, cuts: RetentionCuts) => boolean;
  remove: (row: Row) => void;
}

/** A clock that shows less was never set, as after a power cut: how old such a row is nobody can tell, so it stays. */
const CLOCKS_RIGHT_FROM = '2020';
/** Rows that one look goes over, and that go together in one transaction of a few milliseconds. */
const LOOK_ROWS = 250;
export const DROP_ROWS: Record<RetentionFamily, number> = {
  orders: 20,
  events: 100,
  payloads: 50,
  held: 100,
  quarantine: 5,
};

const ORDER = `o.order_id AS orderId, o.status, o.updated_at AS updatedAt, o.seq AS orderSeq,
  EXISTS (SELECT 1 FROM order_acks a WHERE a.order_id = o.order_id) AS isAcknowledged,
  (SELECT l.live_since_seq FROM ledger_orders l
    WHERE l.order_id = o.order_id AND l.takes = 1 AND l.booked = 0) AS heldBackSeq`;

/** Finds and deletes what nobody needs any more. Transactions are the caller's. */
export class RetentionRows {
  readonly #db: Database.Database;
  readonly #feed: Database.Statement<[], { usesAcks: number; seen: number; newestSeq: number }>;
  readonly #pages: Database.Statement<[], { used: number }>;
  readonly #mark: Database.Statement<[number]>;
  readonly #families: Record<RetentionFamily, FamilyRows>;

  constructor(db: Database.Database) {
    this.#db = db;
    this.#feed = db.prepare(`
      SELECT EXISTS (SELECT 1 FROM order_acks) OR EXISTS (SELECT 1 FROM marks WHERE name = 'acks.used' AND value = 1)
          AS usesAcks,
        (SELECT CASE WHEN h.value = 1 THEN s.value ELSE -1 END FROM marks s, marks h
          WHERE s.name = 'ledger.seen' AND h.name = 'ledger.holds') AS seen,
        coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0) AS newestSeq`);
    this.#pages = db.prepare(`
      SELECT (page_count - freelist_count) * page_size AS used
      FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`);
    this.#mark = db.prepare("UPDATE marks SET value = max(value, ?) WHERE name = 'events.trimmed'");
    this.#families = {
      orders: this.#orders(),
      events: this.#events(),
      payloads: this.#payloads(),
      held: this.#held(),
      quarantine: this.#quarantine(),
    };
  }

  /** Bytes of the file that hold something; free pages are used again before the file grows. */
  usedBytes(): number {
    return this.#pages.get()?.used ?? 0;
  }

  /** Looks at the next rows after the one `from`, beginning with 0; one short read. */
  look(family: RetentionFamily, cuts: RetentionCuts, from: number): RetentionLook {
    const { after, may, cut } = this.#families[family];
    const before = cuts[cut];
    if (before === null) return { keys: [], next: undefined };
    const feed = this.#standing();
    const rows = after.all(from, LOOK_ROWS);
    // What a wrong clock dated into the future says nothing of those behind it.
    const young = rows.findIndex((row) => row.at >= before && row.at <= cuts.now);
    const old = young === -1 ? rows : rows.slice(0, young);
    return {
      keys: old.filter((row) => row.at >= CLOCKS_RIGHT_FROM && may(row, feed, cuts)).map((row) => row.key),
      next: rows.length < LOOK_ROWS || young !== -1 ? undefined : rows.at(-1)?.key,
    };
  }

  /** Deletes those that still may go; returns how many. */
  drop(family: RetentionFamily, cuts: RetentionCuts, keys: readonly number[]): number {
    const { one, may, remove } = this.#families[family];
    const feed = this.#standing();
    let dropped = 0;
    let newest = 0;
    for (const key of keys) {
      const row = one.get(key);
      if (row === undefined || !may(row, feed, cuts)) continue;
      remove(row);
      dropped += 1;
      newest = Math.max(newest, key);
    }
    if (family === 'events' && dropped > 0) this.#mark.run(newest);
    return dropped;
  }

  #standing(): FeedStanding {
    const { usesAcks = 0, seen = -1, newestSeq = 0 } = this.#feed.get() ?? {};
    return { usesAcks: usesAcks === 1, heldBackTo: seen < 0 ? null : seen, newestSeq };
  }

  #orders(): FamilyRows {
    const select = `SELECT o.seq AS key, o.updated_at AS at, ${ORDER} FROM orders o`;
    const tables = [
      ...['order_items', 'order_item_modifiers', 'order_payloads'],
      ...['held_notifications', 'order_acks', 'order_takings', 'ledger_orders', 'orders'],
    ];
    const noteAcks = this.#db.prepare("UPDATE marks SET value = 1 WHERE name = 'acks.used'");
    const removals = tables.map((table) => this.#db.prepare(`DELETE FROM ${table} WHERE order_id = ?`));
    return {
      ...this.#statements(select, 'o.seq'),
      cut: 'orders',
      may: (row, feed, cuts) => {
        const order = standingOf(row);
        return order !== undefined && mayDropOrder(order, feed, cuts);
      },
      remove: ({ orderId, isAcknowledged }) => {
        // With its last acknowledgement gone, a POS would seem never to have acknowledged any.
        if (isAcknowledged === 1) noteAcks.run();
        for (const removal of removals) removal.run(orderId);
      },
    };
  }

  #events(): FamilyRows {
    const select = `SELECT e.seq AS key, e.observed_at AS at, ${ORDER}
      FROM order_events e LEFT JOIN orders o ON o.order_id = e.order_id`;
    return {
      ...this.#statements(select, 'e.seq'),
      cut: 'events',
      may: (row, feed, cuts) =>
        mayDropEvent({ seq: row.key, observedAt: row.at }, standingOf(row), feed, cuts),
      remove: this.#removal('order_events', 'seq'),
    };
  }

  #payloads(): FamilyRows {
    const select = `SELECT p.payload_id AS key, p.received_at AS at, ${ORDER}
      FROM order_payloads p LEFT JOIN orders o ON o.order_id = p.order_id`;
    return {
      ...this.#statements(select, 'p.payload_id'),
      cut: 'payloads',
      may: (row, _feed, cuts) => mayDropPayload({ receivedAt: row.at }, standingOf(row), cuts),
      remove: this.#removal('order_payloads', 'payload_id'),
    };
  }

  /** Only those of which a poll has said what is true. */
  #held(): FamilyRows {
    const select = `SELECT held_id AS key, resolved_at AS at FROM
      (SELECT * FROM held_notifications WHERE resolved_at IS NOT NULL)`;
    return {
      ...this.#statements(select, 'held_id'),
      cut: 'payloads',
      may: (row, _feed, cuts) => cuts.payloads !== null && row.at < cuts.payloads,
      remove: this.#removal('held_notifications', 'held_id'),
    };
  }

  #quarantine(): FamilyRows {
    return {
      ...this.#statements('SELECT quarantine_id AS key, received_at AS at FROM quarantine', 'quarantine_id'),
      cut: 'quarantine',
      may: (row, _feed, cuts) => cuts.quarantine !== null && row.at < cuts.quarantine,
      remove: this.#removal('quarantine', 'quarantine_id'),
    };
  }

  #statements(select: string, key: string): Pick<FamilyRows, 'after' | 'one'> {
    return {
      after: this.#db.prepare(`${select} WHERE ${key} > ? ORDER BY ${key} LIMIT ?`),
      one: this.#db.prepare(`${select} WHERE ${key} = ?`),
    };
  }

  #removal(table: string, key: string): FamilyRows['remove'] {
    const removal = this.#db.prepare<[number]>(`DELETE FROM ${table} WHERE ${key} = ?`);
    return (row) => void removal.run(row.key);
  }
}

function standingOf({ orderId, ...row }: Row): OrderStanding | undefined {
  if (orderId == null) return undefined;
  const { status = null, updatedAt, orderSeq, isAcknowledged, heldBackSeq = null } = row;
  return {
    ...{ status, heldBackSeq },
    updatedAt: updatedAt ?? '',
    seq: orderSeq ?? 0,
    isAcknowledged: isAcknowledged === 1,
  };
}

/** Starting is for orders; what is old can wait. */
const FIRST_AFTER_MS = 300_000;
const LOOK_EVERY_MS = 3_600_000;
const RUN_EVERY_MS = 24 * 3_600_000;
/** Between two transactions or looks, so that callbacks go first. */
const PAUSE_MS = 20;
const LEASE = 'mirror.retention';
const LEASE_HOLD_MS = 600_000;

/** What goes by age, in small steps: each look one short read, each drop one short transaction. */
export interface RetentionStore<Family extends string = string> {
  readonly families: readonly Family[];
  /** Keys of what may go, and where to look on. */
  look(family: Family, cuts: RetentionCuts, from: number): { keys: number[]; next: number | undefined };
  /** How many keys one transaction may take. */
  dropsAtOnce(family: Family): number;
  /** Deletes those that still may go; how many. */
  drop(family: Family, cuts: RetentionCuts, keys: readonly number[]): Promise<number>;
  usedBytes(): number;
  /** Whether a reader keeps the log from being emptied, so that each deletion would make it grow. */
  isLogHeld(): boolean;
}

export interface RetentionOptions {
  store: RetentionStore;
  settings: RetentionSettings;
  leases: Leases;
  alarms: Alarms;
  clock: Clock;
  log: Log;
  beat: () => void;
}

export interface RetentionReport {
  /** Rows that went, by family. */
  dropped: Record<string, number>;
  usedBytes: number;
  /** How often the time that things stay was halved for want of room. */
  pressure: number;
  /** False: another process is at it, the log is held, or it was stopped. */
  isComplete: boolean;
}

/** Lets what nobody needs any more go, once a day, or within the hour when the mirror passes its bound. */
export async function retentionLoop(options: RetentionOptions, signal: AbortSignal): Promise<void> {
  const { clock, store, settings, log } = options;
  let runDueMs = clock.monotonicMs() + FIRST_AFTER_MS;
  await rest(options, FIRST_AFTER_MS, signal);
  while (!signal.aborted) {
    try {
      if (clock.monotonicMs() >= runDueMs || store.usedBytes() > settings.maxBytes) {
        const report = await retentionRun(options, signal);
        if (report.isComplete) runDueMs = clock.monotonicMs() + RUN_EVERY_MS;
        if (Object.keys(report.dropped).length > 0)
          log.info({ ...report }, 'what is past its time was deleted');
      }
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error }, asTillsyncError(error).message);
    }
    await rest(options, LOOK_EVERY_MS, signal);
  }
}

/** One run. Writes nothing where nothing may go. Errors: `storage-…`; what went until then is gone. */
export async function retentionRun(options: RetentionOptions, signal: AbortSignal): Promise<RetentionReport> {
  const { store, settings, clock, alarms } = options;
  const run = new RetentionRun(options, signal);
  const nowMs = clock.nowMs();
  const { report } = run;
  try {
    for (;;) {
      await run.pass(retentionCuts(settings, nowMs, report.pressure));
      report.usedBytes = store.usedBytes();
      const isOver = report.usedBytes > settings.maxBytes;
      if (!report.isComplete) return report;
      if (!isOver || report.pressure === PRESSURE_MAX) break;
      report.pressure += 1;
    }
  } finally {
    await run.lease.release();
  }
  if (report.usedBytes > settings.maxBytes) alarms.raise('mirror.too-large', tooLarge(report, settings));
  else alarms.lower('mirror.too-large');
  return report;
}

class RetentionRun {
  readonly report: RetentionReport = { dropped: {}, usedBytes: 0, pressure: 0, isComplete: true };
  readonly #options: RetentionOptions;
  readonly #signal: AbortSignal;
  /** Taken only for something to delete. */
  readonly lease: Lease;

  constructor(options: RetentionOptions, signal: AbortSignal) {
    const { leases, clock } = options;
    this.#options = options;
    this.lease = new Lease({ leases, clock, name: LEASE, holdMs: LEASE_HOLD_MS });
    this.#signal = signal;
  }

  /** Everything once, the oldest first. */
  async pass(cuts: RetentionCuts): Promise<void> {
    const { store, beat, clock } = this.#options;
    for (const family of store.families) {
      for (let from: number | undefined = 0; from !== undefined; ) {
        if (this.#signal.aborted) this.report.isComplete = false;
        if (!this.report.isComplete) return;
        beat();
        const look = store.look(family, cuts, from);
        await this.#drop(family, cuts, look.keys);
        from = look.next;
        if (from !== undefined) await clock.sleep(PAUSE_MS, this.#signal);
      }
    }
  }

  async #drop(family: string, cuts: RetentionCuts, keys: readonly number[]): Promise<void> {
    const { store, clock } = this.#options;
    const size = store.dropsAtOnce(family);
    for (let at = 0; at < keys.length; at += size) {
      if (this.#signal.aborted || store.isLogHeld() || !(await this.lease.hold())) {
        this.report.isComplete = false;
        return;
      }
      const dropped = await store.drop(family, cuts, keys.slice(at, at + size));
      if (dropped > 0) this.report.dropped[family] = (this.report.dropped[family] ?? 0) + dropped;
      await clock.sleep(PAUSE_MS, this.#signal);
    }
  }
}

async function rest({ clock, beat }: RetentionOptions, ms: number, signal: AbortSignal): Promise<void> {
  const endMs = clock.monotonicMs() + ms;
  for (let restMs = ms; restMs > 0 && !signal.aborted; restMs = endMs - clock.monotonicMs()) {
    beat();
    await clock.sleep(Math.min(restMs, pieceMs(clock)), signal);
  }
}

function tooLarge({ usedBytes }: RetentionReport, { maxBytes }: RetentionSettings): string {
  const mib = (bytes: number) => `${Math.round(bytes / 1024 / 1024)} MiB`;
  return (
    `mirror.db holds ${mib(usedBytes)}, more than the ${mib(maxBytes)} of retention.max_bytes, and what is left is ` +
    'still needed: orders within retention.orders, open ones, and those that the POS has not acknowledged.'
  );
}
