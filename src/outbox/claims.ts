import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../core/time.ts';
import { asSent, fromBit } from '../db/sqlite.ts';
import type { StockChangeItem } from '../platform/platform.ts';
import { PRIORITY_SOLD_OUT, planBatch, sameNumber } from './batch.ts';
import type { ChangeBody, ChangeKind } from './change.ts';
import { saysTheSame } from './guard-rails.ts';
import { OrderTakings, type OrderTakingsOptions } from './order-takings.ts';
import { bodyOf, LINE_COLUMNS, type LineRow, RefusedChanges } from './queue.ts';
import { type LedgerStock, StockLedger, stockTarget } from './stock-ledger.ts';

interface StockValue {
  qty: number | string | null;
  show: number | null;
}

interface ProductValue {
  price: number | string | null;
  name: string | null;
  show: number | null;
  uncertain: number;
}

/** What the mirror has, for certain, of the things that changes are about. */
export class MirrorValues {
  readonly #stock: Database.Statement<[string, string], StockValue>;
  readonly #product: Database.Statement<[string], ProductValue>;

  constructor(db: Database.Database) {
    this.#stock = db.prepare(`
      SELECT qty, CASE WHEN show_uncertain = 0 THEN show END AS show FROM stocks
      WHERE sku = ? AND subsidiary_id = ? AND uncertain = 0`);
    this.#product = db.prepare(`
      SELECT s.price, p.name, p.show, s.uncertain OR p.uncertain AS uncertain
      FROM skus s JOIN products p USING (product_id)
      WHERE s.sku = ? AND p.vanished_at IS NULL`);
  }

  /** Whether the stock has the quantity (and visibility) by the platform's last word. */
  hasStock(sku: string, subsidiaryId: string, wanted: { qty: number; show?: boolean | undefined }): boolean {
    const stock = this.#stock.get(sku, subsidiaryId);
    return stock !== undefined && saysTheSame({ qty: stock.qty, show: fromBit(stock.show) }, wanted);
  }

  /** Whether a stock of zero would be news; it is for one the mirror does not know. */
  isZero(sku: string | null, subsidiaryId: string | null): boolean {
    const stock = sku === null || subsidiaryId === null ? undefined : this.#stock.get(sku, subsidiaryId);
    return stock !== undefined && sameNumber(stock.qty, 0);
  }

  priceOf(sku: string): number | string | null | undefined {
    return this.#product.get(sku)?.price;
  }

  /** Whether the product has every value of the body. A description cannot be seen, so it is never known. */
  hasProductValues(sku: string, body: Exclude<ChangeBody, { qty: number }>): boolean {
    const product = this.#product.get(sku);
    if (!product || product.uncertain === 1 || body.description !== undefined) return false;
    return (
      (body.price === undefined || sameNumber(product.price, body.price)) &&
      (body.name === undefined || product.name === body.name) &&
      (body.show === undefined || fromBit(product.show) === body.show)
    );
  }
}

/** How values are judged before they leave. */
export interface SendRules {
  /** Whether a value that the mirror has already is settled without a call. */
  skipUnchanged: boolean;
  /** `stock.hold_back_unbooked`. */
  holdBack: boolean;
  /**
   * Whether changes whose target the mirror does not know are sent by their own words. While a first sweep is
   * under way they had better wait: until then nobody can tell that two of them mean the same product, and an
   * older one could arrive after a newer one.
   */
  sendAsIs: boolean;
  /** `stock.trust_for`: a count is not passed over by a confirmation that is older; left out: however old it is. */
  trustMs?: number | undefined;
  /** `stock.platform_deducts`: the platform takes off what it sells. Left out: it does. */
  platformDeducts?: boolean | undefined;
}

export interface ClaimedItem {
  changeId: number;
  target: string;
  /** The item as it is to be sent. */
  body: ChangeBody;
  /** How often it was sent before. */
  attempts: number;
}

export interface Claim {
  /** Names the call when it is settled; null when there is nothing to send. */
  callId: number | null;
  items: ClaimedItem[];
  /** Changes that needed no call, since the platform has their values. */
  settled: number;
  /** Whether more may be waiting. */
  more: boolean;
}

export interface LineOutlook {
  waiting: number;
  /** Whether the first of them is sold out. */
  urgent: boolean;
}

type Waiting = LineRow & { attempts: number; priority: number };

/** A change of the line, or a stock of which the platform has another quantity than is wanted though no count waits. */
type Candidate = { row: Waiting; stock: LedgerStock | null } | { row: null; stock: LedgerStock };

/** Changes of the line that are read at once. */
const LINE_PART = 200;
/** Stocks without a waiting count that one call looks at. */
const STOCKS_AT_ONCE = 500;

/** Takes changes out of the line for one call, and stocks that orders have moved. */
export class OutboxClaims {
  readonly #db: Database.Database;
  readonly #clock: Clock;
  readonly #values: MirrorValues;
  readonly #takings: OrderTakings;
  readonly #ledger: StockLedger;
  readonly #refused: RefusedChanges;
  readonly #line: Database.Statement<[string, number, number, number], Waiting>;
  readonly #inFlight: Database.Statement<[string], string>;
  readonly #takeCall: Database.Statement<[], number>;
  readonly #send: Database.Statement;
  readonly #settle: Database.Statement<[string, number]>;
  readonly #outlook: Database.Statement<[string, number], { waiting: number; urgent: number | null }>;
  readonly #orderSeq: Database.Statement<[], number>;

  constructor(options: OrderTakingsOptions) {
    const { db } = options;
    this.#db = db;
    this.#clock = options.clock;
    this.#values = new MirrorValues(db);
    this.#takings = new OrderTakings(options);
    this.#ledger = new StockLedger(db);
    this.#refused = new RefusedChanges(db);
    // INDEXED BY for what LineRows needs it for: a plan of its own for each kind takes much longer than the look.
    const line = 'outbox INDEXED BY outbox_line';
    const inLine = `kind = ? AND state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read'`;
    this.#line = db.prepare(`
      SELECT ${LINE_COLUMNS}, attempts, priority FROM ${line} WHERE ${inLine} AND (basis = 'mirror' OR ?)
        AND (priority, queue_seq) > (?, ?)
      ORDER BY priority, queue_seq LIMIT ${LINE_PART}`);
    this.#inFlight = db
      .prepare<[string], string>(
        "SELECT conflict_key FROM outbox INDEXED BY outbox_sending WHERE kind = ? AND state = 'sending'",
      )
      .pluck();
    this.#takeCall = db
      .prepare<[], number>("UPDATE marks SET value = value + 1 WHERE name = 'outbox.call' RETURNING value")
      .pluck();
    this.#send = db.prepare(`
      UPDATE outbox SET state = 'sending', attempts = attempts + 1, call_id = @callId, sent_qty = @sentQty,
        held_back = @heldBack, sent_as_of_seq = @orderSeq
      WHERE change_id = @changeId`);
    this.#settle = db.prepare(`
      UPDATE outbox SET state = 'done', settled_at = ?, message = 'The platform has this value already.'
      WHERE change_id = ?`);
    this.#outlook = db.prepare(`
      SELECT count(*) AS waiting, min(priority) = 0 AS urgent
      FROM ${line} WHERE ${inLine} AND (basis = 'mirror' OR ?)`);
    this.#orderSeq = db
      .prepare<[], number>(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0)",
      )
      .pluck();
  }

  /** Brings up to date what orders take. True: there is more, for a next transaction. To be called before `claim`. */
  catchUp({ holdBack }: Pick<SendRules, 'holdBack'>): boolean {
    return this.#transaction(() => this.#takings.catchUp(holdBack));
  }

  /**
   * The next changes for one call, sold out first, then the longest waiting; on the disk as under way when the
   * transaction is. Values that the platform has already are settled on the way.
   */
  claim(kind: ChangeKind, max: number, rules: SendRules): Claim {
    return this.#transaction(() => {
      if (kind === 'stock' && this.#takings.catchUp(rules.holdBack)) {
        return { callId: null, items: [], settled: 0, more: true };
      }
      const inFlight = new Set(this.#inFlight.all(kind));
      const plan = planBatch(
        this.#candidates(kind, rules),
        (each) => {
          if (each.row === null) return this.#isDue(each.stock, rules) ? 'take' : 'settle';
          if (inFlight.has(each.row.conflictKey)) return 'leave';
          return this.#judge(each, rules);
        },
        { max },
      );
      const at = isoUtc(this.#clock.nowMs());
      let settled = 0;
      for (const { row, stock } of plan.settle) {
        if (stock) this.#ledger.isSettled(stock);
        if (!row) continue;
        settled += 1;
        this.#settle.run(at, row.changeId);
        this.#refused.outlived(row, bodyOf(row), at);
      }
      if (plan.take.length === 0) return { callId: null, items: [], settled, more: plan.more };
      const callId = this.#takeCall.get() ?? 0;
      const orderSeq = this.#orderSeq.get() ?? 0;
      const items = plan.take.map((each) => this.#leave(each, { callId, orderSeq }, rules));
      return { callId, items, settled, more: plan.more };
    });
  }

  /** How long the line is, for the choice of endpoint. */
  outlook(kind: ChangeKind, { sendAsIs, holdBack }: Pick<SendRules, 'sendAsIs' | 'holdBack'>): LineOutlook {
    const { waiting = 0, urgent = null } = this.#outlook.get(kind, Number(sendAsIs)) ?? {};
    const moved = kind === 'stock' && holdBack ? this.#ledger.openCount : 0;
    return { waiting: waiting + moved, urgent: urgent === 1 };
  }

  /** Stocks that orders have moved, for which no count waits. */
  get movedCount(): number {
    return this.#ledger.openCount;
  }

  /** Sold out first, then what orders have moved, then the longest waiting. */
  *#candidates(kind: ChangeKind, rules: SendRules): Generator<Candidate> {
    const moved = kind === 'stock' && rules.holdBack ? this.#ledger.open(STOCKS_AT_ONCE) : [];
    for (const stock of moved) if (stock.wantedQty === 0) yield { row: null, stock };
    let isUrgent = true;
    for (const row of this.#waiting(kind, rules)) {
      if (isUrgent && row.priority !== PRIORITY_SOLD_OUT) {
        isUrgent = false;
        for (const stock of moved) if (stock.wantedQty !== 0) yield { row: null, stock };
      }
      yield { row, stock: null };
    }
    if (isUrgent) for (const stock of moved) if (stock.wantedQty !== 0) yield { row: null, stock };
  }

  /** In parts: while a statement is read row by row, nothing can be written. */
  *#waiting(kind: ChangeKind, { sendAsIs }: SendRules): Generator<Waiting> {
    let last: Pick<Waiting, 'priority' | 'queueSeq'> | undefined = { priority: -1, queueSeq: 0 };
    while (last) {
      const rows: Waiting[] = this.#line.all(kind, Number(sendAsIs), last.priority, last.queueSeq);
      yield* rows;
      last = rows.length === LINE_PART ? rows.at(-1) : undefined;
    }
  }

  #judge(candidate: Candidate & { row: Waiting }, rules: SendRules): 'take' | 'settle' | 'leave' {
    const { row } = candidate;
    const { sku, subsidiaryId } = row;
    const body = bodyOf(row);
    if (!('qty' in body)) {
      const isKnown = rules.skipUnchanged && sku !== null && this.#values.hasProductValues(sku, body);
      return isKnown ? 'settle' : 'take';
    }
    // Sent by its own words: nobody knows what it is compared with.
    if (sku === null || subsidiaryId === null) return 'take';
    if (this.#ledger.isUnderWay(sku, subsidiaryId)) return 'leave';
    const stock = this.#ledger.count({ ...row, sku, subsidiaryId }, body);
    candidate.stock = stock;
    return this.#isKnown(stock, body, rules) ? 'settle' : 'take';
  }

  /** A count says what the platform has for certain: confirmed lately, and nothing was ordered since. */
  #isKnown(stock: LedgerStock, { show }: StockChangeItem, rules: SendRules): boolean {
    const { expectedQty, orderedQty, confirmedSeq, confirmedMs } = stock;
    const { skipUnchanged, trustMs = Number.POSITIVE_INFINITY } = rules;
    const ageMs = Math.abs(this.#clock.nowMs() - confirmedMs);
    return (
      skipUnchanged &&
      expectedQty === wantedOf(stock, rules) &&
      orderedQty === 0 &&
      confirmedSeq >= this.#takings.fromSeq &&
      ageMs <= trustMs &&
      (show === undefined || stock.show === show)
    );
  }

  /** Orders have moved what is wanted, or what the platform has. */
  #isDue({ expectedQty, wantedQty, orderedQty, confirmedSeq }: LedgerStock, rules: SendRules): boolean {
    if (rules.platformDeducts === false && orderedQty > 0) return true;
    return expectedQty !== wantedQty || confirmedSeq < this.#takings.fromSeq;
  }

  #leave(
    { row, stock }: Candidate,
    call: { callId: number; orderSeq: number },
    rules: SendRules,
  ): ClaimedItem {
    const qty = stock && wantedOf(stock, rules);
    if (stock && qty !== null) this.#ledger.isSent(stock, { ...call, qty });
    if (!row) {
      const address = JSON.parse(stock.address) as Omit<StockChangeItem, 'qty'>;
      const body: StockChangeItem = { ...address, qty: stock.wantedQty };
      return { changeId: stock.changeId, target: stockTarget(stock), attempts: stock.attempts, body };
    }
    const { changeId, target, attempts } = row;
    const body = bodyOf(row);
    const asCounted = 'qty' in body ? body.qty : null;
    const heldBack = stock && rules.holdBack ? asSent(stock.reservedQty) : null;
    this.#send.run({ ...call, changeId, sentQty: asSent(qty ?? asCounted), heldBack });
    return { changeId, target, attempts, body: qty === null ? body : { ...body, qty } };
  }

  #transaction<T>(action: () => T): T {
    return this.#db.transaction(action).immediate();
  }
}

/** While the hold-back is off, what was counted is what is sent. */
function wantedOf(stock: LedgerStock, { holdBack }: Pick<SendRules, 'holdBack'>): number {
  return holdBack ? stock.wantedQty : stock.countedQty;
}
