import type Database from 'better-sqlite3';
import { type Branch, type BranchDirectory, branchDirectory } from '../../domain/product/catalog-lookup.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { CatalogQueries } from '../../store/catalog/catalog-queries.ts';
import { CatalogStore } from '../../store/catalog/catalog-store.ts';
import { MirrorCatalog } from '../../store/catalog/mirror-catalog.ts';
import { InboxIntake } from '../../store/inbox/inbox-intake.ts';
import type { Mirror } from '../../store/mirror/mirror.ts';
import { OrderTakings } from '../../store/outbox/order-takings.ts';
import { OutboxClaims } from '../../store/outbox/outbox-claims.ts';
import { OutboxDecisions } from '../../store/outbox/outbox-decisions.ts';
import { OutboxIntake } from '../../store/outbox/outbox-intake.ts';
import { OutboxQueries } from '../../store/outbox/outbox-queries.ts';
import { OutboxSettlement } from '../../store/outbox/outbox-settlement.ts';
import { lazily } from './lazily.ts';

/** The statements of catalogue and outbox on one connection to the mirror. */
export interface Stores {
  db: Database.Database;
  catalog: CatalogStore;
  catalogQueries: CatalogQueries;
  lookup: MirrorCatalog;
  intake: OutboxIntake;
  claims: OutboxClaims;
  settlement: OutboxSettlement;
  decisions: OutboxDecisions;
  queries: OutboxQueries;
  takings: OrderTakings;
  inbox: InboxIntake;
}

export interface MirrorStoresOptions {
  mirror: Pick<Mirror, 'read' | 'write'>;
  branches: readonly Branch[];
  clock: Clock;
  /** By how much the platform's clock is ahead of this machine's; undefined: not known. */
  skewMs?: (() => number | undefined) | undefined;
}

/** Catalogue and outbox in the mirror's file. A connection that is opened anew gets statements anew. */
export class MirrorStores {
  readonly directory: BranchDirectory;
  readonly #options: MirrorStoresOptions;
  readonly #stores = new WeakMap<Database.Database, Stores>();

  constructor(options: MirrorStoresOptions) {
    this.#options = options;
    this.directory = branchDirectory(options.branches);
  }

  /** One or a few short reads, at once. */
  read<T>(action: (stores: Stores) => T): T {
    return this.#options.mirror.read(({ db }) => action(this.#of(db)));
  }

  /** One durable transaction; may run more than once, each time from the start. */
  write<T>(action: (stores: Stores) => T): Promise<T> {
    return this.#options.mirror.write(({ db }) => action(this.#of(db)));
  }

  #of(db: Database.Database): Stores {
    const known = this.#stores.get(db);
    if (known) return known;
    const { clock, branches, skewMs } = this.#options;
    const outgoing = { db, clock, branches: this.directory, skewMs };
    // Few are needed to start, and to prepare the statements of all of them takes long.
    const stores = lazily<Stores>({
      db: () => db,
      catalog: () => new CatalogStore({ db, clock }),
      catalogQueries: () => new CatalogQueries(db),
      lookup: () => new MirrorCatalog({ db, branches }),
      intake: () => new OutboxIntake({ db, clock }),
      claims: () => new OutboxClaims(outgoing),
      settlement: () => new OutboxSettlement({ db, clock }),
      decisions: () => new OutboxDecisions({ db, clock }),
      queries: () => new OutboxQueries(db),
      takings: () => new OrderTakings(outgoing),
      inbox: () => new InboxIntake({ db, clock, branches }),
    });
    this.#stores.set(db, stores);
    return stores;
  }
}
