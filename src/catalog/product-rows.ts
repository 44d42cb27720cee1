import type Database from 'better-sqlite3';
import { fold } from '../core/folding.ts';
import { isSeen } from '../db/seen.ts';
import { asBit, asSent, fromBit, isStored, preparedOnUse, type SqlValue } from '../db/sqlite.ts';
import type { ProductRecord, SkuRecord } from '../platform/schemas.ts';
import type { MirroredProduct, ProductFilter } from './product.ts';

type Sent = number | null;

interface Pushed {
  /** Value of the mark `push` at the newest change that was pushed; a higher value is a later push. */
  pushedMark: number;
  /** 1 if it is unknown whether a sent change arrived. */
  uncertain: number;
}

interface ProductRow extends Pushed {
  name: string | null;
  category: string | null;
  show: number | null;
  vanishedAt: string | null;
}

interface SkuRow extends Pushed {
  sku: string;
  productId: string;
  barcode: string | null;
  price: Sent;
  withDiscount: Sent;
  discount: Sent;
  show: number | null;
}

interface StockRow extends Pushed {
  subsidiaryId: string;
  qty: Sent;
  show: number | null;
  confirmedSeq: number;
}

type MappingRow = SkuRecord['integrations'][number] & { productId: string };
type Named = [Record<string, SqlValue>];

const SKU = `SELECT sku, product_id AS productId, barcode, price, with_discount AS withDiscount, discount, show,
  pushed_mark AS pushedMark, uncertain FROM _skus`;

/** Statements on `products` and its dependent tables. The caller opens the transaction. */
function statements(db: Database.Database) {
  return preparedOnUse({
    product: () =>
      db.prepare<[string], ProductRow>(`
      SELECT name, category, show, vanished_at AS vanishedAt, pushed_mark AS pushedMark, uncertain
      FROM _products WHERE product_id = ?`),
    putProduct: () =>
      db.prepare<Named>(`
      INSERT INTO _products (product_id, name, category, show, payload, updated_at)
      VALUES (@id, @name, @category, @show, @payload, @at)
      ON CONFLICT (product_id) DO UPDATE SET name = excluded.name, category = excluded.category,
        show = excluded.show, payload = excluded.payload, vanished_at = NULL, uncertain = @uncertain,
        updated_at = excluded.updated_at`),
    setPayload: () =>
      db.prepare<string[]>('UPDATE _products SET payload = ?, updated_at = ? WHERE product_id = ?'),
    sku: () => db.prepare<[string], SkuRow>(`${SKU} WHERE sku = ?`),
    // The plus prevents SQLite from planning the statement again for each product.
    skusOf: () => db.prepare<[string], SkuRow>(`${SKU} WHERE product_id = +? ORDER BY sku`),
    putSku: () =>
      db.prepare<Named>(`
      INSERT INTO _skus (sku, product_id, barcode, price, with_discount, discount, show)
      VALUES (@sku, @productId, @barcode, @price, @withDiscount, @discount, @show)
      ON CONFLICT (sku) DO UPDATE SET product_id = excluded.product_id, barcode = excluded.barcode,
        price = excluded.price, with_discount = excluded.with_discount, discount = excluded.discount,
        show = excluded.show, uncertain = @uncertain`),
    dropSku: () => db.prepare<[string]>('DELETE FROM _skus WHERE sku = ?'),
    stocks: () =>
      db.prepare<[string], StockRow>(`
      SELECT subsidiary_id AS subsidiaryId, qty, show, pushed_mark AS pushedMark,
        uncertain OR show_uncertain AS uncertain, confirmed_seq AS confirmedSeq
      FROM _stocks WHERE sku = ?`),
    putStock: () =>
      db.prepare<Named>(`
      INSERT INTO _stocks (sku, subsidiary_id, qty, show, confirmed_seq, confirmed_ms)
      VALUES (@sku, @subsidiaryId, @qty, @show, @confirmedSeq, @confirmedMs)
      ON CONFLICT (sku, subsidiary_id) DO UPDATE SET qty = excluded.qty, show = excluded.show,
        confirmed_seq = excluded.confirmed_seq, confirmed_ms = excluded.confirmed_ms, uncertain = 0,
        show_uncertain = 0`),
    confirmStock: () =>
      db.prepare<Named>(`
      UPDATE _stocks SET confirmed_seq = @confirmedSeq, confirmed_ms = @confirmedMs
      WHERE sku = @sku AND subsidiary_id = @subsidiaryId`),
    /**
     * Marks the stock's last count to be computed again, because the platform's quantity is not the expected one. An
     * order may be the reason.
     */
    moveStock: () =>
      db.prepare<string[]>(
        `UPDATE _stock_counts SET dirty = 1 WHERE sku = ? AND subsidiary_id = ?
         AND given_up = 0
         AND EXISTS (SELECT 1 FROM _stock_steps s
           WHERE s.sku = _stock_counts.sku AND s.subsidiary_id = _stock_counts.subsidiary_id)
         AND ${isSeen('holding-branch', "''", '_stock_counts.subsidiary_id')}`,
      ),
    /**
     * Marks order lines of unknown products to be matched again, because one may belong to the product written now.
     */
    lookAgain: () =>
      db.prepare('UPDATE _ledger_orders SET is_stale = 1 WHERE is_unplaced = 1 AND is_stale = 0'),
    dropStock: () => db.prepare<string[]>('DELETE FROM _stocks WHERE sku = ? AND subsidiary_id = ?'),
    mappings: () =>
      db.prepare<[string], MappingRow>(`
      SELECT subsidiary_id AS subsidiaryId, product_id_pos_a AS productIdPosA,
        product_code_pos_b AS productCodePosB, ext_id AS extId, product_id AS productId
      FROM integrations WHERE sku = +? ORDER BY subsidiary_id, rowid`),
    addMapping: () =>
      db.prepare<Named>(`
      INSERT INTO integrations (sku, subsidiary_id, product_id_pos_a, product_code_pos_b, ext_id, product_id)
      VALUES (@sku, @subsidiaryId, @productIdPosA, @productCodePosB, @extId, @productId)`),
    dropMappings: () => db.prepare<string[]>('DELETE FROM integrations WHERE sku = ? AND subsidiary_id = ?'),
  });
}

