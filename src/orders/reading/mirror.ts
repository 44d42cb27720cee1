import type Database from 'better-sqlite3';
import type { Alarms, AlarmUp, Freshness, FreshnessBoard, FreshnessSubject } from '../../core/alarm.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import type { Role } from '../../db/migrate.ts';
import { walBytes } from '../../db/sqlite.ts';
import { hasRoomInWal, MirrorWatch } from '../../db/wal.ts';
import { isFeeding } from '../merging/branch-feed.ts';
import { compileSpellings, type ExtraSpellings, type OrderSpellings } from '../merging/field-aliases.ts';
import type { StatusWords } from '../merging/field-values.ts';
import { judgeHeldAgain, mayJudgeHeldAgain } from '../merging/held-again.ts';
import { ListedOrders } from '../merging/listed-orders.ts';
import type { ImportOptions, ImportReport, IncomingEntry, OrderSink, SaveOutcome } from '../merging/order.ts';
import { type MergeOptions, mergeOrder } from '../merging/order-rows.ts';
import { LinePlaces } from '../merging/placed-lines.ts';
import { OrderImport } from '../receiving/order-import.ts';
import { PollStore } from '../receiving/poll-store.ts';
import { quarantine } from '../receiving/quarantine.ts';
import { QuarantineStore } from '../receiving/quarantine-store.ts';
import { CustomerStore } from './customer-store.ts';
import { MirrorFile, type SeqMemory } from './mirror-file.ts';
import { OrderStore } from './order-store.ts';

/** Shortest pause between two writes of the webhooks' freshness, so that a burst does not write it each time. */
const FRESHNESS_EVERY_MS = 1_000;

/** An alarm that is raised now. */
export interface RaisedAlarm extends AlarmUp {
  /** When the alarm's message or level last changed. */
  changedAt: string;
}

/** Freshness and alarms, which the mirror's file contains too. */
export interface MirrorHealth extends FreshnessBoard, Alarms {
  /** Stores a flow's freshness in the caller's transaction. */
  put(db: Database.Database, freshness: Freshness): void;
  /** Stores a flow's state as the hub reported it to this branch. */
  adopt(freshness: Freshness): void;
  /** Returns one entry per subject, including reports that are not written yet. */
  freshness(): Freshness[];
  /** Returns when a flow last succeeded, on this machine's clock; null if it never did. */
  lastOkMs(subject: FreshnessSubject): number | null;
  /** Returns whether orders come only by polls. */
  isHeardLate(): boolean;
  /** Returns the raised alarms, oldest first, including those that are not written yet. */
  raised(): RaisedAlarm[];
  /**
   * Called with the raised alarms that are not on the disk, after each write and when the mirror is locked; with an
   * empty list once after they were written. If it throws, it is called again after the next write.
   */
  onUnwritten: (alarms: readonly RaisedAlarm[]) => void;
  /** Calls `onUnwritten` if raised alarms are not on the disk, or were not when it was called last. */
  notifyUnwritten(): void;
  /** Waits until all reports were written or a write failed. */
  flush(): Promise<void>;
}

export interface MirrorOptions {
  /** Path of `mirror.db`. */
  path: string;
  clock: Clock;
  /** Makes the store of freshness and alarms in the mirror's file. */
  health: (file: MirrorFile) => MirrorHealth;
  /** Unix group, by name or number, that may read the mirror. If left out, the directory's group may read it. */
  group?: string | undefined;
  /** Role whose tables the mirror gets, if it has not them yet. */
  role?: Role | undefined;
  /** Remembers the feed's seq of earlier mirrors. Without it, a new mirror's feed begins at 1. */
  feed?: SeqMemory;
  /** True to open for reading only. Nothing is created, migrated or written. */
  readonly?: boolean;
  /** Further names of fields, from the configuration. */
  spellings?: ExtraSpellings;
  /** Words of the platform for statuses of the document, from the configuration. */
  statuses?: StatusWords;
  /** Time zone in which times without a zone are read. If left out, such times are unreadable. */
  timezone?: string | undefined;
  /** Path of the list of orders in an answer. If empty, the list is searched for. */
  listPath?: string;
}

