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
import { toldText } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { sqlOf, walBytes } from '../db/sqlite.ts';
import { LockMonitor, truncateWal, WAL_BYTES_MAX, WalMaintenance } from '../db/wal.ts';
import { forgetCustomer, forgetQuarantined, TO_CLEAN } from './anonymize.ts';
import { compileSpellings, type ExtraSpellings, type OrderSpellings } from './field-aliases.ts';
import { MirrorFile, newestSeq, type SeqMemory } from './mirror-file.ts';
import type { MirroredOrder } from './mirrored-order.ts';
import {
  type ImportOptions,
  type ImportReport,
  type IncomingEntry,
  IS_OPEN,
  type OrderEvent,
  type OrderFilter,
  type OrderHistory,
  type OrderSink,
  type SaveOutcome,
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
import { LinePlaces } from './placed-lines.ts';
import { quarantine, removeFromQuarantine } from './quarantine.ts';

/** An alarm that is raised now. */
export interface RaisedAlarm extends AlarmUp {
  /** When the alarm's message or level last changed. */
  changedAt: string;
}

interface PendingAlarm {
  /** Message of the alarm; null means that the alarm ended. */
  message: string | null;
  level: FindingLevel | null;
  at: string;
}

const NO_FAILURE = { code: null, since: null, tries: 0 };

/** Stores a flow's freshness. If `lastOkAt` is null, the stored value is kept. */
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

/** Returns the raised alarms, oldest first. */
function storedAlarms(db: Database.Database): RaisedAlarm[] {
  const sql = `SELECT key, message, level, raised_at AS raisedAt, changed_at AS changedAt FROM alarms
    ORDER BY raised_at, key`;
  return sqlOf(db).rows<RaisedAlarm>(sql);
}

/**
 * Stores freshness and alarms. A report must be synchronous, while the database may be busy; so a report counts at
 * once in this process and is written right after. A failed write is repeated with the next report.
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

  /** Returns a flow's freshness, or undefined if the database is unavailable or has no row. */
  #flowOf(subject: FreshnessSubject): Freshness | undefined {
    const pending = this.#freshness.get(subject);
    if (pending) return pending;
    try {
      return this.#file.read(storedFreshness).find((flow) => flow.subject === subject);
    } catch {
      return undefined;
    }
  }

  /** Stores a flow's state as the hub reported it. */
  adopt(freshness: Freshness): void {
    this.#put(freshness);
  }

  note(key: AlarmKey, trouble: string | null, level: FindingLevel | null = null): void {
    this.#putAlarm(key, trouble === null ? null : toldText(trouble), trouble === null ? null : level);
  }

  /** Returns one entry per subject, including reports that are not written yet. */
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

  /** Returns the raised alarms, oldest first, including those that are not written yet. */
  alarms(): RaisedAlarm[] {
    const up = new Map(this.#file.read(storedAlarms).map((alarm) => [alarm.key, alarm]));
    for (const [key, { message, level, at }] of this.#alarms) {
      if (message === null) up.delete(key);
      else up.set(key, { key, message, level, raisedAt: up.get(key)?.raisedAt ?? at, changedAt: at });
    }
    return [...up.values()];
  }

  /** Passes the raised alarms that are not on the disk to the listener. Called after each failed write. */
  notifyUnwritten(): void {
    const raised = [...this.#alarms].flatMap(([key, { message, level, at }]) =>
      message === null ? [] : { key, message, level, raisedAt: at, changedAt: at },
    );
    this.onUnwritten(raised);
  }

  /** Waits until all reports were written or a write failed. */
  async flush(): Promise<void> {
    this.#flushing ??= this.#write();
    await this.#flushing;
  }

  #now(): string {
    return isoUtc(this.#file.clock.nowMs());
  }

  #put({ message, ...rest }: Freshness): void {
    this.#freshness.set(rest.subject, { ...rest, message: toldText(message) });
    void this.flush();
  }

  #putAlarm(key: AlarmKey, message: string | null, level: FindingLevel | null): void {
    const before = this.#alarmOf(key);
    if (before?.message === message && before.level === level) return;
    this.#alarms.set(key, { message, level, at: this.#now() });
    void this.flush();
  }

  /**
   * Returns an alarm's state, without message if the alarm is not raised; undefined if the database is unavailable.
   */
  #alarmOf(key: AlarmKey): Pick<PendingAlarm, 'message' | 'level'> | undefined {
    const pending = this.#alarms.get(key);
    if (pending) return pending;
    try {
      const sql = 'SELECT message, level FROM alarms WHERE key = ?';
      const stored = this.#file.read((db) =>
        sqlOf(db).row<Pick<PendingAlarm, 'message' | 'level'>>(sql, key),
      );
      return stored ?? { message: null, level: null };
    } catch {
      return undefined;
    }
  }

  async #write(): Promise<void> {
    // Waits, so that all reports of one turn of the event loop are written in one transaction.
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
        // The reports stay pending. The code that stores orders fails on the same disk and raises the alarm.
        break;
      }
      deleteSame(this.#freshness, freshness);
      deleteSame(this.#alarms, alarms);
    }
    this.notifyUnwritten();
    // Reset without an await after the loop's last check, so that a later report starts a new write.
    this.#flushing = undefined;
  }
}

