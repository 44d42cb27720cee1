import type Database from 'better-sqlite3';
import type { BranchDirectory } from '../../domain/catalog-lookup.ts';
import { type Clock, isoUtc } from '../../domain/clock.ts';
import { countedBody, HeldBackCounts } from './held-back-counts.ts';
import { OutboxLine } from './outbox-line.ts';
import { StockRules } from './stock-rules.ts';
import { type AckResult, UnbookedOrders } from './unbooked-orders.ts';

/** Takes in what the POS has booked, and corrects the stock that was held back for it. */
export class OrderAcks {
  readonly #db: Database.Database;
  readonly #clock: Clock;
  readonly #unbooked: UnbookedOrders;
  readonly #rules: StockRules;
  readonly #counts: HeldBackCounts;
  readonly #line: OutboxLine;
  readonly #takeVersion: Database.Statement<[], number>;

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
  }

  /** Records that the POS has booked these orders; one answer for each, in order. */
  acknowledge(orderIds: readonly string[], source: string): AckResult[] {
    return this.#transaction(() => this.#unbooked.acknowledge(orderIds, source));
  }

  /**
   * Puts a correction in line for every stock whose last count may now be sold to another extent, since orders
   * were booked or cancelled. To be called after acknowledgements and after orders changed. Returns how many.
   */
  correct(): number {
    return this.#transaction(() => {
      const counts = this.#counts.idle();
      if (counts.length === 0) return 0;
      this.#rules.begin({ holdBack: true, skipUnchanged: false, sendAsIs: true });
      this.#line.begin();
      let corrections = 0;
      for (const count of counts) {
        const body = countedBody(count);
        if (!body || this.#rules.sellable(count, body).qty === count.sentQty) continue;
        const version = this.#takeVersion.get() ?? 0;
        const createdAt = isoUtc(this.#clock.nowMs());
        this.#line.putNewest(
          {
            ...count,
            kind: 'stock',
            changeId: version,
            version,
            createdAt,
            source: 'hold-back',
            reference: null,
            heldGuard: null,
            message: 'Orders were booked or cancelled since this was counted.',
            zeroedAt: null,
          },
          body,
        );
        corrections += 1;
      }
      return corrections;
    });
  }

  /** Forgets what no count needs any more. */
  prune(): number {
    return this.#transaction(() => this.#unbooked.prune());
  }

  #transaction<T>(action: () => T): T {
    return this.#db.transaction(action).immediate();
  }
}
