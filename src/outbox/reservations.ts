import type Database from 'better-sqlite3';
import type { BranchDirectory } from '../catalog/product.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { type Sql, sqlOf } from '../db/sqlite.ts';
import { newestSeq } from '../orders/mirror-file.ts';
import { IS_OPEN, type OrderEvent, takesNothing } from '../orders/order.ts';
import { type Place, placesOfId, type SafetyRule, SafetyStock } from './stock-ledger.ts';

/** Two clocks that are said to agree may differ by this much: an order may have been placed so much earlier. */
const CLOCKS_MARGIN_MS = 30_000;
/** Events of the feed, or orders to be looked up again, that one transaction takes in. */
const PART = 500;

export interface AckResult {
  orderId: string;
  /** `new`: acknowledged now; `known`: it was before; `unheard`: the mirror has no such order (yet). */
  state: 'new' | 'known' | 'unheard';
}

export interface ReservationsOptions {
  db: Database.Database;
  clock: Clock;
  branches: BranchDirectory;
  /** By how much the platform's clock is ahead of this machine's, as its answers show; undefined: nobody knows. */
  skewMs?: (() => number | undefined) | undefined;
  /** The safety stock of the configuration; undefined: it stays as it is. */
  safety?: readonly SafetyRule[] | undefined;
}

type FeedStep = Omit<OrderEvent, 'source'>;

interface OrderItem {
  externalId: string | null;
  name: string | null;
  quantity: number | string | null;
}

interface MirroredOrder {
  seq: number;
  store: string | null;
  createdAt: string | null;
}

/** An order as the ledger has it; the columns of `ledger_orders`. */
interface LedgerOrder {
  orderId: string;
  takes: number;
  booked: number;
  placedMs: number;
  liveSinceSeq: number;
  changedSeq: number;
}

type Reservation = Place & { qty: number };

/**
 * What orders take of which stock, in `ledger_orders` and `order_takings`, brought up to date from the order feed.
 * Transactions are the caller's.
 */
export class Reservations {
  readonly #db: Database.Database;
  readonly #sql: Sql;
  readonly #clock: Clock;
  readonly #branches: BranchDirectory;
  readonly #skewMs: () => number | undefined;
  readonly #safety: readonly SafetyRule[] | undefined;
  readonly #safetyStock: SafetyStock;

  constructor({ db, clock, branches, skewMs = () => 0, safety }: ReservationsOptions) {
    this.#db = db;
    this.#sql = sqlOf(db);
    this.#safety = safety;
    this.#safetyStock = new SafetyStock(db);
    this.#clock = clock;
    this.#branches = branches;
    this.#skewMs = skewMs;
  }

