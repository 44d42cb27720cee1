import type Database from 'better-sqlite3';
import { asBit, asSent, fromBit, type Sql, sqlOf } from '../../db/sqlite.ts';
import type { ProductChangeItem } from '../../platform/schemas.ts';
import type { ChangeBody, OutboxChange } from '../intake/change.ts';
import { sameNumber, saysTheSame } from '../intake/guards.ts';
import { type LastCount, placesOfId, type StockKey } from '../ledger/stock-ledger.ts';

interface StockValue {
  qty: number | string | null;
  show: number | null;
}

interface ProductValue {
  price: number | string | null;
  name: string | null;
  show: number | null;
  uncertain: number;
  /**
   * `priceConfirmedMs` is when the platform last accepted the price, `sweptMs` when a list last contained the
   * product; 0 if never.
   */
  priceConfirmedMs: number;
  sweptMs: number;
}

/** A change that was sent, with the target that the mirror knew for it. */
type Sent = Pick<OutboxChange, 'sku' | 'subsidiaryId' | 'body'>;

const PRODUCT_OF_SKU = 'product_id = (SELECT product_id FROM _skus WHERE sku = ?)';

/**
 * Reads and writes the mirror's values of the stocks and products that changes set. The caller opens the transaction.
 */
export class KnownValues {
  readonly #sql: Sql;

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
  }

  /** Whether the mirror has this quantity for certain, and also this visibility if it is given. */
  hasStock(sku: string, subsidiaryId: string, wanted: { qty: number; show?: boolean | undefined }): boolean {
    const stock = this.#stock(sku, subsidiaryId);
    return stock !== undefined && saysTheSame({ qty: stock.qty, show: fromBit(stock.show) }, wanted);
  }

  /** Whether the stock is zero or below; false if the mirror does not have it or is uncertain about it. */
  isZero(sku: string | null, subsidiaryId: string | null): boolean {
    const stock = sku === null || subsidiaryId === null ? undefined : this.#stock(sku, subsidiaryId);
    return stock !== undefined && stock.qty !== null && stock.qty !== '' && Number(stock.qty) <= 0;
  }

  priceOf(sku: string): number | string | null | undefined {
    return this.#product(sku)?.price;
  }

  /**
   * Whether the platform confirmed every value of the body within `trustMs`. False for a description, which the
   * platform does not show.
   */
  hasProductValues(
    sku: string,
    body: Omit<ProductChangeItem, 'sku'>,
    { nowMs, trustMs = Number.POSITIVE_INFINITY }: { nowMs: number; trustMs?: number | undefined },
  ): boolean {
    const product = this.#product(sku);
    if (!product || product.uncertain === 1 || body.description !== undefined) return false;
    const { sweptMs, priceConfirmedMs } = product;
    const isPriceAlone = body.name === undefined && body.show === undefined;
    const confirmedMs = isPriceAlone ? Math.max(sweptMs, priceConfirmedMs) : sweptMs;
    return (
      Math.abs(nowMs - confirmedMs) <= trustMs &&
      (body.price === undefined || sameNumber(product.price, body.price)) &&
      (body.name === undefined || product.name === body.name) &&
      (body.show === undefined || fromBit(product.show) === body.show)
    );
  }

  /**
   * Returns a new mark. Reads of the platform that began earlier do not overwrite values written with it. Must be
   * called once in each transaction that settles changes.
   */
  nextMark(): number {
    return this.#sql.value("UPDATE marks SET value = value + 1 WHERE name = 'push' RETURNING value") ?? 0;
  }

  /**
   * Writes a change that the platform accepted into the mirror. If it was sent with its own ids, every stock or
   * product that these may mean is marked uncertain.
   */
  apply(sent: Sent, sentAsOfSeq: number | null, mark: number, nowMs: number): void {
    const { sku, subsidiaryId, body } = sent;
    if (sku === null) {
      this.doubt(sent, mark);
      return;
    }
    const show = asBit(body.show ?? null);
    if ('qty' in body) {
      if (subsidiaryId === null) return;
      this.#sql.run(
        `INSERT INTO _stocks (sku, subsidiary_id, qty, show, confirmed_seq, confirmed_ms, pushed_mark)
         SELECT sku, @subsidiaryId, @qty, @show, @sentAsOfSeq, @nowMs, @mark FROM _skus WHERE sku = @sku
         ON CONFLICT (sku, subsidiary_id) DO UPDATE SET qty = excluded.qty, show = coalesce(excluded.show, show),
           confirmed_seq = excluded.confirmed_seq, confirmed_ms = excluded.confirmed_ms,
           pushed_mark = excluded.pushed_mark, uncertain = 0,
           show_uncertain = show_uncertain AND excluded.show IS NULL`,
        { sku, subsidiaryId, qty: asSent(body.qty), show, sentAsOfSeq, mark, nowMs },
      );
    } else {
      const { price, name = null } = body;
      if (price !== undefined) {
        const text =
          'UPDATE _skus SET price = ?, price_confirmed_ms = ?, pushed_mark = ?, uncertain = 0 WHERE sku = ?';
        this.#sql.run(text, asSent(price), Math.floor(nowMs), mark, sku);
      }
      if (name !== null || show !== null) {
        this.#sql.run(
          `UPDATE _products SET name = coalesce(@name, name), show = coalesce(@show, show), pushed_mark = @mark,
             uncertain = uncertain AND (@name IS NULL OR @show IS NULL)
           WHERE ${PRODUCT_OF_SKU.replace('?', '@sku')}`,
          { sku, name, show, mark },
        );
      }
    }
    this.#forgetDigests(sku);
  }

  /** Marks the mirror's value as uncertain, because the platform may or may not have accepted the change. */
  doubt({ sku, subsidiaryId, body }: Sent, mark: number): void {
    for (const place of sku === null ? this.#placesOf(body) : [{ sku, subsidiaryId }]) {
      if ('qty' in body) {
        this.#sql.run(
          `UPDATE _stocks SET uncertain = 1, pushed_mark = ?, show_uncertain = show_uncertain OR ?
           WHERE sku = ? AND subsidiary_id = ?`,
          ...[mark, Number(body.show !== undefined), place.sku, place.subsidiaryId],
        );
      } else {
        const uncertain = 'SET uncertain = 1, pushed_mark = ?';
        if (body.price !== undefined)
          this.#sql.run(`UPDATE _skus ${uncertain} WHERE sku = ?`, mark, place.sku);
        if (body.name !== undefined || body.show !== undefined) {
          this.#sql.run(`UPDATE _products ${uncertain} WHERE ${PRODUCT_OF_SKU}`, mark, place.sku);
        }
      }
      this.#forgetDigests(place.sku);
    }
  }

  #stock(sku: string, subsidiaryId: string): StockValue | undefined {
    return this.#sql.row(
      `SELECT qty, CASE WHEN show_uncertain = 0 THEN show END AS show FROM _stocks
       WHERE sku = ? AND subsidiary_id = ? AND uncertain = 0`,
      ...[sku, subsidiaryId],
    );
  }

  #product(sku: string): ProductValue | undefined {
    return this.#sql.row(
      `SELECT s.price, p.name, p.show, s.uncertain OR p.uncertain AS uncertain,
         s.price_confirmed_ms AS priceConfirmedMs,
         (SELECT coalesce(max(w.completed_ms), 0) FROM _branch_products b JOIN _sweeps w USING (branch)
          WHERE b.product_id = p.product_id) AS sweptMs
       FROM _skus s JOIN _products p USING (product_id) WHERE s.sku = ? AND p.vanished_at IS NULL`,
      sku,
    );
  }

  /** Deletes the digest of the product's last read, so that the next read is applied even if it is equal. */
  #forgetDigests(sku: string): void {
    this.#sql.run(
      `UPDATE _branch_products SET digest = NULL WHERE digest IS NOT NULL AND ${PRODUCT_OF_SKU}`,
      sku,
    );
  }

  /** Returns every stock that a change's ids may mean by the mirror's mappings. */
  #placesOf(body: ChangeBody): { sku: string; subsidiaryId: string | null }[] {
    if ('sku' in body && body.sku !== undefined) return [{ sku: String(body.sku), subsidiaryId: null }];
    return body.externalId === undefined ? [] : placesOfId(this.#sql, body.externalId);
  }
}

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
