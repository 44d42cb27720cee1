import type Database from 'better-sqlite3';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import { type GivenBack, isDifferent } from '../sending/differences.ts';
import { type LedgerStock, type StockKey, StockLedger, stockTarget } from './stock-ledger.ts';

/** Maximum number of counted stocks per part. */
const LOOKED_AT = 2_000;

/** A stock whose quantity on the platform is not the wanted one. */
interface StockDifference extends StockKey {
  name: string | null;
  /** The count as the POS submitted it. */
  countedQty: number;
  /** Quantity that the platform should have: the count, less held back pieces and the safety stock. */
  wantedQty: number;
  platformQty: number;
  /** Time at which the platform last showed its quantity. */
  seenMs: number;
  /** Time at which the difference was first seen. */
  sinceMs: number;
}

/** Result of comparing one part of the counts. */
export interface ComparedPart {
  found: LedgerStock[];
  /**
   * Stocks for which the platform did not add back the pieces of ended orders. They are sent again, but not reported.
   */
  kept: LedgerStock[];
  /** Stocks that cannot be compared now. A stored difference of such a stock stays. */
  unsure: StockKey[];
  compared: readonly StockKey[];
  /** Last stock of this part, after which the next part starts; undefined after the last part. */
  next: StockKey | undefined;
}

const FIRST: StockKey = { sku: '', subsidiaryId: '' };
/** SQL for the counts with a stored difference. */
const DIFFERING = '_stock_counts WHERE differs_since_ms IS NOT NULL';
/**
 * Selects the next counts to compare. A stock with `mayDiffer = 0` is skipped: either it is marked to be compared anyway,
 * or its quantity equals the count and neither an order nor safety stock changes it.
 */
const PART = `
  SELECT c.sku, c.subsidiary_id AS subsidiaryId,
    c.given_up = 0 OR NOT (
      EXISTS (SELECT 1 FROM _wanted g WHERE g.kind = 'stock' AND g.subject = 'sku:' || c.sku || '@' || c.subsidiary_id
        AND g.field = 'qty' AND g.standing = 'given-up' AND g.version >= v.version)
      OR EXISTS (SELECT 1 FROM _outbox o WHERE o.state = 'rejected'
        AND o.kind = 'stock' AND o.target = 'sku:' || c.sku || '@' || c.subsidiary_id
        AND o.version >= v.version)) AS isWanted,
    c.dirty = 0 AND (k.uncertain = 1 OR k.qty + 0 <> json_extract(v.body, '$.qty') - c.folded_qty
      OR EXISTS (SELECT 1 FROM _stock_steps s WHERE s.sku = c.sku AND s.subsidiary_id = c.subsidiary_id)
      OR EXISTS (SELECT 1 FROM stock_safety)) AS mayDiffer
  FROM _stock_counts c CROSS JOIN _outbox v USING (change_id)
    LEFT JOIN _stocks k ON k.sku = c.sku AND k.subsidiary_id = c.subsidiary_id
  WHERE (c.sku, c.subsidiary_id) > (@sku, @subsidiaryId) ORDER BY c.sku, c.subsidiary_id LIMIT ${LOOKED_AT}`;
/**
 * SQL for pieces that the platform may have added back. `count` covers only orders after the last sending, because
 * the quantity sent then included earlier orders.
 */
const GIVEN_BACK = `
  SELECT count(*) FILTER (WHERE s.seq > coalesce(c.call_seq, 0) AND s.is_first = 0 AND s.qty <= 0) AS count,
    -total(min(0, s.qty)) AS qty
  FROM _stock_counts c JOIN _outbox o USING (change_id)
    JOIN _stock_steps s ON s.sku = c.sku AND s.subsidiary_id = c.subsidiary_id AND s.seq > o.as_of_seq
  WHERE c.sku = @sku AND c.subsidiary_id = @subsidiaryId`;
/** SQL for whether a newer count waits or is being sent. */
const WAITS = `
  SELECT 1 FROM _outbox WHERE kind = 'stock' AND target = @target
    AND state = 'pending' AND held_guard IS NULL
  UNION ALL SELECT 1 FROM _outbox WHERE kind = 'stock' AND target = @target
    AND state = 'pending' AND held_guard IS NOT NULL
  UNION ALL SELECT 1 FROM _outbox WHERE kind = 'stock' AND conflict_key = @target
    AND state = 'sending'`;

