import type Database from 'better-sqlite3';
import type { Clock } from '../../core/time.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import { newestSeq } from '../../orders/reading/mirror-file.ts';
import { HEARD_WITHIN_MS } from '../sending/differences.ts';
import type { StockKey, StockLedger } from './stock-ledger.ts';

/** Time for which a read of the platform's quantity is valid for a count. */
const LOOK_SPEAKS_MS = 60_000;

/**
 * Stores in `_stock_notes` what the platform showed of scarce stocks that are read before their counts are sent. The
 * caller opens the transaction.
 */
export class StockLooks {
  readonly #db: Database.Database;
  readonly #sql: Sql;
  readonly #ledger: StockLedger;
  readonly #clock: Clock;

  constructor({ db, ledger, clock }: { db: Database.Database; ledger: StockLedger; clock: Clock }) {
    this.#db = db;
    this.#sql = sqlOf(db);
    this.#ledger = ledger;
    this.#clock = clock;
  }

  /** Whether the stock was read on the platform within the last minute. */
  isFresh({ sku, subsidiaryId }: StockKey): boolean {
    const text = 'SELECT looked_ms FROM _stock_notes WHERE sku = ? AND subsidiary_id = ?';
    const lookedMs = this.#sql.value<number | null>(text, sku, subsidiaryId) ?? null;
    return lookedMs !== null && Math.abs(this.#clock.nowMs() - lookedMs) < LOOK_SPEAKS_MS;
  }

  /**
   * Stores by how much the platform's quantity is lower than expected. `shown` writes the platform's answer into the
   * mirror.
   */
  note(place: StockKey, shown: () => void): void {
    const expectedQty = this.#ledger.ofStock(place)?.expectedQty ?? null;
    shown();
    const { sku, subsidiaryId } = place;
    const text = 'SELECT qty + 0 FROM _stocks WHERE sku = ? AND subsidiary_id = ? AND uncertain = 0';
    const qty = this.#sql.value<number | null>(text, sku, subsidiaryId) ?? null;
    const missing = expectedQty === null || qty === null ? 0 : Number((expectedQty - qty).toFixed(9));
    this.#put(place, { missing: Math.max(0, missing), refused: 0 });
  }

  /** Records that the platform did not show the stock. Its count is sent nevertheless. */
  noteRefused(place: StockKey): void {
    this.#put(place, { missing: 0, refused: 1 });
  }

  wasRefused({ sku, subsidiaryId }: StockKey): boolean {
    const text = 'SELECT 1 FROM _stock_notes WHERE sku = ? AND subsidiary_id = ? AND look_refused = 1';
    return this.#sql.row(text, sku, subsidiaryId) !== undefined;
  }

  get isEmpty(): boolean {
    return this.#sql.value('SELECT 1 FROM _stock_notes WHERE looked_ms IS NOT NULL LIMIT 1') === undefined;
  }

  /**
   * Deletes reads at least a minute older than the last good poll, which brought all orders placed before those reads.
   * Stocks that lacked pieces are judged again, in case no order explains them. Returns whether there are any.
   */
  end(lastPollOkMs: number): boolean {
    const before = lastPollOkMs - HEARD_WITHIN_MS;
    const missed = this.#sql.run(
      `UPDATE _stock_counts SET dirty = 1 WHERE given_up = 0 AND (sku, subsidiary_id) IN (
         SELECT sku, subsidiary_id FROM _stock_notes WHERE looked_ms <= ? AND missing_qty > 0)`,
      before,
    );
    this.#sql.run('DELETE FROM _stock_notes WHERE looked_ms <= ? AND safety_qty IS NULL', before);
    const forget = 'looked_ms = NULL, looked_seq = NULL, missing_qty = NULL, look_refused = NULL';
    this.#sql.run(`UPDATE _stock_notes SET ${forget} WHERE looked_ms <= ?`, before);
    return missed.changes > 0;
  }

  #put({ sku, subsidiaryId }: StockKey, { missing, refused }: { missing: number; refused: number }): void {
    this.#sql.run(
      `INSERT INTO _stock_notes (sku, subsidiary_id, looked_ms, looked_seq, missing_qty, look_refused)
       VALUES (@sku, @subsidiaryId, @lookedMs, @lookedSeq, @missing, @refused)
       ON CONFLICT (sku, subsidiary_id) DO UPDATE SET looked_ms = excluded.looked_ms, look_refused = excluded.look_refused,
         -- What an earlier look missed is not heard of yet either.
         missing_qty = excluded.missing_qty + max(0, coalesce(missing_qty, 0) - (SELECT total(max(0, s.qty))
           FROM _stock_steps s WHERE s.sku = @sku AND s.subsidiary_id = @subsidiaryId AND s.seq > looked_seq)),
         looked_seq = excluded.looked_seq`,
      { sku, subsidiaryId, lookedMs: this.#clock.nowMs(), lookedSeq: newestSeq(this.#db), missing, refused },
    );
  }
}
