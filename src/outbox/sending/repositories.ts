import type Database from 'better-sqlite3';
import { CatalogStore, MirrorCatalog } from '../../catalog/catalog-store.ts';
import { type Branch, type BranchDirectory, branchDirectory } from '../../catalog/product.ts';
import { CatalogQueries } from '../../catalog/product-rows.ts';
import type { Clock } from '../../core/time.ts';
import { Audit } from '../../db/audit.ts';
import type { Mirror } from '../../orders/reading/mirror.ts';
import { GUARDS_OFF, type GuardSettings } from '../intake/guards.ts';
import { InboxIntake, OutboxIntake } from '../intake/intake.ts';
import { Reservations } from '../ledger/reservations.ts';
import { StockDifferences } from '../ledger/stock-differences.ts';
import { type SafetyRule, SafetyStock, StockLedger, StockLooks } from '../ledger/stock-ledger.ts';
import { OutboxDispatcher } from './dispatch.ts';
import { OutboxAdmin } from './outbox-admin.ts';
import { OutboxQueries } from './outbox-queries.ts';

interface MirrorStoresOptions {
  mirror: Pick<Mirror, 'read' | 'write' | 'writeDerived'>;
  branches: readonly Branch[];
  /** See `BranchDirectory`. */
  areApart?: boolean;
  /** Name of this branch at its hub; left out if there is no hub. */
  ownName?: string | undefined;
  /** Zone of counts' times that name none. Without it, such a time is refused. */
  timezone?: string | undefined;
  clock: Clock;
  /** Milliseconds by which the platform's clock is ahead of this machine's; undefined if unknown. */
  skewMs?: (() => number | undefined) | undefined;
  /** Safety stock from the configuration. Undefined leaves the stored rules as they are. */
  safety?: readonly SafetyRule[] | undefined;
  /** Time for which an edit of an order is held back from counts if the POS does not acknowledge it. */
  editHoldMs?: number | undefined;
  /** Guards that judge a change when its product is found. Left out if no guard judges. */
  guards?: GuardSettings | undefined;
}

/** The tables of catalogue and outbox on one connection to the mirror. */
export class Stores {
  readonly db: Database.Database;
  readonly lookup: MirrorCatalog;
  readonly reservations: Reservations;
  readonly safety: SafetyStock;
  readonly ledger: StockLedger;
  readonly differences: StockDifferences;
  readonly looks: StockLooks;
  readonly intake: OutboxIntake;
  readonly inbox: InboxIntake;
  readonly dispatcher: OutboxDispatcher;
  readonly admin: OutboxAdmin;
  readonly queries: OutboxQueries;
  readonly audit: Audit;
  readonly clock: Clock;
  readonly #branches: readonly Branch[];
  #catalog: CatalogStore | undefined;
  #catalogQueries: CatalogQueries | undefined;

  constructor(
    db: Database.Database,
    {
      branches,
      areApart,
      ownName,
      timezone,
      clock,
      skewMs,
      safety,
      editHoldMs,
      guards = GUARDS_OFF,
    }: Omit<MirrorStoresOptions, 'mirror'>,
  ) {
    this.db = db;
    this.clock = clock;
    this.#branches = branches;
    this.lookup = new MirrorCatalog({ db, branches });
    const directory = branchDirectory(branches, areApart);
    const options = {
      db,
      clock,
      catalog: this.lookup,
      branches: directory,
      ownName,
      timezone,
      skewMs,
      safety,
      editHoldMs,
    };
    this.safety = new SafetyStock(db, ownName === undefined);
    this.ledger = new StockLedger(db);
    this.differences = new StockDifferences(db);
    this.looks = new StockLooks({ db, ledger: this.ledger, clock });
    this.reservations = new Reservations(options);
    this.intake = new OutboxIntake(options);
    this.inbox = new InboxIntake(options, this.intake, this.reservations);
    this.dispatcher = new OutboxDispatcher(options);
    this.admin = new OutboxAdmin({ ...options, guards });
    this.queries = new OutboxQueries(db);
    this.audit = new Audit(options);
  }

  // These classes prepare all their statements when they are created, so they are created on first use.
  get catalog(): CatalogStore {
    this.#catalog ??= new CatalogStore({ db: this.db, branches: this.#branches, clock: this.clock });
    return this.#catalog;
  }

  get catalogQueries(): CatalogQueries {
    this.#catalogQueries ??= new CatalogQueries(this.db);
    return this.#catalogQueries;
  }
}

/** Gives access to catalogue and outbox in the mirror. If the mirror is opened again, all statements are made anew. */
export class MirrorStores {
  readonly directory: BranchDirectory;
  readonly clock: Clock;
  readonly #options: MirrorStoresOptions;
  readonly #stores = new WeakMap<Database.Database, Stores>();

  constructor(options: MirrorStoresOptions) {
    this.#options = options;
    this.directory = branchDirectory(options.branches, options.areApart);
    this.clock = options.clock;
  }

  /** Reads from the mirror. `action` should run only a few short queries. */
  read<T>(action: (stores: Stores) => T): T {
    return this.#options.mirror.read((db) => action(this.#of(db)));
  }

  /** Runs one durable transaction. `action` may run more than once, each time from the start. */
  write<T>(action: (stores: Stores) => T): Promise<T> {
    return this.#options.mirror.write((db) => action(this.#of(db)));
  }

  /** Runs one transaction that only works off what is stored; see `MirrorFile.writeDerived`. */
  writeDerived<T>(action: (stores: Stores) => T): Promise<T> {
    return this.#options.mirror.writeDerived((db) => action(this.#of(db)));
  }

  #of(db: Database.Database): Stores {
    const stores = this.#stores.get(db) ?? new Stores(db, this.#options);
    this.#stores.set(db, stores);
    return stores;
  }
}
