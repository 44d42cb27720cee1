import type Database from 'better-sqlite3';
import type { Alarms } from '../core/alarm.ts';
import { asTillsyncError, formatCommands } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { rest } from '../core/loop.ts';
import type { Clock } from '../core/time.ts';
import { Lease, type Leases } from '../db/lease.ts';
import { hasRole, mark } from '../db/marks.ts';
import { isSeen, seen } from '../db/seen.ts';
import { sqlOf, usedBytes } from '../db/sqlite.ts';
import { customersOf, noteToClean, TO_CLEAN } from '../orders/merging/anonymize.ts';
import type { Mirror } from '../orders/reading/mirror.ts';
import {
  type FeedFacts,
  mayDropEvent,
  mayDropOrder,
  mayDropPayload,
  type OrderFacts,
  PRESSURE_MAX,
  type RetentionCuts,
  type RetentionSettings,
  retentionCuts,
} from './retention-rules.ts';

interface OrderColumns {
  orderId: string | null;
  status: string | null;
  updatedAt: string | null;
  orderSeq: number | null;
  isAcknowledged: number;
  usesAcks: number;
  heldBackSeq: number | null;
}
interface KeptRow extends Partial<OrderColumns> {
  key: number;
  /** When the row was received or last changed. */
  at: string;
}

/** A kind of rows that are deleted by age, and how a row is deleted. */
interface Family {
  select: string;
  /** Column whose values rise in the order in which rows arrive. */
  key: string;
  cut: Exclude<keyof RetentionCuts, 'now' | 'customers'>;
  /** Maximum number of rows deleted in one transaction, so that it takes only a few milliseconds. */
  dropsAtOnce: number;
  may(row: KeptRow, feed: FeedFacts, cuts: RetentionCuts): boolean;
  remove(db: Database.Database, row: KeptRow): void;
}

/**
 * Earliest credible date. A row with an earlier date is kept, because its date came from a clock that was not set, for
 * example after a power cut.
 */
const CLOCKS_RIGHT_FROM = '2020';
/** Maximum number of rows examined in one read. */
const LOOK_ROWS = 250;

const ORDER = `o.order_id AS orderId, o.status, o.updated_at AS updatedAt, o.seq AS orderSeq,
  EXISTS (SELECT 1 FROM _order_acks a WHERE a.order_id = o.order_id AND a.without IS NULL) AS isAcknowledged,
  ${isSeen('acknowledging-store', "coalesce(o.store_external_id, '')")} AS usesAcks,
  (SELECT min(s.seq) FROM _stock_steps s JOIN _ledger_orders l USING (order_id)
    WHERE s.order_id = o.order_id AND l.takes = 1 AND s.booked_version IS NULL) AS heldBackSeq`;

const OF_ORDER = {
  store: [
    ...['order_items', 'order_item_modifiers', '_order_payloads', '_held_notifications'],
    ...[
      '_order_acks',
      '_stock_steps',
      '_ledger_orders',
      'refused_acks',
      '_prepared_orders',
      '_preparation_events',
      '_orders',
    ],
  ],
  hub: ['_sent_orders'],
  branch: ['_orders_away'],
};

function removeFrom(table: string, key: string): Family['remove'] {
  return (db, row) => void sqlOf(db).run(`DELETE FROM ${table} WHERE ${key} = ?`, row.key);
}

/**
 * Kinds of rows in the order of deletion. Orders are first, because an order's newest event may be deleted only after
 * the order.
 */
