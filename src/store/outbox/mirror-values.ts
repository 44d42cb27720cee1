import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change/change.ts';
import { saysTheSame } from '../../domain/change/inventory-diff.ts';
import { sameNumber } from '../../domain/change/verify-applied.ts';
import { fromBit } from '../catalog/sql-value.ts';

interface StockValue {
  qty: number | string | null;
  show: number | null;
}

interface ProductValue {
  price: number | string | null;
  name: string | null;
  show: number | null;
  uncertain: number;
}

/** What the mirror has, for certain, of the things that changes are about. */
export class MirrorValues {
  readonly #stock: Database.Statement<[string, string], StockValue>;
  readonly #product: Database.Statement<[string], ProductValue>;

  constructor(db: Database.Database) {
    this.#stock = db.prepare(`
      SELECT qty, CASE WHEN show_uncertain = 0 THEN show END AS show FROM stocks
      WHERE sku = ? AND subsidiary_id = ? AND uncertain = 0`);
    this.#product = db.prepare(`
      SELECT s.price, p.name, p.show, s.uncertain OR p.uncertain AS uncertain
      FROM skus s JOIN products p USING (product_id)
      WHERE s.sku = ? AND p.vanished_at IS NULL`);
  }

  /** Whether the stock has the quantity (and visibility) by the platform's last word. */
  hasStock(sku: string, subsidiaryId: string, wanted: { qty: number; show?: boolean | undefined }): boolean {
    const stock = this.#stock.get(sku, subsidiaryId);
    return stock !== undefined && saysTheSame({ qty: stock.qty, show: fromBit(stock.show) }, wanted);
  }

  /** Whether a stock of zero would be news; it is for one the mirror does not know. */
  isZero(sku: string | null, subsidiaryId: string | null): boolean {
    const stock = sku === null || subsidiaryId === null ? undefined : this.#stock.get(sku, subsidiaryId);
    return stock !== undefined && sameNumber(stock.qty, 0);
  }

  priceOf(sku: string): number | string | null | undefined {
    return this.#product.get(sku)?.price;
  }

  /** Whether the product has every value of the body. A description cannot be seen, so it is never known. */
  hasProductValues(sku: string, body: Exclude<ChangeBody, { qty: number }>): boolean {
    const product = this.#product.get(sku);
    if (!product || product.uncertain === 1 || body.description !== undefined) return false;
    return (
      (body.price === undefined || sameNumber(product.price, body.price)) &&
      (body.name === undefined || product.name === body.name) &&
      (body.show === undefined || fromBit(product.show) === body.show)
    );
  }
}
