import type Database from 'better-sqlite3';
import type { BranchDirectory } from '../catalog/product.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { IS_OPEN, takesNothing } from '../orders/order.ts';

/** Two clocks that are said to agree may differ by this much: an order may have been placed so much earlier. */
const CLOCKS_MARGIN_MS = 30_000;
/** Events of the feed, or orders to be looked up again, that one transaction takes in. */
const PART = 500;

export interface AckResult {
  orderId: string;
  /** `new`: acknowledged now; `known`: it was before; `unheard`: the mirror has no such order (yet). */
  state: 'new' | 'known' | 'unheard';
}

export interface OrderTakingsOptions {
  db: Database.Database;
  clock: Clock;
  branches: BranchDirectory;
  /** By how much the platform's clock is ahead of this machine's, as its answers show; undefined: nobody knows. */
  skewMs?: (() => number | undefined) | undefined;
}

interface OrderEvent {
  seq: number;
  orderId: string;
  status: string | null;
  previousStatus: string | null;
  observedAt: string;
}

interface OrderItem {
  externalId: string | null;
  name: string | null;
  quantity: number | string | null;
}

interface Place {
  sku: string;
  subsidiaryId: string;
}

type Taking = Place & { qty: number };

/**
 * What orders take of which stock, in `ledger_orders` and `order_takings`, brought up to date from the order feed.
 * Transactions are the caller's.
 */
export class OrderTakings {
  readonly #clock: Clock;
  readonly #branches: BranchDirectory;
  readonly #skewMs: () => number | undefined;
  readonly #mark: Database.Statement<[string], number>;
  readonly #setMark: Database.Statement<[number, string]>;
  readonly #newest: Database.Statement<[], number>;
  readonly #events: Database.Statement<[number, number], OrderEvent>;
  readonly #openOrders: Database.Statement<[], { orderId: string; seq: number }>;
  readonly #known: Database.Statement<[string], { takes: number }>;
  readonly #isBooked: Database.Statement<[string], number>;
  readonly #put: Database.Statement;
  readonly #setState: Database.Statement;
  readonly #book: Database.Statement<[string]>;
  readonly #bookAll: Database.Statement<[]>;
  readonly #forgetCounts: Database.Statement<[]>;
  readonly #order: Database.Statement<
    [string],
    { seq: number; store: string | null; createdAt: string | null }
  >;
  readonly #items: Database.Statement<[string], OrderItem>;
  readonly #placesOfId: Database.Statement<[string, string, string], Place>;
  readonly #placesOfName: Database.Statement<[string], Place>;
  readonly #isStocked: Database.Statement<[string], number>;
  readonly #takings: Database.Statement<[string], Taking>;
  readonly #dropTakings: Database.Statement<[string]>;
  readonly #addTaking: Database.Statement;
  readonly #setPlaced: Database.Statement<[number, string]>;
  readonly #touch: Database.Statement<[string]>;
  readonly #ack: Database.Statement<[string, string, string]>;
  readonly #sweptMs: Database.Statement<[], number>;
  readonly #setStale: Database.Statement<[]>;
  readonly #stale: Database.Statement<[number], string>;
  readonly #collect: Database.Statement<[{ seq: number; limit: number }], string>;
  readonly #drop: Database.Statement<[string]>;
  readonly #sweptSeq: Database.Statement<[], number | null>;