const FAMILIES = {
  orders: {
    select: `SELECT o.seq AS key, o.updated_at AS at, ${ORDER} FROM _orders o`,
    key: 'o.seq',
    cut: 'orders',
    dropsAtOnce: 20,
    may(row, feed, cuts) {
      const order = orderFactsOf(row);
      return order !== undefined && mayDropOrder(order, feed, cuts);
    },
    remove(db, { orderId }) {
      const roles = (['hub', 'branch'] as const).filter((role) => hasRole(db, role));
      const tables = [...OF_ORDER.store, ...roles.flatMap((role) => OF_ORDER[role])];
      for (const table of tables) sqlOf(db).run(`DELETE FROM ${table} WHERE order_id = ?`, orderId);
    },
  },
  events: {
    select: `SELECT e.seq AS key, e.observed_at AS at, ${ORDER}
      FROM order_events e LEFT JOIN _orders o ON o.order_id = e.order_id`,
    key: 'e.seq',
    cut: 'events',
    dropsAtOnce: 100,
    may: (row, feed, cuts) =>
      mayDropEvent({ seq: row.key, observedAt: row.at }, orderFactsOf(row), feed, cuts),
    remove: removeFrom('order_events', 'seq'),
  },
  payloads: {
    select: `SELECT p.payload_id AS key, p.received_at AS at, ${ORDER}
      FROM _order_payloads p LEFT JOIN _orders o ON o.order_id = p.order_id`,
    key: 'p.payload_id',
    cut: 'payloads',
    dropsAtOnce: 50,
    may: (row, _feed, cuts) => mayDropPayload({ receivedAt: row.at }, orderFactsOf(row), cuts),
    remove: removeFrom('_order_payloads', 'payload_id'),
  },
  /** Callbacks with an earlier status than the known one. Only those that a poll has resolved are deleted. */
  held: {
    select: `SELECT held_id AS key, resolved_at AS at FROM
      (SELECT * FROM _held_notifications WHERE resolved_at IS NOT NULL)`,
    key: 'held_id',
    cut: 'payloads',
    dropsAtOnce: 100,
    may: (row, _feed, cuts) => cuts.payloads !== null && row.at < cuts.payloads,
    remove: removeFrom('_held_notifications', 'held_id'),
  },
  quarantine: {
    select: 'SELECT quarantine_id AS key, received_at AS at FROM _quarantine',
    key: 'quarantine_id',
    cut: 'quarantine',
    dropsAtOnce: 5,
    may: (row, _feed, cuts) => cuts.quarantine !== null && row.at < cuts.quarantine,
    remove: removeFrom('_quarantine', 'quarantine_id'),
  },
  audit: {
    select: 'SELECT audit_id AS key, at FROM _audit',
    key: 'audit_id',
    cut: 'audit',
    dropsAtOnce: 100,
    may: (row, _feed, cuts) => cuts.audit !== null && row.at < cuts.audit,
    remove: removeFrom('_audit', 'audit_id'),
  },
} satisfies Record<string, Family>;
type FamilyName = keyof typeof FAMILIES;

function orderFactsOf({ orderId, ...row }: KeptRow): OrderFacts | undefined {
  if (orderId == null) return undefined;
  const { status = null, updatedAt, orderSeq, isAcknowledged, usesAcks, heldBackSeq = null } = row;
  return {
    status,
    heldBackSeq,
    updatedAt: updatedAt ?? '',
    seq: orderSeq ?? 0,
    isAcknowledged: isAcknowledged === 1,
    usesAcks: usesAcks === 1,
  };
}

function feedFacts(db: Database.Database): FeedFacts {
  const sql = `
    SELECT (SELECT CASE WHEN EXISTS (SELECT 1 FROM ${seen('holding-branch')}) THEN value ELSE -1 END FROM marks
        WHERE name = 'ledger.seen') AS heardTo,
      coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0) AS newestSeq`;
  const found = sqlOf(db).row<{ heardTo: number; newestSeq: number }>(sql);
  const { heardTo = -1, newestSeq = 0 } = found ?? {};
  return { heldBackTo: heardTo < 0 ? null : heardTo, newestSeq };
}

/**
 * Examines the next rows after `from`, oldest first, in one short read. Returns the keys of the rows to delete, and as
 * `next` the start of the next read: undefined if no later rows exist or all of them are too young.
 */
function look(db: Database.Database, { select, key, cut, may }: Family, cuts: RetentionCuts, from: number) {
  const before = cuts[cut];
  if (before === null) return { keys: [], next: undefined };
  const feed = feedFacts(db);
  const sql = `${select} WHERE ${key} > ? ORDER BY ${key} LIMIT ${LOOK_ROWS}`;
  const rows = sqlOf(db).rows<KeptRow>(sql, from);
  // A row with a date in the future came from a wrong clock, and does not show that later rows are young.
  const young = rows.findIndex((row) => row.at >= before && row.at <= cuts.now);
  const old = young === -1 ? rows : rows.slice(0, young);
  return {
    keys: old.filter((row) => row.at >= CLOCKS_RIGHT_FROM && may(row, feed, cuts)).map((row) => row.key),
    next: rows.length < LOOK_ROWS || young !== -1 ? undefined : rows.at(-1)?.key,
  };
}

/** Deletes the rows with these keys that may still be deleted, in the caller's transaction. Returns their number. */
function drop(db: Database.Database, name: FamilyName, cuts: RetentionCuts, keys: readonly number[]): number {
  const { select, key, may, remove }: Family = FAMILIES[name];
  const feed = feedFacts(db);
  const sql = sqlOf(db);
  const dropped: number[] = [];
  for (const wanted of keys) {
    const row = sql.row<KeptRow>(`${select} WHERE ${key} = ?`, wanted);
    if (row === undefined || !may(row, feed, cuts)) continue;
    remove(db, row);
    dropped.push(wanted);
  }
  if (name === 'events' && dropped.length > 0) {
    sql.run("UPDATE marks SET value = max(value, ?) WHERE name = 'events.trimmed'", Math.max(...dropped));
  }
  // If customer data is deleted by age, its bytes must also disappear from the file.
  const mayHoldCustomers = name !== 'events' && cuts.customers !== null;
  if (mayHoldCustomers && dropped.length > 0) noteToClean(db);
  return dropped.length;
}

