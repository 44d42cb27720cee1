import type Database from 'better-sqlite3';
import type { StockChangeItem } from '../../domain/platform/platform.ts';
import type { BranchDirectory } from '../../domain/product/catalog-lookup.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import { countedBody, type HeldBackCount, HeldBackCounts } from './held-back-counts.ts';
import { OutboxLine } from './outbox-line.ts';
import { StockRules } from './stock-rules.ts';
import { type AckResult, UnbookedOrders } from './unbooked-orders.ts';

/** How late an order may be heard of, and the count that was sent without it is still corrected. */
const HEARD_LATE_MAX_MS = 2 * 3_600_000;
/** Clocks differ by a little. */
const CLOCK_MARGIN_MS = 1_000;

/** Takes in what the POS has booked, and corrects the stock that was held back for it. */
export class OrderAcks {
  readonly #db: Database.Database;
  readonly #clock: Clock;
  readonly #unbooked: UnbookedOrders;
  readonly #rules: StockRules;
  readonly #counts: HeldBackCounts;
  readonly #line: OutboxLine;
  readonly #takeVersion: Database.Statement<[], number>;
  readonly #correctedSeq: Database.Statement<[], number>;
  readonly #setCorrectedSeq: Database.Statement<[]>;

  constructor(options: { db: Database.Database; clock: Clock; branches: BranchDirectory }) {
    this.#db = options.db;
    this.#clock = options.clock;
    this.#unbooked = new UnbookedOrders(options);
    this.#rules = new StockRules(options);
    this.#counts = new HeldBackCounts(options.db);
    this.#line = new OutboxLine(options.db);
    this.#takeVersion = options.db
      .prepare<[], number>("UPDATE marks SET value = value + 1 WHERE name = 'outbox.version' RETURNING value")
      .pluck();
    this.#correctedSeq = options.db
      .prepare<[], number>("SELECT value FROM marks WHERE name = 'orders.corrected'")
      .pluck();
    this.#setCorrectedSeq = options.db.prepare(`
      UPDATE marks SET value = (SELECT coalesce(max(seq), 0) FROM order_events)
      WHERE name = 'orders.corrected' AND value < (SELECT coalesce(max(seq), 0) FROM order_events)`);
  }

  /** To be called before the first count is taken in: an order that ends before the count leaves is not booked by that. */
  begin(): void {
    this.#transaction(() => this.#unbooked.begin());
  }

  /** Records that the POS has booked these orders; one answer for each, in order. */
  acknowledge(orderIds: readonly string[], source: string): AckResult[] {
    return this.#transaction(() => this.#unbooked.acknowledge(orderIds, source));
  }

  /**
   * Puts a correction in line for every stock of which the platform would have another quantity had tillsync known
   * all it knows now when it sent the last count: orders were booked or cancelled since, or are heard of only now.
   * What was ordered after the count the platform has taken off by itself, and keeps when that is cancelled. To be
   * called after acknowledgements and after orders changed. Returns how many.
   */
  correct(): number {
    return this.#transaction(() => {
      const counts = this.#counts.idle(this.#correctedSeq.get() ?? 0);
      this.#setCorrectedSeq.run();
      return this.#correct(counts);
    });
  }

  /**
   * The same for counts that have just been settled: what was booked or heard of while they were under way, `correct`
   * had to leave to this. To be called in the transaction that settles them.
   */
  correctSettled(changeIds: readonly number[]): number {
    return this.#transaction(() => this.#correct(this.#counts.idleOf(changeIds)));
  }

  /** The hold-back is switched off: what it kept is forgotten, so that it begins anew when it is on again. */
  end(): void {
    this.#transaction(() => {
      if (!this.#unbooked.end()) return;
      this.#counts.clear();
    });
  }

  /** Forgets what no count needs any more; all orders placed until `heardAllUntilMs` were heard of. */
  prune(heardAllUntilMs = this.#clock.nowMs()): number {
    return this.#transaction(() => {
      const untilMs = Math.min(heardAllUntilMs, this.#clock.nowMs()) - HEARD_LATE_MAX_MS;
      const counts = this.#counts.dropOld(isoUtc(untilMs));
      const judgedSeq = Math.min(this.#correctedSeq.get() ?? 0, this.#counts.blockedSeq());
      return counts + this.#unbooked.prune(judgedSeq);
    });
  }

  #correct(counts: readonly HeldBackCount[]): number {
    if (counts.length === 0) return 0;
    this.#rules.begin({ holdBack: true, skipUnchanged: false, sendAsIs: true });
    this.#line.begin();
    let corrections = 0;
    for (const count of counts) {
      const body = countedBody(count);
      if (!body) continue;
      const isAsSent = this.#wouldHaveSent(count, body) === count.sentQty;
      // What such an order took, the platform does not give back.
      const isShort = this.#rules.isCancelledSince(count.heardSeq, count, body);
      if (isAsSent && !isShort) continue;
      const changeId = this.#takeVersion.get() ?? 0;
      const createdAt = isoUtc(this.#clock.nowMs());
      this.#line.putNewest(
        {
          ...count,
          kind: 'stock',
          changeId,
          createdAt,
          source: 'hold-back',
          reference: null,
          heldGuard: null,
          message: 'Orders were booked, cancelled or heard of since this was sent.',
          zeroedAt: null,
        },
        body,
      );
      corrections += 1;
    }
    return corrections;
  }

  #wouldHaveSent(count: HeldBackCount, body: StockChangeItem): number {
    const placedUntilMs = Date.parse(count.sentAt) + CLOCK_MARGIN_MS;
    return this.#rules.sellable(count, body, { placedUntilMs, heardUntilSeq: count.heardSeq }).qty;
  }

  #transaction<T>(action: () => T): T {
    return this.#db.transaction(action).immediate();
  }
}
