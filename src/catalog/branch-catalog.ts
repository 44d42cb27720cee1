import type Database from 'better-sqlite3';
import * as z from 'zod';
import { fromBit, sqlOf } from '../db/sqlite.ts';
import { type MirroredProduct, product } from './product.ts';

/** Ids of a branch in the hub's catalogue. */
interface CatalogBranch {
  branch: string;
  /** Subsidiary id of the branch. If it is null (unknown), no stock is regarded as the branch's own. */
  subsidiaryId: string | null;
  /** Key of the branch in the table `_branch_products`. */
  key: string;
}

/** Products as one branch sees them, with only the branch's own stocks and ids. */
export const BRANCH_PRODUCTS = z.object({
  products: z.array(product),
  /** Ids of products that the branch does not have, or has no more. */
  gone: z.array(z.string()),
  /**
   * Range of ids after `after` up to `to` (null: to the end). In this range, the branch has the listed products and no
   * others.
   */
  range: z.object({ after: z.string(), to: z.string().nullable() }).optional(),
});
export type BranchProducts = z.infer<typeof BRANCH_PRODUCTS>;

/**
 * Maximum numbers of products and skus in one entry of a feed. Both are limited, because a product may have many skus.
 */
const PRODUCTS_AT_ONCE = 50;
const SKUS_AT_ONCE = 500;

/** Products of an entry: those changed between two revisions, or all within a range of ids. */
export type ProductsNamed =
  | { fromRev: number; toRev: number }
  | { after: string /** null: to the end. */; to: string | null };

/** Returns the newest revision of the catalogue; 0 if there is none. */
export function newestRev(db: Database.Database): number {
  return sqlOf(db).value('SELECT max(rev) FROM _catalog_news') ?? 0;
}

/** Returns the next changes after `fromRev` that the branch sees; undefined if there are none. */
export function nextChanges(
  db: Database.Database,
  branch: string,
  fromRev: number,
): { fromRev: number; toRev: number } | undefined {
  const part = `SELECT rev, product_id AS id FROM _catalog_news WHERE branch = ? AND rev > ?
    ORDER BY rev LIMIT ${PRODUCTS_AT_ONCE}`;
  const news = ['', branch]
    .flatMap((of) => sqlOf(db).rows<{ rev: number; id: string }>(part, of, fromRev))
    .sort((a, b) => a.rev - b.rev)
    .slice(0, PRODUCTS_AT_ONCE);
  const ids = news.map(({ id }) => id);
  const last = news[fitting(db, ids) - 1];
  return last && { fromRev, toRev: last.rev };
}

/** Returns the next range of product ids after `after`. */
export function nextRange(db: Database.Database, after: string): { after: string; to: string | null } {
  const sql = `SELECT product_id FROM _products WHERE product_id > ? ORDER BY product_id LIMIT ${PRODUCTS_AT_ONCE}`;
  const ids = sqlOf(db).values<string>(sql, after);
  const count = fitting(db, ids);
  return { after, to: count < PRODUCTS_AT_ONCE && count === ids.length ? null : (ids[count - 1] ?? null) };
}

/** Returns how many of the products, counted from the first, fit into one entry; at least one. */
function fitting(db: Database.Database, ids: readonly string[]): number {
  const sql = `SELECT count(s.sku) FROM json_each(?) j LEFT JOIN _skus s ON s.product_id = j.value
    GROUP BY j.key ORDER BY j.key`;
  const counts = sqlOf(db).values<number>(sql, JSON.stringify(ids));
  const counted = new Set<string>();
  let room = SKUS_AT_ONCE;
  for (const [i, id] of ids.entries()) {
    // A changed id may be listed twice: once for all branches, and once for this branch.
    if (counted.has(id)) continue;
    counted.add(id);
    room -= counts[i] ?? 0;
    if (room < 0) return Math.max(1, i);
  }
  return ids.length;
}