/** Delay of the first run after a start, because orders are more urgent then than deleting old rows. */
const FIRST_AFTER_MS = 300_000;
const LOOK_EVERY_MS = 3_600_000;
const RUN_EVERY_MS = 24 * 3_600_000;
/** Longest time for which nothing is deleted because this machine's clock was not compared with the platform's yet. */
const CLOCK_AWAITED_MS = 24 * 3_600_000;
/** Time past its retention after which customer data raises an alarm. A reader or a full disk may delay deletion. */
const LATE_MS = 24 * 3_600_000;
/** Pause between two transactions or reads, so that callbacks are stored in between. */
const PAUSE_MS = 20;
/** Maximum number of customers removed in one transaction, so that it takes only a few milliseconds. */
const FORGET_AT_ONCE = 20;
const LEASE = 'mirror.retention';
const LEASE_HOLD_MS = 600_000;

interface RetentionOptions {
  mirror: Pick<Mirror, 'read' | 'write' | 'hasRoomInWal'> & {
    customers: Pick<Mirror['customers'], 'forgetAll' | 'clean'>;
  };
  settings: RetentionSettings;
  leases: Leases;
  alarms: Alarms;
  clock: Clock;
  /** Difference to the platform's clock, at a branch to its hub's; undefined until the first answer. */
  skewMs: () => number | undefined;
  log: Log;
  beat: () => void;
}

interface RetentionReport {
  /** Number of deleted rows, by kind. */
  dropped: Partial<Record<FamilyName, number>>;
  /** Number of orders whose customer was removed. */
  forgotten: number;
  usedBytes: number;
  /** Number of times that the retention times were halved for lack of room. */
  pressure: number;
  /** False if another process does this work, a reader blocks the write-ahead log, or the run was stopped. */
  isComplete: boolean;
}

/** Deletes old rows once a day, or within the hour if the mirror exceeds its maximum size. */
export async function retentionLoop(options: RetentionOptions, signal: AbortSignal): Promise<void> {
  const { clock, mirror, settings, skewMs, log, beat } = options;
  const startMs = clock.monotonicMs();
  /** Returns whether the clock was compared with the platform's, or could not be compared for `CLOCK_AWAITED_MS`. */
  const isClockKnown = () => skewMs() !== undefined || clock.monotonicMs() - startMs >= CLOCK_AWAITED_MS;
  let runDueMs = clock.monotonicMs() + FIRST_AFTER_MS;
  const customers = new CustomerMonitor(options);
  await rest(clock, FIRST_AFTER_MS, signal, beat);
  while (!signal.aborted) {
    try {
      const isDue = clock.monotonicMs() >= runDueMs || mirror.read(usedBytes) > settings.maxBytes;
      if (isDue && isClockKnown()) {
        const report = await retentionRun(options, signal);
        if (report.isComplete) runDueMs = clock.monotonicMs() + RUN_EVERY_MS;
        if (!signal.aborted) customers.look(report.isComplete ? null : formatCommands(CUT_SHORT));
        if (Object.keys(report.dropped).length > 0 || report.forgotten > 0)
          log.info({ ...report }, 'what is past its time was deleted');
      }
    } catch (error) {
      if (signal.aborted) return;
      const { message } = asTillsyncError(error);
      log.warn({ err: error }, message);
      customers.look(message);
    }
    await rest(clock, LOOK_EVERY_MS, signal, beat);
  }
}

/**
 * Returns the present time by the earlier of this machine's clock and the platform's. By a clock that is ahead, young
 * rows would look old.
 */
function presentMs({ clock, skewMs }: Pick<RetentionOptions, 'clock' | 'skewMs'>): number {
  return clock.nowMs() + Math.min(0, skewMs() ?? 0);
}

const CUT_SHORT =
  'A program reads mirror.db and keeps its log, or another tillsync cleans it. See who reads it with: {tillsync} doctor';

/** Raises an alarm if customer data, or its deleted bytes in the file, exist a day longer than allowed. */
class CustomerMonitor {
  readonly #o: RetentionOptions;
  #sinceMonoMs: number | undefined;

  constructor(options: RetentionOptions) {
    this.#o = options;
  }

