import type Database from 'better-sqlite3';
import * as z from 'zod';
import { fromBit, sqlOf } from '../db/sqlite.ts';
import { type MirroredProduct, product } from './product.ts';

/** How the hub's catalogue names a branch. */
export interface CatalogBranch {
  branch: string;
  /** null: nobody knows, so that none of the stocks is known to be its own. */
  subsidiaryId: string | null;
  /** In `branch_products`. */
  key: string;
}

/** Products as one branch sees them, with its own stocks and ids alone. */
export const BRANCH_PRODUCTS = z.object({
  products: z.array(product),
  /** Ids of products that the branch does not have, or no longer. */
  gone: z.array(z.string()),
  /** What the branch has with an id behind `after`, up to `to` (null: to the end), is this and nothing more. */
  range: z.object({ after: z.string(), to: z.string().nullable() }).optional(),
});
export type BranchProducts = z.infer<typeof BRANCH_PRODUCTS>;

/** Products of one entry of a feed. */
export const PRODUCTS_AT_ONCE = 50;

/** Which products an entry brings: those that changed, or all within a range of ids. */
export type ProductsNamed =
  | { fromRev: number; toRev: number }
  | { after: string /** null: to the end. */; to: string | null };

/** The newest change of the catalogue; 0: none. */
export function newestRev(db: Database.Database): number {
  return sqlOf(db).value('SELECT max(rev) FROM catalog_news') ?? 0;
}

/** The next changes of what the branch sees, after `fromRev`; undefined: there are none. */
export function nextChanges(
  db: Database.Database,
  branch: string,
  fromRev: number,
): { fromRev: number; toRev: number } | undefined {
  const part = `SELECT rev FROM catalog_news WHERE branch = ? AND rev > ? ORDER BY rev LIMIT ${PRODUCTS_AT_ONCE}`;
  const revs = ['', branch].flatMap((of) => sqlOf(db).values<number>(part, of, fromRev));
  const toRev = revs
    .sort((a, b) => a - b)
    .slice(0, PRODUCTS_AT_ONCE)
    .at(-1);
  return toRev === undefined ? undefined : { fromRev, toRev };
}

/** The next ids of all products, beginning behind `after`. */
export function nextRange(db: Database.Database, after: string): { after: string; to: string | null } {
  const sql = `SELECT product_id FROM products WHERE product_id > ? ORDER BY product_id LIMIT ${PRODUCTS_AT_ONCE}`;
  const ids = sqlOf(db).values<string>(sql, after);
  return { after, to: ids.length < PRODUCTS_AT_ONCE ? null : (ids.at(-1) ?? null) };
}

/** The products as they are now. What changed once more since is in a later entry. */
export function productsFor(
  db: Database.Database,
  { branch, subsidiaryId, key }: CatalogBranch,
  named: ProductsNamed,
): BranchProducts {
  const sql = sqlOf(db);
  const isRange = 'after' in named;
  const ids = isRange
    ? sql.values<string>(
        `SELECT product_id FROM products WHERE product_id > @after AND (@to IS NULL OR product_id <= @to)
         ORDER BY product_id`,
        { ...named },
      )
    : sql.values<string>(
        `SELECT DISTINCT product_id FROM catalog_news WHERE branch IN ('', @branch) AND rev > @fromRev AND rev <= @toRev
         ORDER BY product_id`,
        { ...named, branch },
      );
  const products: MirroredProduct[] = [];
  const gone: string[] = [];
  for (const id of ids) {
    const found = productOf(db, id, subsidiaryId, key);
    if (found) products.push(found);
    else if (!isRange) gone.push(id);
  }
  return { products, gone, ...(isRange && { range: named }) };
}

type Row<T> = Omit<T, 'show'> & { show: number | null };
type Sku = MirroredProduct['skus'][number];

/** Undefined where the branch neither lists it nor has a stock or an id of it. */
function productOf(
  db: Database.Database,
  productId: string,
  subsidiaryId: string | null,
  key: string,
): MirroredProduct | undefined {
  const sql = sqlOf(db);
  const head = sql.row<Row<Omit<MirroredProduct, 'skus'>> & { listed: number }>(
    `SELECT product_id AS productId, name, category, show, vanished_at AS vanishedAt, updated_at AS updatedAt,
       EXISTS (SELECT 1 FROM branch_products b WHERE b.branch = ? AND b.product_id = p.product_id) AS listed
     FROM products p WHERE product_id = ?`,
    ...[key, productId],
  );
  if (!head) return undefined;
  const skus = sql.rows<Row<Omit<Sku, 'stocks' | 'integrations'>>>(
    `SELECT sku, barcode, price, with_discount AS withDiscount, discount, show FROM skus
     WHERE product_id = ? ORDER BY sku`,
    productId,
  );
  const whole = skus.map(({ show, ...sku }) => ({
    ...{ ...sku, show: fromBit(show) },
    stocks: sql
      .rows<Row<Sku['stocks'][number]>>(
        `SELECT subsidiary_id AS subsidiaryId, qty, show FROM stocks WHERE sku = ? AND subsidiary_id = ?`,
        ...[sku.sku, subsidiaryId],
      )
      .map((stock) => ({ ...stock, show: fromBit(stock.show) })),
    integrations: sql.rows<Sku['integrations'][number]>(
      `SELECT subsidiary_id AS subsidiaryId, product_id_pos_a AS productIdPosA, product_code_pos_b AS productCodePosB,
         ext_id AS extId FROM integrations WHERE sku = ? AND subsidiary_id = ? ORDER BY rowid`,
      ...[sku.sku, subsidiaryId],
    ),
  }));
  const { listed, show, ...rest } = head;
  const has = whole.some(({ stocks, integrations }) => stocks.length + integrations.length > 0);
  return has || listed === 1 ? { ...rest, show: fromBit(show), skus: whole } : undefined;
}
