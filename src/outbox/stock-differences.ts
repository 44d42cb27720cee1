import type Database from 'better-sqlite3';
import { type Sql, sqlOf } from '../db/sqlite.ts';
import { type GivenBack, isDifferent } from './differences.ts';
import { type LedgerStock, type StockKey, StockLedger, stockTarget } from './stock-ledger.ts';

/** Counted stocks compared per part. */
const LOOKED_AT = 2_000;

/** A stock whose number on the platform is not the wanted one. */
interface StockDifference extends StockKey {
  name: string | null;
  /** The count as the POS submitted it. */
  countedQty: number;
  /** The quantity that the platform should have: the count less the held back pieces. */
  wantedQty: number;
  platformQty: number;
  /** Time at which the platform last showed that number. */
  seenMs: number;
  /** Time at which the difference was first seen. */
  sinceMs: number;
}

/** The result of comparing one part of the counts. */
export interface ComparedPart {
  found: LedgerStock[];
  /**
   * Stocks where the platform did not give back the pieces of ended orders. They are sent again and not reported.
   */
  kept: LedgerStock[];
  /** Stocks that cannot be compared now; their stored difference stays. */
  unsure: StockKey[];
  compared: number;
  /** Start of the next part; undefined after the last. */
  next: StockKey | undefined;
}

const FIRST: StockKey = { sku: '', subsidiaryId: '' };
/** Counts that may differ from the platform. An equal number that no order moved cannot differ. */
const PART = `
  SELECT c.sku, c.subsidiary_id AS subsidiaryId,
    c.refused_version < c.counted_version OR NOT (
      EXISTS (SELECT 1 FROM given_up_counts g WHERE g.sku = c.sku AND g.subsidiary_id = c.subsidiary_id
        AND g.version >= c.counted_version)
      OR EXISTS (SELECT 1 FROM outbox o INDEXED BY outbox_rejected_target WHERE o.state = 'rejected'
        AND o.kind = 'stock' AND o.target = 'sku:' || c.sku || '@' || c.subsidiary_id
        AND o.version >= c.counted_version)) AS isWanted,
    c.dirty = 0 AND (k.uncertain = 1 OR k.qty + 0 <> c.counted_qty
      OR EXISTS (SELECT 1 FROM stock_steps s WHERE s.sku = c.sku AND s.subsidiary_id = c.subsidiary_id)
      OR EXISTS (SELECT 1 FROM stock_safety)) AS mayDiffer
  FROM stock_counts c LEFT JOIN stocks k USING (sku, subsidiary_id)
  WHERE (c.sku, c.subsidiary_id) > (@sku, @subsidiaryId) ORDER BY c.sku, c.subsidiary_id LIMIT ${LOOKED_AT}`;
/** Counts only orders after the last sending, because the quantity sent then already included earlier orders. */
const GIVEN_BACK = `
  SELECT count(*) FILTER (WHERE s.seq > coalesce(c.call_seq, 0) AND s.is_first = 0 AND s.qty <= 0) AS count,
    -total(min(0, s.qty)) AS qty
  FROM stock_steps s JOIN stock_counts c USING (sku, subsidiary_id)
  WHERE s.sku = @sku AND s.subsidiary_id = @subsidiaryId AND s.seq > c.counted_seq`;
/** Whether a newer count waits for the sender or a person, or is being sent. */
const WAITS = `
  SELECT 1 FROM outbox INDEXED BY outbox_waiting WHERE kind = 'stock' AND target = @target
    AND state = 'pending' AND held_guard IS NULL
  UNION ALL SELECT 1 FROM outbox INDEXED BY outbox_held WHERE kind = 'stock' AND target = @target
    AND state = 'pending' AND held_guard IS NOT NULL
  UNION ALL SELECT 1 FROM outbox INDEXED BY outbox_sending WHERE kind = 'stock' AND conflict_key = @target
    AND state = 'sending'`;

/**
 * Compares the last counts, as the ledger wants them, with the platform's stock, and stores differences. It works in
 * parts, because a hub has hundreds of thousands of counts. The caller opens the transaction.
 */
