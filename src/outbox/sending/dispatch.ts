import type { CatalogLookup } from '../../catalog/product.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { asSent, type Sql, sqlOf } from '../../db/sqlite.ts';
import type { StockChangeItem } from '../../platform/schemas.ts';
import type { Answer, BatchItem, ChangeBody, ChangeKind, OutboxChange } from '../intake/change.ts';
import { resolveStock } from '../intake/resolve.ts';
import type { HoldBackSetting } from '../ledger/hold-back.ts';
import { countedAgain, MovedIds } from '../ledger/moved-ids.ts';
import { Reservations, type ReservationsOptions } from '../ledger/reservations.ts';
import {
  type LedgerStock,
  SafetyStock,
  type StockKey,
  StockLedger,
  StockLooks,
} from '../ledger/stock-ledger.ts';
import { lessSafety, qtyToSend } from '../ledger/stock-rule.ts';
import {
  alternate,
  fillCall,
  PRIORITY_OTHERS,
  PRIORITY_SOLD_OUT,
  type QueueOutlook,
  Turns,
} from './call-plan.ts';
import { KnownValues, ValuesBefore } from './known-values.ts';
import { MAY_LEAVE, OutboxQueue } from './queue.ts';

export interface SettlementReport {
  done: number;
  rejected: number;
  /** Number of changes that wait again. */
  waiting: number;
  /** Number of failed changes that a newer waiting value replaced. */
  superseded: number;
  /** Number of answers for settled changes or for changes of another call. */
  ignored: number;
}

interface Settling {
  mark: number;
  at: string;
}

/** Rules by which values are judged before they are sent. */
export interface SendRules {
  /** Whether a value that the platform already has is settled without a call. */
  skipUnchanged: boolean;
  /** `stock.hold_back_unbooked`. */
  holdBack: HoldBackSetting;
  /**
   * Whether changes of an unknown target are sent with their own ids. During a first sweep they wait, because two of
   * them may mean one product, and the older could arrive after the newer.
   */
  sendAsIs: boolean;
  /**
   * `stock.trust_for`: a value that was confirmed longer ago is sent again. If left out, confirmations do not expire.
   */
  trustMs?: number | undefined;
  /** `stock.platform_deducts`: whether the platform subtracts sold pieces by itself; true if left out. */
  platformDeducts?: boolean | undefined;
  /**
   * A quantity above 0 and up to this is sent only after the stock was read on the platform. If left out, no stock is
   * read before it is sent.
   */
  lookBelow?: number | undefined;
}

export interface Claim {
  /** Id of the call for `settle`; null if nothing is to be sent. */
  callId: number | null;
  items: BatchItem[];
  /** Number of changes that were settled without a call, because the platform has their values. */
  settled: number;
  /** Scarce stocks that must be read on the platform first. Their changes wait until then. */
  toLook: StockKey[];
}

/** A change that may be sent: one that waits, or the last count of a stock that may have another quantity by now. */
interface Candidate {
  change: OutboxChange;
  /** Ids and values for the platform; of a stock the quantity is that of the ledger. */
  body: ChangeBody;
  stock: LedgerStock | null;
  before: string | null;
}

/**
 * SQL that stores the values that a change replaces, for `outbox undo`. Values stored before stay, because they are
 * earlier.
 */
const keepBefore = (before: string) =>
  `value_before = coalesce(json_patch(${before}, coalesce(value_before, '{}')), value_before)`;
/** Maximum number of changes of one branch that are read at once. */
const READ_AT_ONCE = 200;
/**
 * Maximum number of candidates examined for one call. Otherwise a long queue without anything to send could block the
 * event loop.
 */
const LOOK_MAX = 2_000;
/**
 * Maximum number of stocks without a waiting count that are examined for one call. `outlook` counts changes and stocks
 * only up to this number, too.
 */
const STOCKS_AT_ONCE = 500;

