import type Database from 'better-sqlite3';
import {
  type AlarmKey,
  type Alarms,
  type AlarmUp,
  type FindingLevel,
  FRESHNESS_SUBJECTS,
  type Freshness,
  type FreshnessBoard,
  type FreshnessState,
  type FreshnessSubject,
} from '../core/alarm.ts';
import { asTyped } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { sqlOf, walBytes } from '../db/sqlite.ts';
import { LockWatch, truncateWal, WAL_BYTES_MAX, WalCare } from '../db/wal.ts';
import { forgetCustomer, forgetQuarantined, TO_CLEAN } from './forget.ts';
import { type FeedMemory, MirrorFile, newestSeq } from './mirror-file.ts';
import type { MirroredOrder } from './mirrored-order.ts';
import {
  type ImportOptions,
  type ImportReport,
  type IntakeEntry,
  type IntakeOutcome,
  IS_OPEN,
  type OrderEvent,
  type OrderFilter,
  type OrderHistory,
  type OrderKeeper,
} from './order.ts';
import { OrderImport } from './order-import.ts';
import {
  acknowledgementOf,
  EVENT,
  eachOrder,
  orderById,
  orderHistory,
  QUARANTINE,
  type QuarantineDetail,
  type QuarantineEntry,
} from './order-queries.ts';
import { mergeOrder } from './order-rows.ts';
import { quarantine, removeFromQuarantine } from './quarantine.ts';
import { compileSpellings, type ExtraSpellings, type OrderSpellings } from './spellings.ts';

/** An alarm that is up. */
export interface RaisedAlarm extends AlarmUp {
  /** When its message or level last changed. */
  changedAt: string;
}

interface PendingAlarm {
  /** null: lowered. */
  message: string | null;
  level: FindingLevel | null;
  at: string;
}

const NO_FAILURE = { code: null, since: null, tries: 0 };

/** `lastOkAt` null leaves the one that is there. */
function setFreshness(db: Database.Database, freshness: Freshness): void {
  const { failure: _, ...rest } = freshness;
  sqlOf(db).run(
    `INSERT INTO freshness (subject, last_ok_at, last_try_at, state, message, failure_code, failing_since, failures)
     VALUES (@subject, @lastOkAt, @lastTryAt, @state, @message, @code, @since, @tries)
     ON CONFLICT (subject) DO UPDATE SET last_ok_at = coalesce(excluded.last_ok_at, last_ok_at),
       last_try_at = excluded.last_try_at, state = excluded.state, message = excluded.message,
       failure_code = excluded.failure_code, failing_since = excluded.failing_since, failures = excluded.failures`,
    { ...NO_FAILURE, ...freshness.failure, ...rest },
  );
}

function storedFreshness(db: Database.Database): Freshness[] {
  const sql = `SELECT subject, last_ok_at AS lastOkAt, last_try_at AS lastTryAt, state, message,
    failure_code AS code, failing_since AS since, failures AS tries FROM freshness`;
  const rows = sqlOf(db).rows<
    Omit<Freshness, 'failure'> & { code: string | null; since: string; tries: number }
  >(sql);
  return rows.map(({ code, since, tries, ...rest }) =>
    code === null ? rest : { ...rest, failure: { code, since, tries } },
  );
}

function setAlarm(db: Database.Database, key: AlarmKey, { message, level, at }: PendingAlarm): void {
  if (message === null) {
    sqlOf(db).run('DELETE FROM alarms WHERE key = ?', key);
    return;
  }
  sqlOf(db).run(
    `INSERT INTO alarms (key, message, level, raised_at, changed_at) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (key) DO UPDATE
       SET message = excluded.message, level = excluded.level, changed_at = excluded.changed_at
       WHERE message <> excluded.message OR level IS NOT excluded.level`,
    ...[key, message, level, at, at],
  );
}

