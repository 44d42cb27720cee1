import type Database from 'better-sqlite3';
import { asBit, asSent, fromBit, isStored, type SqlValue } from '../db/sqlite.ts';
import type { ProductRecord, SkuRecord } from '../platform/platform.ts';
import type { MirroredProduct, MirroredSku, ProductFilter } from './product.ts';

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

export interface WriteContext {
  /** Value of the push mark when the record was asked for; what was pushed after that is newer and stays. */
  mark: number;
  /** Newest event of the order feed when the record was asked for. */
  asOfSeq: number;
  /** Now. */
  nowMs: number;
  /** The same, ISO 8601 UTC. */
  at: string;
  /**
   * What the record speaks for: what it does not contain is gone. `all`: every branch. `[]`: none, it only
   * adds. A list of a branch may leave other branches out, so it speaks for its own alone.
   */
  speaksFor: 'all' | readonly string[];
}

export interface WriteResult {
  /** Rows that did not exist before. */
  added: number;
  /** Rows that changed or went. */
  changed: number;
  /** Values that stayed because a push is newer. */
  kept: number;
}

/** Brings the rows of one product in line with a record, writing only what differs. */
export class ProductWriter {
  readonly #rows: ProductRows;
  #result: WriteResult = { added: 0, changed: 0, kept: 0 };

  constructor(db: Database.Database) {
    this.#rows = new ProductRows(db);
  }

  write(record: ProductRecord, context: WriteContext): WriteResult {
    this.#result = { added: 0, changed: 0, kept: 0 };
    for (const child of record.children) {
      this.#writeSku(record.id, child, context);
      this.#writeStocks(child, context);
      this.#writeMappings(record.id, child, context);
    }
    this.#dropAbsent(record, context);
    this.#writeProduct(record, context);
    return this.#result;
  }