  constructor({ db, clock, branches, skewMs = () => 0 }: OrderTakingsOptions) {
    this.#clock = clock;
    this.#branches = branches;
    this.#skewMs = skewMs;
    this.#mark = db.prepare<[string], number>('SELECT value FROM marks WHERE name = ?').pluck();
    this.#setMark = db.prepare('UPDATE marks SET value = ? WHERE name = ?');
    this.#newest = db
      .prepare<[], number>(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0)",
      )
      .pluck();
    this.#events = db.prepare(`
      SELECT seq, order_id AS orderId, status, previous_status AS previousStatus, observed_at AS observedAt
      FROM order_events WHERE seq > ? ORDER BY seq LIMIT ?`);
    this.#openOrders = db.prepare(`
      SELECT order_id AS orderId,
        coalesce((SELECT min(e.seq) FROM order_events e WHERE e.order_id = orders.order_id), seq) AS seq
      FROM orders INDEXED BY orders_open
      WHERE ${IS_OPEN}`);
    this.#known = db.prepare('SELECT takes FROM ledger_orders WHERE order_id = ?');
    this.#isBooked = db.prepare<[string], number>('SELECT 1 FROM order_acks WHERE order_id = ?').pluck();
    this.#put = db.prepare(`
      INSERT INTO ledger_orders (order_id, takes, booked, placed_ms, live_since_seq, changed_seq)
      VALUES (@orderId, @takes, @booked, @placedMs, @liveSinceSeq, @changedSeq)
      ON CONFLICT (order_id) DO UPDATE SET takes = excluded.takes, booked = excluded.booked`);
    this.#setState = db.prepare(`
      UPDATE ledger_orders SET takes = @takes, live_since_seq = max(live_since_seq, @liveSinceSeq),
        changed_seq = max(changed_seq, @changedSeq)
      WHERE order_id = @orderId`);
    this.#book = db.prepare('UPDATE ledger_orders SET booked = 1 WHERE order_id = ? AND booked = 0');
    this.#bookAll = db.prepare('UPDATE ledger_orders SET booked = 1 WHERE booked = 0');
    this.#forgetCounts = db.prepare('DELETE FROM stock_counts');
    this.#order = db.prepare(
      'SELECT seq, store_external_id AS store, created_at AS createdAt FROM orders WHERE order_id = ?',
    );
    this.#items = db.prepare(`
      SELECT product_external_id AS externalId, product_name AS name, quantity
      FROM order_items WHERE order_id = ?`);
    const placesBy = (column: string) =>
      `SELECT sku, subsidiary_id AS subsidiaryId FROM integrations WHERE ${column} = ?`;
    this.#placesOfId = db.prepare(
      ['ext_id', 'product_id_pos_a', 'product_code_pos_b'].map(placesBy).join(' UNION '),
    );
    this.#placesOfName = db.prepare(`
      SELECT k.sku, k.subsidiary_id AS subsidiaryId
      FROM products p CROSS JOIN skus s USING (product_id) CROSS JOIN stocks k USING (sku) WHERE p.name = ?`);
    this.#isStocked = db
      .prepare<[string], number>('SELECT 1 FROM stocks WHERE subsidiary_id = ? LIMIT 1')
      .pluck();
    this.#takings = db.prepare(
      'SELECT sku, subsidiary_id AS subsidiaryId, qty FROM order_takings WHERE order_id = ?',
    );
    this.#dropTakings = db.prepare('DELETE FROM order_takings WHERE order_id = ?');
    this.#addTaking = db.prepare(`
      INSERT INTO order_takings (sku, subsidiary_id, order_id, qty) VALUES (@sku, @subsidiaryId, @orderId, @qty)`);
    this.#setPlaced = db.prepare('UPDATE ledger_orders SET is_unplaced = ?, is_stale = 0 WHERE order_id = ?');
    this.#touch = db.prepare(`
      UPDATE stock_counts SET dirty = 1
      WHERE (sku, subsidiary_id) IN (SELECT sku, subsidiary_id FROM order_takings WHERE order_id = ?)`);
    this.#ack = db.prepare(`
      INSERT INTO order_acks (order_id, acked_at, source) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`);
    this.#sweptMs = db.prepare<[], number>('SELECT coalesce(max(completed_ms), 0) FROM sweeps').pluck();
    this.#setStale = db.prepare('UPDATE ledger_orders SET is_stale = 1 WHERE takes = 1');
    this.#stale = db
      .prepare<[number], string>('SELECT order_id FROM ledger_orders WHERE is_stale = 1 LIMIT ?')
      .pluck();
    // Part of every count that lives, and of every quantity since the catalogue was read whole.
    this.#collect = db
      .prepare<[{ seq: number; limit: number }], string>(
        `SELECT order_id FROM ledger_orders l
         WHERE (l.booked = 1 OR l.takes = 0) AND l.live_since_seq <= @seq AND l.changed_seq <= @seq
           AND NOT EXISTS (SELECT 1 FROM order_takings t JOIN stock_counts n USING (sku, subsidiary_id)
             WHERE t.order_id = l.order_id AND l.takes = 1 AND n.counted_seq < l.live_since_seq)
         LIMIT @limit`,
      )
      .pluck();
    this.#drop = db.prepare('DELETE FROM ledger_orders WHERE order_id = ?');
    this.#sweptSeq = db.prepare<[], number | null>('SELECT min(as_of_seq) FROM sweeps').pluck();
  }

  /** What was confirmed before this event says nothing: what orders took then was not followed. */
  get fromSeq(): number {
    return this.#mark.get('ledger.from') ?? 0;
  }

  /**
   * To be called before a count is taken in and before one is judged. The first time, and when the hold-back is switched
   * on: orders that have ended count as booked, all open ones as not. While it is off, all count as booked.
   */
  begin(holdBack: boolean): void {
    const isOther = this.#mark.get('ledger.holds') !== Number(holdBack);
    if ((this.#mark.get('ledger.seen') ?? -1) < 0 || (isOther && holdBack)) {
      const newest = this.#newest.get() ?? 0;
      this.#setMark.run(newest, 'ledger.seen');
      this.#setMark.run(newest, 'ledger.from');
    }
    if (!isOther) return;
    this.#setMark.run(Number(holdBack), 'ledger.holds');
    this.#bookAll.run();
    this.#forgetCounts.run();
    if (!holdBack) return;
    for (const { orderId, seq } of this.#openOrders.all()) {
      const booked = this.#isBooked.get(orderId) ?? 0;
      this.#put.run({ orderId, takes: 1, booked, placedMs: 0, liveSinceSeq: seq, changedSeq: 0 });
      this.#place(orderId);
    }
  }

  /** Takes in what the order feed and the catalogue have brought. True: there is more, for a next transaction. */
  catchUp(holdBack: boolean): boolean {
    this.begin(holdBack);
    const events = this.#events.all(this.#mark.get('ledger.seen') ?? 0, PART);
    for (const event of events) this.#take(event, holdBack);
    const last = events.at(-1);
    if (last) this.#setMark.run(last.seq, 'ledger.seen');
    if (events.length === PART) return true;
    const sweptMs = this.#sweptMs.get() ?? 0;
    if (sweptMs !== this.#mark.get('ledger.swept')) {
      this.#setMark.run(sweptMs, 'ledger.swept');
      this.#setStale.run();
    }
    const stale = this.#stale.all(PART);
    for (const orderId of stale) this.#place(orderId);
    return stale.length === PART;
  }

  /** Records that the POS has booked these orders. Blanks around an id, which a CHAR column has, are none of it. */
  acknowledge(orderIds: readonly string[], source: string): AckResult[] {
    const at = isoUtc(this.#clock.nowMs());
    return orderIds.map((given) => {
      const orderId = given.trim();
      const isNew = this.#ack.run(orderId, at, source).changes > 0;
      if (this.#book.run(orderId).changes > 0) this.#touch.run(orderId);
      const isHeardOf = this.#order.get(orderId) !== undefined;
      return { orderId, state: !isHeardOf ? 'unheard' : isNew ? 'new' : 'known' };
    });
  }

  /** Forgets orders that nothing needs any more; returns how many. */
  collect(): number {
    const seq = Math.min(this.#sweptSeq.get() ?? 0, this.#mark.get('ledger.seen') ?? 0);
    const collected = this.#collect.all({ seq, limit: PART });
    for (const orderId of collected) {
      this.#dropTakings.run(orderId);
      this.#drop.run(orderId);
    }
    return collected.length;
  }

  #take({ seq, orderId, status, previousStatus, observedAt }: OrderEvent, holdBack: boolean): void {
    const known = this.#known.get(orderId);
    const takes = Number(!takesNothing(status));
    const isBegun = known ? known.takes === 1 : previousStatus !== null && !takesNothing(previousStatus);
    // What is mirrored of its items came with its newest event: an edit may lie between. And one that ends as it is heard
    // of may have taken something all the same.
    const newestSeq = this.#order.get(orderId)?.seq ?? seq;
    const changedSeq = newestSeq > seq ? newestSeq : takes === 0 ? seq : 0;
    if (known) {
      this.#setState.run({ orderId, takes, liveSinceSeq: isBegun ? 0 : takes * seq, changedSeq });
      if (this.#place(orderId)) this.#setState.run({ orderId, takes, liveSinceSeq: 0, changedSeq: seq });
    } else {
      // One that moves on and is not here was booked and forgotten, or ended before it all began.
      if (isBegun && takes === 1 && status !== previousStatus) return;
      const booked = isBegun || !holdBack ? 1 : (this.#isBooked.get(orderId) ?? 0);
      const liveSinceSeq = isBegun ? 0 : seq;
      const placedMs = isBegun ? 0 : this.#placedMs(orderId, observedAt);
      this.#put.run({
        orderId,
        takes,
        booked,
        placedMs,
        liveSinceSeq,
        changedSeq: isBegun ? seq : changedSeq,
      });
      this.#place(orderId);
    }
    this.#touch.run(orderId);
  }

  /** Looks up what the order takes. True when that is not what it was. */
  #place(orderId: string): boolean {
    const before = this.#takings.all(orderId);
    const { takings, isUnplaced } = this.#read(orderId);
    this.#setPlaced.run(Number(isUnplaced), orderId);
    if (sameTakings(before, takings)) return false;
    this.#touch.run(orderId);
    this.#dropTakings.run(orderId);
    for (const taking of takings) this.#addTaking.run({ ...taking, orderId });
    this.#touch.run(orderId);
    return true;
  }

  #read(orderId: string): { takings: Taking[]; isUnplaced: boolean } {
    const store = this.#order.get(orderId)?.store ?? null;
    const takings = new Map<string, Taking>();
    let isUnplaced = false;
    for (const { externalId, name, quantity } of this.#items.all(orderId)) {
      const qty = Number(quantity);
      if (quantity === null || !Number.isFinite(qty) || qty <= 0) continue;
      // An item with modifiers carries no id (document, "Item"). Where the product has several skus it may be any.
      const places =
        externalId !== null
          ? this.#placesOfId.all(externalId, externalId, externalId)
          : name === null
            ? []
            : this.#placesOfName.all(name);
      if (externalId === null && places.length === 0) isUnplaced = true;
      for (const { sku, subsidiaryId } of places) {
        if (!this.#isBranch(store, subsidiaryId)) continue;
        const key = JSON.stringify([sku, subsidiaryId]);
        takings.set(key, { sku, subsidiaryId, qty: exact((takings.get(key)?.qty ?? 0) + qty) });
      }
    }
    return { takings: [...takings.values()], isUnplaced };
  }

  /**
   * `store.externalId` of an order is the branch's external id, or the internal one when it has none. A store that
   * nobody has heard of may be any branch whose external id the configuration does not tell: what may have been
   * sold there is held back, for to sell too little is better than to sell what is gone.
   */
  #isBranch(store: string | null, subsidiaryId: string): boolean {
    if (store === null || store === subsidiaryId) return true;
    const externalId = this.#branches.externalIdOf(subsidiaryId);
    if (externalId !== undefined) return store === externalId;
    return this.#branches.idOf(store) === undefined && this.#isStocked.get(store) === undefined;
  }

  /** The earliest moment at which it may have been placed, by this machine's clock; 0: nobody can tell. */
  #placedMs(orderId: string, observedAt: string): number {
    const createdMs = Date.parse(this.#order.get(orderId)?.createdAt ?? '');
    const placedMs = createdMs - (this.#skewMs() ?? Number.NaN);
    // An order cannot be heard of before it is placed: where it seems so, the two clocks do not agree.
    const isSound = placedMs <= Date.parse(observedAt) + CLOCKS_MARGIN_MS;
    return isSound ? Math.max(0, Math.round(placedMs - CLOCKS_MARGIN_MS)) : 0;
  }
}

function sameTakings(a: readonly Taking[], b: readonly Taking[]): boolean {
  const text = (takings: readonly Taking[]) =>
    JSON.stringify(takings.map(({ sku, subsidiaryId, qty }) => [sku, subsidiaryId, qty]).sort());
  return a.length === b.length && text(a) === text(b);
}

/** Sums of decimal fractions (weights) without the noise of binary ones. */
function exact(quantity: number): number {
  return Number(quantity.toFixed(9));
}
