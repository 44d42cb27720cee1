import type { z } from 'zod';
import type { productChangeItem } from '../platform/schemas/product-change.ts';
import type { stockChangeItem } from '../platform/schemas/stock-change.ts';
import type { Catalog } from './catalog.ts';

export type ProductChange = z.infer<typeof productChangeItem>;
export type StockChange = z.infer<typeof stockChangeItem>;

/** Applied, or the platform's message of why not. */
export type Written = { applied: true } | { applied: false; message: string };

const APPLIED: Written = { applied: true };
const refused = (message: string): Written => ({ applied: false, message });

/** PUT /product for one valid item: price at the SKU, the rest at the product. */
export function writeProduct(catalog: Catalog, item: ProductChange): Written {
  const found =
    item.sku === undefined ? catalog.findByIntegration(item.externalId ?? '')[0] : catalog.findSku(item.sku);
  if (!found) return refused('Product not found');
  if (item.price !== undefined) found.sku.price = item.price;
  if (item.name !== undefined) found.product.name = item.name;
  if (item.description !== undefined) found.product.description = item.description;
  if (item.show !== undefined) found.product.show = item.show;
  return APPLIED;
}

/**
 * PUT /product/stock for one valid item. The externalId names product and branch; found in several branches, it
 * needs the branch said. Only a stock entry that exists is changed.
 */
export function writeStock(catalog: Catalog, item: StockChange): Written {
  const everywhere = catalog.findByIntegration(item.externalId);
  if (everywhere.length === 0) return refused('Product not found');
  const branch = namedBranch(catalog, item);
  if (branch === 'unknown') return refused('Subsidiary not found');
  const here = branch === 'unnamed' ? everywhere : everywhere.filter((at) => at.subsidiaryId === branch);
  if (here.length === 0) return refused('The product has no integration in this subsidiary');
  if (new Set(here.map((at) => at.subsidiaryId)).size > 1) {
    return refused('externalId exists in several subsidiaries: send subsidiaryExternalId or subsidiaryId');
  }
  const stocks = here.flatMap((at) =>
    at.sku.stocks.filter((stock) => stock.subsidiaryId === at.subsidiaryId),
  );
  const stock = stocks[0];
  if (!stock) return refused('externalId has no subsidiary with associated stock');
  stock.qty = item.qty;
  if (item.show !== undefined) stock.show = item.show;
  return APPLIED;
}

/** The internal id of the branch that an item names; two names must mean the same one. */
function namedBranch(catalog: Catalog, item: StockChange): string {
  const { subsidiaryId, subsidiaryExternalId } = item;
  const named = [
    ...(subsidiaryId === undefined ? [] : [catalog.branchById(subsidiaryId)]),
    ...(subsidiaryExternalId === undefined ? [] : [catalog.branchByExternalId(subsidiaryExternalId)]),
  ];
  if (named.length === 0) return 'unnamed';
  const ids = new Set(named.map((branch) => branch?.subsidiaryId));
  const [id] = ids;
  return ids.size === 1 && id !== undefined ? id : 'unknown';
}
