import type Database from 'better-sqlite3';
import type { BranchDirectory } from '../catalog/product.ts';
import type { StockChange } from './change.ts';
import type { KnownStock } from './guards.ts';

type StockTuple = [
  sku: string,
  subsidiaryId: string,
  extId: string | null,
  posA: string | null,
  posB: string | null,
  uncertain: number | null,
  qty: number | string | null,
  show: number | null,
];

export interface IndexedStock extends KnownStock {
  sku: string;
  subsidiaryId: string;
}

/**
 * Holds all stocks of the mirror in memory while one whole inventory is planned, so that tens of thousands of lines
 * need no queries.
 */
export class InventoryIndex {
  /** Stocks that a change can name, by target key. The inventory is compared with them. */
  readonly stocks = new Map<string, IndexedStock>();
  /** The stock of each externalId; null if several stocks have the externalId. */
  readonly #places = new Map<string, { key: string; subsidiaryId: string } | null>();
  readonly #branches: BranchDirectory;

  /** `subsidiaryIds` are the branches that the inventory covers; undefined means all branches. */
  constructor(options: {
    db: Database.Database;
    branches: BranchDirectory;
    subsidiaryIds?: ReadonlySet<string> | undefined;
  }) {
    const { db, subsidiaryIds } = options;
    this.#branches = options.branches;
    const rows = db
      .prepare<[], StockTuple>(
        `SELECT i.sku, i.subsidiary_id, i.ext_id, i.product_id_pos_a, i.product_code_pos_b, k.uncertain, k.qty,
           k.show
         FROM integrations i LEFT JOIN stocks k USING (sku, subsidiary_id)`,
      )
      .raw();
    for (const [sku, subsidiaryId, extId, posA, posB, uncertain, qty, show] of rows.all()) {
      const place = { key: `sku:${sku}@${subsidiaryId}`, subsidiaryId };
      if (extId !== null) this.#add(extId, place);
      if (posA !== null) this.#add(posA, place);
      if (posB !== null) this.#add(posB, place);
      if (uncertain === null || (subsidiaryIds && !subsidiaryIds.has(subsidiaryId))) continue;
      const isShown = show === null ? null : show !== 0;
      this.stocks.set(place.key, { sku, subsidiaryId, qty, show: isShown, unsure: uncertain === 1 });
    }
  }

  /**
   * Returns the target key of a change whose externalId means one stock, as `resolveStock` would. Returns undefined
   * in any other case; the change must then be resolved.
   */
  readonly keyOf = (change: StockChange): string | undefined => {
    const { externalId, sku, subsidiaryId, subsidiaryExternalId } = change;
    const place = externalId === undefined || sku !== undefined ? undefined : this.#places.get(externalId);
    if (!place || (subsidiaryId ?? place.subsidiaryId) !== place.subsidiaryId) return undefined;
    const isOther =
      subsidiaryExternalId !== undefined && this.#branches.idOf(subsidiaryExternalId) !== place.subsidiaryId;
    return isOther ? undefined : place.key;
  };

  #add(externalId: string, place: { key: string; subsidiaryId: string }): void {
    const before = this.#places.get(externalId);
    if (before === undefined) this.#places.set(externalId, place);
    else if (before?.key !== place.key) this.#places.set(externalId, null);
  }
}
