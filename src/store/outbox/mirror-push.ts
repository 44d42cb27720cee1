import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change/change.ts';
import { asBit, asSent } from '../catalog/sql-value.ts';

export interface PushedRow {
  sku: string | null;
  subsidiaryId: string | null;
  /** As it was sent. */
  body: ChangeBody;
  /** Newest event of the order feed when it was sent. */
  sentAsOfSeq: number;
}

type Place = { sku: string; subsidiaryId: string | null };

/** Writes what the platform took into the mirror, in the transaction that settles it. */
export class MirrorPush {
  readonly #nextMark: Database.Statement<[], number>;
  readonly #putStock: Database.Statement;
  readonly #setPrice: Database.Statement;
  readonly #setProduct: Database.Statement;
  readonly #doubtStock: Database.Statement<[number, number, string, string]>;
  readonly #doubtPrice: Database.Statement<[number, string]>;
  readonly #doubtProduct: Database.Statement<[number, string]>;
  readonly #forgetDigests: Database.Statement<[string]>;
  readonly #places: Database.Statement<[string, string, string], Place>;

  constructor(db: Database.Database) {
    this.#nextMark = db
      .prepare<[], number>("UPDATE marks SET value = value + 1 WHERE name = 'push' RETURNING value")
      .pluck();
    this.#putStock = db.prepare(`
      INSERT INTO stocks (sku, subsidiary_id, qty, show, confirmed_seq, confirmed_ms, pushed_mark)
      SELECT sku, @subsidiaryId, @qty, @show, @sentAsOfSeq, @nowMs, @mark FROM skus WHERE sku = @sku
      ON CONFLICT (sku, subsidiary_id) DO UPDATE SET qty = excluded.qty, show = coalesce(excluded.show, show),
        confirmed_seq = excluded.confirmed_seq, confirmed_ms = excluded.confirmed_ms,
        pushed_mark = excluded.pushed_mark, uncertain = 0,
        show_uncertain = show_uncertain AND excluded.show IS NULL`);
    this.#setPrice = db.prepare(
      'UPDATE skus SET price = @price, pushed_mark = @mark, uncertain = 0 WHERE sku = @sku',
    );
    this.#setProduct = db.prepare(`
      UPDATE products SET name = coalesce(@name, name), show = coalesce(@show, show), pushed_mark = @mark,
        uncertain = uncertain AND (@name IS NULL OR @show IS NULL)
      WHERE product_id = (SELECT product_id FROM skus WHERE sku = @sku)`);
    this.#doubtStock = db.prepare(`
      UPDATE stocks SET uncertain = 1, pushed_mark = ?, show_uncertain = show_uncertain OR ?
      WHERE sku = ? AND subsidiary_id = ?`);
    this.#doubtPrice = db.prepare('UPDATE skus SET uncertain = 1, pushed_mark = ? WHERE sku = ?');
    this.#doubtProduct = db.prepare(`
      UPDATE products SET uncertain = 1, pushed_mark = ?
      WHERE product_id = (SELECT product_id FROM skus WHERE sku = ?)`);
    this.#forgetDigests = db.prepare(`
      UPDATE branch_products SET digest = NULL
      WHERE digest IS NOT NULL AND product_id = (SELECT product_id FROM skus WHERE sku = ?)`);
    this.#places = db.prepare(`
      SELECT sku, subsidiary_id AS subsidiaryId FROM integrations
      WHERE ext_id = ? OR product_id_pos_a = ? OR product_code_pos_b = ?`);
  }

  /** To be called once in each transaction that settles a call, after the platform has answered. */
  nextMark(): number {
    return this.#nextMark.get() ?? 0;
  }

  /** A change that was sent as it was is not placed here; what it may have touched is doubted. */
  apply(row: PushedRow, mark: number, nowMs: number): void {
    const { sku, subsidiaryId, body, sentAsOfSeq } = row;
    if (sku === null) {
      this.doubt(row, mark);
      return;
    }
    if ('qty' in body) {
      if (subsidiaryId === null) return;
      const show = asBit(body.show ?? null);
      this.#putStock.run({ sku, subsidiaryId, qty: asSent(body.qty), show, sentAsOfSeq, mark, nowMs });
    } else {
      if (body.price !== undefined) this.#setPrice.run({ sku, price: asSent(body.price), mark });
      if (body.name !== undefined || body.show !== undefined) {
        this.#setProduct.run({ sku, name: body.name ?? null, show: asBit(body.show ?? null), mark });
      }
    }
    this.#forgetDigests.run(sku);
  }

  /** Notes that the platform may or may not have taken it: what the mirror has is no longer certain. */
  doubt({ sku, subsidiaryId, body }: Omit<PushedRow, 'sentAsOfSeq'>, mark: number): void {
    for (const place of sku === null ? this.#placesOf(body) : [{ sku, subsidiaryId }]) {
      if ('qty' in body) {
        const doubtsShow = Number(body.show !== undefined);
        if (place.subsidiaryId !== null)
          this.#doubtStock.run(mark, doubtsShow, place.sku, place.subsidiaryId);
      } else {
        if (body.price !== undefined) this.#doubtPrice.run(mark, place.sku);
        if (body.name !== undefined || body.show !== undefined) this.#doubtProduct.run(mark, place.sku);
      }
      this.#forgetDigests.run(place.sku);
    }
  }

  /** Everything that the words of a change may stand for, by what the mirror knows by now. */
  #placesOf(body: ChangeBody): Place[] {
    if ('sku' in body && body.sku !== undefined) return [{ sku: String(body.sku), subsidiaryId: null }];
    const { externalId } = body;
    return externalId === undefined ? [] : this.#places.all(externalId, externalId, externalId);
  }
}
