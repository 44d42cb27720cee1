import type Database from 'better-sqlite3';
import { fromBit, type Sql, sqlOf } from '../../db/sqlite.ts';
import type { ProductChangeItem } from '../../platform/schemas.ts';
import type { OutboxChange } from '../intake/change.ts';
import type { LastCount, StockKey } from '../ledger/stock-ledger.ts';

interface ProductValues {
  price: number | string | null;
  name: string | null;
  show: number | null;
}

/**
 * Finds the values that a change replaces, as JSON for `outbox.value_before`; null if they are unknown. Writes
 * nothing.
 */
export class ValuesBefore {
  readonly #sql: Sql;

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
  }

  /** Returns the last count, else the platform's quantity, as JSON. */
  ofStock(
    { sku, subsidiaryId }: StockKey,
    { changeId, body }: OutboxChange,
    count: LastCount | undefined,
  ): string | null {
    const known = this.#sql.row<{ qty: number | string | null; show: number | null; asOfSeq: number }>(
      `SELECT qty, CASE WHEN show_uncertain = 0 THEN show END AS show, confirmed_seq AS asOfSeq FROM _stocks
       WHERE sku = ? AND subsidiary_id = ? AND uncertain = 0`,
      ...[sku, subsidiaryId],
    );
    const show = body.show === undefined ? null : fromBit(known?.show ?? null);
    const shown = show === null ? {} : { show };
    if (count) {
      // The change was judged before, and the value before it was saved at that time.
      if (count.changeId === changeId) return null;
      return JSON.stringify({ qty: count.qty, asOfSeq: count.asOfSeq, ...shown });
    }
    if (!known || known.qty === null || !Number.isFinite(Number(known.qty))) return null;
    return JSON.stringify({ qty: Number(known.qty), asOfSeq: known.asOfSeq, ...shown });
  }

  /**
   * Returns the product's present values as JSON. The description is left out, because the platform does not show it.
   */
  ofProduct(sku: string, body: Omit<ProductChangeItem, 'sku'>): string | null {
    const product = this.#sql.row<ProductValues>(
      `SELECT s.price, p.name, p.show FROM _skus s JOIN _products p USING (product_id)
       WHERE s.sku = ? AND s.uncertain = 0 AND p.uncertain = 0 AND p.vanished_at IS NULL`,
      sku,
    );
    if (!product) return null;
    const price = product.price === null || product.price === '' ? Number.NaN : Number(product.price);
    const before = {
      ...(body.price !== undefined && Number.isFinite(price) && { price }),
      ...(body.name !== undefined && product.name !== null && { name: product.name }),
      ...(body.show !== undefined && product.show !== null && { show: fromBit(product.show) }),
    };
    return Object.keys(before).length === 0 ? null : JSON.stringify(before);
  }
}
