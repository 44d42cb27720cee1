import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change/change.ts';
import type { SellableStock } from '../../domain/change/hold-back.ts';
import type { StockChangeItem } from '../../domain/platform/platform.ts';
import type { BranchDirectory } from '../../domain/product/catalog-lookup.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { MirrorValues } from './mirror-values.ts';
import type { LineRow } from './outbox-row.ts';
import { SoldSince } from './sold-since.ts';
import { type SoldPlace, UnbookedOrders } from './unbooked-orders.ts';

/** How values are judged before they leave. */
export interface SendRules {
  /** Whether a value that the mirror has already is settled without a call. */
  skipUnchanged: boolean;
  /** `stock.hold_back_unbooked`. */
  holdBack: boolean;
  /**
   * Whether changes whose target the mirror does not know are sent by their own words. While a first sweep is
   * under way they had better wait: until then nobody can tell that two of them mean the same product, and an
   * older one could arrive after a newer one.
   */
  sendAsIs: boolean;
}

export interface Judgement {
  /** Nothing of it is news to the platform. */
  isUnchanged: boolean;
  /** What is sent of a stock; null for a product. */
  stock: SellableStock | null;
}

type PlaceWish = Pick<SoldPlace, 'externalIds' | 'placedUntilMs' | 'heardUntilSeq'>;

type StockPlace = Pick<LineRow, 'sku' | 'subsidiaryId' | 'asOfSeq'>;

/** Judges what of a waiting change is to be sent. To be used within one transaction, after `begin`. */
export class StockRules {
  readonly #values: MirrorValues;
  readonly #sold: SoldSince;
  readonly #unbooked: UnbookedOrders;
  readonly #externalIds: Database.Statement<[string, string], (string | null)[]>;

  constructor(options: { db: Database.Database; clock: Clock; branches: BranchDirectory }) {
    this.#values = new MirrorValues(options.db);
    this.#sold = new SoldSince(options.db);
    this.#unbooked = new UnbookedOrders(options);
    this.#externalIds = options.db
      .prepare<[string, string], (string | null)[]>(
        `SELECT ext_id, product_id_pos_a, product_code_pos_b FROM integrations
         WHERE sku = ? AND subsidiary_id = ?`,
      )
      .raw();
  }

  begin(rules: SendRules): void {
    if (rules.skipUnchanged) this.#sold.catchUp();
    if (rules.holdBack) this.#unbooked.catchUp();
  }

  judge(row: StockPlace, body: ChangeBody, rules: SendRules): Judgement {
    if (!('qty' in body)) {
      const { sku } = row;
      const isUnchanged = rules.skipUnchanged && sku !== null && this.#values.hasProductValues(sku, body);
      return { isUnchanged, stock: null };
    }
    const externalIds = this.#idsOf(row, body);
    const stock = rules.holdBack ? this.sellable(row, body, { externalIds }) : { qty: body.qty, heldBack: 0 };
    if (!rules.skipUnchanged || row.sku === null || row.subsidiaryId === null) {
      return { isUnchanged: false, stock };
    }
    const wanted = { qty: stock.qty, show: body.show };
    const confirmedAt = this.#values.stockConfirmedAt(row.sku, row.subsidiaryId, wanted);
    const isUnchanged =
      confirmedAt !== undefined && this.#sold.isUntouchedSince(confirmedAt, row.sku, externalIds);
    return { isUnchanged, stock };
  }

  /**
   * What of a count may be sold now; with `placedUntilMs`, what could have been sold had no order come after that.
   */
  sellable(row: StockPlace, body: StockChangeItem, wish: Partial<PlaceWish> = {}): SellableStock {
    return this.#unbooked.sellable({ qty: body.qty, asOfSeq: row.asOfSeq }, this.#placeOf(row, body, wish));
  }

  /** Whether an order of it that was heard of after the event `seq` for the first time is cancelled. */
  isCancelledSince(seq: number, row: StockPlace, body: StockChangeItem): boolean {
    return this.#unbooked.isCancelledSince(seq, this.#placeOf(row, body, {}));
  }

  #placeOf(row: StockPlace, body: StockChangeItem, wish: Partial<PlaceWish>): SoldPlace {
    const {
      externalIds = this.#idsOf(row, body),
      placedUntilMs = Number.POSITIVE_INFINITY,
      heardUntilSeq = 0,
    } = wish;
    const { sku, subsidiaryId } = row;
    const subsidiaryExternalId = body.subsidiaryExternalId ?? null;
    return { externalIds, sku, branch: { subsidiaryId, subsidiaryExternalId }, placedUntilMs, heardUntilSeq };
  }

  /** Every id under which an order may name the product. */
  #idsOf(row: StockPlace, body: StockChangeItem): string[] {
    const ids = new Set([body.externalId]);
    if (row.sku !== null && row.subsidiaryId !== null) {
      for (const id of this.#externalIds.all(row.sku, row.subsidiaryId).flat()) if (id) ids.add(id);
    }
    return [...ids];
  }
}
