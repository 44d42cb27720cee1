import type Database from 'better-sqlite3';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import type { OrderItem, PlacedItem } from './mirrored-order.ts';

/** The product and sku in the catalogue to which an order line belongs. */
export type LinePlace = Pick<PlacedItem, 'sku' | 'productId' | 'matchedBy'>;

const NOWHERE: LinePlace = { sku: null, productId: null, matchedBy: null };

/** Smallest and largest sku and product id of all matches. They are equal if there is only one match. */
interface Ends {
  sku: string | null;
  productId: string | null;
  lastSku: string | null;
  lastProductId: string | null;
}

const ENDS =
  'min(sku) AS sku, max(sku) AS lastSku, min(product_id) AS productId, max(product_id) AS lastProductId';
// A callback waits for this query. min and max read the matches once; ORDER BY with LIMIT would take three times as
// long.
const BY_ID = `SELECT ${ENDS} FROM (${['ext_id', 'product_id_pos_a', 'product_code_pos_b']
  .map((column) => `SELECT sku, product_id FROM integrations WHERE ${column} = @id`)
  .join(' UNION ALL ')})`;
// Two queries, each of one table, because a join of both takes four times as long.
const BY_NAME = `SELECT min(product_id) AS productId, max(product_id) AS lastProductId FROM _products
  WHERE name = ? AND vanished_at IS NULL`;
const OF_PRODUCT = 'SELECT min(sku) AS sku, max(sku) AS lastSku FROM _skus WHERE product_id = ?';

/**
 * Finds a line's sku as the stock ledger does: by its id in the three mapping fields, then by its product's name. If
 * several skus match, the sku is null, because the ledger decides between them later, by branch. Results are cached, so
 * an instance serves one transaction, in which the catalogue does not change.
 */
export class LinePlaces {
  readonly #sql: Sql;
  readonly #ofIds = new Map<string, LinePlace | null>();
  readonly #ofNames = new Map<string, LinePlace>();

  constructor(db: Database.Database) {
    this.#sql = sqlOf(db);
  }

  of({ productExternalId, productName }: Pick<OrderItem, 'productExternalId' | 'productName'>): LinePlace {
    return (
      (productExternalId === null ? null : this.#ofId(productExternalId)) ??
      (productName === null ? NOWHERE : this.#ofName(productName))
    );
  }

  #ofId(id: string): LinePlace | null {
    let place = this.#ofIds.get(id);
    if (place === undefined) {
      const found = this.#sql.row<Ends>(BY_ID, { id });
      place = found && found.sku !== null ? placeOf(found, 'external_id') : null;
      this.#ofIds.set(id, place);
    }
    return place;
  }

  #ofName(name: string): LinePlace {
    let place = this.#ofNames.get(name);
    if (place === undefined) {
      place = this.#lookUpName(name);
      this.#ofNames.set(name, place);
    }
    return place;
  }

  #lookUpName(name: string): LinePlace {
    const found = this.#sql.row<Pick<Ends, 'productId' | 'lastProductId'>>(BY_NAME, name);
    if (!found || found.productId === null || found.productId !== found.lastProductId) return NOWHERE;
    const skus = this.#sql.row<Pick<Ends, 'sku' | 'lastSku'>>(OF_PRODUCT, found.productId);
    return skus ? placeOf({ ...found, ...skus }, 'name') : NOWHERE;
  }
}

function placeOf(
  { sku, lastSku, productId, lastProductId }: Ends,
  matchedBy: LinePlace['matchedBy'],
): LinePlace {
  if (productId !== lastProductId) return NOWHERE;
  return { sku: sku === lastSku ? sku : null, productId, matchedBy };
}

/**
 * Stores the sku of an order line that has none: its product was new to the catalogue, or several skus matched and only
 * the branch decides. Does nothing unless the ledger's matches in `places` agree on one sku.
 */
export function noteSku(
  sql: Sql,
  orderId: string,
  line: number,
  places: readonly (readonly [sku: string, subsidiaryId: string])[],
): void {
  const [sku, ...others] = new Set(places.map(([each]) => each));
  if (sku === undefined || others.length > 0) return;
  const isById = `EXISTS (SELECT 1 FROM integrations n WHERE n.sku = @sku
    AND order_items.product_external_id IN (n.ext_id, n.product_id_pos_a, n.product_code_pos_b))`;
  sql.run(
    `UPDATE order_items SET sku = @sku, product_id = (SELECT s.product_id FROM _skus s WHERE s.sku = @sku),
       matched_by = CASE WHEN ${isById} THEN 'external_id' ELSE 'name' END
     WHERE order_id = @orderId AND line = @line AND sku IS NULL`,
    { sku, orderId, line },
  );
}

/**
 * Returns the sales channel in an order's name: `#1005 - Ana Soto - delivery - Web` → `Web`. Returns null for another
 * form, which may be a person's name.
 */
export function channelOf(name: string | null): string | null {
  if (name === null || !/^#.* - .* - .* - ./s.test(name)) return null;
  return name.slice(name.lastIndexOf(' - ') + 3).trim() || null;
}
