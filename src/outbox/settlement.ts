import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../core/time.ts';
import { type Sql, sqlOf } from '../db/sql.ts';
import type { Answer, QueuedChange } from './change.ts';
import { MirrorValues } from './mirror-values.ts';
import { OutboxQueue } from './queue.ts';
import { type LedgerStock, StockLedger, stockTarget } from './stock-ledger.ts';

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

interface Settling {
  mark: number;
  at: string;
}

/** Settles calls: the outbox and the mirror change in one transaction. */
export class OutboxSettlement {
  readonly #sql: Sql;
  readonly #clock: Clock;
  readonly #queue: OutboxQueue;
  readonly #values: MirrorValues;
  readonly #ledger: StockLedger;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#sql = sqlOf(db);
    this.#clock = clock;
    this.#queue = new OutboxQueue(db);
    this.#values = new MirrorValues(db);
    this.#ledger = new StockLedger(db);
  }

  /** Changes of the call that are not named stay under way. */
  settle(callId: number, answers: readonly Answer[]): SettlementReport {
    const report: SettlementReport = { done: 0, rejected: 0, waiting: 0, superseded: 0, ignored: 0 };
    return this.#sql.transaction(() => {
      const at = isoUtc(this.#clock.nowMs());
      const mark = answers.length === 0 ? 0 : this.#values.nextMark();
      for (const answer of answers) {
        const which = "WHERE change_id = ? AND call_id = ? AND state = 'sending'";
        const change = this.#queue.all(which, answer.changeId, callId)[0];
        const stock = this.#ledger.ofCall(callId, answer.changeId);
        if (stock) this.#ledger.settle(stock, answer.state);
        if (change) report[this.#settleChange(change, stock, answer, { mark, at })] += 1;
        else if (stock) report[this.#settleMoved(stock, answer, { mark, at })] += 1;
        else report.ignored += 1;
      }
      return report;
    });
  }

  /**
   * Puts what a process that died left under way back into the queue. Only for whoever holds the lease of
   * sending; values are absolute, so sending them again is harmless.
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
    change: QueuedChange,
    stock: LedgerStock | undefined,
    { state, message }: Answer,
    { mark, at }: Settling,
  ): 'done' | 'rejected' | 'waiting' | 'superseded' {
    const { body, sentQty, sentAsOfSeq } = change;
    if (state !== 'done') this.#values.doubt(change, mark);
    if (state === 'retry') {
      const unknown = 'It is not known to have arrived; it is sent again.';
      return this.#queue.putBack(change, message ?? unknown, at);
    }
    let told: string | null = message ?? 'Refused.';
    if (state === 'done') {
      const sent = 'qty' in body ? { ...body, qty: sentQty ?? body.qty } : body;
      this.#values.apply({ ...change, body: sent }, sentAsOfSeq, mark, this.#clock.nowMs());
      told = stock ? this.#reservedMessage(stock) : null;
    }
    this.#sql.run(
      'UPDATE outbox SET state = ?, message = ?, settled_at = ?, call_id = NULL WHERE change_id = ?',
      ...[state, told, at, change.changeId],
    );
    this.#queue.outlive(change, at);
    return state;
  }

  /** A stock that orders have moved: its count was settled long ago, and tells that it was sent again. */
  #settleMoved(
    stock: LedgerStock,
    { state, message = 'Refused.' }: Answer,
    { mark, at }: Settling,
  ): 'done' | 'rejected' | 'waiting' {
    const { changeId, address, callQty, wantedQty, callSeq } = stock;
    const body = { ...address, qty: callQty ?? wantedQty };
    if (state === 'done') {
      this.#values.apply({ ...stock, body }, callSeq ?? 0, mark, this.#clock.nowMs());
      const told = [`Sent again as ${body.qty}, since orders changed.`, this.#reservedMessage(stock)];
      this.#sql.run(
        "UPDATE outbox SET message = ?, attempts = attempts + 1 WHERE change_id = ? AND state = 'done'",
        ...[told.filter(Boolean).join(' '), changeId],
      );
      return 'done';
    }
    this.#values.doubt({ ...stock, body }, mark);
    if (state === 'retry') return 'waiting';
    this.#keepRefused(stock, message, at);
    return 'rejected';
  }

  /** What is refused is for a person to see: the count, as it would be handed over again. */
  #keepRefused(stock: LedgerStock, message: string, at: string): void {
    const { sku, subsidiaryId, countedSeq: asOfSeq } = stock;
    const nextVersion = "UPDATE marks SET value = value + 1 WHERE name = 'outbox.version' RETURNING value";
    const changeId = this.#sql.value(nextVersion) ?? 0;
    const target = stockTarget(stock);
    const body = { ...stock.address, qty: stock.countedQty };
    const change = {
      ...({ changeId, version: changeId, kind: 'stock', source: 'hold-back', basis: 'mirror' } as const),
      ...{ target, conflictKey: target, sku, subsidiaryId, body, asOfSeq, message },
      ...{ reference: null, heldGuard: null, zeroedAt: null, createdAt: at },
    };
    this.#queue.putRejected(change, true);
    this.#ledger.settle(this.#ledger.count(change, stock, body), 'rejected');
    this.#queue.outlive(change, at);
  }

  #reservedMessage(stock: LedgerStock): string | null {
    const { reservedQty, callQty } = stock;
    if (reservedQty <= 0) return null;
    const orders = this.#ledger.reservedBy(stock);
    const named = `${orders.slice(0, 5).join(', ')}${orders.length > 5 ? ' and more' : ''}`;
    return `Sent as ${callQty}: ${reservedQty} are sold online and not booked: ${orders.length === 1 ? 'order' : 'orders'} ${named}.`;
  }
}
