import type Database from 'better-sqlite3';
import type { MirroredProduct, MirroredSku, ProductFilter } from '../../domain/product/mirrored-product.ts';
import { type MappingRow, ProductRows, type SkuRow, type StockRow } from './product-rows.ts';
import { fromBit } from './sql-value.ts';

interface ProductHead {
  productId: string;
  name: string | null;
  category: string | null;
  show: number | null;
  vanishedAt: string | null;
  updatedAt: string;
}

const HEAD = `p.product_id AS productId, p.name, p.category, p.show, p.vanished_at AS vanishedAt,
  p.updated_at AS updatedAt`;

const BY_EXTERNAL_ID = `
  SELECT i.product_id FROM integrations i
  WHERE i.ext_id = @externalId OR i.product_id_pos_a = @externalId OR i.product_code_pos_b = @externalId`;

/** Reads of the catalogue for people and the local API. */
export class CatalogQueries {
  readonly #rows: ProductRows;
  readonly #db: Database.Database;
  readonly #payload: Database.Statement<[string], string>;
  readonly #skus: Database.Statement<[string], SkuRow>;
  readonly #counts: Database.Statement<[], { products: number; vanished: number }>;
  readonly #prepared = new Map<string, Database.Statement<[Record<string, unknown>], ProductHead>>();

  constructor(db: Database.Database) {
    this.#db = db;
    this.#rows = new ProductRows(db);
    this.#payload = db.prepare<[string], string>('SELECT payload FROM products WHERE product_id = ?').pluck();
    this.#skus = db.prepare(`
      SELECT sku, product_id AS productId, barcode, price, with_discount AS withDiscount, discount, show,
        pushed_mark AS pushedMark, uncertain FROM skus WHERE product_id = ? ORDER BY sku`);
    this.#counts = db.prepare('SELECT count(*) AS products, count(vanished_at) AS vanished FROM products');
  }

  /** Products by id, those that have vanished included. */
  products(filter: ProductFilter): MirroredProduct[] {
    const conditions: string[] = [];
    if (filter.after !== undefined) conditions.push('p.product_id > @after');
    if (filter.productId !== undefined) conditions.push('p.product_id = @productId');
    if (filter.sku !== undefined) {
      conditions.push('p.product_id IN (SELECT product_id FROM skus WHERE sku = @sku)');
    }
    if (filter.externalId !== undefined) conditions.push(`p.product_id IN (${BY_EXTERNAL_ID})`);
    if (filter.subsidiaryId !== undefined) {
      conditions.push(`EXISTS (
        SELECT 1 FROM skus s WHERE s.product_id = p.product_id AND (
          EXISTS (SELECT 1 FROM stocks k WHERE k.sku = s.sku AND k.subsidiary_id = @subsidiaryId)
          OR EXISTS (SELECT 1 FROM integrations i WHERE i.sku = s.sku AND i.subsidiary_id = @subsidiaryId)))`);
    }
    if (filter.text !== undefined) {
      conditions.push(`(instr(lower(p.name), lower(@text)) > 0
        OR p.product_id IN (SELECT product_id FROM skus WHERE sku = @text OR barcode = @text)
        OR p.product_id IN (${BY_EXTERNAL_ID.replaceAll('@externalId', '@text')}))`);
    }
    const where = conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`;
    return this.#heads(where)
      .all({ ...filter })
      .map((head) => this.#whole(head));
  }

  /** JSON text of the product as it was last received; pushes since then are not in it. */
  payload(productId: string): string | undefined {
    return this.#payload.get(productId);
  }

  counts(): { products: number; vanished: number } {
    return this.#counts.get() ?? { products: 0, vanished: 0 };
  }

  #heads(where: string): Database.Statement<[Record<string, unknown>], ProductHead> {
    let statement = this.#prepared.get(where);
    if (!statement) {
      statement = this.#db.prepare(
        `SELECT ${HEAD} FROM products p ${where} ORDER BY p.product_id LIMIT @limit`,
      );
      this.#prepared.set(where, statement);
    }
    return statement;
  }

  #whole(head: ProductHead): MirroredProduct {
    const skus = this.#skus.all(head.productId).map((row): MirroredSku => {
      const { sku, barcode, price, withDiscount, discount } = row;
      const stocks = this.#rows.stocks.all(sku).map(stockOf);
      const integrations = this.#rows.mappings.all(sku).map(mappingOf);
      return { sku, barcode, price, withDiscount, discount, show: fromBit(row.show), stocks, integrations };
    });
    return { ...head, show: fromBit(head.show), skus };
  }
}

function stockOf({ subsidiaryId, qty, show }: StockRow): MirroredSku['stocks'][number] {
  return { subsidiaryId, qty, show: fromBit(show) };
}

function mappingOf({ productId: _, ...mapping }: MappingRow): MirroredSku['integrations'][number] {
  return mapping;
}
