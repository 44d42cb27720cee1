import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change.ts';
import type { StockChangeItem } from '../../domain/platform.ts';
import type { Basis, LineRow } from './outbox-row.ts';

/** The last count of a stock of which something was held back, and what was sent instead. */
export interface HeldBackCount {
  target: string;
  /** JSON text of the change as the POS handed it over. */
  body: string;
  conflictKey: string;
  basis: Basis;
  sku: string | null;
  subsidiaryId: string | null;
  asOfSeq: number;
  sentQty: number;
}

/** Statements on `held_back_counts`. Transactions are the caller's. */
export class HeldBackCounts {
  readonly #put: Database.Statement;
  readonly #drop: Database.Statement<[string]>;
  readonly #idle: Database.Statement<[], HeldBackCount>;

  constructor(db: Database.Database) {
    this.#put = db.prepare(`
      INSERT OR REPLACE INTO held_back_counts
        (target, body, conflict_key, basis, sku, subsidiary_id, as_of_seq, sent_qty)
      VALUES (@target, @body, @conflictKey, @basis, @sku, @subsidiaryId, @asOfSeq, @sentQty)`);
    this.#drop = db.prepare('DELETE FROM held_back_counts WHERE target = ?');
    this.#idle = db.prepare(`
      SELECT target, body, conflict_key AS conflictKey, basis, sku, subsidiary_id AS subsidiaryId,
        as_of_seq AS asOfSeq, sent_qty AS sentQty
      FROM held_back_counts h
      WHERE NOT EXISTS (
          SELECT 1 FROM outbox o WHERE o.kind = 'stock' AND o.target = h.target AND o.state = 'pending'
            AND o.held_guard IS NULL)
        AND NOT EXISTS (
          SELECT 1 FROM outbox o WHERE o.kind = 'stock' AND o.target = h.target AND o.state = 'pending'
            AND o.held_guard IS NOT NULL)
        AND NOT EXISTS (
          SELECT 1 FROM outbox o WHERE o.kind = 'stock' AND o.conflict_key = h.conflict_key
            AND o.state = 'sending')`);
  }

  keep(row: Omit<LineRow, 'queueSeq' | 'version'>, sentQty: number): void {
    this.#put.run({ ...row, sentQty });
  }

  forget(target: string): void {
    this.#drop.run(target);
  }

  /** Counts of stocks for which nothing waits, is held or is under way. */
  idle(): HeldBackCount[] {
    return this.#idle.all();
  }
}

/** The count's own body, a stock's. */
export function countedBody(count: HeldBackCount): StockChangeItem | undefined {
  const body = JSON.parse(count.body) as ChangeBody;
  return 'qty' in body ? body : undefined;
}
