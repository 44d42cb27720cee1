import type Database from 'better-sqlite3';
import { sqlOf } from '../db/sqlite.ts';
import type { Branch } from './product.ts';

/** Numbers of a branch's shown products with and without an id of the POS. */
export interface BranchMapping {
  branch: Branch;
  /** Number of products that customers can see in the branch, by the last sweep. */
  shown: number;
  /** Number of shown products that have a sku without an id in the branch. */
  unmapped: number;
  /** True if most shown products have an id, so that the shop evidently assigns ids. */
  isMapping: boolean;
}

/** A sku that customers can see in a branch but that has no id of the POS there. */
export interface UnmappedSku {
  branch: string;
  sku: string;
  productId: string;
  name: string | null;
  category: string | null;
  barcode: string | null;
}

/**
 * Minimum share of products with an id for a shop to be treated as one that assigns ids. Below it, the shop may not
 * intend to.
 */
const MAPPING_SHARE = 0.5;

/** SQL for the stocks that customers see in the branch `?`: product, sku and stock must be shown. */
const SHOWN = `FROM _stocks k
  JOIN _skus s ON s.sku = k.sku AND s.show IS NOT 0
  JOIN _products p ON p.product_id = s.product_id AND p.show IS NOT 0 AND p.vanished_at IS NULL
  WHERE k.subsidiary_id = ? AND k.show IS NOT 0`;
const IS_MAPPED = `EXISTS (SELECT 1 FROM integrations i WHERE i.sku = k.sku AND i.subsidiary_id = k.subsidiary_id
  AND (trim(i.ext_id) <> '' OR trim(i.product_id_pos_a) <> '' OR trim(i.product_code_pos_b) <> ''))`;

/**
 * Returns the branch's id in `stocks`. A branch configured only by its external id gets the id that belongs to no other
 * branch. Returns null unless there is exactly one such branch and one such id.
 */
export function subsidiaryOf(
  db: Database.Database,
  { subsidiaryId }: Branch,
  branches: readonly Branch[],
): string | null {
  if (subsidiaryId !== null) return subsidiaryId;
  if (branches.filter((each) => each.subsidiaryId === null).length > 1) return null;
  const stocked = sqlOf(db).values<string>('SELECT DISTINCT subsidiary_id FROM _stocks');
  const free = stocked.filter((id) => !branches.some((each) => each.subsidiaryId === id));
  return free.length === 1 ? (free[0] ?? null) : null;
}

/**
 * Time for which callers cache the result of `branchMappings`, because it reads the whole catalogue, which seldom
 * changes.
 */
export const MAPPINGS_FOR_MS = 5 * 60_000;

/** Returns the numbers of mapped and unmapped products of each branch in which customers can see products. */
export function branchMappings(db: Database.Database, branches: readonly Branch[]): BranchMapping[] {
  return branches.flatMap((branch) => {
    const counts = sqlOf(db).row<{ shown: number; unmapped: number }>(
      `SELECT count(DISTINCT p.product_id) AS shown,
         count(DISTINCT CASE WHEN NOT ${IS_MAPPED} THEN p.product_id END) AS unmapped
       ${SHOWN}`,
      subsidiaryOf(db, branch, branches),
    );
    if (!counts || counts.shown === 0) return [];
    const { shown, unmapped } = counts;
    return {
      branch,
      shown,
      unmapped,
      isMapping: shown - unmapped >= shown * MAPPING_SHARE && shown > unmapped,
    };
  });
}

/**
 * Returns unmapped skus by branch, then by product name and sku. `all` are the configured branches, `branches` those
 * whose skus are returned.
 */
export function unmappedSkus(
  db: Database.Database,
  all: readonly Branch[],
  branches: readonly Branch[] = all,
): UnmappedSku[] {
  return branches.flatMap((branch) =>
    sqlOf(db)
      .rows<Omit<UnmappedSku, 'branch'>>(
        `SELECT k.sku, p.product_id AS productId, p.name, p.category, s.barcode
         ${SHOWN} AND NOT ${IS_MAPPED} ORDER BY p.name, p.product_id, k.sku`,
        subsidiaryOf(db, branch, all),
      )
      .map((row) => ({ branch: branch.externalId ?? branch.subsidiaryId ?? '', ...row })),
  );
}

/** An item of an open order without an id, so that the POS cannot recognise the product. */
export interface UnmappedItem {
  orderId: string;
  code: number | null;
  productName: string | null;
}

/** Number of newest orders that show whether the platform sends ids at all. */
const NEWEST_ORDERS = 200;

/**
 * Returns items without an id in orders of these branches that wait for a POS and were first seen paid at `from` or
 * later. Items with modifiers are left out, because they never have an id. Returns nothing if most
 * items of the newest orders lack ids, because the platform then sends none.
 */
export function unmappedItems(
  db: Database.Database,
  /** `waits` is an SQL condition that is true for a row of `orders` that is open, paid and not acknowledged. */
  { waits, branches, from }: { waits: string; branches: readonly Branch[]; from: string },
): UnmappedItem[] {
  const ids = branches.flatMap(({ subsidiaryId, externalId }) => [subsidiaryId, externalId].filter(Boolean));
  const isPlain = `NOT EXISTS (SELECT 1 FROM order_item_modifiers m
    WHERE m.order_id = i.order_id AND m.line = i.line)`;
  const hasId = "coalesce(i.product_external_id, '') <> ''";
  const items = sqlOf(db).rows<UnmappedItem>(
    `SELECT _orders.order_id AS orderId, code, i.product_name AS productName
     FROM _orders JOIN order_items i USING (order_id)
     WHERE to_book_since >= ? AND ${waits} AND store_external_id IN (SELECT value FROM json_each(?))
       AND NOT ${hasId} AND ${isPlain} ORDER BY to_book_since, i.line`,
    ...[from, JSON.stringify(ids)],
  );
  if (items.length === 0) return [];
  const share = sqlOf(db).value<number>(
    `SELECT avg(${hasId}) FROM (SELECT order_id FROM _orders ORDER BY seq DESC LIMIT ${NEWEST_ORDERS}) o
     JOIN order_items i USING (order_id) WHERE ${isPlain}`,
  );
  return (share ?? 0) >= MAPPING_SHARE ? items : [];
}
