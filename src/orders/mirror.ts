import type Database from 'better-sqlite3';
import {
  type AlarmKey,
  type Alarms,
  FRESHNESS_SUBJECTS,
  type Freshness,
  type FreshnessBoard,
  type FreshnessState,
  type FreshnessSubject,
} from '../core/alarm.ts';
import { asTyped } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { walBytes } from '../db/sqlite.ts';
import { findWalReaders, type LockHolder, LockWatch, WalCare } from '../db/wal.ts';
import { PollDigests } from './answer-import.ts';
import { MirrorFile, type RaisedAlarm } from './mirror-file.ts';
import type {
  FeedMemory,
  MirroredOrder,
  OrderEvent,
  OrderFilter,
  OrderHistory,
  OrderImporter,
  OrderKeeper,
} from './order.ts';
import { OrderImport, OrderIntake } from './order-import.ts';
import type { QuarantineDetail, QuarantineEntry } from './order-queries.ts';
import type { HeldNotification } from './order-rows.ts';
import type { ExtraSpellings } from './spellings.ts';

interface PendingAlarm {
  /** null: lowered. */
  message: string | null;
  at: string;
}

/**
 * Freshness and alarms. Their ports are synchronous while the database may be busy, so a report counts at once
 * for whoever asks here, and goes to the disk right after; what cannot be written is tried again with the next.
 */
export class Boards implements FreshnessBoard, Alarms {
  readonly #file: MirrorFile;
  #freshness = new Map<FreshnessSubject, Freshness>();
  #alarms = new Map<AlarmKey, PendingAlarm>();
  #flushing: Promise<void> | undefined;

  #onUnwritten: (alarms: readonly RaisedAlarm[]) => void = () => {};

  constructor(file: MirrorFile) {
    this.#file = file;
  }