export interface WriteContext {
  /**
   * Value of the mark `push` when the record was requested. Mirrored values with a higher one were pushed later and are
   * kept.
   */
  mark: number;
  /** Seq of the newest event of the order feed when the record was requested. */
  asOfSeq: number;
  /** The present time, milliseconds since 1970. */
  nowMs: number;
  /** The present time, ISO 8601 UTC. */
  at: string;
  /**
   * Branches that the record covers; their stocks and mappings are deleted if the record lacks them. A record of a
   * branch's list covers only that branch. `all`: every branch; `[]`: nothing is deleted.
   */
  speaksFor: 'all' | readonly string[];
}

/** Updates the rows of one product from a record. Writes only rows that differ. */
export class ProductWriter {
  readonly #sql: ReturnType<typeof statements>;
  #changed = 0;
  #kept = 0;
  /**
   * True if the record has a stock or mapping that the mirror lacks. This is so for a new product, for a product that is
   * listed again, and for one that gets another id.
   */
  #isNew = false;

  constructor(db: Database.Database) {
    this.#sql = statements(db);
  }

  /**
   * Writes a record. Returns how many rows were changed or deleted, or are new in a branch that the record does not
   * cover, and how many values were kept because a push is newer.
   */
  write(record: ProductRecord, asked: WriteContext): { changed: number; kept: number } {
    this.#changed = 0;
    this.#kept = 0;
    this.#isNew = false;
    // In a partly unreadable record, a sku that seems missing may be an unreadable one, so nothing is deleted.
    const context: WriteContext = record.isPartial ? { ...asked, speaksFor: [] } : asked;
    for (const child of record.children) {
      this.#writeSku(record.id, child, context);
      this.#writeStocks(child, context);
      this.#writeMappings(record.id, child, context);
    }
    this.#dropAbsent(record, context);
    if (this.#isNew) this.#sql.lookAgain.run();
    this.#writeProduct(record, context);
    return { changed: this.#changed, kept: this.#kept };
  }

  /**
   * Returns whether a record has no stock, no id or no sku, where the mirror has some of its product in the branches
   * that the record covers.
   */
  losesAll(record: ProductRecord, speaksFor: WriteContext['speaksFor']): boolean {
    const isCovered = ({ subsidiaryId }: { subsidiaryId: string }) =>
      speaksFor === 'all' || speaksFor.includes(subsidiaryId);
    const skus = () => this.#sql.skusOf.all(record.id).map(({ sku }) => sku);
    const had = {
      stocks: () => skus().some((sku) => this.#sql.stocks.all(sku).some(isCovered)),
      ids: () =>
        skus().some((sku) => this.#sql.mappings.all(sku).some((each) => isCovered(each) && hasId(each))),
    };
    const hasStocks = record.children.some(({ stocks }) => stocks.some(isCovered));
    const hasIds = record.children.some(({ integrations }) =>
      integrations.some((each) => isCovered(each) && hasId(each)),
    );
    return (!hasStocks && had.stocks()) || (!hasIds && had.ids());
  }

  #writeProduct(record: ProductRecord, context: WriteContext): void {
    const { id, category, raw: payload } = record;
    const { at } = context;
    const stored = this.#sql.product.get(id);
    const pushed = this.#newerPush(stored, context);
    const name = pushed ? pushed.name : record.name;
    const show = pushed ? pushed.show : asBit(record.show);
    const uncertain = pushed?.uncertain ?? 0;
    const isSame =
      stored?.name === name &&
      stored.show === show &&
      stored.category === category &&
      stored.uncertain === uncertain;
    if (isSame && stored.vanishedAt === null) {
      // The record's text is stored anyway, because it may differ in fields that have no column.
      this.#sql.setPayload.run(payload, at, id);
      return;
    }
    if (stored) this.#changed += 1;
    this.#sql.putProduct.run({ id, name, category, show, payload, uncertain, at });
  }

  #writeSku(productId: string, child: SkuRecord, context: WriteContext): void {
    const { sku, barcode, withDiscount, discount } = child;
    const stored = this.#sql.sku.get(sku);
    const pushed = this.#newerPush(stored, context);
    const price = pushed ? pushed.price : child.price;
    const show = asBit(child.show);
    const uncertain = pushed?.uncertain ?? 0;
    const isSame =
      stored?.productId === productId &&
      stored.uncertain === uncertain &&
      stored.barcode === barcode &&
      isStored(stored.price, price) &&
      isStored(stored.withDiscount, withDiscount) &&
      isStored(stored.discount, discount) &&
      stored.show === show;
    if (isSame) return;
    if (stored) this.#changed += 1;
    this.#sql.putSku.run({
      sku,
      productId,
      barcode,
      price: asSent(price),
      withDiscount: asSent(withDiscount),
      discount: asSent(discount),
      show,
      uncertain,
    });
  }

