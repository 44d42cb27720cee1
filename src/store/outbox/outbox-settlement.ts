import type Database from 'better-sqlite3';
import type { StockChangeItem } from '../../domain/platform/platform.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import { LineRows } from './line-rows.ts';
import { MirrorPush } from './mirror-push.ts';
import { OutboxLine } from './outbox-line.ts';
import { bodyColumns, bodyOf, LINE_COLUMNS, type LineRow } from './outbox-row.ts';
import { RefusedChanges } from './refused-changes.ts';
import { type LedgerStock, StockLedger, stockTarget } from './stock-ledger.ts';

/**
 * What became of a sent change:
 * - `done`: the platform took it
 * - `rejected`: the platform refused it; `message` is the platform's
 * - `retry`: unknown or not arrived; it waits again, under newer values
 */
export interface Outcome {
  changeId: number;
  state: 'done' | 'rejected' | 'retry';
  message?: string | undefined;
}

export interface SettlementReport {
  done: number;
  rejected: number;
  /** Wait again. */
  waiting: number;
  /** Did not arrive, and a newer value waits that takes their place. */
  superseded: number;
  /** Belonged to another call, or were settled before. */
  ignored: number;
}

type SentRow = LineRow & {
  sentQty: number | null;
  sentAsOfSeq: number;
};

