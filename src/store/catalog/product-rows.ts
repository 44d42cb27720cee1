import type Database from 'better-sqlite3';
import type { SqlValue } from './sql-value.ts';

export interface ProductRow {
  name: string | null;
  category: string | null;
  show: number | null;
  vanishedAt: string | null;
  pushedMark: number;
  uncertain: number;
}

export interface SkuRow {
  sku: string;
  productId: string;
  barcode: string | null;
  price: number | string | null;
  withDiscount: number | string | null;
  discount: number | string | null;
  show: number | null;
  pushedMark: number;
  uncertain: number;
}

export interface StockRow {
  subsidiaryId: string;
  qty: number | string | null;
  show: number | null;
  pushedMark: number;
  uncertain: number;
  confirmedSeq: number;
}

export interface MappingRow {
  productId: string;
  subsidiaryId: string;
  productIdPosA: string | null;
  productCodePosB: string | null;
  extId: string | null;
}

const SKU_COLUMNS = `sku, product_id AS productId, barcode, price, with_discount AS withDiscount, discount, show,
  pushed_mark AS pushedMark, uncertain`;

/** Statements on `products` and the rows below it. Transactions are the caller's. */
export class ProductRows {
  readonly product: Database.Statement<[string], ProductRow>;
  readonly putProduct: Database.Statement;
  readonly setPayload: Database.Statement;
  readonly sku: Database.Statement<[string], SkuRow>;
  readonly skusOf: Database.Statement<[string], string>;
  readonly putSku: Database.Statement;
  readonly stocks: Database.Statement<[string], StockRow>;
  readonly putStock: Database.Statement;
  readonly confirmStock: Database.Statement;
  /** The platform has another quantity than was thought: the last count is looked at again. */
  readonly moveStock: Database.Statement<[string, string]>;
  readonly dropStock: Database.Statement<[string, string]>;
  readonly mappings: Database.Statement<[string], MappingRow>;
  readonly addMapping: Database.Statement;
  readonly dropMappings: Database.Statement<[string, string]>;
  readonly dropSku: Database.Statement<[string]>;

  constructor(db: Database.Database) {
    this.product = db.prepare(`
      SELECT name, category, show, vanished_at AS vanishedAt, pushed_mark AS pushedMark, uncertain
      FROM products WHERE product_id = ?`);
    this.putProduct = db.prepare(`
      INSERT INTO products (product_id, name, category, show, payload, updated_at)
      VALUES (@id, @name, @category, @show, @payload, @at)
      ON CONFLICT (product_id) DO UPDATE SET name = excluded.name, category = excluded.category,
        show = excluded.show, payload = excluded.payload, vanished_at = NULL, uncertain = @uncertain,
        updated_at = excluded.updated_at`);
    this.setPayload = db.prepare('UPDATE products SET payload = ?, updated_at = ? WHERE product_id = ?');
    this.sku = db.prepare(`SELECT ${SKU_COLUMNS} FROM skus WHERE sku = ?`);
    this.skusOf = db.prepare<[string], string>('SELECT sku FROM skus WHERE product_id = ?').pluck();
    this.putSku = db.prepare(`
      INSERT INTO skus (sku, product_id, barcode, price, with_discount, discount, show)
      VALUES (@sku, @productId, @barcode, @price, @withDiscount, @discount, @show)
      ON CONFLICT (sku) DO UPDATE SET product_id = excluded.product_id, barcode = excluded.barcode,
        price = excluded.price, with_discount = excluded.with_discount, discount = excluded.discount,
        show = excluded.show, uncertain = @uncertain`);
    this.stocks = db.prepare(`
      SELECT subsidiary_id AS subsidiaryId, qty, show, pushed_mark AS pushedMark,
        uncertain OR show_uncertain AS uncertain, confirmed_seq AS confirmedSeq
      FROM stocks WHERE sku = ?`);
    this.putStock = db.prepare(`
      INSERT INTO stocks (sku, subsidiary_id, qty, show, confirmed_seq, confirmed_ms)
      VALUES (@sku, @subsidiaryId, @qty, @show, @confirmedSeq, @confirmedMs)
      ON CONFLICT (sku, subsidiary_id) DO UPDATE SET qty = excluded.qty, show = excluded.show,
        confirmed_seq = excluded.confirmed_seq, confirmed_ms = excluded.confirmed_ms, uncertain = 0,
        show_uncertain = 0`);
    this.confirmStock = db.prepare(`
      UPDATE stocks SET confirmed_seq = @confirmedSeq, confirmed_ms = @confirmedMs
      WHERE sku = @sku AND subsidiary_id = @subsidiaryId`);
    this.moveStock = db.prepare('UPDATE stock_counts SET dirty = 1 WHERE sku = ? AND subsidiary_id = ?');
    this.dropStock = db.prepare('DELETE FROM stocks WHERE sku = ? AND subsidiary_id = ?');
    this.mappings = db.prepare(`
      SELECT subsidiary_id AS subsidiaryId, product_id_pos_a AS productIdPosA,
        product_code_pos_b AS productCodePosB, ext_id AS extId, product_id AS productId
      FROM integrations WHERE sku = ? ORDER BY rowid`);
    this.addMapping = db.prepare(`
      INSERT INTO integrations (sku, subsidiary_id, product_id_pos_a, product_code_pos_b, ext_id, product_id)
      VALUES (@sku, @subsidiaryId, @productIdPosA, @productCodePosB, @extId, @productId)`);
    this.dropMappings = db.prepare('DELETE FROM integrations WHERE sku = ? AND subsidiary_id = ?');
    this.dropSku = db.prepare('DELETE FROM skus WHERE sku = ?');
  }
}

/** Values by the names of a statement's parameters. */
export type Bound = Record<string, SqlValue>;