  #writeStocks(child: SkuRecord, context: WriteContext): void {
    const { sku } = child;
    const stored = new Map(this.#sql.stocks.all(sku).map((row) => [row.subsidiaryId, row]));
    const confirmed = { confirmedSeq: context.asOfSeq, confirmedMs: context.nowMs };
    for (const { subsidiaryId, qty, show } of child.stocks) {
      const row = stored.get(subsidiaryId);
      if (this.#newerPush(row, context)) continue;
      if (!row || row.uncertain === 1 || !isStored(row.qty, qty) || row.show !== asBit(show)) {
        if (row) this.#changed += 1;
        else this.#noteNew(subsidiaryId, context);
        this.#sql.putStock.run({ sku, subsidiaryId, qty: asSent(qty), show: asBit(show), ...confirmed });
        this.#sql.moveStock.run(sku, subsidiaryId);
      } else if (row.confirmedSeq < context.asOfSeq) {
        this.#sql.confirmStock.run({ sku, subsidiaryId, ...confirmed });
      }
    }
    const present = new Set(child.stocks.map((stock) => stock.subsidiaryId));
    for (const subsidiaryId of stored.keys()) {
      if (!present.has(subsidiaryId)) this.#drop('dropStock', sku, subsidiaryId, context);
    }
  }

  #writeMappings(productId: string, child: SkuRecord, context: WriteContext): void {
    const { sku } = child;
    const stored = Map.groupBy(this.#sql.mappings.all(sku), (mapping) => mapping.subsidiaryId);
    const sent = Map.groupBy(child.integrations, (mapping) => mapping.subsidiaryId);
    for (const [subsidiaryId, mappings] of sent) {
      const before = stored.get(subsidiaryId);
      const after = mappings.map((mapping) => ({ ...mapping, productId }));
      if (before && textOf(before) === textOf(after)) continue;
      // A record that covers no branch takes no id away.
      if (before?.some(hasId) && context.speaksFor.length === 0 && !after.some(hasId)) continue;
      if (before) {
        this.#changed += 1;
        this.#isNew = true;
        this.#sql.dropMappings.run(sku, subsidiaryId);
      } else this.#noteNew(subsidiaryId, context);
      for (const mapping of after) this.#sql.addMapping.run({ ...mapping, sku });
    }
    for (const subsidiaryId of stored.keys()) {
      if (!sent.has(subsidiaryId)) this.#drop('dropMappings', sku, subsidiaryId, context);
    }
  }

  /** Deletes skus that the record lacks, unless another branch still has a stock or mapping of them. */
  #dropAbsent(record: ProductRecord, context: WriteContext): void {
    const present = new Set(record.children.map((child) => child.sku));
    const { stocks, mappings } = this.#sql;
    for (const { sku } of this.#sql.skusOf.all(record.id)) {
      if (present.has(sku)) continue;
      for (const { subsidiaryId } of stocks.all(sku)) this.#drop('dropStock', sku, subsidiaryId, context);
      for (const { subsidiaryId } of mappings.all(sku)) {
        this.#drop('dropMappings', sku, subsidiaryId, context);
      }
      const isLeft = stocks.get(sku) !== undefined || mappings.get(sku) !== undefined;
      if (!isLeft && context.speaksFor.length > 0) this.#changed += this.#sql.dropSku.run(sku).changes;
    }
  }