function deleteSame<Key, Value>(map: Map<Key, Value>, written: readonly (readonly [Key, Value])[]): void {
  for (const [key, value] of written) if (map.get(key) === value) map.delete(key);
}

/** The company (`websiteId` in the document) of the oldest and of the newest order in the mirror. */
export interface OrderCompanies {
  oldest: string;
  newest: string;
}

/** Number of oldest and of newest orders that are searched for a company, because some orders name none. */
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

/** Shortest pause between two writes of the webhooks' freshness, so that a burst does not write it each time. */
const FRESHNESS_EVERY_MS = 1_000;

interface MirrorOptions {
  /** Path of `mirror.db`. */
  path: string;
  clock: Clock;
  /** Unix group, by name or number, that may read the mirror. If left out, the directory's group may. */
  group?: string | undefined;
  /** Remembers the feed's seq of earlier mirrors. Without it, a new mirror's feed begins at 1. */
  feed?: SeqMemory;
  /** True to open for reading only. Nothing is created, migrated or written. */
  readonly?: boolean;
  /** Further names of fields, from the configuration. */
  spellings?: ExtraSpellings;
  /** Zone of times that are sent without a zone. If left out, such times are unreadable. */
  timezone?: string | undefined;
  /** Path of the list of orders in an answer. If empty, the list is searched for. */
  listPath?: string;
}

/** Opens the mirror; creates the file or migrates its schema. Throws `storage-…`. */
export function openMirror(options: MirrorOptions): Mirror {
  return new Mirror(options);
}

const WIDE_ASKED = 'orders.wide-asked-ms';

/** The mirror of orders. Other slices, which have tables in the same file, use `read` and `write`. */
export class Mirror implements OrderSink {
  readonly freshnessBoard: FreshnessBoard;
  readonly alarms: Alarms;
  readonly #file: MirrorFile;
  readonly #boards: Boards;
  readonly #lockWatch: LockMonitor;
  readonly #import: OrderImport;
  readonly #spellings: OrderSpellings;
  #webhookFreshMs = Number.NEGATIVE_INFINITY;

