import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../core/time.ts';
import { asBit, asSent } from '../db/sqlite.ts';
import type { StockChangeItem } from '../platform/platform.ts';
import type { ChangeBody } from './change.ts';
import {
  bodyColumns,
  bodyOf,
  LINE_COLUMNS,
  type LineRow,
  LineRows,
  OutboxLine,
  RefusedChanges,
} from './queue.ts';
import { type LedgerStock, StockLedger, stockTarget } from './stock-ledger.ts';

export interface PushedRow {
  sku: string | null;
  subsidiaryId: string | null;
  /** As it was sent. */
  body: ChangeBody;
  /** Newest event of the order feed when it was sent. */
  sentAsOfSeq: number;
}

type Place = { sku: string; subsidiaryId: string | null };

/** Writes what the platform took into the mirror, in the transaction that settles it. */
export class MirrorPush {
  readonly #nextMark: Database.Statement<[], number>;
  readonly #putStock: Database.Statement;
  readonly #setPrice: Database.Statement;
  readonly #setProduct: Database.Statement;
  readonly #doubtStock: Database.Statement<[number, number, string, string]>;
  readonly #doubtPrice: Database.Statement<[number, string]>;
  readonly #doubtProduct: Database.Statement<[number, string]>;
  readonly #forgetDigests: Database.Statement<[string]>;
  readonly #places: Database.Statement<[string, string, string], Place>;

  constructor(db: Database.Database) {
    this.#nextMark = db
      .prepare<[], number>("UPDATE marks SET value = value + 1 WHERE name = 'push' RETURNING value")
      .pluck();
    this.#putStock = db.prepare(`
      INSERT INTO stocks (sku, subsidiary_id, qty, show, confirmed_seq, confirmed_ms, pushed_mark)
      SELECT sku, @subsidiaryId, @qty, @show, @sentAsOfSeq, @nowMs, @mark FROM skus WHERE sku = @sku
      ON CONFLICT (sku, subsidiary_id) DO UPDATE SET qty = excluded.qty, show = coalesce(excluded.show, show),
        confirmed_seq = excluded.confirmed_seq, confirmed_ms = excluded.confirmed_ms,
        pushed_mark = excluded.pushed_mark, uncertain = 0,
        show_uncertain = show_uncertain AND excluded.show IS NULL`);
    this.#setPrice = db.prepare(
      'UPDATE skus SET price = @price, pushed_mark = @mark, uncertain = 0 WHERE sku = @sku',
    );
    this.#setProduct = db.prepare(`
      UPDATE products SET name = coalesce(@name, name), show = coalesce(@show, show), pushed_mark = @mark,
        uncertain = uncertain AND (@name IS NULL OR @show IS NULL)
      WHERE product_id = (SELECT product_id FROM skus WHERE sku = @sku)`);
    this.#doubtStock = db.prepare(`
      UPDATE stocks SET uncertain = 1, pushed_mark = ?, show_uncertain = show_uncertain OR ?
      WHERE sku = ? AND subsidiary_id = ?`);
    this.#doubtPrice = db.prepare('UPDATE skus SET uncertain = 1, pushed_mark = ? WHERE sku = ?');
    this.#doubtProduct = db.prepare(`
      UPDATE products SET uncertain = 1, pushed_mark = ?
      WHERE product_id = (SELECT product_id FROM skus WHERE sku = ?)`);
    this.#forgetDigests = db.prepare(`
      UPDATE branch_products SET digest = NULL
      WHERE digest IS NOT NULL AND product_id = (SELECT product_id FROM skus WHERE sku = ?)`);
    this.#places = db.prepare(`
      SELECT sku, subsidiary_id AS subsidiaryId FROM integrations
      WHERE ext_id = ? OR product_id_pos_a = ? OR product_code_pos_b = ?`);
  }

  /** To be called once in each transaction that settles a call, after the platform has answered. */
  nextMark(): number {
    return this.#nextMark.get() ?? 0;
  }

  /** A change that was sent as it was is not placed here; what it may have touched is doubted. */
  apply(row: PushedRow, mark: number, nowMs: number): void {
    const { sku, subsidiaryId, body, sentAsOfSeq } = row;
    if (sku === null) {
      this.doubt(row, mark);
      return;
    }
    if ('qty' in body) {
      if (subsidiaryId === null) return;
      const show = asBit(body.show ?? null);
      this.#putStock.run({ sku, subsidiaryId, qty: asSent(body.qty), show, sentAsOfSeq, mark, nowMs });
    } else {
      if (body.price !== undefined) this.#setPrice.run({ sku, price: asSent(body.price), mark });
      if (body.name !== undefined || body.show !== undefined) {
        this.#setProduct.run({ sku, name: body.name ?? null, show: asBit(body.show ?? null), mark });
      }
    }
    this.#forgetDigests.run(sku);
  }

  /** Notes that the platform may or may not have taken it: what the mirror has is no longer certain. */
  doubt({ sku, subsidiaryId, body }: Omit<PushedRow, 'sentAsOfSeq'>, mark: number): void {
    for (const place of sku === null ? this.#placesOf(body) : [{ sku, subsidiaryId }]) {
      if ('qty' in body) {
        const doubtsShow = Number(body.show !== undefined);
        if (place.subsidiaryId !== null)
          this.#doubtStock.run(mark, doubtsShow, place.sku, place.subsidiaryId);
      } else {
        if (body.price !== undefined) this.#doubtPrice.run(mark, place.sku);
        if (body.name !== undefined || body.show !== undefined) this.#doubtProduct.run(mark, place.sku);
      }
      this.#forgetDigests.run(place.sku);
    }
  }

  /** Everything that the words of a change may stand for, by what the mirror knows by now. */
  #placesOf(body: ChangeBody): Place[] {
    if ('sku' in body && body.sku !== undefined) return [{ sku: String(body.sku), subsidiaryId: null }];
    const { externalId } = body;
    return externalId === undefined ? [] : this.#places.all(externalId, externalId, externalId);
  }
}

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
