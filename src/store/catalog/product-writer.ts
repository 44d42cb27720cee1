import type Database from 'better-sqlite3';
import type { ProductRecord, SkuRecord } from '../../domain/platform/platform.ts';
import { type Bound, type MappingRow, ProductRows } from './product-rows.ts';
import { asBit, asSent, isStored } from './sql-value.ts';

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