/** Oldest first. */
function storedAlarms(db: Database.Database): RaisedAlarm[] {
  const sql = `SELECT key, message, level, raised_at AS raisedAt, changed_at AS changedAt FROM alarms
    ORDER BY raised_at, key`;
  return sqlOf(db).rows<RaisedAlarm>(sql);
}

/**
 * Freshness and alarms. Reports are synchronous while the database may be busy, so a report counts at once
 * for whoever asks here, and goes to the disk right after; what cannot be written is tried again with the next.
 */
class Boards implements FreshnessBoard, Alarms {
  readonly #file: MirrorFile;
  readonly #freshness = new Map<FreshnessSubject, Freshness>();
  readonly #alarms = new Map<AlarmKey, PendingAlarm>();
  #flushing: Promise<void> | undefined;
  onUnwritten: (alarms: readonly RaisedAlarm[]) => void = () => {};

  constructor(file: MirrorFile) {
    this.#file = file;
  }

  ok(subject: FreshnessSubject, message = ''): void {
    const now = this.#now();
    this.#put({ subject, lastOkAt: now, lastTryAt: now, state: 'ok', message });
  }

  report(subject: FreshnessSubject, state: FreshnessState, message: string, code?: string): void {
    const now = this.#now();
    const before = this.#flowOf(subject);
    const isSame = code !== undefined && before?.failure?.code === code;
    const { since = now, tries = 0 } = isSame ? (before.failure ?? {}) : {};
    const failure = code === undefined ? {} : { failure: { code, since, tries: tries + 1 } };
    this.#put({ subject, lastOkAt: before?.lastOkAt ?? null, lastTryAt: now, state, message, ...failure });
  }