  /** Newest event of the order feed. */
  get newestSeq(): number {
    return newestSeq(this.#db);
  }

  /** What was confirmed before this event says nothing: what orders took then was not followed. */
  get fromSeq(): number {
    return this.#mark('ledger.from');
  }

  /** Whether what is not booked is taken off counts. */
  get holdsBack(): boolean {
    return this.#mark('ledger.holds') === 1;
  }

  /**
   * To be called before a count is taken in and before one is judged. The first time, and when the hold-back is switched
   * on: orders that have ended count as booked, all open ones as not. While it is off, all count as booked.
   */
  begin(holdBack: boolean): void {
    const isOther = this.#mark('ledger.holds') !== Number(holdBack);
    if (this.#mark('ledger.seen') < 0 || (isOther && holdBack)) {
      this.#setMark('ledger.seen', this.newestSeq);
      this.#setMark('ledger.from', this.newestSeq);
    }
    if (!isOther) return;
    this.#setMark('ledger.holds', Number(holdBack));
    this.#sql.run('UPDATE ledger_orders SET booked = 1 WHERE booked = 0');
    this.#sql.run('DELETE FROM stock_counts');
    if (!holdBack) return;
    const open = this.#sql.rows<{ orderId: string; seq: number }>(`
      SELECT order_id AS orderId,
        coalesce((SELECT min(e.seq) FROM order_events e WHERE e.order_id = orders.order_id), seq) AS seq
      FROM orders INDEXED BY orders_open
      WHERE ${IS_OPEN}`);
    for (const { orderId, seq } of open) {
      const booked = this.#isBooked(orderId);
      this.#put({ orderId, takes: 1, booked, placedMs: 0, liveSinceSeq: seq, changedSeq: 0 });
      this.#place(orderId);
    }
  }

  /**
   * Takes in what the order feed and the catalogue have brought, by the rules of the configuration. True: there is more,
   * for a next transaction.
   */
  catchUp(holdBack: boolean): boolean {
    this.begin(holdBack);
    if (this.#safety) this.#safetyStock.configure(this.#safety);
    const events = this.#sql.rows<FeedStep>(
      `SELECT seq, order_id AS orderId, status, previous_status AS previousStatus, observed_at AS observedAt
       FROM order_events WHERE seq > ? ORDER BY seq LIMIT ${PART}`,
      this.#mark('ledger.seen'),
    );
    for (const event of events) this.#take(event, holdBack);
    const last = events.at(-1);
    if (last) this.#setMark('ledger.seen', last.seq);
    if (events.length === PART) return true;
    const sweptMs = this.#sql.value('SELECT coalesce(max(completed_ms), 0) FROM sweeps') ?? 0;
    if (sweptMs !== this.#mark('ledger.swept')) {
      this.#setMark('ledger.swept', sweptMs);
      this.#sql.run('UPDATE ledger_orders SET is_stale = 1 WHERE takes = 1');
    }
    const stale = this.#sql.values<string>(
      `SELECT order_id FROM ledger_orders WHERE is_stale = 1 LIMIT ${PART}`,
    );
    for (const orderId of stale) this.#place(orderId);
    return stale.length === PART;
  }

  /** Records that the POS has booked these orders. Blanks around an id, which a CHAR column has, are none of it. */
  acknowledge(orderIds: readonly string[], source: string): AckResult[] {
    const at = isoUtc(this.#clock.nowMs());
    return orderIds.map((given) => {
      const orderId = given.trim();
      const ack =
        'INSERT INTO order_acks (order_id, acked_at, source) VALUES (?, ?, ?) ON CONFLICT DO NOTHING';
      const isNew = this.#sql.run(ack, orderId, at, source).changes > 0;
      const book = 'UPDATE ledger_orders SET booked = 1 WHERE order_id = ? AND booked = 0';
      if (this.#sql.run(book, orderId).changes > 0) this.#touch(orderId);
      return { orderId, state: !this.#order(orderId) ? 'unheard' : isNew ? 'new' : 'known' };
    });
  }

  /** Forgets at most `limit` orders that nothing needs any more; returns how many. */
  collect(limit = PART): number {
    const sweptSeq = this.#sql.value<number | null>('SELECT min(as_of_seq) FROM sweeps') ?? 0;
    // Part of every count that lives, and of every quantity since the catalogue was read whole.
    const collected = this.#sql.values<string>(
      `SELECT order_id FROM ledger_orders l
       WHERE (l.booked = 1 OR l.takes = 0) AND l.live_since_seq <= @seq AND l.changed_seq <= @seq
         AND NOT EXISTS (SELECT 1 FROM order_takings t JOIN stock_counts n USING (sku, subsidiary_id)
           WHERE t.order_id = l.order_id AND l.takes = 1 AND n.counted_seq < l.live_since_seq)
       LIMIT @limit`,
      { limit, seq: Math.min(sweptSeq, this.#mark('ledger.seen')) },
    );
    for (const orderId of collected) {
      this.#dropReservations(orderId);
      this.#sql.run('DELETE FROM ledger_orders WHERE order_id = ?', orderId);
    }
    return collected.length;
  }

  #take({ seq, orderId, status, previousStatus, observedAt }: FeedStep, holdBack: boolean): void {
    const known = this.#sql.value('SELECT takes FROM ledger_orders WHERE order_id = ?', orderId);
    const takes = Number(!takesNothing(status));
    const isBegun =
      known === undefined ? previousStatus !== null && !takesNothing(previousStatus) : known === 1;
    // What is mirrored of its items came with its newest event: an edit may lie between. And one that ends as it is heard
    // of may have taken something all the same.
    const newestSeq = this.#order(orderId)?.seq ?? seq;
    const changedSeq = newestSeq > seq ? newestSeq : takes === 0 ? seq : 0;
    if (known === undefined) {
      // One that moves on and is not here was booked and forgotten, or ended before it all began.
      if (isBegun && takes === 1 && status !== previousStatus) return;
      this.#put({
        orderId,
        takes,
        booked: isBegun || !holdBack ? 1 : this.#isBooked(orderId),
        placedMs: isBegun ? 0 : this.#placedMs(orderId, observedAt),
        liveSinceSeq: isBegun ? 0 : seq,
        changedSeq: isBegun ? seq : changedSeq,
      });
      this.#place(orderId);
    } else {
      this.#setState({ orderId, takes, liveSinceSeq: isBegun ? 0 : takes * seq, changedSeq });
      if (this.#place(orderId)) this.#setState({ orderId, takes, liveSinceSeq: 0, changedSeq: seq });
    }
    this.#touch(orderId);
  }

  /** Looks up what the order takes. True when that is not what it was. */
  #place(orderId: string): boolean {
    const before = this.#sql.rows<Reservation>(
      'SELECT sku, subsidiary_id AS subsidiaryId, qty FROM order_takings WHERE order_id = ?',
      orderId,
    );
    const { reservations, isUnplaced } = this.#read(orderId);
    const placed = 'UPDATE ledger_orders SET is_unplaced = ?, is_stale = 0 WHERE order_id = ?';
    this.#sql.run(placed, Number(isUnplaced), orderId);
    if (sameReservations(before, reservations)) return false;
    this.#touch(orderId);
    this.#dropReservations(orderId);
    const add = 'INSERT INTO order_takings (sku, subsidiary_id, order_id, qty) VALUES (?, ?, ?, ?)';
    for (const { sku, subsidiaryId, qty } of reservations)
      this.#sql.run(add, sku, subsidiaryId, orderId, qty);
    this.#touch(orderId);
    return true;
  }

  #read(orderId: string): { reservations: Reservation[]; isUnplaced: boolean } {
    const store = this.#order(orderId)?.store ?? null;
    const reservations = new Map<string, Reservation>();
    let isUnplaced = false;
    const items = this.#sql.rows<OrderItem>(
      `SELECT product_external_id AS externalId, product_name AS name, quantity FROM order_items WHERE order_id = ?`,
      orderId,
    );
    for (const { externalId, name, quantity } of items) {
      const qty = Number(quantity);
      if (quantity === null || !Number.isFinite(qty) || qty <= 0) continue;
      const places = this.#placesOf(externalId, name);
      if (externalId === null && places.length === 0) isUnplaced = true;
      for (const { sku, subsidiaryId } of places) {
        if (!this.#isBranch(store, subsidiaryId)) continue;
        const key = JSON.stringify([sku, subsidiaryId]);
        // Sums of decimal fractions (weights) without the noise of binary ones.
        const sum = Number(((reservations.get(key)?.qty ?? 0) + qty).toFixed(9));
        reservations.set(key, { sku, subsidiaryId, qty: sum });
      }
    }
    return { reservations: [...reservations.values()], isUnplaced };
  }

  /** An item with modifiers carries no id (document, "Item"). Where the product has several skus it may be any. */
  #placesOf(externalId: string | null, name: string | null): Place[] {
    if (externalId !== null) return placesOfId(this.#sql, externalId);
    if (name === null) return [];
    return this.#sql.rows(
      `SELECT k.sku, k.subsidiary_id AS subsidiaryId
       FROM products p CROSS JOIN skus s USING (product_id) CROSS JOIN stocks k USING (sku) WHERE p.name = ?`,
      name,
    );
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
    const stocked = 'SELECT 1 FROM stocks WHERE subsidiary_id = ? LIMIT 1';
    return this.#branches.idOf(store) === undefined && this.#sql.value(stocked, store) === undefined;
  }

  /** The earliest moment at which it may have been placed, by this machine's clock; 0: nobody can tell. */
  #placedMs(orderId: string, observedAt: string): number {
    const createdMs = Date.parse(this.#order(orderId)?.createdAt ?? '');
    const placedMs = createdMs - (this.#skewMs() ?? Number.NaN);
    // An order cannot be heard of before it is placed: where it seems so, the two clocks do not agree.
    const isSound = placedMs <= Date.parse(observedAt) + CLOCKS_MARGIN_MS;
    return isSound ? Math.max(0, Math.round(placedMs - CLOCKS_MARGIN_MS)) : 0;
  }

  #order(orderId: string): MirroredOrder | undefined {
    const columns = 'seq, store_external_id AS store, created_at AS createdAt';
    return this.#sql.row(`SELECT ${columns} FROM orders WHERE order_id = ?`, orderId);
  }

  #isBooked(orderId: string): number {
    return this.#sql.value('SELECT 1 FROM order_acks WHERE order_id = ?', orderId) ?? 0;
  }

  #put(order: LedgerOrder): void {
    this.#sql.run(
      `INSERT INTO ledger_orders (order_id, takes, booked, placed_ms, live_since_seq, changed_seq)
       VALUES (@orderId, @takes, @booked, @placedMs, @liveSinceSeq, @changedSeq)
       ON CONFLICT (order_id) DO UPDATE SET takes = excluded.takes, booked = excluded.booked`,
      order,
    );
  }

  #setState(order: Pick<LedgerOrder, 'orderId' | 'takes' | 'liveSinceSeq' | 'changedSeq'>): void {
    this.#sql.run(
      `UPDATE ledger_orders SET takes = @takes, live_since_seq = max(live_since_seq, @liveSinceSeq),
         changed_seq = max(changed_seq, @changedSeq)
       WHERE order_id = @orderId`,
      order,
    );
  }

  /** What is wanted of its stocks may be another quantity now. While the hold-back is off, that waits for a count. */
  #touch(orderId: string): void {
    if (!this.holdsBack) return;
    this.#sql.run(
      `UPDATE stock_counts SET dirty = 1
       WHERE (sku, subsidiary_id) IN (SELECT sku, subsidiary_id FROM order_takings WHERE order_id = ?)`,
      orderId,
    );
  }

  #dropReservations(orderId: string): void {
    this.#sql.run('DELETE FROM order_takings WHERE order_id = ?', orderId);
  }

  #mark(name: string): number {
    return this.#sql.value('SELECT value FROM marks WHERE name = ?', name) ?? -1;
  }

  #setMark(name: string, value: number): void {
    this.#sql.run('UPDATE marks SET value = ? WHERE name = ?', value, name);
  }
}

function sameReservations(a: readonly Reservation[], b: readonly Reservation[]): boolean {
  const text = (reservations: readonly Reservation[]) =>
    JSON.stringify(reservations.map(({ sku, subsidiaryId, qty }) => [sku, subsidiaryId, qty]).sort());
  return a.length === b.length && text(a) === text(b);
}
