import type Database from 'better-sqlite3';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import { HeldBackCounts } from './held-back-counts.ts';
import { MirrorPush } from './mirror-push.ts';
import { OutboxLine } from './outbox-line.ts';
import { bodyOf, LINE_COLUMNS, type LineRow } from './outbox-row.ts';
import { RefusedChanges } from './refused-changes.ts';

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
  heldBack: number | null;
  sentAsOfSeq: number;
};

/** Settles calls: the outbox and the mirror change in one transaction. */
export class OutboxSettlement {
  readonly #db: Database.Database;
  readonly #clock: Clock;
  readonly #line: OutboxLine;
  readonly #push: MirrorPush;
  readonly #counts: HeldBackCounts;
  readonly #refused: RefusedChanges;
  readonly #sent: Database.Statement<[number, number], SentRow>;
  readonly #underWay: Database.Statement<[], LineRow>;
  readonly #end: Database.Statement<[string, string | null, string, number]>;

  constructor({ db, clock }: { db: Database.Database; clock: Clock }) {
    this.#db = db;
    this.#clock = clock;
    this.#line = new OutboxLine(db);
    this.#push = new MirrorPush(db);
    this.#counts = new HeldBackCounts(db);
    this.#refused = new RefusedChanges(db);
    this.#sent = db.prepare(`
      SELECT ${LINE_COLUMNS}, sent_qty AS sentQty, held_back AS heldBack, sent_as_of_seq AS sentAsOfSeq
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
        if (!row) {
          report.ignored += 1;
        } else if (outcome.state === 'retry') {
          const message = outcome.message ?? 'It is not known to have arrived; it is sent again.';
          this.#push.doubt({ ...row, body: bodyOf(row) }, mark);
          report[this.#line.putBack(row, message, at)] += 1;
        } else {
          if (outcome.state === 'done') this.#applyDone(row, mark, at);
          // Refused with others, or after sends of unknown outcome, it may be there all the same.
          else this.#push.doubt({ ...row, body: bodyOf(row) }, mark);
          const message = outcome.state === 'done' ? soldMessage(row) : (outcome.message ?? 'Refused.');
          this.#end.run(outcome.state, message, at, row.changeId);
          this.#refused.outlived(row, bodyOf(row), at);
          report[outcome.state] += 1;
        }
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
      const mark = rows.length === 0 ? 0 : this.#push.nextMark();
      for (const row of rows) {
        this.#push.doubt({ ...row, body: bodyOf(row) }, mark);
        this.#line.putBack(row, 'tillsync stopped while it was under way; it is sent again.', at);
      }
      return rows.length;
    });
  }

  #applyDone(row: SentRow, mark: number, at: string): void {
    const body = bodyOf(row);
    if (!('qty' in body)) {
      this.#push.apply({ ...row, body }, mark);
      return;
    }
    const qty = row.sentQty ?? body.qty;
    this.#push.apply({ ...row, body: { ...body, qty } }, mark);
    if (row.heldBack === null) this.#counts.forget(row.target);
    else
      this.#counts.keep(row, { sentQty: qty, heldBack: row.heldBack, sentAt: at, heardSeq: row.sentAsOfSeq });
  }

  #transaction<T>(action: () => T): T {
    return this.#db.transaction(action).immediate();
  }
}

function soldMessage(row: SentRow): string | null {
  if (row.heldBack === null || row.heldBack <= 0) return null;
  return `Sent as ${row.sentQty}: ${row.heldBack} are sold online and not booked yet.`;
}
