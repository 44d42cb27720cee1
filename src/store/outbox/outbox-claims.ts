import type Database from 'better-sqlite3';
import type { ChangeBody, ChangeKind } from '../../domain/change/change.ts';
import { planBatch } from '../../domain/change/plan-batch.ts';
import type { BranchDirectory } from '../../domain/product/catalog-lookup.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import { asSent } from '../catalog/sql-value.ts';
import { HeldBackCounts } from './held-back-counts.ts';
import { bodyOf, LINE_COLUMNS, type LineRow } from './outbox-row.ts';
import { RefusedChanges } from './refused-changes.ts';
import { type Judgement, type SendRules, StockRules } from './stock-rules.ts';

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

type Waiting = LineRow & { attempts: number };

/** Takes changes out of the line for one call. */
export class OutboxClaims {
  readonly #db: Database.Database;
  readonly #clock: Clock;
  readonly #rules: StockRules;
  readonly #refused: RefusedChanges;
  readonly #counts: HeldBackCounts;
  readonly #line: Database.Statement<[string, number], Waiting>;
  readonly #inFlight: Database.Statement<[string], string>;
  readonly #takeCall: Database.Statement<[], number>;
  readonly #send: Database.Statement;
  readonly #settle: Database.Statement<[string, number]>;
  readonly #outlook: Database.Statement<[string, number], { waiting: number; urgent: number | null }>;
  readonly #orderSeq: Database.Statement<[], number>;

  constructor(options: { db: Database.Database; clock: Clock; branches: BranchDirectory }) {
    const { db } = options;
    this.#db = db;
    this.#clock = options.clock;
    this.#rules = new StockRules(options);
    this.#refused = new RefusedChanges(db);
    this.#counts = new HeldBackCounts(db);
    // INDEXED BY for what LineRows needs it for: a plan of its own for each kind takes much longer than the look.
    const line = 'outbox INDEXED BY outbox_line';
    const inLine = `kind = ? AND state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read'`;
    this.#line = db.prepare(`
      SELECT ${LINE_COLUMNS}, attempts FROM ${line} WHERE ${inLine} AND (basis = 'mirror' OR ?)
      ORDER BY priority, queue_seq`);
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

  /**
   * The next changes for one call, sold out first, then the longest waiting; on the disk as under way when the
   * transaction is. Values that the platform has already are settled on the way.
   */
  claim(kind: ChangeKind, max: number, rules: SendRules): Claim {
    return this.#transaction(() => {
      this.#rules.begin(rules);
      const inFlight = new Set(this.#inFlight.all(kind));
      const judged = new Map<number, Judgement>();
      const plan = planBatch(
        this.#line.iterate(kind, Number(rules.sendAsIs)),
        (row) => {
          if (inFlight.has(row.conflictKey)) return 'leave';
          const judgement = this.#rules.judge(row, bodyOf(row), rules);
          judged.set(row.changeId, judgement);
          return judgement.isUnchanged ? 'settle' : 'take';
        },
        { max },
      );
      const at = isoUtc(this.#clock.nowMs());
      const orderSeq = this.#orderSeq.get() ?? 0;
      for (const row of plan.settle) {
        this.#settle.run(at, row.changeId);
        this.#refused.outlived(row, bodyOf(row), at);
        const stock = judged.get(row.changeId)?.stock;
        if (!stock) continue;
        const { qty: sentQty, heldBack } = stock;
        if (rules.holdBack) this.#counts.confirm(row, { sentQty, heldBack, sentAt: at, heardSeq: orderSeq });
        else this.#counts.forget(row.target);
      }
      const { more } = plan;
      const settled = plan.settle.length;
      if (plan.take.length === 0) return { callId: null, items: [], settled, more };
      const callId = this.#takeCall.get() ?? 0;
      const items = plan.take.map((row): ClaimedItem => {
        const stock = judged.get(row.changeId)?.stock ?? null;
        const { changeId, target, attempts } = row;
        const sentQty = asSent(stock?.qty ?? null);
        const heldBack = rules.holdBack ? asSent(stock?.heldBack ?? null) : null;
        this.#send.run({ changeId, callId, sentQty, heldBack, orderSeq });
        const body = bodyOf(row);
        return { changeId, target, attempts, body: stock ? { ...body, qty: stock.qty } : body };
      });
      return { callId, items, settled, more };
    });
  }

  /** How long the line is, for the choice of endpoint. */
  outlook(kind: ChangeKind, { sendAsIs }: Pick<SendRules, 'sendAsIs'>): LineOutlook {
    const outlook = this.#outlook.get(kind, Number(sendAsIs));
    return { waiting: outlook?.waiting ?? 0, urgent: outlook?.urgent === 1 };
  }

  #transaction<T>(action: () => T): T {
    return this.#db.transaction(action).immediate();
  }
}
