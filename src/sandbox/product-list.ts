import { productListQuery } from '../platform/schemas/product-query.ts';
import type { Catalog } from './catalog.ts';
import { type CatalogProduct, shownProduct } from './catalog-model.ts';
import type { Call } from './engine.ts';
import { envelope, failure, type Reply, refusal } from './exchange.ts';
import { paged } from './paging.ts';
import type { SandboxSettings } from './settings.ts';

type SortKey = (product: CatalogProduct) => string | number;

const SORT_KEYS: Record<string, SortKey> = {
  CreatedDate: (product) => product.createdAtMs,
  name: (product) => product.name,
  id: (product) => product.id,
  category: (product) => product.category,
};

/** GET /product/list: the products of one branch, a page at a time. */
export function productList(catalog: Catalog, call: Call, settings: SandboxSettings): Reply {
  const query = productListQuery.safeParse(Object.fromEntries(call.query));
  if (!query.success) {
    return failure(settings.validationStatus, query.error.issues[0]?.message ?? 'Invalid query');
  }
  const { subsidiaryId, externalId, page, limit, order, orderBy } = query.data;
  const branch =
    subsidiaryId === undefined
      ? catalog.branchByExternalId(externalId ?? '')
      : catalog.branchById(subsidiaryId);
  if (!branch) return refusal(settings.refusalStatus, 'Subsidiary not found');
  const key = SORT_KEYS[orderBy];
  if (!key) return failure(settings.validationStatus, `Cannot sort by ${orderBy}`);
  const sign = order === 'asc' ? 1 : -1;
  const sorted = catalog.productsOf(branch.subsidiaryId).sort((a, b) => sign * compare(key(a), key(b)));
  const capped = Math.min(limit, settings.maxPageSize ?? limit);
  return envelope(paged(sorted, page, capped, shownProduct));
}

function compare(a: string | number, b: string | number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
