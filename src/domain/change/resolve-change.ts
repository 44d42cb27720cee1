import type { BranchDirectory, CatalogLookup } from '../product/catalog-lookup.ts';
import type { ProductChange, StockChange } from './change.ts';
import { resolveProduct } from './resolve-product.ts';
import { resolveStock } from './resolve-stock.ts';
import type { Resolution } from './target.ts';

/** A change with what it is about. */
export type NamedChange = { kind: 'stock'; change: StockChange } | { kind: 'product'; change: ProductChange };

export interface ResolveOptions {
  catalog: CatalogLookup;
  branches: BranchDirectory;
  /** The product was just read by GET /product, so what the mirror does not know does not exist. */
  alreadyRead?: boolean;
}

/** Finds the target of a change of either kind. */
export function resolveChange(named: NamedChange, options: ResolveOptions): Resolution {
  return named.kind === 'stock' ? resolveStock(named.change, options) : resolveProduct(named.change, options);
}