  constructor(options: MirrorOptions) {
    const { path, clock, group, readonly = false, spellings = {}, timezone, listPath = '', feed } = options;
    this.#file = new MirrorFile({
      path,
      clock,
      readonly,
      group,
      feed,
      onWritten: (db) => {
        walMaintenance.checkpoint(db);
        this.#lockWatch.free();
      },
      onLocked: () => {
        this.#lockWatch.locked();
        this.#boards.notifyUnwritten();
      },
    });
    this.#boards = new Boards(this.#file);
    const alarms = this.#boards;
    const walMaintenance = new WalMaintenance({ path, clock, alarms });
    this.#lockWatch = new LockMonitor({ path, clock, alarms, tryAgain: () => alarms.flush() });
    this.#spellings = compileSpellings(spellings, timezone);
    this.#import = new OrderImport({ file: this.#file, spellings, timezone, listPath });
    this.freshnessBoard = alarms;
    this.alarms = alarms;
  }

  /** Runs one or a few short reads without a transaction. */
  read<T>(action: (db: Database.Database) => T): T {
    return this.#file.read(action);
  }

  /** Runs one durable transaction. `action` may run several times, each time from the start. */
  write<T>(action: (db: Database.Database) => T, signal?: AbortSignal): Promise<T> {
    return this.#file.write(action, signal);
  }

  async save(entries: readonly IncomingEntry[]): Promise<SaveOutcome[]> {
    if (entries.length === 0) return [];
    const { clock } = this.#file;
    const nowMs = clock.monotonicMs();
    const isFresh =
      nowMs - this.#webhookFreshMs >= FRESHNESS_EVERY_MS &&
      entries.some((entry) => entry.kind === 'order' && entry.observation.source === 'webhook');
    const outcomes = await this.#file.write((db) => {
      const now = isoUtc(clock.nowMs());
      const came = { subject: 'orders.webhook', state: 'ok', message: '' } as const;
      if (isFresh) setFreshness(db, { ...came, lastOkAt: now, lastTryAt: now });
      const places = new LinePlaces(db);
      return entries.map((entry) => this.#keepOne(db, entry, places));
    });
    if (isFresh) this.#webhookFreshMs = nowMs;
    return outcomes;
  }

  #keepOne(db: Database.Database, entry: IncomingEntry, places: LinePlaces): SaveOutcome {
    if (entry.kind === 'unreadable') {
      quarantine(db, entry.unreadable);
      return 'quarantined';
    }
    return mergeOrder(db, entry.observation, this.#spellings, null, { places });
  }

  /**
   * Mirrors a whole answer of GET /order/all without delaying callbacks. A large `body` is transferred to another
   * thread, which leaves the array empty.
   */
  importAnswer(body: Uint8Array, options: ImportOptions): Promise<ImportReport> {
    return this.#import.importAnswer(body, options);
  }

  /** Removes the customers of these orders durably, and returns their number. Then `clean` removes the remaining bytes. */
  forgetCustomers(orderIds: readonly string[]): Promise<number> {
    const at = isoUtc(this.#file.clock.nowMs());
    return this.write(
      (db) => orderIds.filter((orderId) => forgetCustomer(db, orderId, this.#spellings, at)).length,
    );
  }

  /**
   * Removes the customer of one order at a person's request, also from quarantine. `note` runs in the same
   * transaction. Returns false if the customer was removed before.
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
   * Rewrites the file if customers were removed after the last rewrite, so that none of their bytes remain. Returns
   * false if a reader blocks the log; then call it again. Callbacks wait meanwhile, about a second for 100 MiB.
   */
  async clean(): Promise<boolean> {
    const waiting = this.read((db) => mark(db, TO_CLEAN)) ?? 0;
    if (waiting === 0) return true;
    const isAnew = waiting < 0;
    // While a reader blocks the log's truncation, the log would also hold each rewritten file.
    if ((isAnew || this.walBytes() > WAL_BYTES_MAX) && !this.read(truncateWal)) return false;
    const isClean = isAnew || (await this.#import.vacuum());
    const sql = 'UPDATE marks SET value = ? WHERE name = ? AND value = ?';
    await this.write((db) => sqlOf(db).run(sql, isClean ? 0 : -waiting, TO_CLEAN, waiting));
    return isClean;
  }

  order(orderId: string): MirroredOrder | undefined {
    return this.read((db) => orderById(db, orderId));
  }

  /** Returns the order's payload, JSON text as received. */
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

  /** Returns the feed's events after `seq`, oldest first. */
  eventsAfter(seq: number, limit: number): OrderEvent[] {
    const sql = `${EVENT} WHERE seq > ? ORDER BY seq LIMIT +?`;
    return this.read((db) => sqlOf(db).rows<OrderEvent>(sql, seq, limit));
  }

  newestSeq(): number {
    return this.read(newestSeq);
  }

  /** Returns the seq up to which old events were deleted, except each order's newest and needed ones; 0 if none were. */
  trimmedTo(): number {
    return this.read((db) => mark(db, 'events.trimmed')) ?? 0;
  }

  /** Returns the order numbers next to a missing one; null on a side without any. */
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
   * Returns the creation time of the oldest order that is open or that a held callback may reopen. Returns null if
   * there is none, or none has a readable time.
   */
  oldestOpenOrderMs(): number | null {
    const oldest = (which: string) => `SELECT min(created_at) AS at FROM orders
      WHERE ${which} AND created_at GLOB '[0-9][0-9][0-9][0-9]-*T*Z'`;
    const isHeld = 'order_id IN (SELECT order_id FROM held_notifications WHERE resolved_at IS NULL)';
    const sql = `SELECT min(at) FROM (${oldest(IS_OPEN)} UNION ALL ${oldest(isHeld)})`;
    return epochMs(this.read((db) => sqlOf(db).value<string | null>(sql)));
  }

  /** Returns when the last complete poll finished, on this machine's clock; null if there was none. */
  lastPollOkMs(): number | null {
    return epochMs(this.freshness().find(({ subject }) => subject === 'orders.poll')?.lastOkAt);
  }

  /** Returns when the last complete poll was sent, on the platform's clock; null if there was none. */
  lastPollAskedMs(): number | null {
    // A mirror of an older version has no such mark, only the time on this machine's clock.
    return this.read((db) => mark(db, 'orders.asked-ms')) ?? this.lastPollOkMs();
  }

  /** Returns when the last poll back to the oldest open order was sent, on the platform's clock; null if never. */
  lastWidePollAskedMs(): number | null {
    return this.read((db) => mark(db, WIDE_ASKED)) ?? null;
  }

  /** Records a complete poll durably. `askedMs` is its time on the platform's clock. */
  notePoll(askedMs: number, wide: boolean): Promise<void> {
    return this.write((db) => {
      for (const name of ['orders.asked-ms', ...(wide ? [WIDE_ASKED] : [])])
        setMark(db, name, Math.round(askedMs));
    });
  }

  /**
   * At a branch, returns the time without a good poll after which orders count as stale; undefined if the hub sent
   * none.
   */
  hubStaleAfterMs(): number | undefined {
    return this.read((db) => mark(db, 'hub.stale-after-ms'));
  }

  async noteHubStaleAfter(ms: number): Promise<void> {
    if (this.hubStaleAfterMs() !== ms) await this.write((db) => setMark(db, 'hub.stale-after-ms', ms));
  }

  /** Returns the companies of the orders, or undefined if no order names a company. */
  orderCompanies(): OrderCompanies | undefined {
    const [oldest, newest] = this.read((db) => [companyAt(db, 'ASC'), companyAt(db, 'DESC')]);
    return oldest === undefined || newest === undefined ? undefined : { oldest, newest };
  }

  /**
   * Records that the store belongs to another company from now on, so that the company of earlier orders is ignored.
   */
  async beginOtherCompany(): Promise<void> {
    await this.write((db) => setMark(db, 'orders.company-from', newestSeq(db)));
  }

  freshness(): Freshness[] {
    return this.#boards.freshness();
  }

  /** Stores a flow's state at a branch, as the hub reported it. */
  adoptFreshness(freshness: Freshness): void {
    this.#boards.adopt(freshness);
  }

  raisedAlarms(): RaisedAlarm[] {
    return this.#boards.alarms();
  }

  /** Sets a listener that gets the raised alarms after each failed write. It must not throw. */
  onUnwrittenAlarms(listener: (alarms: readonly RaisedAlarm[]) => void): void {
    this.#boards.onUnwritten = listener;
  }

  /** Waits until freshness and alarms were written or a write failed. */
  flushBoards(): Promise<void> {
    return this.#boards.flush();
  }

  /** Returns quarantined entries, newest first. */
  quarantineList(limit: number): QuarantineEntry[] {
    const sql = `SELECT ${QUARANTINE} FROM quarantine ORDER BY quarantine_id DESC LIMIT ?`;
    return this.read((db) => sqlOf(db).rows<QuarantineEntry>(sql, limit));
  }

  quarantineGet(quarantineId: number): QuarantineDetail | undefined {
    const sql = `SELECT ${QUARANTINE}, payload FROM quarantine WHERE quarantine_id = ?`;
    return this.read((db) => sqlOf(db).row<QuarantineDetail>(sql, quarantineId));
  }

  /** Deletes a quarantined entry. Returns false if there was none. */
  quarantineRemove(quarantineId: number): Promise<boolean> {
    return this.write((db) => removeFromQuarantine(db, quarantineId));
  }

  /** Returns the size of the write-ahead log in bytes. */
  walBytes(): number {
    return walBytes(this.#file.path);
  }

  /**
   * Stops a running import between two transactions, writes pending reports, and closes. The file stays readable for
   * others.
   */
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