  /**
   * Notes a new row. If the record does not cover the row's branch, the row counts as changed, because that branch's
   * own record may lack it.
   */
  #noteNew(subsidiaryId: string, context: WriteContext): void {
    this.#isNew = true;
    if (!covers(context, subsidiaryId)) this.#changed += 1;
  }

  /** Deletes the branch's rows of a sku if the record covers that branch. */
  #drop(what: 'dropStock' | 'dropMappings', sku: string, subsidiaryId: string, context: WriteContext): void {
    if (!covers(context, subsidiaryId)) return;
    this.#changed += this.#sql[what].run(sku, subsidiaryId).changes;
  }

  /** Returns the row if a push is newer than the record, so that the row's value must be kept. */
  #newerPush<R extends Pushed>(row: R | undefined, { mark }: WriteContext): R | undefined {
    if (row === undefined || row.pushedMark <= mark) return undefined;
    this.#kept += 1;
    return row;
  }
}

function covers({ speaksFor }: WriteContext, subsidiaryId: string): boolean {
  return speaksFor === 'all' || speaksFor.includes(subsidiaryId);
}

function hasId({ extId, productIdPosA, productCodePosB }: SkuRecord['integrations'][number]): boolean {
  return extId !== null || productIdPosA !== null || productCodePosB !== null;
}

function textOf(mappings: readonly MappingRow[]): string {
  return JSON.stringify(
    mappings.map((each) => [each.productIdPosA, each.productCodePosB, each.extId, each.productId]),
  );
}

type ProductHead = Omit<MirroredProduct, 'show' | 'skus'> & { show: number | null };