/** The mirror of orders. Other slices, which have tables in the same file, use its `read` and `write`. */
export class Mirror extends MirrorFile implements OrderSink {
  readonly orders: OrderStore;
  readonly polls: PollStore;
  readonly listed: ListedOrders;
  readonly customers: CustomerStore;
  readonly quarantine: QuarantineStore;
  readonly health: MirrorHealth;
  protected override readonly watch: MirrorWatch;
  readonly #import: OrderImport;
  readonly #spellings: OrderSpellings;
  #webhookFreshMs = Number.NEGATIVE_INFINITY;

  /** Opens the mirror; creates the file or migrates its schema. Throws `storage-…`. */
  constructor(options: MirrorOptions) {
    const {
      path,
      clock,
      health,
      group,
      readonly = false,
      spellings = {},
      statuses = {},
      timezone,
      listPath = '',
      feed,
      role,
    } = options;
    super({ path, clock, readonly, group, feed, role });
    this.health = health(this);
    this.watch = new MirrorWatch({ path, clock, alarms: this.health });
    this.#spellings = compileSpellings(spellings, timezone, statuses);
    this.#import = new OrderImport({ file: this, spellings, statuses, timezone, listPath });
    this.orders = new OrderStore(this);
    this.polls = new PollStore(this, this.health);
    this.listed = new ListedOrders(this);
    this.quarantine = new QuarantineStore(this);
    this.customers = new CustomerStore({
      file: this,
      spellings: this.#spellings,
      vacuum: () => this.#import.vacuum(),
    });
  }

  async save(entries: readonly IncomingEntry[]): Promise<SaveOutcome[]> {
    if (entries.length === 0) return [];
    const { clock } = this;
    const nowMs = clock.monotonicMs();
    const isFresh =
      nowMs - this.#webhookFreshMs >= FRESHNESS_EVERY_MS &&
      entries.some((entry) => entry.kind === 'order' && entry.observation.source === 'webhook');
    const outcomes = await this.writeNow((db) => {
      const now = isoUtc(clock.nowMs());
      const came = { subject: 'orders.webhook', state: 'ok', message: '' } as const;
      if (isFresh) this.health.put(db, { ...came, lastOkAt: now, lastTryAt: now });
      const shared = { places: new LinePlaces(db), isFed: isFeeding(db) };
      return entries.map((entry) => this.#keepOne(db, entry, shared));
    });
    if (isFresh) this.#webhookFreshMs = nowMs;
    return outcomes;
  }

  #keepOne(db: Database.Database, entry: IncomingEntry, shared: MergeOptions): SaveOutcome {
    if (entry.kind === 'unreadable') {
      quarantine(db, entry.unreadable);
      return 'quarantined';
    }
    return mergeOrder(db, entry.observation, this.#spellings, null, shared);
  }

  /**
   * Mirrors a whole answer of GET /order/all without delaying callbacks. A large `body` is transferred to another
   * thread, which leaves the array empty.
   */
  importAnswer(body: Uint8Array, options: ImportOptions): Promise<ImportReport> {
    return this.#import.importAnswer(body, options);
  }

  /** Judges callbacks again that wait while polls are silent. Returns the ids of the orders that this changed. */
  async judgeHeldAgain(): Promise<string[]> {
    const nowMs = this.clock.nowMs();
    if (!this.read((db) => mayJudgeHeldAgain(db, nowMs))) return [];
    return this.write((db) => judgeHeldAgain(db, this.#spellings, nowMs));
  }

  /** Returns whether the write-ahead log may grow. A large one is truncated first, which a reader may prevent. */
  hasRoomInWal(): boolean {
    return this.read(hasRoomInWal);
  }

  /** Returns the size of the write-ahead log in bytes. */
  walBytes(): number {
    return walBytes(this.path);
  }

  /**
   * Stops a running import between two transactions, writes pending reports, and closes. The file stays readable for
   * others.
   */
  async close(): Promise<void> {
    this.watch.close();
    await this.#import.stop();
    await this.health.flush();
    this.closeFile();
  }
}