  /** undefined: the database cannot say, or has nothing. */
  #flowOf(subject: FreshnessSubject): Freshness | undefined {
    const pending = this.#freshness.get(subject);
    if (pending) return pending;
    try {
      return this.#file.read(storedFreshness).find((flow) => flow.subject === subject);
    } catch {
      return undefined;
    }
  }

  /** As another tillsync says it. */
  adopt(freshness: Freshness): void {
    this.#put(freshness);
  }

  note(key: AlarmKey, trouble: string | null, level: FindingLevel | null = null): void {
    this.#putAlarm(key, trouble === null ? null : asTyped(trouble), trouble === null ? null : level);
  }

  /** One entry for each subject, those reported last included. */
  freshness(): Freshness[] {
    const stored = new Map(this.#file.read(storedFreshness).map((each) => [each.subject, each]));
    const subjects = FRESHNESS_SUBJECTS.filter(
      (subject) => subject !== 'hub.link' || stored.has(subject) || this.#freshness.has(subject),
    );
    return subjects.map((subject): Freshness => {
      const pending = this.#freshness.get(subject);
      const before = stored.get(subject);
      if (pending) return { ...pending, lastOkAt: pending.lastOkAt ?? before?.lastOkAt ?? null };
      return before ?? { subject, lastOkAt: null, lastTryAt: null, state: 'unknown', message: '' };
    });
  }

  /** Alarms that are up, oldest first. */
  alarms(): RaisedAlarm[] {
    const up = new Map(this.#file.read(storedAlarms).map((alarm) => [alarm.key, alarm]));
    for (const [key, { message, level, at }] of this.#alarms) {
      if (message === null) up.delete(key);
      else up.set(key, { key, message, level, raisedAt: up.get(key)?.raisedAt ?? at, changedAt: at });
    }
    return [...up.values()];
  }

  /** Tells of the raised alarms that the disk did not take; each try to write does so by itself. */
  notifyUnwritten(): void {
    const raised = [...this.#alarms].flatMap(([key, { message, level, at }]) =>
      message === null ? [] : { key, message, level, raisedAt: at, changedAt: at },
    );
    this.onUnwritten(raised);
  }

  /** Waits until what was reported is on the disk, or the disk refused it. */
  async flush(): Promise<void> {
    this.#flushing ??= this.#write();
    await this.#flushing;
  }

  #now(): string {
    return isoUtc(this.#file.clock.nowMs());
  }

  #put({ message, ...rest }: Freshness): void {
    this.#freshness.set(rest.subject, { ...rest, message: asTyped(message) });
    void this.flush();
  }

  #putAlarm(key: AlarmKey, message: string | null, level: FindingLevel | null): void {
    const before = this.#alarmOf(key);
    if (before?.message === message && before.level === level) return;
    this.#alarms.set(key, { message, level, at: this.#now() });
    void this.flush();
  }

  /** Without a message: the alarm is down; undefined: the database cannot say. */
  #alarmOf(key: AlarmKey): Pick<PendingAlarm, 'message' | 'level'> | undefined {
    const pending = this.#alarms.get(key);
    if (pending) return pending;
    try {
      const { message = null, level = null } =
        this.#file.read(storedAlarms).find((alarm) => alarm.key === key) ?? {};
      return { message, level };
    } catch {
      return undefined;
    }
  }

  async #write(): Promise<void> {
    // Everything reported in this turn of the event loop becomes one transaction.
    await Promise.resolve();
    while ((this.#freshness.size > 0 || this.#alarms.size > 0) && !this.#file.closed) {
      const freshness = [...this.#freshness];
      const alarms = [...this.#alarms];
      try {
        await this.#file.write((db) => {
          for (const [, each] of freshness) setFreshness(db, each);
          for (const [key, alarm] of alarms) setAlarm(db, key, alarm);
        });
      } catch {
        // They stay pending; whoever keeps orders learns of the failing disk and says so.
        break;
      }
      deleteSame(this.#freshness, freshness);
      deleteSame(this.#alarms, alarms);
    }
    this.notifyUnwritten();
    // In the same turn as the last look: what is reported from now on begins a write of its own.
    this.#flushing = undefined;
  }
}

function deleteSame<Key, Value>(map: Map<Key, Value>, written: readonly (readonly [Key, Value])[]): void {
  for (const [key, value] of written) if (map.get(key) === value) map.delete(key);
}

/** Of which companies the orders are (document, `websiteId` of the notification): the oldest one here, and the newest. */
export interface OrderCompanies {
  oldest: string;
  newest: string;
}

/** Orders of these many looked at from either end: one that names no company says nothing. */
const LOOKED_AT = 20;

function companyAt(db: Database.Database, order: 'ASC' | 'DESC'): string | undefined {
  const sql = `SELECT website_id FROM (SELECT website_id FROM orders
      WHERE seq > coalesce((SELECT value FROM marks WHERE name = 'orders.company-from'), 0)
      ORDER BY seq ${order} LIMIT ${LOOKED_AT})
    WHERE website_id IS NOT NULL LIMIT 1`;
  return sqlOf(db).value<string>(sql);
}

function mark(db: Database.Database, name: string): number | undefined {
  return sqlOf(db).value('SELECT value FROM marks WHERE name = ?', name);
}

function setMark(db: Database.Database, name: string, value: number): void {
  const sql = `INSERT INTO marks (name, value) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value`;
  sqlOf(db).run(sql, name, value);
}

/** `freshness` may lag this much behind a burst of webhooks, so that each of them need not rewrite it. */
const FRESHNESS_EVERY_MS = 1_000;

export interface MirrorOptions {
  /** Of `mirror.db`. */
  path: string;
  clock: Clock;
  /** Unix group, by name or number, that may read; left out: the directory decides. */
  group?: string | undefined;
  /** How far the feed had got in whatever mirror was here before; without it a new one begins at 1. */
  feed?: FeedMemory;
  /** For looking only: nothing is created, brought up to date or written. */
  readonly?: boolean;
  /** Further names of fields, from the config. */
  spellings?: ExtraSpellings;
  /** Of times that are sent without one; left out: such a time cannot be read. */
  timezone?: string | undefined;
  /** Where the list of orders is in an answer; empty: it is looked for. */
  listPath?: string;
}

/** Opens the mirror, creating it or bringing its schema up to date. Throws `storage-…` errors. */
export function openMirror(options: MirrorOptions): Mirror {
  return new Mirror(options);
}

/** The mirror of orders; other table families of the same file use `read` and `write`. */
export class Mirror implements OrderKeeper {
  readonly freshnessBoard: FreshnessBoard;
  readonly alarms: Alarms;
  readonly #file: MirrorFile;
  readonly #boards: Boards;
  readonly #lockWatch: LockWatch;
  readonly #import: OrderImport;
  readonly #spellings: OrderSpellings;
  #webhookFreshMs = Number.NEGATIVE_INFINITY;

  constructor(options: MirrorOptions) {
    const { path, clock, group, readonly = false, spellings = {}, timezone, listPath = '', feed } = options;
    this.#file = new MirrorFile({
      ...{ path, clock, readonly, group, feed },
      onWritten: (db) => {
        walCare.tend(db);
        this.#lockWatch.free();
      },
      onLocked: () => {
        this.#lockWatch.locked();
        this.#boards.notifyUnwritten();
      },
    });
    this.#boards = new Boards(this.#file);
    const alarms = this.#boards;
    const walCare = new WalCare({ path, clock, alarms });
    this.#lockWatch = new LockWatch({ path, clock, alarms, tryAgain: () => alarms.flush() });
    this.#spellings = compileSpellings(spellings, timezone);
    this.#import = new OrderImport({ file: this.#file, spellings, timezone, listPath });
    this.freshnessBoard = alarms;
    this.alarms = alarms;
  }

  /** One or a few short reads, at once. */
  read<T>(action: (db: Database.Database) => T): T {
    return this.#file.read(action);
  }

  /** One durable transaction; `action` may run more than once, each time from the start. */
  write<T>(action: (db: Database.Database) => T, signal?: AbortSignal): Promise<T> {
    return this.#file.write(action, signal);
  }

  async keep(entries: readonly IntakeEntry[]): Promise<IntakeOutcome[]> {
    if (entries.length === 0) return [];
    const { clock } = this.#file;
    const nowMs = clock.monotonicMs();
    const isFresh =
      nowMs - this.#webhookFreshMs >= FRESHNESS_EVERY_MS &&
      entries.some((entry) => entry.kind === 'order' && entry.observation.source === 'webhook');
    const outcomes = await this.#file.write((db) => {
      const now = isoUtc(clock.nowMs());
      const came = {
        subject: 'orders.webhook',
        lastOkAt: now,
        lastTryAt: now,
        state: 'ok',
        message: '',
      } as const;
      if (isFresh) setFreshness(db, came);
      return entries.map((entry) => this.#keepOne(db, entry));
    });
    if (isFresh) this.#webhookFreshMs = nowMs;
    return outcomes;
  }

  #keepOne(db: Database.Database, entry: IntakeEntry): IntakeOutcome {
    if (entry.kind === 'unreadable') {
      quarantine(db, entry.unreadable);
      return 'quarantined';
    }
    return mergeOrder(db, entry.observation, this.#spellings, null);
  }

  /**
   * Mirrors a whole answer of GET /order/all, small or huge, without holding up callbacks. Takes a large `body` over:
   * its memory is handed to another thread, and the array is empty afterwards.
   */
  importAnswer(body: Uint8Array, options: ImportOptions): Promise<ImportReport> {
    return this.#import.importAnswer(body, options);
  }

  /**
   * Lets the customers of these orders go from all rows, durably; returns how many had one. `clean` then takes what is left of them out of the files.
   */
  forgetCustomers(orderIds: readonly string[]): Promise<number> {
    const at = isoUtc(this.#file.clock.nowMs());
    return this.write(
      (db) => orderIds.filter((orderId) => forgetCustomer(db, orderId, this.#spellings, at)).length,
    );
  }

  /**
   * The same of one order, at a person's wish: also what lies in quarantine and names it. `note` is called in the
   * transaction in which its customer goes. False: the customer was forgotten before.
   */
  forgetCustomer(orderId: string, note: (db: Database.Database) => void): Promise<boolean> {
    const at = isoUtc(this.#file.clock.nowMs());
    return this.write((db) => {
      forgetQuarantined(db, orderId);
      const isNew = forgetCustomer(db, orderId, this.#spellings, at);
      if (isNew) note(db);
      return isNew;
    });
  }

  /**
   * Writes the file anew where customers were forgotten since it was last done, so that no bytes of them are left in
   * it or in its log. False: a reader holds the log; to be tried again. Callbacks wait meanwhile: a second for 100 MiB.
   */
  async clean(): Promise<boolean> {
    const waiting = this.read((db) => mark(db, TO_CLEAN)) ?? 0;
    if (waiting === 0) return true;
    const isAnew = waiting < 0;
    // While a reader holds the log, each new file would stay in it.
    if ((isAnew || this.walBytes() > WAL_BYTES_MAX) && !this.read(truncateWal)) return false;
    const isClean = isAnew || (await this.#import.vacuum());
    const sql = 'UPDATE marks SET value = ? WHERE name = ? AND value = ?';
    await this.write((db) => sqlOf(db).run(sql, isClean ? 0 : -waiting, TO_CLEAN, waiting));
    return isClean;
  }

  order(orderId: string): MirroredOrder | undefined {
    return this.read((db) => orderById(db, orderId));
  }

  /** JSON text as received. */
  orderPayload(orderId: string): string | undefined {
    const sql = 'SELECT payload FROM orders WHERE order_id = ?';
    return this.read((db) => sqlOf(db).value<string>(sql, orderId));
  }

  orders(filter: OrderFilter): MirroredOrder[] {
    return this.read((db) => [...eachOrder(db, filter)]);
  }

  acknowledgement(orderId: string): OrderHistory['acknowledged'] {
    return this.read((db) => acknowledgementOf(db, orderId));
  }

  orderHistory(orderId: string): OrderHistory {
    return this.read((db) => orderHistory(db, orderId));
  }

  /** The change feed after `seq`, oldest first. */
  eventsAfter(seq: number, limit: number): OrderEvent[] {
    const sql = `${EVENT} WHERE seq > ? ORDER BY seq LIMIT ?`;
    return this.read((db) => sqlOf(db).rows<OrderEvent>(sql, seq, limit));
  }

  newestSeq(): number {
    return this.read(newestSeq);
  }

  /** Up to this seq only the newest event of each order, and those still needed, are there; 0: all are. */
  trimmedTo(): number {
    return this.read((db) => mark(db, 'events.trimmed')) ?? 0;
  }

  /** The numbers of orders next to one that is not there; null: none on that side. */
  codesBeside(code: number): { before: number | null; after: number | null } {
    const sql = `SELECT (SELECT max(code) FROM orders WHERE code < ?) AS before,
      (SELECT min(code) FROM orders WHERE code > ?) AS after`;
    const none = { before: null, after: null };
    return this.read((db) => sqlOf(db).row<typeof none>(sql, code, code) ?? none);
  }

  codesBetween(min: number, max: number): number[] {
    const sql = 'SELECT code FROM orders WHERE code BETWEEN ? AND ?';
    return this.read((db) => sqlOf(db).values<number>(sql, min, max));
  }

  /**
   * Creation of the oldest order whose life has not ended, or of which a callback says that it has not; null: none, or
   * none whose time could be read.
   */
  oldestOpenOrderMs(): number | null {
    const oldest = (which: string) => `SELECT min(created_at) AS at FROM orders
      WHERE ${which} AND created_at GLOB '[0-9][0-9][0-9][0-9]-*T*Z'`;
    const isHeld = 'order_id IN (SELECT order_id FROM held_notifications WHERE resolved_at IS NULL)';
    const sql = `SELECT min(at) FROM (${oldest(IS_OPEN)} UNION ALL ${oldest(isHeld)})`;
    return epochMs(this.read((db) => sqlOf(db).value<string | null>(sql)));
  }

  /** When the last complete poll was told as well, on this machine's clock. */
  lastPollOkMs(): number | null {
    return epochMs(this.freshness().find(({ subject }) => subject === 'orders.poll')?.lastOkAt);
  }

  /** When the last complete poll asked, on the platform's clock; null: never. */
  lastPollAskedMs(): number | null {
    // A mirror of before it was noted has only this machine's word.
    return this.read((db) => mark(db, 'orders.asked-ms')) ?? this.lastPollOkMs();
  }

  /** Notes a complete poll durably; `askedMs`: on the platform's clock. */
  notePoll(askedMs: number): Promise<void> {
    return this.write((db) => setMark(db, 'orders.asked-ms', Math.round(askedMs)));
  }

  /** At a branch: how long after the last good poll the hub has orders count as missing; undefined: it did not say. */
  hubStaleAfterMs(): number | undefined {
    return this.read((db) => mark(db, 'hub.stale-after-ms'));
  }

  async noteHubStaleAfter(ms: number): Promise<void> {
    if (this.hubStaleAfterMs() !== ms) await this.write((db) => setMark(db, 'hub.stale-after-ms', ms));
  }

  /** Of which companies the orders are; undefined while none says. */
  orderCompanies(): OrderCompanies | undefined {
    const [oldest, newest] = this.read((db) => [companyAt(db, 'ASC'), companyAt(db, 'DESC')]);
    return oldest === undefined || newest === undefined ? undefined : { oldest, newest };
  }

  /** The store belongs to another company from now on: what came before says nothing of it. */
  async beginOtherCompany(): Promise<void> {
    await this.write((db) => setMark(db, 'orders.company-from', newestSeq(db)));
    this.alarms.note('auth.other-company', null);
  }

  freshness(): Freshness[] {
    return this.#boards.freshness();
  }

  /** Takes over how a flow fares at the hub. */
  adoptFreshness(freshness: Freshness): void {
    this.#boards.adopt(freshness);
  }

  raisedAlarms(): RaisedAlarm[] {
    return this.#boards.alarms();
  }

  /** Tells which raised alarms the disk did not take, from now on after each try; `listener` must not throw. */
  onUnwrittenAlarms(listener: (alarms: readonly RaisedAlarm[]) => void): void {
    this.#boards.onUnwritten = listener;
  }

  /** Waits until freshness and alarms are on the disk, or the disk refused them. */
  flushBoards(): Promise<void> {
    return this.#boards.flush();
  }

  /** Newest first. */
  quarantineList(limit: number): QuarantineEntry[] {
    const sql = `SELECT ${QUARANTINE} FROM quarantine ORDER BY quarantine_id DESC LIMIT ?`;
    return this.read((db) => sqlOf(db).rows<QuarantineEntry>(sql, limit));
  }

  quarantineGet(quarantineId: number): QuarantineDetail | undefined {
    const sql = `SELECT ${QUARANTINE}, payload FROM quarantine WHERE quarantine_id = ?`;
    return this.read((db) => sqlOf(db).row<QuarantineDetail>(sql, quarantineId));
  }

  /** Whether there was something to remove. */
  quarantineRemove(quarantineId: number): Promise<boolean> {
    return this.write((db) => removeFromQuarantine(db, quarantineId));
  }

  /** Size of the write-ahead log. */
  walBytes(): number {
    return walBytes(this.#file.path);
  }

  /** Ends an import between two transactions, writes what is pending and closes; the mirror stays readable. */
  async close(): Promise<void> {
    this.#lockWatch.close();
    await this.#import.stop();
    await this.#boards.flush();
    this.#file.close();
  }
}

function epochMs(iso: string | null | undefined): number | null {
  const ms = iso == null ? Number.NaN : Date.parse(iso);
  return Number.isNaN(ms) ? null : ms;
}
