import type Database from 'better-sqlite3';
import type { BranchDirectory } from '../../catalog/product.ts';
import { twinKey } from '../../core/folding.ts';
import type { SourceLine, StockChange } from './change.ts';
import type { KnownStock } from './guards.ts';
import type { Row } from './same-article.ts';

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
  externalIds: string[];
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
         FROM integrations i LEFT JOIN _stocks k USING (sku, subsidiary_id)`,
      )
      .raw();
    for (const [sku, subsidiaryId, extId, posA, posB, uncertain, qty, show] of rows.all()) {
      const place = { key: `sku:${sku}@${subsidiaryId}`, subsidiaryId };
      if (extId !== null) this.#add(extId, place);
      if (posA !== null) this.#add(posA, place);
      if (posB !== null) this.#add(posB, place);
      if (uncertain === null || (subsidiaryIds && !subsidiaryIds.has(subsidiaryId))) continue;
      const isShown = show === null ? null : show !== 0;
      const externalIds = [extId, posA, posB].filter((id) => id !== null);
      const known = { qty, show: isShown, unsure: uncertain === 1 };
      this.stocks.set(place.key, { sku, subsidiaryId, externalIds, ...known });
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

/** An unknown line whose id is nearly that of stocks that the inventory lacks. */
interface Twin<T> {
  line: T;
  stocks: IndexedStock[];
}

/** Returns the unknown lines that may mean missing stocks: `ABC-7` where the shop has `abc-7`, `42` where it has `0042`. */
export function twinsOf<T extends { change: StockChange }>(
  unknown: readonly T[],
  missed: readonly IndexedStock[],
  branches: BranchDirectory,
): Twin<T>[] {
  const byTwinKey = new Map<string, T[]>();
  for (const line of unknown) {
    const { externalId } = line.change;
    if (externalId === undefined) continue;
    const key = twinKey(externalId);
    byTwinKey.set(key, [...(byTwinKey.get(key) ?? []), line]);
  }
  const twins = new Map<T, IndexedStock[]>();
  if (byTwinKey.size === 0) return [];
  for (const stock of missed) {
    for (const line of new Set(stock.externalIds.flatMap((id) => byTwinKey.get(twinKey(id)) ?? []))) {
      const { subsidiaryId, subsidiaryExternalId: name } = line.change;
      const branch = subsidiaryId ?? (name === undefined ? undefined : branches.idOf(name));
      if (branch !== undefined && branch !== stock.subsidiaryId) continue;
      twins.set(line, [...(twins.get(line) ?? []), stock]);
    }
  }
  return [...twins].map(([line, stocks]) => ({ line, stocks }));
}

export function twinFault<T extends SourceLine & { kind: 'stock'; change: StockChange }>({
  line: { index, line, kind, change },
  stocks,
}: Twin<T>): Extract<Row, { fault: unknown }> {
  const key = twinKey(change.externalId ?? '');
  const told = stocks.slice(0, 3).map(({ sku, subsidiaryId, externalIds }) => {
    const id = externalIds.find((each) => twinKey(each) === key) ?? '';
    return `${id} (sku ${sku} in ${subsidiaryId})`;
  });
  const message = `The catalogue has no externalId ${change.externalId}, but it has ${told.join(', ')}, which is missing here. Neither was changed. Correct the id in the POS or on the platform.`;
  return { index, line, kind, fault: { code: 'twin', column: 'externalId', message } };
}