  #writeProduct(record: ProductRecord, context: WriteContext): void {
    const stored = this.#rows.product.get(record.id);
    const pushed = stored !== undefined && stored.pushedMark > context.mark;
    if (pushed) this.#result.kept += 1;
    const name = pushed ? stored.name : record.name;
    const show = pushed ? stored.show : asBit(record.show);
    const uncertain = pushed ? stored.uncertain : 0;
    const same =
      stored?.name === name &&
      stored.show === show &&
      stored.category === record.category &&
      stored.uncertain === uncertain;
    if (stored && same && stored.vanishedAt === null) {
      // The text may differ in what the mirror has no column for.
      this.#rows.setPayload.run(record.raw, context.at, record.id);
      return;
    }
    this.#count(stored !== undefined);
    const { id, category, raw: payload } = record;
    this.#rows.putProduct.run({
      id,
      name,
      category,
      show,
      payload,
      uncertain,
      at: context.at,
    } satisfies Bound);
  }

  #writeSku(productId: string, child: SkuRecord, context: WriteContext): void {
    const stored = this.#rows.sku.get(child.sku);
    const pushed = stored !== undefined && stored.pushedMark > context.mark;
    if (pushed) this.#result.kept += 1;
    const price = pushed ? stored.price : child.price;
    const { sku, barcode, withDiscount, discount } = child;
    const show = asBit(child.show);
    const uncertain = pushed ? stored.uncertain : 0;
    const same =
      stored?.productId === productId &&
      stored.uncertain === uncertain &&
      stored.barcode === barcode &&
      isStored(stored.price, price) &&
      isStored(stored.withDiscount, withDiscount) &&
      isStored(stored.discount, discount) &&
      stored.show === show;
    if (same) return;
    this.#count(stored !== undefined);
    this.#rows.putSku.run({
      sku,
      productId,
      barcode,
      price: asSent(price),
      withDiscount: asSent(withDiscount),
      discount: asSent(discount),
      show,
      uncertain,
    } satisfies Bound);
  }

  #writeStocks(child: SkuRecord, context: WriteContext): void {
    const stored = new Map(this.#rows.stocks.all(child.sku).map((row) => [row.subsidiaryId, row]));
    const confirmed = { confirmedSeq: context.asOfSeq, confirmedMs: context.nowMs };
    for (const { subsidiaryId, qty, show } of child.stocks) {
      const row = stored.get(subsidiaryId);
      if (row && row.pushedMark > context.mark) {
        this.#result.kept += 1;
      } else if (!row || row.uncertain === 1 || !isStored(row.qty, qty) || row.show !== asBit(show)) {
        this.#count(row !== undefined);
        this.#rows.putStock.run({
          sku: child.sku,
          subsidiaryId,
          qty: asSent(qty),
          show: asBit(show),
          ...confirmed,
        } satisfies Bound);
        this.#rows.moveStock.run(child.sku, subsidiaryId);
      } else if (row.confirmedSeq < context.asOfSeq) {
        this.#rows.confirmStock.run({ sku: child.sku, subsidiaryId, ...confirmed });
      }
    }
    const present = new Set(child.stocks.map((stock) => stock.subsidiaryId));
    for (const { subsidiaryId } of stored.values()) {
      if (!present.has(subsidiaryId)) this.#dropStock(child.sku, subsidiaryId, context);
    }
  }

  #writeMappings(productId: string, child: SkuRecord, context: WriteContext): void {
    const stored = group(this.#rows.mappings.all(child.sku));
    const sent = group(child.integrations.map((mapping) => ({ ...mapping, productId })));
    for (const [subsidiaryId, mappings] of sent) {
      const before = stored.get(subsidiaryId);
      if (before && JSON.stringify(before.map(plain)) === JSON.stringify(mappings.map(plain))) continue;
      this.#count(before !== undefined);
      if (before) this.#rows.dropMappings.run(child.sku, subsidiaryId);
      for (const mapping of mappings) {
        const { productIdPosA, productCodePosB, extId } = mapping;
        this.#rows.addMapping.run({
          sku: child.sku,
          subsidiaryId,
          productIdPosA,
          productCodePosB,
          extId,
          productId,
        } satisfies Bound);
      }
    }
    for (const subsidiaryId of stored.keys()) {
      if (!sent.has(subsidiaryId) && speaks(context, subsidiaryId)) {
        this.#result.changed += this.#rows.dropMappings.run(child.sku, subsidiaryId).changes;
      }
    }
  }

  /** Skus that the record no longer has go, unless another branch still has something of them. */
  #dropAbsent(record: ProductRecord, context: WriteContext): void {
    const present = new Set(record.children.map((child) => child.sku));
    for (const sku of this.#rows.skusOf.all(record.id)) {
      if (present.has(sku)) continue;
      for (const { subsidiaryId } of this.#rows.stocks.all(sku)) this.#dropStock(sku, subsidiaryId, context);
      for (const { subsidiaryId } of this.#rows.mappings.all(sku)) {
        if (speaks(context, subsidiaryId)) {
          this.#result.changed += this.#rows.dropMappings.run(sku, subsidiaryId).changes;
        }
      }
      const isLeft = this.#rows.stocks.get(sku) !== undefined || this.#rows.mappings.get(sku) !== undefined;
      if (!isLeft && context.speaksFor.length > 0)
        this.#result.changed += this.#rows.dropSku.run(sku).changes;
    }
  }

  #dropStock(sku: string, subsidiaryId: string, context: WriteContext): void {
    if (!speaks(context, subsidiaryId)) return;
    this.#result.changed += this.#rows.dropStock.run(sku, subsidiaryId).changes;
  }

  #count(existed: boolean): void {
    if (existed) this.#result.changed += 1;
    else this.#result.added += 1;
  }
}

function speaks(context: WriteContext, subsidiaryId: string): boolean {
  return context.speaksFor === 'all' || context.speaksFor.includes(subsidiaryId);
}

function group(mappings: readonly MappingRow[]): Map<string, MappingRow[]> {
  return Map.groupBy(mappings, (mapping) => mapping.subsidiaryId);
}

function plain(mapping: MappingRow): (string | null)[] {
  return [mapping.productIdPosA, mapping.productCodePosB, mapping.extId, mapping.productId];
}

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