/**
 * Compares the last counts with the platform's stock and stores the differences. It works in parts, because a hub has
 * hundreds of thousands of counts. The caller opens the transaction.
 */
export class StockDifferences {
  readonly #sql: Sql;
  readonly #ledger: StockLedger;

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
    this.#ledger = new StockLedger(db);
  }

  /** Compares the counts of the next part. Writes nothing. */
  part(lastPollOkMs: number | null, after: StockKey = FIRST): ComparedPart {
    const rows = this.#sql.rows<StockKey & { isWanted: number; mayDiffer: number }>(PART, { ...after });
    const part: ComparedPart = { found: [], kept: [], unsure: [], compared: rows, next: undefined };
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

  /** Stores the differences of a part. Deletes stored differences in its range that no longer exist. */
  keep({ found, unsure, next }: ComparedPart, after: StockKey = FIRST): void {
    const stays = new Set([...found, ...unsure].map(stockTarget));
    for (const { sku, subsidiaryId } of this.#kept(after, next)) {
      if (stays.has(stockTarget({ sku, subsidiaryId }))) continue;
      const end = 'UPDATE _stock_counts SET differs_since_ms = NULL WHERE sku = ? AND subsidiary_id = ?';
      this.#sql.run(end, sku, subsidiaryId);
    }
    for (const { sku, subsidiaryId, confirmedMs } of found) {
      const begin = `UPDATE _stock_counts SET differs_since_ms = ?
        WHERE sku = ? AND subsidiary_id = ? AND differs_since_ms IS NULL`;
      this.#sql.run(begin, confirmedMs, sku, subsidiaryId);
    }
  }

  /** Marks stocks to be sent again, because their quantity on the platform differs. */
  send(stocks: readonly StockKey[]): void {
    const text = `UPDATE _stock_counts SET dirty = 1
      WHERE sku = ? AND subsidiary_id = ? AND call_id IS NULL AND given_up = 0`;
    for (const { sku, subsidiaryId } of stocks) this.#sql.run(text, sku, subsidiaryId);
  }

  /** Whether the differences of a part differ from the stored ones. */
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
      `SELECT sku, subsidiary_id AS subsidiaryId FROM ${DIFFERING}
         AND (sku, subsidiary_id) > (@sku, @subsidiaryId) AND (sku, subsidiary_id) <= (@lastSku, @lastBranch)`,
      { sku, subsidiaryId, lastSku: last.sku, lastBranch: last.subsidiaryId },
    );
  }

  get count(): number {
    return this.#sql.value(`SELECT count(*) FROM ${DIFFERING}`) ?? 0;
  }

  /** Returns the stocks that have a stored difference. */
  stocks(): LedgerStock[] {
    const places = this.#sql.rows<StockKey>(
      `SELECT sku, subsidiary_id AS subsidiaryId FROM ${DIFFERING} ORDER BY sku, subsidiary_id`,
    );
    return places.flatMap((place) => this.#ledger.ofStock(place) ?? []);
  }

  /** Returns the stored differences, largest first. */
  list(limit: number): StockDifference[] {
    // The view computes only the differing stocks, which it finds by their keys.
    return this.#sql.rows<StockDifference>(
      `SELECT l.sku, l.subsidiary_id AS subsidiaryId, p.name, l.counted_qty AS countedQty, l.wanted_qty AS wantedQty,
         l.believed_qty AS platformQty, l.confirmed_ms AS seenMs, l.differs_since_ms AS sinceMs
       FROM _stock_ledger l LEFT JOIN _skus s USING (sku) LEFT JOIN _products p USING (product_id)
       WHERE (l.sku, l.subsidiary_id) IN (SELECT sku, subsidiary_id FROM ${DIFFERING}) AND l.believed_qty IS NOT NULL
       ORDER BY abs(l.believed_qty - l.wanted_qty) DESC, l.differs_since_ms, l.sku LIMIT ?`,
      limit,
    );
  }

  /** Returns when a stock's difference was first seen; undefined if none is stored. */
  sinceMs({ sku, subsidiaryId }: StockKey): number | undefined {
    const text = 'SELECT differs_since_ms FROM _stock_counts WHERE sku = ? AND subsidiary_id = ?';
    return this.#sql.value<number | null>(text, sku, subsidiaryId) ?? undefined;
  }
}