const BY_EXTERNAL_ID = `
  SELECT i.product_id FROM integrations i
  WHERE i.ext_id = @externalId OR i.product_id_pos_a = @externalId OR i.product_code_pos_b = @externalId`;

const MAPPING_IDS = ['ext_id', 'product_id_pos_a', 'product_code_pos_b'];

/** Each id is folded once and not once for each branch. */
function isFolded(column: string): string {
  const each = `SELECT DISTINCT ${column} AS id FROM integrations WHERE ${column} IS NOT NULL`;
  return `${column} IN (SELECT id FROM (${each}) WHERE fold(id) = @folded)`;
}

const CONDITIONS: Partial<Record<keyof ProductFilter, string>> = {
  after: 'p.product_id > @after',
  productId: 'p.product_id = @productId',
  sku: 'p.product_id IN (SELECT product_id FROM _skus WHERE sku = @sku)',
  externalId: `p.product_id IN (${BY_EXTERNAL_ID})`,
  subsidiaryId: `EXISTS (
    SELECT 1 FROM _skus s WHERE s.product_id = p.product_id AND (
      EXISTS (SELECT 1 FROM _stocks k WHERE k.sku = s.sku AND k.subsidiary_id = @subsidiaryId)
      OR EXISTS (SELECT 1 FROM integrations i WHERE i.sku = s.sku AND i.subsidiary_id = @subsidiaryId)))`,
  text: `(finds(@text, p.name, NULL)
    OR p.product_id IN (SELECT product_id FROM _skus WHERE @folded IN (fold(sku), fold(barcode)))
    OR p.product_id IN (SELECT product_id FROM integrations WHERE ${MAPPING_IDS.map(isFolded).join(' OR ')}))`,
};

/** Reads the catalogue for commands and the local API. */
export class CatalogQueries {
  readonly #db: Database.Database;
  readonly #sql: ReturnType<typeof statements>;
  readonly #counts: Database.Statement<[], { products: number; vanished: number }>;
  readonly #prepared = new Map<string, Database.Statement<[Record<string, unknown>], ProductHead>>();

  constructor(db: Database.Database) {
    this.#db = db;
    this.#sql = statements(db);
    this.#counts = db.prepare('SELECT count(*) AS products, count(vanished_at) AS vanished FROM _products');
  }

  /** Returns the products that match the filter, ordered by id, including vanished ones. */
  products(filter: ProductFilter): MirroredProduct[] {
    const conditions = Object.entries(CONDITIONS)
      .filter(([name]) => filter[name as keyof ProductFilter] !== undefined)
      .map(([, condition]) => condition);
    const where = conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`;
    let statement = this.#prepared.get(where);
    if (!statement) {
      statement = this.#db.prepare(`
        SELECT p.product_id AS productId, p.name, p.category, p.show, p.vanished_at AS vanishedAt,
          p.updated_at AS updatedAt
        FROM _products p ${where} ORDER BY p.product_id LIMIT @limit`);
      this.#prepared.set(where, statement);
    }
    const folded = filter.text === undefined ? null : fold(filter.text);
    return statement.all({ ...filter, folded }).map((head) => ({
      ...head,
      show: fromBit(head.show),
      skus: this.#skusOf(head.productId),
    }));
  }

  counts(): { products: number; vanished: number } {
    return this.#counts.get() ?? { products: 0, vanished: 0 };
  }

  #skusOf(productId: string): MirroredProduct['skus'] {
    return this.#sql.skusOf.all(productId).map(({ sku, barcode, price, withDiscount, discount, show }) => ({
      sku,
      barcode,
      price,
      withDiscount,
      discount,
      show: fromBit(show),
      stocks: this.#sql.stocks
        .all(sku)
        .map((stock) => ({ subsidiaryId: stock.subsidiaryId, qty: stock.qty, show: fromBit(stock.show) })),
      integrations: this.#sql.mappings.all(sku).map(({ productId: _, ...mapping }) => mapping),
    }));
  }
}