/**
 * Claims the changes of one call, and settles it. Outbox and mirror change in one transaction.
 *
 * States of a change in the outbox:
 * - pending: it waits; with `held_guard` until a person releases it, otherwise for its turn
 * - sending: a call has it; a newer value of the same target waits beside it
 * - done: the platform took it, or had the value already
 * - rejected: the platform refused it, or no product is known for it; a person decides, or a newer value replaces it
 * - superseded: a person discarded or retried it, or a newer value came that did not take its row: while it was held or in
 *   a call, or because it was made earlier
 *
 * From when a count is first judged, it is the last one of its stock, until a newer one is judged. Then its change is sent
 * again where it must, in whatever state it ended. States of a stock (`_stock_counts`): settled (`dirty` is 0), due (`dirty`
 * is 1: an order, an acknowledgement or a safety stock changed what is wanted), under way (`call_id` is set), given up
 * (`given_up` is 1: the count was refused or discarded, and nothing is sent until the next one).
 */
export class OutboxDispatcher {
  readonly #sql: Sql;
  readonly #options: ReservationsOptions & { catalog: CatalogLookup };
  readonly #clock: Clock;
  readonly #values: KnownValues;
  readonly #before: ValuesBefore;
  readonly #reservations: Reservations;
  readonly #ledger: StockLedger;
  readonly #looks: StockLooks;
  readonly #safety: SafetyStock;
  readonly #queue: OutboxQueue;
  readonly #moved: MovedIds;
  /** The turns of branches, for each kind and priority of changes. */
  readonly #turns = new Map<string, Turns>();

  constructor(options: ReservationsOptions & { catalog: CatalogLookup }) {
    const { db, clock } = options;
    this.#options = options;
    this.#sql = sqlOf(db);
    this.#clock = clock;
    this.#values = new KnownValues(db);
    this.#before = new ValuesBefore(db);
    this.#reservations = new Reservations(options);
    this.#ledger = new StockLedger(db);
    this.#looks = new StockLooks({ db, ledger: this.#ledger, clock });
    this.#safety = new SafetyStock(db);
    this.#queue = new OutboxQueue(db);
    this.#moved = new MovedIds({ ...options, queue: this.#queue, values: this.#values });
  }

  /**
   * Adds the steps of new orders to the ledger, and counts again what moved with its id; called before `claim`. Returns true if more events are left for
   * another transaction.
   */
  catchUp({ holdBack }: Pick<SendRules, 'holdBack'>): boolean {
    return this.#sql.transaction(() => this.#reservations.catchUp(holdBack) || this.#moved.follow());
  }

  /**
   * Claims the next changes for one call: sold-out ones first, then the others. Branches take turns, and each branch's
   * oldest change is first. The claimed changes are marked `sending` in a durable transaction. A change whose value the
   * platform already has is settled instead.
   */
  claim(kind: ChangeKind, max: number, rules: SendRules): Claim {
    return this.#sql.transaction(() => {
      const claim: Claim = { callId: null, items: [], settled: 0, toLook: [] };
      if (kind === 'stock' && (this.#reservations.catchUp(rules.holdBack) || this.#moved.follow()))
        return claim;
      // What a stock is counted is known only once its ids are followed.
      const unfollowed = this.#moved.unfollowed();
      const inFlight = new Set(
        this.#sql.values<string>(
          "SELECT conflict_key FROM _outbox WHERE kind = ? AND state = 'sending'",
          kind,
        ),
      );
      const settled: Candidate[] = [];
      const sizes = { places: max, lookMax: LOOK_MAX };
      const leaving = fillCall(this.#lanes(kind, max, rules), sizes, (candidate) => {
        if (kind === 'stock' && unfollowed.has(candidate.change.target)) return false;
        const verdict = this.#judge(candidate, inFlight, rules);
        if (verdict === 'settle') settled.push(candidate);
        if (verdict === 'look') claim.toLook.push(this.#letWait(candidate));
        return verdict === 'take';
      });
      const at = isoUtc(this.#clock.nowMs());
      for (const each of settled) {
        const { change, stock, before } = each;
        if (stock) this.#ledger.markSettled(stock);
        if (change.state !== 'pending') continue;
        claim.settled += 1;
        this.#sql.run(
          `UPDATE _outbox SET state = 'done', settled_at = ?, message = ?, ${keepBefore('?')} WHERE change_id = ?`,
          ...[at, hasAlready(change.body), before, change.changeId],
        );
        this.#queue.supersedeRejected(change, at);
      }
      if (leaving.length === 0) return claim;
      const nextCall = "UPDATE marks SET value = value + 1 WHERE name = 'outbox.call' RETURNING value";
      const callId = this.#sql.value(nextCall) ?? 0;
      const orderSeq = this.#reservations.newestSeq;
      const items = leaving.map((each) => this.#leave(each, { callId, orderSeq }));
      return { ...claim, callId, items };
    });
  }

