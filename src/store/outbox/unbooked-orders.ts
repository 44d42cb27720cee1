import type Database from 'better-sqlite3';
import {
  type Count,
  type SellableStock,
  sellableStock,
  type Taking,
  takesNothing,
} from '../../domain/change/hold-back.ts';
import { isEnded } from '../../domain/order/order-status.ts';
import type { BranchDirectory } from '../../domain/product/catalog-lookup.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';

/** By how much the platform's clock may be ahead without being called wrong. */
const AHEAD_MAX_MS = 2_000;
/** Without an agreeing clock an order is taken to be heard of at most this late. */
const HEARD_AFTER_MS = 120_000;

interface TakenItem {
  storeExternalId: string | null;
  /** When the order was placed, by this machine's clock as far as that can be told. */
  placedMs: number;
  taking: Taking;
}

interface TakenRow {
  externalId: string | null;
  name: string | null;
  storeExternalId: string | null;
  quantity: number | string | null;
  status: string | null;
  createdAt: string | null;
  acknowledged: number;
  firstSeq: number;
  firstObservedAt: string | null;
}

export interface AckResult {
  orderId: string;
  /** `new`: acknowledged now; `known`: it was before; `unheard`: the mirror has no such order (yet). */
  state: 'new' | 'known' | 'unheard';
}

/** The orders that the POS has not booked, and what they took. Transactions are the caller's. */
export class UnbookedOrders {
  readonly #clock: Clock;
  readonly #branches: BranchDirectory;
  readonly #seen: Database.Statement<[], number>;
  readonly #setSeen: Database.Statement<[number]>;
  readonly #newest: Database.Statement<[], number>;
  readonly #openOrders: Database.Statement<[], { orderId: string; status: string | null }>;
  readonly #add: Database.Statement<[string]>;
  readonly #addSince: Database.Statement<[number, number]>;
  readonly #taken: Database.Statement<[], TakenRow>;
  readonly #ack: Database.Statement<[string, string, string]>;
  readonly #book: Database.Statement<[string]>;
  readonly #order: Database.Statement<[string], number>;
  readonly #prune: Database.Statement<[number]>;
  readonly #clear: Database.Statement;
  readonly #nameOf: Database.Statement<[string], string | null>;
  readonly #isStocked: Database.Statement<[string], number>;
  #takenItems = new Map<string, TakenItem[]>();
  /** Of items without an id, by the product's name. */
  #takenByName = new Map<string, TakenItem[]>();

