import type Database from 'better-sqlite3';
import type { BranchDirectory } from '../../catalog/product.ts';
import { turnEnd } from '../../core/loop.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import {
  IS_OPEN,
  type OrderEvent,
  orderCode,
  REFUSED_ACKS_OF,
  takesNothing,
} from '../../orders/merging/order.ts';
import { newestSeq, newestSeqAt } from '../../orders/reading/mirror-file.ts';
import type { AckBranch, Acknowledgement, AckResult } from '../intake/change.ts';
import type { HoldBackSetting } from './hold-back.ts';
import { HoldingBranches } from './holding-branches.ts';
import { LineStocks, type Quantities, qtyKey, type StockQty } from './line-stocks.ts';
import { holdsBack, type SafetyRule, SafetyStock, type StockKey, StockLedger } from './stock-ledger.ts';

/** Maximum difference of two clocks. An order may have been placed by this much earlier than its time says. */
const CLOCKS_MARGIN_MS = 30_000;
const OF_STEP = `sku = @sku AND subsidiary_id = @subsidiaryId AND order_id = @orderId AND seq = @seq
  AND external_id = @externalId AND part = @part`;
/** Maximum number per transaction of feed events, and of orders that are resolved again. */
const PART = 500;
const EDIT_HOLD_MS = 30 * 60_000;
/** Booked steps are deleted after this time if their stock is not counted again. */
const NEVER_COUNTED_MS = 90 * 24 * 3_600_000;

/** Works the items off until the turn is over. Returns those that are done. */
function doneInTurn<T>(items: readonly T[], isOver: () => boolean, work: (item: T) => void): readonly T[] {
  for (const [i, item] of items.entries()) {
    work(item);
    if (isOver()) return items.slice(0, i + 1);
  }
  return items;
}

export interface ReservationsOptions {
  db: Database.Database;
  clock: Clock;
  branches: BranchDirectory;
  /** Milliseconds by which the platform's clock is ahead of this machine's; undefined if unknown. */
  skewMs?: (() => number | undefined) | undefined;
  /** Safety stock from the configuration. Undefined leaves the stored rules as they are. */
  safety?: readonly SafetyRule[] | undefined;
  /** `stock.edit_hold`. */
  editHoldMs?: number | undefined;
}

/** What is stored of the acknowledgement of an order by the POS of its store. */
interface StoredAck {
  branch: string;
  seq: number | null;
  waitsSince: string | null;
  ackedAt: string;
  /** JSON array of line numbers; null if all lines are booked. */
  without: string | null;
}

/** The key of a step in `_stock_steps`, but for its order. */
type StepKey = Omit<StockQty, 'qty'> & { seq: number; part: number };

/** The steps that an acknowledgement books, and how many pieces of a step it leaves out. */
interface Booking {
  steps: (StockQty & StepKey)[];
  leftOut: { step: StepKey; qty: number }[];
  /** Whether lines were left out, even if nothing is known of what they take. */
  areSomeLeft: boolean;
}

type FeedStep = Omit<OrderEvent, 'source'>;

interface MirroredOrder {
  /** Event at which the order's store, or the stock that its lines take, last changed. */
  linesSeq: number;
  /** Event at which the numbers of the lines last changed; not before `linesSeq`. */
  numbersSeq: number;
  store: string | null;
  createdAt: string | null;
}

/** An order's row in `_ledger_orders`. */
interface LedgerOrder {
  orderId: string;
  seq: number;
  firstSeq: number;
  takes: number;
  placedMs: number;
}

/**
 * Writes the table `_stock_steps`: how many pieces each event of an order takes from a stock or gives back, and whether
 * the POS has booked them. Example: event 7 takes 2, event 9 gives back 1. A line's stocks are found when the line
 * first arrives, and again only while its product is unknown. The caller opens the transaction.
 */
export class Reservations {
  readonly #db: Database.Database;
  readonly #sql: Sql;
  readonly #clock: Clock;
  readonly #branches: BranchDirectory;
  readonly #skewMs: () => number | undefined;
  readonly #safety: readonly SafetyRule[] | undefined;
  readonly #safetyStock: SafetyStock;
  readonly #ledger: StockLedger;
  readonly #editHoldMs: number;
  readonly #holding: HoldingBranches;
  readonly #lines: LineStocks;
  #isBegun = false;

  constructor({
    db,
    clock,
    branches,
    skewMs = () => 0,
    safety,
    editHoldMs = EDIT_HOLD_MS,
  }: ReservationsOptions) {
    this.#db = db;
    this.#sql = sqlOf(db);
    this.#safety = safety;
    this.#safetyStock = new SafetyStock(db);
    this.#ledger = new StockLedger(db);
    this.#holding = new HoldingBranches(db, branches);
    this.#lines = new LineStocks(db, branches);
    this.#clock = clock;
    this.#branches = branches;
    this.#skewMs = skewMs;
    this.#editHoldMs = editHoldMs;
  }

