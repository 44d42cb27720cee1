import type Database from 'better-sqlite3';
import { CatalogStore, MirrorCatalog } from '../catalog/catalog-store.ts';
import { type Branch, type BranchDirectory, branchDirectory } from '../catalog/product.ts';
import { CatalogQueries } from '../catalog/product-rows.ts';
import type { Clock } from '../core/time.ts';
import { BootTime, type Holders, LeaseRows, type Leases, systemHolders } from '../db/lease.ts';
import { openStateFile } from '../db/state-file.ts';
import {
  type AlarmMemoryStore,
  AlarmRows,
  AlarmTestRows,
  type AlarmTestWishes,
  AsideRows,
} from '../health/alarm-news.ts';
import { CallbackRows, type CallbackStore } from '../orders/callbacks.ts';
import type { Mirror } from '../orders/mirror.ts';
import { FeedRows } from '../orders/mirror-file.ts';
import type { FeedMemory } from '../orders/order.ts';
import { type WebhookMemoryStore, WebhookRows } from '../orders/webhook.ts';
import { OutboxClaims } from '../outbox/claims.ts';
import { OutboxDecisions } from '../outbox/decisions.ts';
import { InboxIntake } from '../outbox/inbox-intake.ts';
import { OutboxIntake } from '../outbox/intake.ts';
import { OrderTakings } from '../outbox/order-takings.ts';
import { OutboxQueries } from '../outbox/outbox-queries.ts';
import { OutboxSettlement } from '../outbox/settlement.ts';
import { RateLedger } from '../platform/rate-budget.ts';
import { TokenRows, type TokenStore } from '../platform/tokens.ts';

/** An object whose parts are made when each is first asked for, and kept. */
export function lazily<T extends object>(makers: { readonly [K in keyof T]: () => T[K] }): T {
  const parts = {} as T;
  for (const name of Object.keys(makers) as (keyof T)[]) {
    Object.defineProperty(parts, name, {
      configurable: true,
      enumerable: true,
      get() {
        const value = makers[name]();
        Object.defineProperty(parts, name, { value, enumerable: true });
        return value;
      },
    });
  }
  return parts;
}

export interface StateOptions {
  path: string;
  clock: Clock;
  /** How long one statement may block the event loop on another process's lock; callers then retry. */
  busyTimeoutMs?: number;
  /** Who holds lanes and leases; the machine's processes unless a simulation says otherwise. */
  holders?: Holders;
  /** Told of every token and webhook secret that is read or about to be stored, so that a log can hide it. */
  onSecret?: ((value: string) => void) | undefined;
}

/** What all processes of one company share. */
export interface State {
  ledger: RateLedger;
  tokens: TokenStore;
  leases: Leases & Pick<LeaseRows, 'isHeld' | 'holder'>;
  webhook: WebhookMemoryStore;
  alarms: AlarmMemoryStore;
  alarmTests: AlarmTestWishes;
  feed: FeedMemory;
  /** Alarms that the mirror could not take. */
  aside: Pick<AsideRows, 'list' | 'replace'>;
  callbacks: CallbackStore;
  close(): void;
}

const BUSY_TIMEOUT_MS = 20;

/**
 * Opens or creates state.db. May throw `storage-busy` while another process creates or upgrades it; try again
 * then. Throws `storage-corrupt` and `storage-newer` without touching the file.
 */
export function openState(options: StateOptions): State {
  const { clock, holders = systemHolders, onSecret } = options;
  const file = openStateFile(options.path, options.busyTimeoutMs ?? BUSY_TIMEOUT_MS);
  const { db } = file;
  const time = new BootTime({ db, clock });
  const leases = new LeaseRows({ db, time, holders });
  return {
    ledger: new RateLedger({ db, time, holders }),
    tokens: new TokenRows({ db, clock, leases, onSecret }),
    leases,
    webhook: new WebhookRows({ db, onSecret }),
    alarms: new AlarmRows({ db }),
    alarmTests: new AlarmTestRows({ db }),
    feed: new FeedRows({ db }),
    aside: new AsideRows({ db }),
    callbacks: new CallbackRows({ db }),
    close: () => file.close(),
  };
}

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
    return this.#options.mirror.read((db) => action(this.#of(db)));
  }

  /** One durable transaction; may run more than once, each time from the start. */
  write<T>(action: (stores: Stores) => T): Promise<T> {
    return this.#options.mirror.write((db) => action(this.#of(db)));
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