  constructor(options: { db: Database.Database; clock: Clock; branches: BranchDirectory }) {
    const { db } = options;
    this.#clock = options.clock;
    this.#branches = options.branches;
    this.#seen = db.prepare<[], number>("SELECT value FROM marks WHERE name = 'orders.seen'").pluck();
    this.#setSeen = db.prepare("UPDATE marks SET value = ? WHERE name = 'orders.seen'");
    this.#newest = db.prepare<[], number>('SELECT coalesce(max(seq), 0) FROM order_events').pluck();
    this.#openOrders = db.prepare('SELECT order_id AS orderId, status FROM orders');
    this.#add = db.prepare(`
      INSERT OR IGNORE INTO unbooked_orders (order_id, first_seq, acknowledged)
      SELECT order_id, coalesce((SELECT min(e.seq) FROM order_events e WHERE e.order_id = orders.order_id), seq),
        EXISTS (SELECT 1 FROM order_acks a WHERE a.order_id = orders.order_id)
      FROM orders WHERE order_id = ?`);
    // One that is new, or comes back to life after it was cancelled, takes from now on. One that moves on and is not
    // here was acknowledged and forgotten, or had ended before it all began: it is part of every count that lives.
    this.#addSince = db.prepare(`
      INSERT INTO unbooked_orders (order_id, first_seq, acknowledged)
      SELECT order_id, max(seq), EXISTS (SELECT 1 FROM order_acks a WHERE a.order_id = e.order_id)
      FROM order_events e WHERE seq > ? AND seq <= ?
        AND (previous_status IS NULL OR previous_status IN ('cancel', 'refund', 'payment-canceled'))
      GROUP BY order_id
      ON CONFLICT (order_id) DO UPDATE SET first_seq = excluded.first_seq
        WHERE excluded.first_seq > unbooked_orders.first_seq`);
    this.#taken = db.prepare(`
      SELECT i.product_external_id AS externalId, i.product_name AS name,
        o.store_external_id AS storeExternalId, i.quantity, o.status, o.created_at AS createdAt,
        u.acknowledged, u.first_seq AS firstSeq, e.observed_at AS firstObservedAt
      FROM unbooked_orders u CROSS JOIN orders o USING (order_id) CROSS JOIN order_items i USING (order_id)
        LEFT JOIN order_events e ON e.seq = u.first_seq
      WHERE i.product_external_id IS NOT NULL OR i.product_name IS NOT NULL`);
    this.#clear = db.prepare('DELETE FROM unbooked_orders');
    this.#nameOf = db
      .prepare<[string], string | null>(
        'SELECT name FROM skus JOIN products USING (product_id) WHERE sku = ?',
      )
      .pluck();
    this.#isStocked = db
      .prepare<[string], number>('SELECT 1 FROM stocks WHERE subsidiary_id = ? LIMIT 1')
      .pluck();
    this.#ack = db.prepare(`
      INSERT INTO order_acks (order_id, acked_at, source) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`);
    this.#book = db.prepare('UPDATE unbooked_orders SET acknowledged = 1 WHERE order_id = ?');
    this.#order = db.prepare<[string], number>('SELECT 1 FROM orders WHERE order_id = ?').pluck();
    // An acknowledged order matters only while a count that is older than it may still be sent. A cancelled one
    // takes nothing; should it come back to life, the feed says so.
    this.#prune = db.prepare(`
      DELETE FROM unbooked_orders WHERE (acknowledged = 1 AND first_seq <= (
        SELECT coalesce(min(as_of_seq), 9223372036854775807) FROM (
          SELECT as_of_seq FROM outbox WHERE kind = 'stock' AND state = 'pending' AND held_guard IS NULL
          UNION ALL SELECT as_of_seq FROM outbox WHERE kind = 'stock' AND state = 'pending' AND held_guard IS NOT NULL
          UNION ALL SELECT as_of_seq FROM outbox WHERE kind = 'stock' AND state = 'sending'
          UNION ALL SELECT as_of_seq FROM outbox WHERE kind = 'stock' AND state = 'rejected'
          UNION ALL SELECT as_of_seq FROM held_back_counts)))
        OR (first_seq <= ? AND EXISTS (SELECT 1 FROM orders o WHERE o.order_id = unbooked_orders.order_id
          AND o.status IN ('cancel', 'refund', 'payment-canceled')))`);
  }

  /** Records that the POS has booked these orders. */
  acknowledge(orderIds: readonly string[], source: string): AckResult[] {
    const at = isoUtc(this.#clock.nowMs());
    return orderIds.map((orderId) => {
      const isNew = this.#ack.run(orderId, at, source).changes > 0;
      this.#book.run(orderId);
      const isHeardOf = this.#order.get(orderId) !== undefined;
      return { orderId, state: !isHeardOf ? 'unheard' : isNew ? 'new' : 'known' };
    });
  }

  /**
   * The first time, when the hold-back has just been switched on: orders that have ended count as booked, all open
   * ones as not. From then on every order counts until it is booked.
   */
  begin(): void {
    if ((this.#seen.get() ?? -1) >= 0) return;
    for (const { orderId, status } of this.#openOrders.all()) if (!isEnded(status)) this.#add.run(orderId);
    this.#setSeen.run(this.#newest.get() ?? 0);
  }

  /** False: it had not begun. */
  end(): boolean {
    if ((this.#seen.get() ?? -1) < 0) return false;
    this.#clear.run();
    this.#setSeen.run(-1);
    return true;
  }

  /** Takes in what the order feed has brought, for `sellable`. */
  catchUp(): void {
    this.begin();
    const seen = this.#seen.get() ?? 0;
    const newest = this.#newest.get() ?? 0;
    if (newest > seen) this.#addSince.run(seen, newest);
    if (newest !== seen) this.#setSeen.run(newest);
    this.#takenItems = new Map();
    this.#takenByName = new Map();
    for (const row of this.#taken.iterate()) {
      const quantity = Number(row.quantity);
      if (row.quantity === null || !Number.isFinite(quantity) || quantity <= 0) continue;
      const { externalId, name, status, firstSeq, storeExternalId } = row;
      const taking: Taking = { quantity, status, firstSeq, acknowledged: row.acknowledged === 1 };
      const item = { storeExternalId, placedMs: placedMs(row), taking };
      if (externalId !== null) add(this.#takenItems, externalId, item);
      else if (name !== null) add(this.#takenByName, name, item);
    }
  }

  /** What of a count may be sold, for a product in a branch. */
  sellable(count: Count, of: SoldPlace): SellableStock {
    return sellableStock(count, this.#takings(of));
  }

  /** Whether an order of it that was heard of after the event `seq` for the first time is cancelled. */
  isCancelledSince(seq: number, of: SoldPlace): boolean {
    return this.#takings(of).some(({ firstSeq, status }) => firstSeq > seq && takesNothing(status));
  }

  #takings(of: SoldPlace): Taking[] {
    const items = of.externalIds.flatMap((externalId) => this.#takenItems.get(externalId) ?? []);
    if (this.#takenByName.size > 0 && of.sku !== null) {
      // An item with modifiers carries no id. Where the product has several skus it may be any of them.
      items.push(...(this.#takenByName.get(this.#nameOf.get(of.sku) ?? '') ?? []));
    }
    const ours = items.filter(
      ({ placedMs, storeExternalId, taking }) =>
        (placedMs <= of.placedUntilMs || taking.firstSeq <= of.heardUntilSeq) &&
        this.#isBranch(storeExternalId, of.branch),
    );
    return ours.map(({ taking }) => taking);
  }

  /** Forgets acknowledged orders that every living count includes, and cancelled ones first heard of until `judgedSeq`. */
  prune(judgedSeq: number): number {
    return this.#prune.run(judgedSeq).changes;
  }

  /**
   * `store.externalId` of an order is the branch's external id, or the internal one when it has none. A store that
   * nobody has heard of may be any branch whose external id the configuration does not tell: what may have been
   * sold there is held back, for to sell too little is better than to sell what is gone.
   */
  #isBranch(store: string | null, { subsidiaryId, subsidiaryExternalId }: BranchName): boolean {
    if (store === null || (subsidiaryId === null && subsidiaryExternalId === null)) return true;
    if (store === subsidiaryId || store === subsidiaryExternalId) return true;
    if (subsidiaryId === null) return false;
    const externalId = this.#branches.externalIdOf(subsidiaryId);
    if (externalId !== undefined) return store === externalId;
    return this.#branches.idOf(store) === undefined && this.#isStocked.get(store) === undefined;
  }
}

/** A branch by what is known of it. */
export interface BranchName {
  subsidiaryId: string | null;
  subsidiaryExternalId: string | null;
}

export interface SoldPlace {
  /** Every id under which an order may name the product in the branch. */
  externalIds: readonly string[];
  sku: string | null;
  /** null for both: whichever it is in. */
  branch: BranchName;
  /** Orders that were placed later are left out; Infinity: none is. */
  placedUntilMs: number;
  /** But those heard of until this event are not. */
  heardUntilSeq: number;
}

function add(items: Map<string, TakenItem[]>, key: string, item: TakenItem): void {
  const there = items.get(key);
  if (there) there.push(item);
  else items.set(key, [item]);
}

/** An order cannot be heard of before it is placed: where it seems so, the two clocks do not agree. */
function placedMs({ createdAt, firstObservedAt }: TakenRow): number {
  const createdMs = createdAt === null ? Number.NaN : Date.parse(createdAt);
  const heardMs = firstObservedAt === null ? Number.NaN : Date.parse(firstObservedAt);
  if (Number.isNaN(createdMs)) return Number.NEGATIVE_INFINITY;
  if (Number.isNaN(heardMs)) return createdMs;
  if (createdMs - heardMs > AHEAD_MAX_MS) return heardMs - HEARD_AFTER_MS;
  return Math.min(createdMs, heardMs);
}