  /** Newest event of the order feed. */
  get newestSeq(): number {
    return newestSeq(this.#db);
  }

  /** Newest event when the ledger began. Older confirmations of the platform's quantity do not count. */
  get fromSeq(): number {
    return this.#mark('ledger.from');
  }

  /** Whether any branch subtracts pieces of unbooked orders from its counts. */
  get holdsBack(): boolean {
    return this.#holding.isAny;
  }

  /** Whether the next `begin` will start or stop hold-back in a branch. */
  isSwitchDue(setting: HoldBackSetting): boolean {
    return this.#holding.due(setting) !== undefined;
  }

  /** Starts the ledger, and starts or stops hold-back where due. Called before a count is accepted or judged. */
  begin(setting: HoldBackSetting): void {
    const change = this.#holding.due(setting);
    const seen = this.#mark('ledger.seen');
    if (seen >= 0 && !change) return;
    const isBehind =
      seen < 0 || (change !== undefined && change.on.length > 0 && this.newestSeq - seen > PART);
    if (isBehind) {
      this.#setMark('ledger.seen', this.newestSeq);
      this.#setMark('ledger.from', this.newestSeq);
    }
    if (!change) return;
    this.#takeEvents();
    const nowMs = this.#clock.nowMs();
    this.#holding.apply(change, nowMs);
    if (change.on.length === 0) return;
    const open = this.#sql.rows<{ orderId: string; store: string | null; seq: number }>(`
      SELECT order_id AS orderId, store_external_id AS store,
        coalesce((SELECT min(e.seq) FROM order_events e WHERE e.order_id = _orders.order_id), seq) AS seq
      FROM _orders INDEXED BY orders_open
      WHERE ${IS_OPEN} AND order_id NOT IN (SELECT order_id FROM _ledger_orders)`);
    for (const { orderId, store, seq } of open) {
      const taken = { orderId, seq, firstSeq: seq, takes: 1, placedMs: 0 };
      this.#put(taken);
      this.#follow(taken, store, { seq, isNews: true });
    }
    const times = { nowMs, editHoldMs: this.#editHoldMs };
    for (const key of change.on) this.#holding.begin(key, setting, times);
  }

  /** Follows the order feed and the catalogue. Returns true if work is left for another transaction. */
  catchUp(holdBack: HoldBackSetting): boolean {
    this.begin(holdBack);
    if (this.#safety) this.#safetyStock.configure(this.#safety);
    const isOver = turnEnd(this.#clock);
    if (this.#takeEvents(isOver)) return true;
    if (!this.#isBegun) {
      // The configuration may now name the branch of an unknown store, so these orders are resolved again.
      this.#sql.run('UPDATE _ledger_orders SET is_stale = 1 WHERE is_unplaced = 1 AND is_stale = 0');
      this.#lines.forgetMoved();
      this.#isBegun = true;
    }
    const stale = this.#sql.values<string>(
      `SELECT order_id FROM _ledger_orders WHERE is_stale = 1 LIMIT ${PART}`,
    );
    const placed = doneInTurn(stale, isOver, (orderId) => this.#placeAgain(orderId));
    return stale.length === PART || placed.length < stale.length;
  }

  /** Takes events of the feed until the turn is over. Returns whether others are left. */
  #takeEvents(isOver = () => false): boolean {
    const seen = this.#mark('ledger.seen');
    const events = this.#sql.rows<FeedStep>(
      `SELECT seq, order_id AS orderId, status, previous_status AS previousStatus, observed_at AS observedAt
       FROM order_events WHERE seq > ? ORDER BY seq LIMIT ${PART}`,
      seen,
    );
    const taken = doneInTurn(events, isOver, (event) => this.#take(event));
    const last = taken.at(-1);
    if (last) this.#setMark('ledger.seen', last.seq);
    return events.length === PART || taken.length < events.length;
  }

  /**
   * Records that the POS has booked these orders: with `branch` the stocks of that branch, else those of the order's
   * store at the acknowledged event. With `beforeInbox` (ISO 8601 UTC), the booking waits until counts inserted into
   * the inbox before that time are copied.
   */
  acknowledge(
    acks: readonly Acknowledgement[],
    source: string,
    { branch, beforeInbox }: { branch?: AckBranch; beforeInbox?: string | undefined } = {},
  ): AckResult[] {
    const at = isoUtc(this.#clock.nowMs());
    const newest = this.newestSeq;
    const handed = acks.map((each) => (typeof each === 'string' ? null : each.handedAt));
    const newestAt = newestSeqAt(this.#db, handed, at);
    // Adds the steps of earlier events, so that they can be booked; in a long feed, the rest are booked later.
    if (this.#mark('ledger.seen') >= 0 && acks.length > 0) this.#takeEvents();
    return acks.map((given) => {
      const {
        orderId: named,
        seq: said,
        handedAt,
        without = [],
      } = typeof given === 'string' ? { orderId: given } : given;
      const seq = said ?? undefined;
      const orderId = named.trim();
      const rejected = (message: string): AckResult => ({ orderId, state: 'rejected', message });
      if (seq !== undefined && seq > newest) {
        return rejected(`Event ${seq} lies ahead: the newest event of the feed is ${newest}.`);
      }
      const order = this.#order(orderId);
      if (!order) {
        const number = this.#refusalOfNumber(orderId);
        if (number !== undefined) return rejected(number);
        if (without.length > 0) {
          return rejected(
            'The mirror does not have the order yet, so its lines are not known. Acknowledge it once it has arrived.',
          );
        }
        const note = `INSERT INTO _order_acks (order_id, branch, acked_at, source, waits_since) VALUES (?, ?, ?, ?, ?)
          ON CONFLICT DO NOTHING`;
        this.#sql.run(note, orderId, branch?.name ?? '', at, source, beforeInbox ?? null);
        return { orderId, state: 'unheard' };
      }
      const firstSeq = this.#known(orderId)?.firstSeq ?? 0;
      if (seq !== undefined && seq < firstSeq) {
        return rejected(`The order was first heard of with event ${firstSeq}, after event ${seq}.`);
      }
      const asOf = seq ?? Math.max(newestAt(handedAt), firstSeq);
      const store = branch?.name ?? this.#storeAsOf(orderId, order, asOf);
      const fault = this.#faultOfLines(orderId, without, { asOf, numbersSeq: order.numbersSeq });
      if (fault !== undefined) return rejected(fault);
      this.#sql.run(`DELETE FROM refused_acks WHERE ${REFUSED_ACKS_OF}`, { orderId });
      const left = this.#leftOutOf(orderId, store, order, without);
      if (left === undefined) return { orderId, state: 'known' };
      const waits = beforeInbox !== undefined;
      const booking = this.#toBook(orderId, asOf, branch, left);
      const isNews = booksPieces(booking) && !(waits && this.#waits(orderId, store, asOf));
      if (!waits) this.#book(orderId, asOf, booking, handedAt ?? at);
      const ack = `INSERT INTO _order_acks (order_id, branch, acked_at, source, seq, waits_since, without)
          VALUES (@orderId, @store, @at, @source, @asOf, @waitsSince, @without)
        ON CONFLICT (order_id, branch) DO UPDATE SET acked_at = @at, source = @source, seq = max(coalesce(seq, 0), @asOf),
          edited_seq = CASE WHEN edited_seq > @asOf THEN edited_seq END,
          waits_since = CASE WHEN coalesce(seq, 0) <= @asOf THEN @waitsSince ELSE waits_since END,
          without = CASE WHEN @isOfLines THEN @without ELSE without END
          WHERE @isNews OR seq IS NULL OR edited_seq <= @asOf OR (@isOfLines AND without IS NOT @without)`;
      const facts = {
        ...{ orderId, store, at, source, asOf },
        isNews: Number(isNews),
        // An acknowledgement as of an event before the present lines says nothing of them.
        isOfLines: Number(asOf >= order.linesSeq),
        without: left.length === 0 ? null : JSON.stringify(left),
      };
      return {
        orderId,
        state:
          this.#sql.run(ack, { ...facts, waitsSince: beforeInbox ?? null }).changes > 0 ? 'new' : 'known',
      };
    });
  }

  /**
   * Returns why an unknown id is refused that is the number of an order; undefined if it is none. Noted as an id, it
   * would wait for ever, and the order would stay unbooked.
   */
  #refusalOfNumber(word: string): string | undefined {
    const code = orderCode(word);
    if (code === undefined) return undefined;
    const byCode = 'SELECT order_id FROM _orders WHERE code = ? ORDER BY seq DESC LIMIT 3';
    const [first, ...others] = this.#sql.values<string>(byCode, code);
    if (first === undefined) return undefined;
    const ids = [first, ...others].join(', ');
    return others.length === 0
      ? `${word} is an order number, not an orderId. Order ${code} has the orderId ${ids}: acknowledge that.`
      : `${word} is an order number, not an orderId. Orders with that number have the orderIds ${ids}: acknowledge the right one.`;
  }

  /**
   * Returns the lines that an acknowledgement leaves out, beside the one before it: of the same lines, each only adds to
   * what is booked. Returns undefined if all of them are booked or will be, so that it changes nothing.
   */
  #leftOutOf(
    orderId: string,
    store: string,
    { linesSeq, numbersSeq }: MirroredOrder,
    without: readonly number[],
  ): number[] | undefined {
    const lines = [...new Set(without)].sort((one, other) => one - other);
    if (lines.length === 0) return lines;
    const text = 'SELECT seq, without FROM _order_acks WHERE order_id = ? AND branch = ?';
    const before = this.#sql.row<Pick<StoredAck, 'seq' | 'without'>>(text, orderId, store);
    if (before?.seq == null) return lines;
    if (before.without === null) return before.seq >= linesSeq ? undefined : lines;
    if (before.seq < numbersSeq) return lines;
    const open = linesIn(before.without);
    return lines.filter((line) => open.includes(line));
  }

  /** Returns why these lines cannot be left out of an acknowledgement; undefined if they can. */
  #faultOfLines(
    orderId: string,
    without: readonly number[],
    { asOf, numbersSeq }: { asOf: number; numbersSeq: number },
  ): string | undefined {
    if (without.length === 0) return undefined;
    if (numbersSeq > asOf) {
      return `Event ${numbersSeq} changed the order's lines, after event ${asOf}. Read the order again, and acknowledge it as of event ${numbersSeq} or a later one.`;
    }
    const lines = this.#sql.values<number>(
      'SELECT line FROM order_items WHERE order_id = ? ORDER BY line',
      orderId,
    );
    const unknown = without.filter((line) => !lines.includes(line));
    if (unknown.length === 0) return undefined;
    return `The order has no line ${unknown.slice(0, 5).join(', ')}. Number of its lines: ${lines.length}.`;
  }

  /** Whether an order is known, and neither its store nor any of its steps belongs to these branches (internal ids). */
  isOfOthers(orderId: string, branches: readonly string[]): boolean {
    if (this.#mark('ledger.seen') >= 0) this.#takeEvents();
    const order = this.#order(orderId.trim());
    // Without a configured internal id, the steps of a branch cannot be found.
    const areKnown = branches.every((id) =>
      this.#branches.all.some(({ subsidiaryId }) => subsidiaryId === id),
    );
    if (!order || !areKnown || branches.some((id) => this.#lines.isBranch(order.store, id))) return false;
    const took = this.#sql.values<string>(
      'SELECT DISTINCT subsidiary_id FROM _stock_steps WHERE order_id = +?',
      orderId.trim(),
    );
    return !took.some((subsidiaryId) => branches.includes(subsidiaryId));
  }

  /** Stores why acknowledgements in the inbox were refused, as SQL gets no answer. An accepted one deletes it. */
  noteRefused(
    results: readonly AckResult[],
    acks: readonly { seq?: number | null | undefined }[] = [],
  ): void {
    for (const [i, { orderId, state, message }] of results.entries()) {
      if (state !== 'rejected') continue;
      const note = `INSERT INTO refused_acks (order_id, seq, refused_at, message) VALUES (@orderId, @seq, @at, @message)
        ON CONFLICT DO UPDATE SET seq = excluded.seq, refused_at = excluded.refused_at, message = excluded.message`;
      this.#sql.run(note, { orderId, seq: acks[i]?.seq ?? null, at: isoUtc(this.#clock.nowMs()), message });
    }
  }

  /** Books acknowledgements that waited for the inbox, since the inbox was empty at `at`. */
  inboxWasEmpty(at: string): void {
    const waiting = this.#sql.rows<StoredAck & { orderId: string }>(
      `SELECT order_id AS orderId, branch, seq, acked_at AS ackedAt, without FROM _order_acks WHERE waits_since <= ?`,
      at,
    );
    for (const { orderId, branch, seq, ackedAt, without } of waiting) {
      // The lines of a later edit have other numbers; its POS acknowledges it again.
      const isStale = without !== null && (this.#order(orderId)?.numbersSeq ?? 0) > (seq ?? 0);
      if (seq !== null && !isStale) {
        this.#book(orderId, seq, this.#toBook(orderId, seq, undefined, linesIn(without)), ackedAt);
      }
      const done = 'UPDATE _order_acks SET waits_since = NULL WHERE order_id = ? AND branch = ?';
      this.#sql.run(done, orderId, branch);
    }
  }

  /** Whether an acknowledgement that arrived by `at` waits for the inbox. */
  waitsForInbox(at: string): boolean {
    return this.#sql.value('SELECT 1 FROM _order_acks WHERE waits_since <= ? LIMIT 1', at) !== undefined;
  }

  #waits(orderId: string, store: string, asOf: number): boolean {
    const text =
      'SELECT 1 FROM _order_acks WHERE order_id = ? AND branch = ? AND seq >= ? AND waits_since IS NOT NULL';
    return this.#sql.value(text, orderId, store, asOf) !== undefined;
  }

  /** Books an order's steps up to an event, and limits how long later ones are held. */
  #book(orderId: string, asOf: number, { steps, leftOut, areSomeLeft }: Booking, ackedAt: string): void {
    // A POS may have written anything as the time of its row.
    const bookedMs = Date.parse(ackedAt) || this.#clock.nowMs();
    for (const step of steps) {
      const version = this.#ledger.handedVersion(step);
      const book = `UPDATE _stock_steps SET booked_version = @version, booked_ms = @bookedMs WHERE ${OF_STEP}`;
      this.#sql.run(book, { ...keyOfStep(step), orderId, version, bookedMs });
      this.#touch(step);
    }
    for (const { step, qty } of leftOut) this.#leaveOut(orderId, step, qty);
    // What the POS left out by name is in no count, however late that comes.
    const forGood = `UPDATE _stock_steps SET held_until_ms = NULL WHERE order_id = ? AND seq <= ?
      AND booked_version IS NULL AND held_until_ms IS NOT NULL`;
    if (areSomeLeft) this.#sql.run(forGood, orderId, asOf);
    const later = `UPDATE _stock_steps SET held_until_ms = ? WHERE order_id = ? AND seq > ? AND booked_version IS NULL
      AND held_until_ms IS NULL`;
    this.#sql.run(later, this.#clock.nowMs() + this.#editHoldMs, orderId, asOf);
  }

  /** Makes these pieces of a booked step a step of their own, which is not booked. */
  #leaveOut(orderId: string, step: StepKey, qty: number): void {
    const facts = { ...keyOfStep(step), orderId, qty };
    this.#sql.run(
      `INSERT INTO _stock_steps (sku, subsidiary_id, order_id, seq, external_id, part, qty, placed_ms, is_first)
       SELECT sku, subsidiary_id, order_id, seq, external_id, (SELECT max(m.part) + 1 FROM _stock_steps m
           WHERE m.sku = s.sku AND m.subsidiary_id = s.subsidiary_id AND m.order_id = s.order_id AND m.seq = s.seq
             AND m.external_id = s.external_id), @qty, placed_ms, is_first
       FROM _stock_steps s WHERE ${OF_STEP}`,
      facts,
    );
    this.#sql.run(`UPDATE _stock_steps SET qty = round(qty - @qty, 9) WHERE ${OF_STEP}`, facts);
  }

  /**
   * Returns the unbooked steps up to an event. What the lines `without` take is left out of them, but never more than is
   * unbooked: what was booked before stays booked. A stock of which all is left out has no step to book.
   */
  #toBook(orderId: string, asOf: number, branch: AckBranch | undefined, without: readonly number[]): Booking {
    const steps = this.#sql.rows<StockQty & StepKey>(
      `SELECT sku, subsidiary_id AS subsidiaryId, external_id AS externalId, seq, part, qty FROM _stock_steps
       WHERE order_id = +@orderId AND seq <= @asOf AND booked_version IS NULL
         AND (subsidiary_id = +@branch OR (+@branch IS NULL AND (subsidiary_id IN (
           SELECT subsidiary_id FROM _stock_steps WHERE order_id = +@orderId AND seq <= @asOf
             GROUP BY sku, subsidiary_id HAVING sum(qty) > 0) OR @takes = 0)))
       ORDER BY seq, part`,
      { orderId, asOf, branch: branch?.subsidiaryId ?? null, takes: this.#known(orderId)?.takes ?? 0 },
    );
    if (without.length === 0) return { steps, leftOut: [], areSomeLeft: false };
    const unknown = this.#lines.ofLines(orderId, without);
    const booking: Booking = { steps: [], leftOut: [], areSomeLeft: true };
    for (const [key, some] of Map.groupBy(steps, qtyKey)) {
      const unbooked = sumOf(some);
      let left = Math.max(0, Math.min(unknown.get(key)?.qty ?? 0, unbooked));
      if (left > 0 && left === unbooked && some.every(({ qty }) => qty >= 0)) continue;
      // Nobody knows with which event a line came. A count that is too old for the newest steps keeps more back if those
      // are the ones that it should contain.
      for (const step of some) {
        const qty = Number(Math.min(left, Math.max(0, step.qty)).toFixed(9));
        left -= qty;
        if (qty > 0 && qty === step.qty && step.part > 0) continue;
        booking.steps.push(step);
        if (qty > 0) booking.leftOut.push({ step, qty });
      }
    }
    return booking;
  }

  /** Returns the store at an event: the present one, unless the steps at that time were in another branch. */
  #storeAsOf(orderId: string, { store }: MirroredOrder, asOf: number): string {
    const was = this.#sql.values<string>(
      `SELECT DISTINCT subsidiary_id FROM _stock_steps WHERE order_id = +? AND seq <= ?
         GROUP BY sku, subsidiary_id HAVING sum(qty) > 0`,
      ...[orderId, asOf],
    );
    const [first] = was;
    const isRenamed = this.#lines.isForeign(store) && this.#lines.isIn(this.#had(orderId), was);
    if (isRenamed || first === undefined || was.some((id) => this.#lines.isBranch(store, id)))
      return store ?? '';
    return this.#branches.externalIdOf(first) ?? first;
  }

  /** Deletes at most `limit` orders from the ledger that no count needs any more. Returns how many it deleted. */
  collect(limit = PART): number {
    const sweptSeq = this.#sql.value<number | null>('SELECT min(as_of_seq) FROM _sweeps') ?? 0;
    // Selects orders that every count and every swept quantity includes. Without hold-back, an ended order stays
    // until the stock is sent again. It explains a difference if the platform did not add its pieces back.
    const isHeldBack = holdsBack('s.subsidiary_id');
    const isOpenStep = `(s.booked_version IS NULL AND ${isHeldBack})`;
    // A waiting change and a held one are in two indexes; a query for both would read the whole table.
    const isIn = (guard: string) => `EXISTS (SELECT 1 FROM _outbox w
      WHERE w.kind = 'stock' AND w.state = 'pending' AND w.held_guard ${guard}
      AND w.target = 'sku:' || s.sku || '@' || s.subsidiary_id)`;
    const isAwaited = `(${isIn('IS NULL')} OR ${isIn('IS NOT NULL')})`;
    // A count by an id that means no stock now counts again once it means one, and so does what it may not contain.
    const isIdle = `EXISTS (SELECT 1 FROM _stock_steps s JOIN _id_counts d ON d.external_id = s.external_id
        OR (d.sku = s.sku AND d.subsidiary_id = s.subsidiary_id)
        JOIN _outbox c ON c.change_id = d.change_id
      WHERE s.order_id = l.order_id AND (${isOpenStep} OR c.as_of_seq < s.seq OR c.version < s.booked_version))`;
    const collected = this.#sql.values<string>(
      `SELECT l.order_id FROM _ledger_orders l LEFT JOIN _orders o USING (order_id)
       WHERE l.seq <= @seq AND l.is_stale = 0 AND (l.takes = 0 OR NOT ${isIdle}) AND (
         (l.takes = 0 AND (o.updated_at < @longAgo OR NOT EXISTS (
           SELECT 1 FROM _stock_steps s JOIN _stock_counts n USING (sku, subsidiary_id)
             JOIN _outbox c ON c.change_id = n.change_id
           WHERE s.order_id = l.order_id AND s.seq > max(c.as_of_seq, coalesce(n.call_seq, 0))
             AND NOT ${isHeldBack})))
         OR ((o.order_id IS NULL OR NOT (${IS_OPEN})) AND NOT EXISTS (
           SELECT 1 FROM _stock_steps s LEFT JOIN _stock_counts n USING (sku, subsidiary_id)
             LEFT JOIN _outbox c ON c.change_id = n.change_id
           WHERE s.order_id = l.order_id AND (${isOpenStep} OR c.as_of_seq < s.seq
             OR c.version < s.booked_version
             OR ${isAwaited})))
         OR (o.updated_at < @longAgo AND NOT EXISTS (
           SELECT 1 FROM _stock_steps s WHERE s.order_id = l.order_id AND (${isOpenStep} OR ${isAwaited}))))
       LIMIT +@limit`,
      {
        limit,
        seq: Math.min(sweptSeq, this.#mark('ledger.seen')),
        longAgo: isoUtc(this.#clock.nowMs() - NEVER_COUNTED_MS),
      },
    );
    for (const orderId of collected) {
      this.#ledger.foldOrder(orderId);
      this.#sql.run('DELETE FROM _ledger_orders WHERE order_id = ?', orderId);
    }
    return collected.length;
  }

  #take({ seq, orderId, status, previousStatus, observedAt }: FeedStep): void {
    const order = this.#order(orderId);
    if (!order) return;
    const { store } = order;
    // Once a branch gets an external id at the platform, its orders name that one; it is still the same branch.
    const otherId =
      store === null ? null : (this.#branches.externalIdOf(store) ?? this.#branches.idOf(store));
    const isAcked =
      this.#sql.value('SELECT 1 FROM _order_acks WHERE order_id = ? LIMIT 1', orderId) !== undefined;
    if (isAcked) {
      this.#carryAck(orderId, store, otherId);
      // An acknowledgement from before the order named its store.
      this.#carryAck(orderId, store, '');
    }
    const known = this.#known(orderId);
    const takes = Number(!takesNothing(status));
    const isBegun = previousStatus !== null;
    const hadTaken = isBegun && !takesNothing(previousStatus);
    // A known order without a row in the ledger was booked and deleted, or ended before the ledger began.
    if (!known && hadTaken && takes === 1 && status !== previousStatus) return;
    const taken: LedgerOrder = known
      ? { ...known, seq, takes }
      : {
          orderId,
          seq,
          firstSeq: isBegun ? 0 : seq,
          takes,
          placedMs: isBegun ? 0 : this.#placedMs(order, observedAt),
        };
    if (!known) {
      this.#put(taken);
      const early =
        'UPDATE OR REPLACE _order_acks SET branch = ?, seq = ? WHERE order_id = ? AND seq IS NULL';
      if (isAcked) this.#sql.run(early, order.store ?? '', seq, orderId);
      // The order was booked long ago and is edited now, so every count includes its earlier pieces.
      if (hadTaken && takes === 1) this.#follow(taken, store, { seq: 0, isNews: true });
    } else {
      this.#sql.run('UPDATE _ledger_orders SET seq = ?, takes = ? WHERE order_id = ?', seq, takes, orderId);
    }
    if (order.linesSeq <= seq) {
      // The platform's quantity is unknown after an edit, a refund or an end, so even steps of 0 are added.
      const isNews = status === previousStatus || !known || takes === 0 || !hadTaken;
      this.#follow(taken, store, { seq, isNews, isEdit: order.linesSeq === seq });
      return;
    }
    // A newer event edited the lines and will add their steps, so this event adds only the change of status.
    const had = this.#had(orderId);
    const back = [...had].map(([key, { qty, ...place }]) => [key, { ...place, qty: -qty }] as const);
    this.#addSteps(taken, seq, had, new Map(takes === 0 ? back : []));
  }

  /**
   * Adds the difference to the earlier steps as a step: had 2, now 3 → +1. A difference of 0 is added only with
   * `isNews`, or with `isEdit` if more than the branch's name changed.
   */
  #follow(
    order: LedgerOrder,
    store: string | null,
    { seq, isNews, isEdit = false }: { seq: number; isNews: boolean; isEdit?: boolean },
  ): void {
    const { orderId } = order;
    const had = this.#had(orderId);
    const { lines, belowZero, formerName } = this.#lines.find(orderId, store, had);
    this.#carryAck(orderId, store, formerName);
    const taken: Quantities = order.takes === 1 ? lines : new Map();
    const delta: Quantities = new Map();
    for (const [key, named] of [...had, ...lines]) {
      const qty = Number(((taken.get(key)?.qty ?? 0) - (had.get(key)?.qty ?? 0)).toFixed(9));
      delta.set(key, { ...named, qty });
    }
    const isChanged = [...delta.values()].some(({ qty }) => qty !== 0);
    if (isNews || isChanged || (isEdit && formerName === undefined))
      this.#addSteps(order, seq, delta, delta, belowZero);
  }

  /** Renames an acknowledgement under an earlier name of the branch, so that its POS need not acknowledge again. */
  #carryAck(orderId: string, store: string | null, formerName: string | null | undefined): void {
    if (store === null || formerName == null) return;
    const carry = 'UPDATE OR IGNORE _order_acks SET branch = ? WHERE order_id = ? AND branch = ?';
    this.#sql.run(carry, store, orderId, formerName);
  }

  /**
   * Adds a step for each of these stocks, of 0 pieces if `delta` lacks the stock. What the platform has of the stocks in
   * `belowZero` is unknown afterwards.
   */
  #addSteps(
    order: LedgerOrder,
    seq: number,
    stocks: Quantities,
    delta: Quantities,
    belowZero: ReadonlySet<string> = new Set(),
  ): void {
    if (stocks.size === 0) return;
    const { orderId } = order;
    const ack = this.#sql.row<StoredAck>(
      `SELECT branch, seq, waits_since AS waitsSince, acked_at AS ackedAt, without FROM _order_acks
       WHERE order_id = ? AND branch = coalesce((SELECT store_external_id FROM _orders WHERE order_id = ?), '')`,
      ...[orderId, orderId],
    );
    const isAcked = seq === 0 || (ack?.seq ?? -1) >= seq;
    const isBooked = isAcked && (seq === 0 || ack?.waitsSince === null);
    const isEdit = !isAcked && ack !== undefined;
    // A line that the POS left out may get its product only now.
    const isLeftOut =
      isBooked && ack?.without != null && (this.#order(orderId)?.numbersSeq ?? 0) <= (ack.seq ?? 0);
    const unknown: Quantities = isLeftOut ? this.#lines.ofLines(orderId, linesIn(ack.without)) : new Map();
    for (const [key, place] of stocks) {
      const qty = delta.get(key)?.qty ?? 0;
      const bookedVersion = !isBooked ? null : seq === 0 ? 0 : this.#ledger.handedVersion(place);
      this.#sql.run(
        `INSERT INTO _stock_steps (sku, subsidiary_id, order_id, seq, external_id, qty, booked_version, booked_ms, placed_ms, is_first, held_until_ms)
         VALUES (@sku, @subsidiaryId, @orderId, @seq, @externalId, @qty, @bookedVersion, @bookedMs, @placedMs, @isFirst, @heldUntilMs)
         ON CONFLICT DO UPDATE SET qty = round(qty + excluded.qty, 9),
           booked_version = CASE WHEN booked_version IS NOT NULL THEN max(booked_version, excluded.booked_version) END`,
        {
          sku: place.sku,
          subsidiaryId: place.subsidiaryId,
          externalId: place.externalId,
          orderId,
          seq,
          qty,
          bookedVersion,
          bookedMs: seq === 0 ? 0 : Date.parse(ack?.ackedAt ?? '') || 0,
          placedMs: order.placedMs,
          isFirst: Number(order.takes === 1 && order.firstSeq === seq && !belowZero.has(key)),
          // A POS that leaves lines out acknowledges again.
          heldUntilMs: isEdit && ack.without === null ? this.#clock.nowMs() + this.#editHoldMs : null,
        },
      );
      const leftOut = unknown.get(key)?.qty ?? 0;
      const left = leftOut === 0 ? 0 : Math.min(qty, leftOut - this.#unbooked(orderId, place));
      if (left > 0) this.#leaveOut(orderId, { ...place, seq, part: 0 }, Number(left.toFixed(9)));
      this.#touch(place);
    }
    if (isEdit && [...delta.values()].some(({ qty }) => qty !== 0)) {
      const edited = 'UPDATE _order_acks SET edited_seq = ? WHERE order_id = ? AND branch = ?';
      this.#sql.run(edited, seq, orderId, ack.branch);
    }
  }

  #unbooked(orderId: string, { sku, subsidiaryId, externalId }: Omit<StockQty, 'qty'>): number {
    const text = `SELECT total(qty) FROM _stock_steps WHERE order_id = ? AND sku = ? AND subsidiary_id = ?
      AND external_id = ? AND booked_version IS NULL`;
    return this.#sql.value<number>(text, orderId, sku, subsidiaryId, externalId) ?? 0;
  }

  /** Resolves an order's lines of unknown products again, because the catalogue got a new product. */
  #placeAgain(orderId: string): void {
    this.#sql.run('UPDATE _ledger_orders SET is_stale = 0 WHERE order_id = ?', orderId);
    const known = this.#known(orderId);
    if (!known) return;
    this.#follow(known, this.#order(orderId)?.store ?? null, { seq: known.seq, isNews: false });
  }

  /** Returns the sum of the order's steps for each stock, even if the sum is 0. */
  #had(orderId: string): Quantities {
    const rows = this.#sql.rows<StockQty>(
      `SELECT sku, subsidiary_id AS subsidiaryId, external_id AS externalId,
         total(qty) AS qty FROM _stock_steps WHERE order_id = +? GROUP BY sku, subsidiary_id, external_id`,
      orderId,
    );
    return new Map(rows.map((row) => [qtyKey(row), row]));
  }

  /** Returns the earliest time at which the order may have been placed, by this machine's clock; 0 if unknown. */
  #placedMs({ createdAt }: MirroredOrder, observedAt: string): number {
    const createdMs = Date.parse(createdAt ?? '');
    const placedMs = createdMs - (this.#skewMs() ?? Number.NaN);
    // An order cannot arrive before it was placed. If it seems so, the clocks disagree and the time is unknown.
    const isSound = placedMs <= Date.parse(observedAt) + CLOCKS_MARGIN_MS;
    return isSound ? Math.max(0, Math.round(placedMs - CLOCKS_MARGIN_MS)) : 0;
  }

  #order(orderId: string): MirroredOrder | undefined {
    const columns =
      'coalesce(lines_seq, seq) AS linesSeq, max(coalesce(lines_seq, seq), coalesce(numbers_seq, 0)) AS numbersSeq, ' +
      'store_external_id AS store, created_at AS createdAt';
    return this.#sql.row(`SELECT ${columns} FROM _orders WHERE order_id = ?`, orderId);
  }

  #known(orderId: string): LedgerOrder | undefined {
    return this.#sql.row(
      `SELECT order_id AS orderId, seq, first_seq AS firstSeq, takes, placed_ms AS placedMs
       FROM _ledger_orders WHERE order_id = ?`,
      orderId,
    );
  }

  #put(order: LedgerOrder): void {
    this.#sql.run(
      `INSERT INTO _ledger_orders (order_id, seq, first_seq, takes, placed_ms, places)
       VALUES (@orderId, @seq, @firstSeq, @takes, @placedMs, '{}')`,
      order,
    );
  }

  /** Marks the stock to be judged again. In a branch that does not hold back, the stock waits for its next count. */
  #touch({ sku, subsidiaryId }: StockKey): void {
    this.#sql.run(
      `UPDATE _stock_counts SET dirty = 1
       WHERE sku = ? AND subsidiary_id = ? AND dirty = 0 AND given_up = 0 AND ${holdsBack('_stock_counts.subsidiary_id')}`,
      ...[sku, subsidiaryId],
    );
  }

  #mark(name: string): number {
    return this.#sql.value('SELECT value FROM marks WHERE name = ?', name) ?? -1;
  }

  #setMark(name: string, value: number): void {
    this.#sql.run('UPDATE marks SET value = ? WHERE name = ?', value, name);
  }
}

/** Whether a booking changes how many pieces of any stock are booked. */
function booksPieces({ steps, leftOut }: Booking): boolean {
  const left = new Map(leftOut.map(({ step, qty }) => [step, qty]));
  return steps.some((step) => step.qty !== (left.get(step) ?? 0));
}

function sumOf(steps: readonly { qty: number }[]): number {
  return Number(steps.reduce((sum, { qty }) => sum + qty, 0).toFixed(9));
}

function keyOfStep({ sku, subsidiaryId, externalId, seq, part }: StepKey): StepKey {
  return { sku, subsidiaryId, externalId, seq, part };
}

function linesIn(without: string | null): number[] {
  return without === null ? [] : (JSON.parse(without) as number[]);
}