/** Settles calls: the outbox and the mirror change in one transaction. */
export class OutboxSettlement {
  readonly #db: Database.Database;
  readonly #clock: Clock;
  readonly #line: OutboxLine;
  readonly #push: MirrorPush;
  readonly #ledger: StockLedger;
  readonly #rows: LineRows;
  readonly #takeVersion: Database.Statement<[], number>;
  readonly #tellMoved: Database.Statement<[string, number]>;
  readonly #refused: RefusedChanges;
  readonly #sent: Database.Statement<[number, number], SentRow>;
  readonly #underWay: Database.Statement<[], LineRow>;
  readonly #end: Database.Statement<[string, string | null, string, number]>;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#db = db;
    this.#clock = clock;
    this.#line = new OutboxLine(db);
    this.#push = new MirrorPush(db);
    this.#ledger = new StockLedger(db);
    this.#rows = new LineRows(db);
    this.#takeVersion = db
      .prepare<[], number>("UPDATE marks SET value = value + 1 WHERE name = 'outbox.version' RETURNING value")
      .pluck();
    this.#tellMoved = db.prepare(
      "UPDATE outbox SET message = ?, attempts = attempts + 1 WHERE change_id = ? AND state = 'done'",
    );
    this.#refused = new RefusedChanges(db);
    this.#sent = db.prepare(`
      SELECT ${LINE_COLUMNS}, sent_qty AS sentQty, sent_as_of_seq AS sentAsOfSeq
      FROM outbox WHERE change_id = ? AND call_id = ? AND state = 'sending'`);
    this.#underWay = db.prepare(`
      SELECT ${LINE_COLUMNS} FROM outbox WHERE state = 'sending' ORDER BY version`);
    this.#end = db.prepare(`
      UPDATE outbox SET state = ?, message = ?, settled_at = ?, call_id = NULL WHERE change_id = ?`);
  }

  /** Changes of the call that are not named stay under way. */
  settle(callId: number, outcomes: readonly Outcome[]): SettlementReport {
    const report: SettlementReport = { done: 0, rejected: 0, waiting: 0, superseded: 0, ignored: 0 };
    return this.#transaction(() => {
      const at = isoUtc(this.#clock.nowMs());
      const mark = outcomes.length === 0 ? 0 : this.#push.nextMark();
      for (const outcome of outcomes) {
        const row = this.#sent.get(outcome.changeId, callId);
        const stock = this.#ledger.ofCall(callId, outcome.changeId);
        if (stock) this.#ledger.settle(stock, outcome.state);
        if (row) report[this.#settleRow(row, stock, outcome, { mark, at })] += 1;
        else if (stock) report[this.#settleMoved(stock, outcome, { mark, at })] += 1;
        else report.ignored += 1;
      }
      return report;
    });
  }

  /**
   * Puts what a process that died left under way back into the line. Only for whoever holds the lease of
   * sending; values are absolute, so sending them again is harmless.
   */
  reclaim(): number {
    return this.#transaction(() => {
      const at = isoUtc(this.#clock.nowMs());
      const rows = this.#underWay.all();
      const stocks = this.#ledger.underWay();
      const mark = rows.length + stocks.length === 0 ? 0 : this.#push.nextMark();
      for (const stock of stocks) this.#push.doubt({ ...stock, body: doubted(stock) }, mark);
      for (const row of rows) {
        this.#push.doubt({ ...row, body: bodyOf(row) }, mark);
        this.#line.putBack(row, 'tillsync stopped while it was under way; it is sent again.', at);
      }
      for (const stock of stocks) this.#ledger.settle(stock, 'retry');
      return Math.max(rows.length, stocks.length);
    });
  }

  #settleRow(
    row: SentRow,
    stock: LedgerStock | undefined,
    outcome: Outcome,
    { mark, at }: Settling,
  ): 'done' | 'rejected' | 'waiting' | 'superseded' {
    const body = bodyOf(row);
    if (outcome.state !== 'done') this.#push.doubt({ ...row, body }, mark);
    if (outcome.state === 'retry') return this.#line.putBack(row, outcome.message ?? UNKNOWN, at);
    if (outcome.state === 'done') {
      const sent = 'qty' in body ? { ...body, qty: row.sentQty ?? body.qty } : body;
      this.#push.apply({ ...row, body: sent }, mark, this.#clock.nowMs());
    }
    const reserved = outcome.state === 'done' && stock ? this.#reservedMessage(stock) : null;
    const message = outcome.state === 'done' ? reserved : (outcome.message ?? 'Refused.');
    this.#end.run(outcome.state, message, at, row.changeId);
    this.#refused.outlived(row, body, at);
    return outcome.state;
  }

  /** A stock that orders have moved: its count was settled long ago, and tells that it was sent again. */
  #settleMoved(
    stock: LedgerStock,
    outcome: Outcome,
    { mark, at }: Settling,
  ): 'done' | 'rejected' | 'waiting' {
    const { sku, subsidiaryId, changeId } = stock;
    const address = JSON.parse(stock.address) as Omit<StockChangeItem, 'qty'>;
    const body: StockChangeItem = { ...address, qty: stock.callQty ?? stock.wantedQty };
    if (outcome.state === 'done') {
      this.#push.apply(
        { sku, subsidiaryId, body, sentAsOfSeq: stock.callSeq ?? 0 },
        mark,
        this.#clock.nowMs(),
      );
      const message = [`Sent again as ${body.qty}, since orders changed.`, this.#reservedMessage(stock)];
      this.#tellMoved.run(message.filter(Boolean).join(' '), changeId);
      return 'done';
    }
    this.#push.doubt({ sku, subsidiaryId, body }, mark);
    if (outcome.state === 'retry') return 'waiting';
    this.#keepRefused(stock, { ...address, qty: stock.countedQty }, outcome.message ?? 'Refused.', at);
    return 'rejected';
  }

  /** What is refused is for a person to see: the count, as it would be handed over again. */
  #keepRefused(stock: LedgerStock, body: StockChangeItem, message: string, at: string): void {
    const { sku, subsidiaryId, countedSeq: asOfSeq } = stock;
    const changeId = this.#takeVersion.get() ?? 0;
    const target = stockTarget(stock);
    const row = { changeId, version: changeId, kind: 'stock' as const, target, conflictKey: target, asOfSeq };
    const how = { source: 'hold-back', reference: null, heldGuard: null, zeroedAt: null, basis: 'mirror' };
    this.#rows.insert.run({
      ...{ ...row, ...how, sku, subsidiaryId, message },
      ...{ ...bodyColumns(body), state: 'rejected', createdAt: at, settledAt: at },
    });
    const newest = this.#ledger.count({ ...row, sku, subsidiaryId }, body);
    this.#ledger.settle(newest, 'rejected');
    this.#refused.outlived(row, body, at);
  }

  #reservedMessage(stock: LedgerStock): string | null {
    const { reservedQty, callQty } = stock;
    if (reservedQty <= 0) return null;
    const orders = this.#ledger.reservedBy(stock);
    const named = `${orders.slice(0, 5).join(', ')}${orders.length > 5 ? ' and more' : ''}`;
    return `Sent as ${callQty}: ${reservedQty} are sold online and not booked: ${orders.length === 1 ? 'order' : 'orders'} ${named}.`;
  }

  #transaction<T>(action: () => T): T {
    return this.#db.transaction(action).immediate();
  }
}

interface Settling {
  mark: number;
  at: string;
}

const UNKNOWN = 'It is not known to have arrived; it is sent again.';

function doubted(stock: LedgerStock): StockChangeItem {
  return { ...(JSON.parse(stock.address) as Omit<StockChangeItem, 'qty'>), qty: stock.callQty ?? 0 };
}