export class StockDifferences {
  readonly #sql: Sql;
  readonly #ledger: StockLedger;

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
    this.#ledger = new StockLedger(db);
  }

  /** Compares the next counts. Writes nothing. */
  part(lastPollOkMs: number | null, after: StockKey = FIRST): ComparedPart {
    const rows = this.#sql.rows<StockKey & { isWanted: number; mayDiffer: number }>(PART, { ...after });
    const part: ComparedPart = { found: [], kept: [], unsure: [], compared: rows.length, next: undefined };
    for (const { sku, subsidiaryId, isWanted, mayDiffer } of rows) {
      if (isWanted === 0 || mayDiffer === 0) continue;
      const place = { sku, subsidiaryId };
      const stock = this.#ledger.ofStock(place);
      if (!stock) continue;
      const verdict = isDifferent(stock, lastPollOkMs, () => this.#givenBack(stock));
      const waits = verdict !== false && this.#sql.row(WAITS, { target: stockTarget(place) }) !== undefined;
      if (waits) continue;
      if (verdict === 'kept') part.kept.push(stock);
      else if (verdict) part.found.push(stock);
      else if (verdict === undefined) part.unsure.push(place);
    }
    if (rows.length === LOOKED_AT) part.next = rows.at(-1);
    return part;
  }

  /** Stores a part's differences and deletes old ones within its range. */
  keep({ found, unsure, next }: ComparedPart, after: StockKey = FIRST): void {
    const stays = new Set([...found, ...unsure].map(stockTarget));
    for (const { sku, subsidiaryId } of this.#kept(after, next)) {
      if (stays.has(stockTarget({ sku, subsidiaryId }))) continue;
      this.#sql.run('DELETE FROM stock_differences WHERE sku = ? AND subsidiary_id = ?', sku, subsidiaryId);
    }
    for (const { sku, subsidiaryId, confirmedMs } of found) {
      const insert = `INSERT INTO stock_differences (sku, subsidiary_id, since_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`;
      this.#sql.run(insert, sku, subsidiaryId, confirmedMs);
    }
  }

  /** Marks counts to be sent again because the platform's number differs. */
  send(stocks: readonly StockKey[]): void {
    const text = `UPDATE stock_counts SET dirty = 1
      WHERE sku = ? AND subsidiary_id = ? AND call_id IS NULL AND counted_version > refused_version`;
    for (const { sku, subsidiaryId } of stocks) this.#sql.run(text, sku, subsidiaryId);
  }

  /** Whether a part's result differs from the stored differences. */
  isNews({ found, unsure, next }: ComparedPart, after: StockKey = FIRST): boolean {
    const kept = new Set(this.#kept(after, next).map(stockTarget));
    const now = new Set(found.map(stockTarget));
    const stays = new Set(unsure.map(stockTarget));
    return (
      [...now].some((key) => !kept.has(key)) || [...kept].some((key) => !now.has(key) && !stays.has(key))
    );
  }

  #givenBack({ sku, subsidiaryId }: StockKey): GivenBack {
    const row = this.#sql.row<{ count: number; qty: number }>(GIVEN_BACK, { sku, subsidiaryId });
    return { isSome: (row?.count ?? 0) > 0, qty: row?.qty ?? 0 };
  }

  #kept(after: StockKey, next: StockKey | undefined): StockKey[] {
    const { sku, subsidiaryId } = after;
    const last = next ?? { sku: '\u{10ffff}', subsidiaryId: '' };
    return this.#sql.rows<StockKey>(
      `SELECT sku, subsidiary_id AS subsidiaryId FROM stock_differences
       WHERE (sku, subsidiary_id) > (@sku, @subsidiaryId) AND (sku, subsidiary_id) <= (@lastSku, @lastBranch)`,
      { sku, subsidiaryId, lastSku: last.sku, lastBranch: last.subsidiaryId },
    );
  }

  get count(): number {
    return this.#sql.value('SELECT count(*) FROM stock_differences') ?? 0;
  }

  /** Returns all stocks with a stored difference. */
  stocks(): LedgerStock[] {
    const places = this.#sql.rows<StockKey>(
      'SELECT sku, subsidiary_id AS subsidiaryId FROM stock_differences ORDER BY sku, subsidiary_id',
    );
    return places.flatMap((place) => this.#ledger.ofStock(place) ?? []);
  }

  /** Returns the stored differences, largest first. */
  list(limit: number): StockDifference[] {
    return this.#sql.rows<StockDifference>(
      `SELECT d.sku, d.subsidiary_id AS subsidiaryId, p.name, l.counted_qty AS countedQty, l.wanted_qty AS wantedQty,
         l.believed_qty AS platformQty, l.confirmed_ms AS seenMs, d.since_ms AS sinceMs
       FROM stock_differences d JOIN stock_ledger l USING (sku, subsidiary_id)
         LEFT JOIN skus s USING (sku) LEFT JOIN products p USING (product_id)
       WHERE l.believed_qty IS NOT NULL
       ORDER BY abs(l.believed_qty - l.wanted_qty) DESC, d.since_ms, d.sku LIMIT ?`,
      limit,
    );
  }

  /** Returns when a stock's difference was first seen; undefined if none is stored. */
  sinceMs({ sku, subsidiaryId }: StockKey): number | undefined {
    const text = 'SELECT since_ms FROM stock_differences WHERE sku = ? AND subsidiary_id = ?';
    return this.#sql.value(text, sku, subsidiaryId);
  }
}