  /** Returns the length of the queue, for the choice of the endpoint. It is counted only up to a limit. */
  outlook(kind: ChangeKind, { sendAsIs }: Pick<SendRules, 'sendAsIs'>): QueueOutlook {
    const { waiting = 0, urgent = 0 } =
      this.#sql.row<{ waiting: number; urgent: number }>(
        `SELECT (SELECT count(*) FROM (SELECT 1 FROM _outbox WHERE ${MAY_LEAVE} LIMIT ${STOCKS_AT_ONCE})) AS waiting,
           EXISTS (SELECT 1 FROM _outbox WHERE ${MAY_LEAVE} AND priority = ${PRIORITY_SOLD_OUT}) AS urgent`,
        { kind, sendAsIs: Number(sendAsIs) },
      ) ?? {};
    const moved = kind === 'stock' ? this.movedCount : 0;
    return { waiting: waiting + moved, urgent: urgent === 1 };
  }

  /**
   * Number of stocks that have no waiting count and whose quantity was changed by orders or a safety stock; at most
   * `STOCKS_AT_ONCE`.
   */
  get movedCount(): number {
    return this.#ledger.countDirty(STOCKS_AT_ONCE);
  }

  /** Whether ids of the POS mean other stocks than before, which the next `catchUp` follows. */
  get hasMovedIds(): boolean {
    return this.#moved.isAny;
  }

  #lanes(kind: ChangeKind, places: number, rules: SendRules) {
    const stocks = kind === 'stock' ? this.#ledger.dirty(STOCKS_AT_ONCE) : [];
    const lane = (priority: number) => {
      const isOfLane = ({ wantedQty }: LedgerStock) => (wantedQty === 0) === (priority === PRIORITY_SOLD_OUT);
      const moved = Map.groupBy(stocks.filter(isOfLane), ({ subsidiaryId }) => subsidiaryId);
      const which = { kind, priority, sendAsIs: Number(rules.sendAsIs) };
      const branches = new Set([...this.#queue.branches(which), ...moved.keys()]);
      const readAtOnce = Math.ceil(places / Math.max(1, branches.size));
      return this.#turnsOf(kind, priority).of([...branches].sort(), (branch) => {
        // Alternates these stocks with waiting changes. Otherwise fresh counts would wait behind the thousands of
        // stocks that a new safety stock may change.
        const ofBranch = this.#again(moved.get(branch) ?? []);
        return alternate(ofBranch, this.#waiting({ ...which, branch }, readAtOnce));
      });
    };
    return { soldOut: lane(PRIORITY_SOLD_OUT), others: lane(PRIORITY_OTHERS) };
  }

  #turnsOf(kind: ChangeKind, priority: number): Turns {
    const key = `${kind} ${priority}`;
    const calls = "SELECT value FROM marks WHERE name = 'outbox.call'";
    const turns = this.#turns.get(key) ?? new Turns(this.#sql.value<number>(calls) ?? 0);
    this.#turns.set(key, turns);
    return turns;
  }

  *#again(stocks: readonly LedgerStock[]): Generator<Candidate> {
    for (const stock of stocks) {
      const change = this.#queue.get(stock.changeId);
      if (change) yield { change, stock, body: change.body, before: null };
    }
  }

  /** Reads a branch's queue in parts. SQLite cannot write on this connection while a statement is read row by row. */
  *#waiting(
    which: { kind: ChangeKind; priority: number; branch: string; sendAsIs: number },
    readAtOnce: number,
  ): Generator<Candidate> {
    let after = 0;
    for (let limit = Math.min(readAtOnce, READ_AT_ONCE); ; limit = Math.min(2 * limit, READ_AT_ONCE)) {
      const rows = this.#queue.all(
        `WHERE ${MAY_LEAVE} AND priority = +@priority AND branch = +@branch AND queue_seq > +@after
         ORDER BY queue_seq LIMIT +@limit`,
        { ...which, after, limit },
      );
      for (const change of rows) yield { change, stock: null, body: change.body, before: null };
      if (rows.length < limit) return;
      after = rows.at(-1)?.queueSeq ?? 0;
    }
  }

  #judge(
    candidate: Candidate,
    inFlight: ReadonlySet<string>,
    rules: SendRules,
  ): 'take' | 'settle' | 'leave' | 'look' {
    const { change, body } = candidate;
    if (inFlight.has(change.conflictKey)) return 'leave';
    const { sku, subsidiaryId } = change;
    if (!('qty' in body)) {
      const trust = { nowMs: this.#clock.nowMs(), trustMs: rules.trustMs };
      const isKnown = rules.skipUnchanged && sku !== null && this.#values.hasProductValues(sku, body, trust);
      if (!isKnown && sku !== null) candidate.before = this.#before.ofProduct(sku, body);
      return isKnown ? 'settle' : 'take';
    }
    // The target is unknown, so the change cannot be compared and is sent with its own ids.
    if (sku === null || subsidiaryId === null) return 'take';
    const place = { sku, subsidiaryId };
    let stock: LedgerStock;
    if (candidate.stock) {
      stock = candidate.stock;
      const address = this.#isServed(stock) && this.#isDue(stock, rules) && this.#addressOf(stock);
      if (!address) return 'settle';
      candidate.body = { ...address, qty: stock.countedQty };
    } else {
      const last = this.#ledger.lastCount(place);
      if (last && last.callId !== null) return 'leave';
      candidate.before = this.#before.ofStock(place, change, last);
      stock = this.#ledger.count(place, change, last);
      candidate.stock = stock;
      if (this.#isKnown(stock, body, rules)) return 'settle';
    }
    return this.#waitsForLook(stock, rules) ? 'look' : 'take';
  }

  /** Returns whether the stock's branch is configured. An old count of a shop that closed would put it on sale again. */
  #isServed({ subsidiaryId }: StockKey): boolean {
    const { all, isEmpty } = this.#options.branches;
    return isEmpty || all.some(({ subsidiaryId: id }) => id === null || id === subsidiaryId);
  }

  /**
   * Whether the stock must be read on the platform first, because an unknown order may have taken the last pieces.
   */
  #waitsForLook(stock: LedgerStock, { lookBelow = 0 }: SendRules): boolean {
    const qty = qtyToSend(stock);
    return qty > 0 && qty <= lookBelow && !this.#looks.isFresh(stock);
  }

  /**
   * Leaves a change waiting, and stores the value that it replaces. The next claim could not find this value, because
   * the ledger then has the change's own count.
   */
  #letWait({ change, stock, before }: Candidate): StockKey {
    const keep = `UPDATE _outbox SET ${keepBefore('?')} WHERE change_id = ?`;
    if (before !== null) this.#sql.run(keep, before, change.changeId);
    return { sku: stock?.sku ?? '', subsidiaryId: stock?.subsidiaryId ?? '' };
  }

  /** Whether the platform surely has the wanted quantity: confirmed recently, and nothing ordered since then. */
  #isKnown(stock: LedgerStock, { show }: StockChangeItem, rules: SendRules): boolean {
    const { skipUnchanged, trustMs = Number.POSITIVE_INFINITY } = rules;
    return (
      skipUnchanged &&
      stock.expectedQty === qtyToSend(stock) &&
      stock.orderedQty === 0 &&
      stock.confirmedSeq >= this.#reservations.fromSeq &&
      Math.abs(this.#clock.nowMs() - stock.confirmedMs) <= trustMs &&
      (show === undefined || stock.show === show)
    );
  }

  /** Whether the stock must be sent, because the platform does not have the wanted quantity or may not have it. */
  #isDue({ expectedQty, wantedQty, orderedQty, confirmedSeq }: LedgerStock, rules: SendRules): boolean {
    if (rules.platformDeducts === false && orderedQty > 0) return true;
    return expectedQty !== wantedQty || confirmedSeq < this.#reservations.fromSeq;
  }

  /**
   * Resolves the stock again, because the catalogue may have changed since the count. Returns undefined if the stock
   * no longer exists.
   */
  #addressOf({ sku, subsidiaryId }: StockKey): LedgerStock['address'] | undefined {
    const resolution = resolveStock({ sku, subsidiaryId, qty: 0 }, this.#options);
    return resolution.state === 'resolved' ? (resolution.address as LedgerStock['address']) : undefined;
  }

  #leave({ change, body, stock, before }: Candidate, call: { callId: number; orderSeq: number }): BatchItem {
    const { changeId, target, subsidiaryId } = change;
    const isAgain = change.state !== 'pending';
    let qty: number | null = null;
    if (stock) {
      qty = isAgain ? stock.wantedQty : qtyToSend(stock);
      const hadQty = isAgain && stock.orderedQty === 0 ? stock.expectedQty : null;
      this.#ledger.markSent(stock, { ...call, changeId, qty, hadQty });
    } else if ('qty' in body) {
      // The product is unknown, so only the safety stock of the branch, or of all products, applies.
      qty = lessSafety(body.qty, this.#safety.lookup()(null, subsidiaryId));
    }
    const attempts = isAgain ? (stock?.attempts ?? 0) : change.attempts;
    const item = { changeId, target, attempts, body: qty === null ? body : { ...body, qty } };
    if (isAgain) return item;
    this.#sql.run(
      `UPDATE _outbox SET state = 'sending', attempts = attempts + 1, call_id = @callId, sent_qty = @sentQty,
         sent_as_of_seq = @orderSeq, ${keepBefore('@before')}
       WHERE change_id = @changeId`,
      { ...call, changeId, sentQty: asSent(qty), before },
    );
    return item;
  }

  /** Settles the changes of a call. Changes without an answer stay `sending`. */
  settle(callId: number, answers: readonly Answer[]): SettlementReport {
    const report: SettlementReport = { done: 0, rejected: 0, waiting: 0, superseded: 0, ignored: 0 };
    return this.#sql.transaction(() => {
      const at = isoUtc(this.#clock.nowMs());
      const mark = answers.length === 0 ? 0 : this.#values.nextMark();
      for (const answer of answers) {
        const change = this.#queue.get(answer.changeId);
        const stock = change && this.#ledger.ofCall(callId, change);
        if (stock) this.#ledger.settle(stock, answer.state);
        const isWaitedFor = change?.state === 'sending' && change.callId === callId;
        if (isWaitedFor) report[this.#settleChange(change, stock, answer, { mark, at })] += 1;
        else if (stock) report[this.#settleAgain(stock, answer, { mark, at })] += 1;
        else report.ignored += 1;
      }
      return report;
    });
  }

  /**
   * Requeues the changes of calls whose process died. Only the holder of the sending lease may call it. Sending a
   * value twice is harmless, because values are absolute.
   */
  reclaim(): number {
    return this.#sql.transaction(() => {
      const at = isoUtc(this.#clock.nowMs());
      const changes = this.#queue.all("WHERE state = 'sending' ORDER BY version");
      const stocks = this.#ledger.underWay();
      const mark = changes.length + stocks.length === 0 ? 0 : this.#values.nextMark();
      for (const stock of stocks) {
        this.#values.doubt({ ...stock, body: { ...stock.address, qty: stock.callQty ?? 0 } }, mark);
        this.#ledger.settle(stock, 'retry');
      }
      for (const change of changes) {
        this.#values.doubt(change, mark);
        this.#queue.putBack(change, 'tillsync stopped while it was under way; it is sent again.', at);
      }
      return Math.max(changes.length, stocks.length);
    });
  }

  #settleChange(
    change: OutboxChange,
    stock: LedgerStock | undefined,
    { state, message, isAlone = false }: Answer,
    { mark, at }: Settling,
  ): 'done' | 'rejected' | 'waiting' | 'superseded' {
    const { body, sentQty, sentAsOfSeq } = change;
    if (state !== 'done') this.#values.doubt(change, mark);
    if (state === 'retry') {
      const unknown = 'It is not known to have arrived; it is sent again.';
      const queueSeq = isAlone ? this.#nextVersion() : change.queueSeq;
      return this.#queue.putBack({ ...change, queueSeq }, message ?? unknown, at);
    }
    let told: string | null = message ?? 'Refused.';
    if (state === 'done') {
      const sent = 'qty' in body ? { ...body, qty: sentQty ?? body.qty } : body;
      this.#values.apply({ ...change, body: sent }, sentAsOfSeq, mark, this.#clock.nowMs());
      told = stock ? this.#whyLess(stock) : null;
      if (!stock && 'qty' in body && sentQty !== null && sentQty !== body.qty) {
        const safetyQty = this.#safety.lookup()(null, change.subsidiaryId);
        told = body.qty < 0 ? belowZero(body.qty) : keptBack(sentQty, safetyQty);
      }
    }
    this.#queue.end(change.changeId, { state, message: told, at });
    this.#queue.supersedeRejected(change, at);
    return state;
  }

  /**
   * Settles a count that was sent again. Its change, settled long ago, gets the new message.
   */
  #settleAgain(
    stock: LedgerStock,
    { state, message = 'Refused.' }: Answer,
    { mark, at }: Settling,
  ): 'done' | 'rejected' | 'waiting' {
    const { changeId, address, callQty, wantedQty, callSeq } = stock;
    const body = { ...address, qty: callQty ?? wantedQty };
    if (state === 'done') {
      this.#values.apply({ ...stock, body }, callSeq ?? 0, mark, this.#clock.nowMs());
      const again =
        stock.callHadQty === null
          ? `Sent again as ${body.qty}, since orders or the safety stock changed.`
          : `Sent again as ${body.qty}: the platform had ${stock.callHadQty}, the POS counted ${stock.countedQty}.`;
      const told = [countedAgain(this.#sql, changeId), again, this.#whyLess(stock)];
      this.#sql.run(
        "UPDATE _outbox SET message = ?, attempts = attempts + 1 WHERE change_id = ? AND state = 'done'",
        ...[told.filter(Boolean).join(' '), changeId],
      );
      return 'done';
    }
    this.#values.doubt({ ...stock, body }, mark);
    if (state === 'retry') return 'waiting';
    this.#keepRefused(stock, message, at);
    return 'rejected';
  }

  /** Stores a count that was refused when it was sent again for a person, as a change of its own with the same version. */
  #keepRefused(stock: LedgerStock, message: string, at: string): void {
    const counted = this.#queue.get(stock.changeId);
    if (!counted) return;
    const changeId = this.#nextVersion();
    const change = {
      ...counted,
      ...{ changeId, message, createdAt: at, heldGuard: null, zeroedAt: null },
      ...({ source: 'hold-back', origin: 'tillsync', reference: null } as const),
      body: { ...(this.#addressOf(stock) ?? stock.address), qty: stock.countedQty },
    };
    this.#queue.putRejected(change, true);
    this.#ledger.count(stock, change, this.#ledger.lastCount(stock));
    this.#ledger.giveUp(changeId);
    this.#queue.supersedeRejected(change, at);
  }

  /** Returns the next change's version, which is also its place in the queue. */
  #nextVersion(): number {
    const nextVersion = "UPDATE marks SET value = value + 1 WHERE name = 'outbox.version' RETURNING value";
    return this.#sql.value(nextVersion) ?? 0;
  }

  /**
   * Returns sentences that say why the sent quantity differs from the count, or that the platform did not show the
   * stock; null if neither is true.
   */
  #whyLess(stock: LedgerStock): string | null {
    const { reservedQty, unheardQty, safetyQty, countedQty, callQty } = stock;
    const told: string[] = countedQty < 0 ? [belowZero(countedQty)] : [];
    // Nothing is taken off a count below zero.
    if (reservedQty > 0 && stock.holds && countedQty >= 0) {
      const orders = this.#ledger.reservedBy(stock, 6).map(({ code, orderId }) => code ?? orderId);
      const named = `${orders.slice(0, 5).join(', ')}${orders.length > 5 ? ' and more' : ''}`;
      told.push(
        `Sent as ${callQty}: ${reservedQty} are sold online and not booked: ${orders.length === 1 ? 'order' : 'orders'} ${named}.`,
      );
    }
    if (unheardQty > 0 && countedQty >= 0) {
      told.push(`Kept back too are ${unheardQty} that the platform has sold in an order not heard of yet.`);
    }
    if (safetyQty > 0 && countedQty > 0) {
      told.push(
        told.length > 0 ? `The safety stock of ${safetyQty} is kept back too.` : keptBack(callQty, safetyQty),
      );
    }
    if (this.#looks.wasRefused(stock)) told.push('The platform did not show the stock before.');
    return told.length === 0 ? null : told.join(' ');
  }
}

function hasAlready(body: ChangeBody): string {
  return 'qty' in body && body.qty < 0
    ? `The platform has 0 already. The POS counted ${body.qty}.`
    : 'The platform has this value already.';
}

function belowZero(countedQty: number): string {
  return `Sent as 0: the POS counted ${countedQty}.`;
}

function keptBack(sentQty: number | null, safetyQty: number): string {
  return `Sent as ${sentQty}: the safety stock of ${safetyQty} is kept back.`;
}