  ok(subject: FreshnessSubject, message = ''): void {
    const now = isoUtc(this.#file.clock.nowMs());
    this.#put({ subject, lastOkAt: now, lastTryAt: now, state: 'ok', message });
  }

  report(subject: FreshnessSubject, state: FreshnessState, message: string): void {
    const lastOkAt = this.#freshness.get(subject)?.lastOkAt ?? null;
    this.#put({ subject, lastOkAt, lastTryAt: isoUtc(this.#file.clock.nowMs()), state, message });
  }

  raise(key: AlarmKey, text: string): void {
    const message = asTyped(text);
    if (this.#isUp(key) !== message) this.#putAlarm(key, message);
  }

  lower(key: AlarmKey): void {
    if (this.#isUp(key) !== null) this.#putAlarm(key, null);
  }

  /** One entry for each subject, those reported last included. */
  freshness(): Freshness[] {
    const stored = new Map(
      this.#file.read(({ board }) => board.freshness()).map((each) => [each.subject, each]),
    );
    return FRESHNESS_SUBJECTS.map((subject) => {
      const pending = this.#freshness.get(subject);
      const before = stored.get(subject) ?? unknown(subject);
      return pending ? { ...pending, lastOkAt: pending.lastOkAt ?? before.lastOkAt } : before;
    });
  }

  /** Alarms that are up, oldest first. */
  alarms(): RaisedAlarm[] {
    const up = new Map(this.#file.read(({ board }) => board.alarms()).map((alarm) => [alarm.key, alarm]));
    for (const [key, { message, at }] of this.#alarms) {
      if (message === null) up.delete(key);
      else up.set(key, { key, message, raisedAt: up.get(key)?.raisedAt ?? at, changedAt: at });
    }
    return [...up.values()];
  }

  /** Tells which raised alarms the disk did not take, from now on after each try; `listener` must not throw. */
  onUnwritten(listener: (alarms: readonly RaisedAlarm[]) => void): void {
    this.#onUnwritten = listener;
  }

  /** Tells the listener now; each try to write does so by itself. */
  tellUnwritten(): void {
    const raised = [...this.#alarms].flatMap(([key, { message, at }]) =>
      message === null ? [] : { key, message, raisedAt: at, changedAt: at },
    );
    this.#onUnwritten(raised);
  }

  /** Waits until what was reported is on the disk, or the disk refused it. */
  async flush(): Promise<void> {
    this.#flushing ??= this.#write();
    await this.#flushing;
  }

  #put({ message, ...rest }: Freshness): void {
    this.#freshness.set(rest.subject, { ...rest, message: asTyped(message) });
    void this.flush();
  }

  #putAlarm(key: AlarmKey, message: string | null): void {
    this.#alarms.set(key, { message, at: isoUtc(this.#file.clock.nowMs()) });
    void this.flush();
  }

  /** Message of the alarm, null when it is down, undefined when the database cannot say. */
  #isUp(key: AlarmKey): string | null | undefined {
    const pending = this.#alarms.get(key);
    if (pending) return pending.message;
    try {
      return (
        this.#file.read(({ board }) => board.alarms()).find((alarm) => alarm.key === key)?.message ?? null
      );
    } catch {
      return undefined;
    }
  }

  async #write(): Promise<void> {
    // Everything reported in this turn of the event loop becomes one transaction.
    await Promise.resolve();
    while ((this.#freshness.size > 0 || this.#alarms.size > 0) && !this.#file.closed) {
      const freshness = [...this.#freshness.values()];
      const alarms = [...this.#alarms];
      try {
        await this.#file.write(({ board }) => {
          for (const each of freshness) board.setFreshness(each);
          for (const [key, { message, at }] of alarms) {
            if (message === null) board.lower(key);
            else board.raise(key, message, at);
          }
        });
      } catch {
        // They stay pending; whoever keeps orders learns of the failing disk and says so.
        break;
      }
      for (const each of freshness) {
        if (this.#freshness.get(each.subject) === each) this.#freshness.delete(each.subject);
      }
      for (const [key, each] of alarms) if (this.#alarms.get(key) === each) this.#alarms.delete(key);
    }
    this.tellUnwritten();
    // In the same turn as the last look: what is reported from now on begins a write of its own.
    this.#flushing = undefined;
  }
}

function unknown(subject: FreshnessSubject): Freshness {
  return { subject, lastOkAt: null, lastTryAt: null, state: 'unknown', message: '' };
}

/** Of which companies the orders are (document, `websiteId` of the notification): the oldest one here, and the newest. */
export interface OrderCompanies {
  oldest: string;
  newest: string;
}

/** Orders of these many looked at from either end: one that names no company says nothing. */
const LOOKED_AT = 20;

/** Undefined while no order says of which company it is. */
export function orderCompanies(db: Database.Database): OrderCompanies | undefined {
  const end = (order: 'ASC' | 'DESC') =>
    db
      .prepare<[], string>(
        `SELECT website_id FROM (SELECT website_id FROM orders
           WHERE seq > coalesce((SELECT value FROM marks WHERE name = 'orders.company-from'), 0)
           ORDER BY seq ${order} LIMIT ${LOOKED_AT})
         WHERE website_id IS NOT NULL LIMIT 1`,
      )
      .pluck()
      .get();
  const [oldest, newest] = [end('ASC'), end('DESC')];
  return oldest === undefined || newest === undefined ? undefined : { oldest, newest };
}

/** This store belongs to another company from now on: what came before says nothing of it. To be used in a transaction. */
export function beginOtherCompany(db: Database.Database): void {
  db.prepare(
    `INSERT INTO marks (name, value)
     SELECT 'orders.company-from', coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0) WHERE true
     ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
  ).run();
}

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
  /** Where the list of orders is in an answer; empty: it is looked for. */
  listPath?: string;
  /** The import worker's program, where it is not the file beside this one. */
  workerUrl?: URL;
}

/** The mirror as one open thing; its parts are the ports that the others wait for. */
export interface Mirror extends OrderKeeper, OrderImporter {
  readonly freshnessBoard: FreshnessBoard;
  readonly alarms: Alarms;

  /** Of which companies the orders are; undefined while none says. */
  orderCompanies(): OrderCompanies | undefined;
  /** The store belongs to another company from now on. */
  beginOtherCompany(): Promise<void>;
  order(orderId: string): MirroredOrder | undefined;
  /** JSON text as received. */
  orderPayload(orderId: string): string | undefined;
  orders(filter: OrderFilter): MirroredOrder[];
  orderHistory(orderId: string): OrderHistory;
  heldNotifications(limit: number, orderId?: string): HeldNotification[];
  /** The change feed after `seq`, oldest first. */
  eventsAfter(seq: number, limit: number): OrderEvent[];
  newestSeq(): number;
  /** Up to this seq only the newest event of each order, and those still needed, are there; 0: all are. */
  trimmedTo(): number;
  codesBetween(min: number, max: number): number[];
  oldestOpenOrderCreatedAt(): string | null;
  oldestOpenOrderMs(): number | null;
  /** When the last complete poll was told as well, on this machine's clock. */
  lastPollOkMs(): number | null;
  /** When the last complete poll asked, on the platform's clock; null: never. */
  lastPollAskedMs(): number | null;
  notePoll(askedMs: number): Promise<void>;

  freshness(): Freshness[];
  raisedAlarms(): RaisedAlarm[];
  /** Tells which raised alarms the disk did not take. */
  onUnwrittenAlarms(listener: (alarms: readonly RaisedAlarm[]) => void): void;
  /** Waits until freshness and alarms are on the disk, or the disk refused them. */
  flushBoards(): Promise<void>;

  quarantineList(limit: number): QuarantineEntry[];
  quarantineGet(quarantineId: number): QuarantineDetail | undefined;
  /** Whether there was something to remove. */
  quarantineRemove(quarantineId: number): Promise<boolean>;

  /** Size of the write-ahead log. */
  walBytes(): number;
  findWalReaders(): LockHolder[];
  /** For other table families of the same file: short reads, and one durable transaction. */
  read<T>(action: (db: Database.Database) => T): T;
  write<T>(action: (db: Database.Database) => T, signal?: AbortSignal): Promise<T>;

  /** Ends an import between two transactions, writes what is pending and closes; the mirror stays readable. */
  close(): Promise<void>;
}

/** Opens the mirror, creating it or bringing its schema up to date. Throws `storage-…` errors. */
export function openMirror(options: MirrorOptions): Mirror {
  const { path, clock, group, readonly = false, spellings = {}, listPath = '', workerUrl, feed } = options;
  const digests = new PollDigests(spellings);
  const onWritten = (db: Database.Database) => {
    walCare.tend(db);
    lockWatch.free();
  };
  const onLocked = () => {
    lockWatch.locked();
    boards.tellUnwritten();
  };
  const file = new MirrorFile({ path, clock, readonly, group, onWritten, onLocked, feed });
  const boards = new Boards(file);
  const lockWatch = new LockWatch({ path, clock, alarms: boards, tryAgain: () => boards.flush() });
  const walCare = new WalCare({ path, clock, alarms: boards });
  const intake = new OrderIntake({ file, digests });
  const importer = new OrderImport({ file, spellings, listPath, workerUrl });
  const { queries, held, quarantine } = readers(file);
  const lastPollOkMs = () =>
    epochMs(boards.freshness().find(({ subject }) => subject === 'orders.poll')?.lastOkAt);
  return {
    keep: (entries) => intake.keep(entries),
    importAnswer: (body, how) => importer.importAnswer(body, how),
    freshnessBoard: boards,
    alarms: boards,
    ...queries,
    ...held,
    ...quarantine,
    orderCompanies: () => file.read(({ db }) => orderCompanies(db)),
    async beginOtherCompany() {
      await file.write(({ db }) => beginOtherCompany(db));
      boards.lower('auth.other-company');
    },
    lastPollOkMs,
    // A mirror of before it was noted has only this machine's word.
    lastPollAskedMs: () => file.read(({ board }) => board.lastPollAskedMs()) ?? lastPollOkMs(),
    notePoll: (askedMs) => file.write(({ board }) => board.notePoll(askedMs)),
    freshness: () => boards.freshness(),
    raisedAlarms: () => boards.alarms(),
    onUnwrittenAlarms: (listener) => boards.onUnwritten(listener),
    flushBoards: () => boards.flush(),
    walBytes: () => walBytes(path),
    findWalReaders: () => findWalReaders(path),
    read: (action) => file.read(({ db }) => action(db)),
    write: (action, signal) => file.write(({ db }) => action(db), signal),
    async close() {
      lockWatch.close();
      await importer.stop();
      await boards.flush();
      file.close();
    },
  };
}

function readers(file: MirrorFile) {
  const oldestOpenOrderCreatedAt = () => file.read((tables) => tables.queries.oldestOpenOrderCreatedAt());
  const queries = {
    order: (orderId: string) => file.read((tables) => tables.queries.order(orderId)),
    orderPayload: (orderId: string) => file.read((tables) => tables.queries.payload(orderId)),
    orders: (filter: OrderFilter) => file.read((tables) => tables.queries.orders(filter)),
    orderHistory: (orderId: string) => file.read((tables) => tables.queries.history(orderId)),
    eventsAfter: (seq: number, limit: number) =>
      file.read((tables) => tables.queries.eventsAfter(seq, limit)),
    newestSeq: () => file.read((tables) => tables.queries.newestSeq()),
    trimmedTo: () => file.read((tables) => tables.queries.trimmedTo()),
    codesBetween: (min: number, max: number) => file.read((tables) => tables.queries.codesBetween(min, max)),
    oldestOpenOrderCreatedAt,
    oldestOpenOrderMs: () => epochMs(oldestOpenOrderCreatedAt()),
  };
  const held = {
    heldNotifications: (limit: number, orderId?: string) =>
      file.read((tables) => tables.merge.held.list(limit, orderId)),
  };
  const quarantine = {
    quarantineList: (limit: number) => file.read((tables) => tables.quarantine.list(limit)),
    quarantineGet: (quarantineId: number) => file.read((tables) => tables.quarantine.get(quarantineId)),
    quarantineRemove: (quarantineId: number) =>
      file.write((tables) => tables.quarantine.remove(quarantineId)),
  };
  return { queries, held, quarantine };
}

function epochMs(iso: string | null | undefined): number | null {
  const ms = iso == null ? Number.NaN : Date.parse(iso);
  return Number.isNaN(ms) ? null : ms;
}
