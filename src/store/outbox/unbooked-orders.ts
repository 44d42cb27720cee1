import type Database from 'better-sqlite3';
import type { BranchDirectory } from '../../domain/catalog-lookup.ts';
import { type Clock, isoUtc } from '../../domain/clock.ts';
import { type Count, type SellableStock, sellableStock, type Taking } from '../../domain/hold-back.ts';
import { isEnded } from '../../domain/order-status.ts';

interface TakenItem {
  storeExternalId: string | null;
  taking: Taking;
}

interface TakenRow {
  externalId: string;
  storeExternalId: string | null;
  quantity: number | string | null;
  status: string | null;
  acknowledged: number;
  firstSeq: number;
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
  readonly #prune: Database.Statement<[]>;
  #takenItems = new Map<string, TakenItem[]>();

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
      SELECT order_id, seq, EXISTS (SELECT 1 FROM order_acks a WHERE a.order_id = orders.order_id)
      FROM orders WHERE order_id = ?`);
    this.#addSince = db.prepare(`
      INSERT OR IGNORE INTO unbooked_orders (order_id, first_seq, acknowledged)
      SELECT order_id, min(seq), EXISTS (SELECT 1 FROM order_acks a WHERE a.order_id = e.order_id)
      FROM order_events e WHERE seq > ? AND seq <= ? GROUP BY order_id`);
    this.#taken = db.prepare(`
      SELECT i.product_external_id AS externalId, o.store_external_id AS storeExternalId, i.quantity, o.status,
        u.acknowledged, u.first_seq AS firstSeq
      FROM unbooked_orders u CROSS JOIN orders o USING (order_id) CROSS JOIN order_items i USING (order_id)
      WHERE i.product_external_id IS NOT NULL`);
    this.#ack = db.prepare(`
      INSERT INTO order_acks (order_id, acked_at, source) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`);
    this.#book = db.prepare('UPDATE unbooked_orders SET acknowledged = 1 WHERE order_id = ?');
    this.#order = db.prepare<[string], number>('SELECT 1 FROM orders WHERE order_id = ?').pluck();
    // An acknowledged order matters only while a count that is older than it may still be sent.
    this.#prune = db.prepare(`
      DELETE FROM unbooked_orders WHERE acknowledged = 1 AND first_seq <= (
        SELECT coalesce(min(as_of_seq), 9223372036854775807) FROM (
          SELECT as_of_seq FROM outbox WHERE kind = 'stock' AND state IN ('pending', 'sending')
          UNION ALL SELECT as_of_seq FROM held_back_counts))`);
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
   * Takes in what the order feed has brought, for `sellable`. The first time, when the hold-back has just been
   * switched on, orders that have ended count as booked, all open ones as not.
   */
  catchUp(): void {
    const seen = this.#seen.get() ?? -1;
    const newest = this.#newest.get() ?? 0;
    if (seen < 0) {
      for (const { orderId, status } of this.#openOrders.all()) if (!isEnded(status)) this.#add.run(orderId);
    } else if (newest > seen) {
      this.#addSince.run(seen, newest);
    }
    if (newest !== seen) this.#setSeen.run(newest);
    this.#takenItems = new Map();
    for (const row of this.#taken.iterate()) {
      const quantity = Number(row.quantity);
      if (row.quantity === null || !Number.isFinite(quantity) || quantity <= 0) continue;
      const { status, firstSeq, storeExternalId } = row;
      const taking: Taking = { quantity, status, firstSeq, acknowledged: row.acknowledged === 1 };
      const items = this.#takenItems.get(row.externalId);
      if (items) items.push({ storeExternalId, taking });
      else this.#takenItems.set(row.externalId, [{ storeExternalId, taking }]);
    }
  }

  /** What of a count may be sold, for a product with these ids in a branch (null: whichever it is in). */
  sellable(count: Count, externalIds: readonly string[], branch: BranchName): SellableStock {
    const items = externalIds.flatMap((externalId) => this.#takenItems.get(externalId) ?? []);
    const ours = items.filter((item) => this.#isBranch(item.storeExternalId, branch));
    return sellableStock(
      count,
      ours.map((item) => item.taking),
    );
  }

  /** Forgets acknowledged orders that every living count includes. */
  prune(): number {
    return this.#prune.run().changes;
  }

  /** `store.externalId` of an order is the branch's external id, or the internal one when it has none. */
  #isBranch(store: string | null, { subsidiaryId, subsidiaryExternalId }: BranchName): boolean {
    if (store === null || (subsidiaryId === null && subsidiaryExternalId === null)) return true;
    if (store === subsidiaryId || store === subsidiaryExternalId) return true;
    if (subsidiaryId === null) return false;
    const externalId = this.#branches.externalIdOf(subsidiaryId);
    return externalId === undefined ? this.#branches.onlyId === subsidiaryId : store === externalId;
  }
}

/** A branch by what is known of it. */
export interface BranchName {
  subsidiaryId: string | null;
  subsidiaryExternalId: string | null;
}