  /** Called after each run. `cut` is the reason why the run ended early, or null. */
  look(cut: string | null): void {
    const { clock, alarms, log } = this.#o;
    this.#sinceMonoMs = cut === null ? undefined : (this.#sinceMonoMs ?? clock.monotonicMs());
    const failingMs = clock.monotonicMs() - (this.#sinceMonoMs ?? clock.monotonicMs());
    try {
      alarms.note('customers.not-forgotten', this.#areLate(failingMs) ? cut : null);
    } catch (error) {
      log.debug({ err: error }, 'whether customers are late cannot be read now');
    }
  }

  #areLate(failingMs: number): boolean {
    const { mirror, settings } = this.#o;
    const { customers } = retentionCuts(settings, presentMs(this.#o) - LATE_MS, 0);
    return mirror.read((db) => {
      if (customers !== null && customersOf(db, customers, 1).length > 0) return true;
      return failingMs >= LATE_MS && (mark(db, TO_CLEAN) ?? 0) !== 0;
    });
  }
}

/**
 * Deletes everything that is past its retention time, and writes nothing if there is no such row. Throws `storage-…`;
 * rows deleted before the error stay deleted.
 */
export async function retentionRun(options: RetentionOptions, signal: AbortSignal): Promise<RetentionReport> {
  const { mirror, settings, leases, alarms, clock, beat } = options;
  const report: RetentionReport = { dropped: {}, forgotten: 0, usedBytes: 0, pressure: 0, isComplete: true };
  const nowMs = presentMs(options);
  /** The lease is acquired only if there is something to delete. */
  const lease = new Lease({ leases, clock, name: LEASE, holdMs: LEASE_HOLD_MS });
  /**
   * Returns whether rows may be deleted now. They may not while a reader blocks the truncation of the write-ahead log,
   * because deletions would make the log grow.
   */
  const mayWrite = async () => !signal.aborted && mirror.hasRoomInWal() && (await lease.hold());
  /** Removes customers from orders that ended before this time. Returns false if it was stopped early. */
  const forgetBefore = async (before: string): Promise<boolean> => {
    for (;;) {
      beat();
      const orderIds = mirror.read((db) => customersOf(db, before, FORGET_AT_ONCE));
      if (orderIds.length === 0) return true;
      if (!(await mayWrite())) return false;
      report.forgotten += await mirror.customers.forgetAll(orderIds);
      await clock.sleep(PAUSE_MS, signal);
    }
  };
  /** Deletes the rows with these keys, a few at a time. Returns false if it was stopped early. */
  const dropAll = async (
    name: FamilyName,
    cuts: RetentionCuts,
    keys: readonly number[],
  ): Promise<boolean> => {
    const { dropsAtOnce } = FAMILIES[name];
    for (let at = 0; at < keys.length; at += dropsAtOnce) {
      if (!(await mayWrite())) return false;
      const dropped = await mirror.write((db) => drop(db, name, cuts, keys.slice(at, at + dropsAtOnce)));
      if (dropped > 0) report.dropped[name] = (report.dropped[name] ?? 0) + dropped;
      await clock.sleep(PAUSE_MS, signal);
    }
    return true;
  };
  /** Deletes old rows of every kind once, oldest first. Returns false if it was stopped early. */
  const pass = async (cuts: RetentionCuts): Promise<boolean> => {
    for (const name of Object.keys(FAMILIES) as FamilyName[]) {
      for (let from: number | undefined = 0; from !== undefined; ) {
        if (signal.aborted) return false;
        beat();
        const after: number = from;
        const { keys, next } = mirror.read((db) => look(db, FAMILIES[name], cuts, after));
        if (!(await dropAll(name, cuts, keys))) return false;
        from = next;
        if (from !== undefined) await clock.sleep(PAUSE_MS, signal);
      }
    }
    return true;
  };

  try {
    const { customers } = retentionCuts(settings, nowMs, 0);
    if (customers !== null) report.isComplete = await forgetBefore(customers);
    while (report.isComplete) {
      report.isComplete = await pass(retentionCuts(settings, nowMs, report.pressure));
      report.usedBytes = mirror.read(usedBytes);
      const isSmall = report.usedBytes <= settings.maxBytes;
      if (!report.isComplete || isSmall || report.pressure === PRESSURE_MAX) break;
      report.pressure += 1;
    }
    if (!signal.aborted && !(await mirror.customers.clean())) report.isComplete = false;
    if (!report.isComplete) return report;
  } finally {
    await lease.release();
  }
  const isLarge = report.usedBytes > settings.maxBytes;
  alarms.note('mirror.too-large', isLarge ? tooLarge(report, settings) : null);
  return report;
}

function tooLarge({ usedBytes }: RetentionReport, { maxBytes }: RetentionSettings): string {
  const mib = (bytes: number) => `${Math.round(bytes / 1024 / 1024)} MiB`;
  return (
    `mirror.db holds ${mib(usedBytes)}, more than the ${mib(maxBytes)} of retention.max_bytes, and what is left is ` +
    'still needed: orders within retention.orders, open ones, and those that the POS has not acknowledged.'
  );
}