/** Returns the products in their present state. A product that changed again later has a later entry too. */
export function productsFor(
  db: Database.Database,
  { branch, subsidiaryId, key }: CatalogBranch,
  named: ProductsNamed,
): BranchProducts {
  const isRange = 'after' in named;
  const ids = isRange
    ? sqlOf(db).values<string>(
        `SELECT product_id FROM _products WHERE product_id > @after AND (@to IS NULL OR product_id <= @to)
         ORDER BY product_id`,
        { ...named },
      )
    : sqlOf(db).values<string>(
        `SELECT DISTINCT product_id FROM _catalog_news WHERE branch IN ('', @branch) AND rev > @fromRev AND rev <= @toRev
         ORDER BY product_id`,
        { ...named, branch },
      );
  const products = productsSeen(db, ids, subsidiaryId, key);
  const seen = new Set(products.map(({ productId }) => productId));
  const gone = isRange ? [] : ids.filter((id) => !seen.has(id));
  return { products, gone, ...(isRange && { range: named }) };
}

/** A row of SQLite, which returns booleans as numbers. */
type Row<T> = Omit<T, 'show'> & { show: number | null };
type Sku = MirroredProduct['skus'][number];
type Stock = Sku['stocks'][number];
type Mapping = Sku['integrations'][number];

/** Returns the products that the branch lists, or of which it has a stock or an id. */
function productsSeen(
  db: Database.Database,
  ids: readonly string[],
  subsidiaryId: string | null,
  key: string,
): MirroredProduct[] {
  const sql = sqlOf(db);
  const named = JSON.stringify(ids);
  const heads = sql.rows<Row<Omit<MirroredProduct, 'skus'>> & { listed: number }>(
    `SELECT product_id AS productId, name, category, show, vanished_at AS vanishedAt, updated_at AS updatedAt,
       EXISTS (SELECT 1 FROM _branch_products b WHERE b.branch = ? AND b.product_id = p.product_id) AS listed
     FROM json_each(?) j JOIN _products p ON p.product_id = j.value`,
    ...[key, named],
  );
  const skus = sql.rows<Row<Omit<Sku, 'stocks' | 'integrations'>> & { productId: string }>(
    `SELECT product_id AS productId, sku, barcode, price, with_discount AS withDiscount, discount, show
     FROM json_each(?) j JOIN _skus s ON s.product_id = j.value ORDER BY sku`,
    named,
  );
  const place = [JSON.stringify(skus.map(({ sku }) => sku)), subsidiaryId];
  // The cross join keeps SQLite from beginning with all stocks of the branch: with 100,000 of them 424 ms instead of 0.2.
  const stocks = sql.rows<Row<Stock> & { sku: string }>(
    `SELECT k.sku, subsidiary_id AS subsidiaryId, qty, show
     FROM json_each(?) j CROSS JOIN _stocks k ON k.sku = j.value AND k.subsidiary_id = ?`,
    ...place,
  );
  const mappings = sql.rows<Mapping & { sku: string }>(
    `SELECT i.sku, subsidiary_id AS subsidiaryId, product_id_pos_a AS productIdPosA,
       product_code_pos_b AS productCodePosB, ext_id AS extId
     FROM json_each(?) j JOIN integrations i ON i.sku = j.value AND i.subsidiary_id = ? ORDER BY i.rowid`,
    ...place,
  );
  const stocksOf = Map.groupBy(stocks, ({ sku }) => sku);
  const mappingsOf = Map.groupBy(mappings, ({ sku }) => sku);
  const skusOf = Map.groupBy(skus, ({ productId }) => productId);
  return heads.flatMap(({ listed, ...head }) => {
    const own = (skusOf.get(head.productId) ?? []).map(({ productId: _, ...sku }) => ({
      ...withShow(sku),
      stocks: (stocksOf.get(sku.sku) ?? []).map(({ sku: _of, ...stock }) => withShow(stock)),
      integrations: (mappingsOf.get(sku.sku) ?? []).map(({ sku: _of, ...mapping }) => mapping),
    }));
    const has = own.some(({ stocks: here, integrations }) => here.length + integrations.length > 0);
    return has || listed === 1 ? { ...withShow(head), skus: own } : [];
  });
}

function withShow<T extends { show: number | null }>(row: T): Omit<T, 'show'> & { show: boolean | null } {
  return { ...row, show: fromBit(row.show) };
}
