import type Database from 'better-sqlite3';
import type { Alarms } from '../../domain/health/alarm.ts';
import type { Freshness, FreshnessBoard } from '../../domain/health/freshness.ts';
import type { FeedMemory } from '../../domain/order/feed-memory.ts';
import type { MirroredOrder, OrderFilter, OrderHistory } from '../../domain/order/mirrored-order.ts';
import type { OrderEvent } from '../../domain/order/order.ts';
import type { OrderImporter, OrderKeeper } from '../../domain/order/order-intake.ts';
import type { ExtraSpellings } from '../../domain/order/spelling-tree.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { LockHolder } from '../lock-holders.ts';
import { walBytes } from '../settle-wal.ts';
import type { RaisedAlarm } from './board-rows.ts';
import { Boards } from './boards.ts';
import type { HeldNotification } from './held-rows.ts';
import { LockWatch } from './lock-watch.ts';
import { MirrorFile } from './mirror-file.ts';
import type { MirrorTables } from './mirror-tables.ts';
import { beginOtherCompany, type OrderCompanies, orderCompanies } from './order-companies.ts';
import { OrderImport } from './order-import.ts';
import { OrderIntake } from './order-intake.ts';
import { PollDigests } from './poll-digests.ts';
import type { QuarantineDetail, QuarantineEntry } from './quarantine-rows.ts';
import { WalCare } from './wal-care.ts';
import { findWalReaders } from './wal-readers.ts';

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
export interface Mirror {
  readonly keeper: OrderKeeper;
  readonly importer: OrderImporter;
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
  read<T>(action: (tables: MirrorTables) => T): T;
  write<T>(action: (tables: MirrorTables) => T, signal?: AbortSignal): Promise<T>;

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
  const importer = new OrderImport({ file, spellings, listPath, workerUrl });
  const { queries, held, quarantine } = readers(file);
  const lastPollOkMs = () =>
    epochMs(boards.freshness().find(({ subject }) => subject === 'orders.poll')?.lastOkAt);
  return {
    keeper: new OrderIntake({ file, digests }),
    importer,
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
    read: (action) => file.read(action),
    write: (action, signal) => file.write(action, signal),
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
