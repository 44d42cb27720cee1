import type { CatalogLookup, CatalogMapping } from '../product/catalog-lookup.ts';
import type { ProductChange } from './change.ts';
import {
  describeCandidates,
  literalAddress,
  literalTarget,
  type ProductQuery,
  type Resolution,
  type Target,
} from './target.ts';

export interface ResolveProductOptions {
  catalog: CatalogLookup;
  /** The product was just read by GET /product, so what the mirror does not know does not exist. */
  alreadyRead?: boolean;
}

/**
 * Finds the sku a product change is for, so that a product named by sku and by externalId is one target.
 * The platform takes both; the sku is sent wherever it is known, since it is never in several branches.
 */
export function resolveProduct(change: ProductChange, options: ResolveProductOptions): Resolution {
  const { catalog, alreadyRead = false } = options;
  const { sku, externalId } = change;
  if (sku !== undefined) {
    const productId = catalog.productOf(sku);
    if (productId === undefined) return unknownProduct({ sku }, catalog, alreadyRead);
    if (externalId !== undefined && !catalog.mappingsOf(sku).some((each) => each.externalId === externalId)) {
      return {
        state: 'rejected',
        code: 'contradiction',
        message: `externalId ${externalId} is no mapping of sku ${sku}.`,
        candidates: catalog.mappingsOf(sku),
      };
    }
    return resolved(sku, productId, externalId);
  }
  if (externalId === undefined) throw new TypeError('A change without sku and externalId was not read.');
  const mappings = catalog.byExternalId(externalId);
  const skus = oneEach(mappings);
  const [first] = skus;
  if (!first) return unknownProduct({ externalId }, catalog, alreadyRead);
  const oneProduct = skus.every((each) => each.productId === first.productId);
  // Name, description and show belong to the product, so any of its skus says the same; a price does not.
  if (skus.length === 1 || (oneProduct && change.price === undefined)) {
    return resolved(first.sku, first.productId, externalId);
  }
  return {
    state: 'rejected',
    code: 'ambiguous',
    message: `externalId ${externalId} stands for several products: ${describeCandidates(mappings)}. Name the sku.`,
    candidates: mappings,
  };
}

function resolved(sku: string, productId: string, externalId: string | undefined): Resolution {
  const target: Target = {
    key: `sku:${sku}`,
    conflictKey: `product:${productId}`,
    sku,
    productId,
    subsidiaryId: null,
  };
  const number = Number(sku);
  // The document has the sku as a number; one that is none can only be named by its externalId.
  if (String(number) === sku) return { state: 'resolved', target, address: { sku: number } };
  if (externalId !== undefined) return { state: 'resolved', target, address: { externalId } };
  return {
    state: 'rejected',
    code: 'no-external-id',
    message: `sku ${sku} is not a number and has no externalId to name it by.`,
    candidates: [],
  };
}

function unknownProduct(query: ProductQuery, catalog: CatalogLookup, alreadyRead: boolean): Resolution {
  if (!catalog.isComplete && !alreadyRead) {
    return { state: 'as-is', target: literalTarget(query), address: literalAddress(query) };
  }
  if (!alreadyRead) return { state: 'needs-read', query };
  const name = 'sku' in query ? `sku ${query.sku}` : `externalId ${query.externalId}`;
  return {
    state: 'rejected',
    code: 'unknown-product',
    message: `The platform knows no product with ${name}.`,
    candidates: [],
  };
}

/** The first mapping of each sku, in the order of the skus. */
function oneEach(mappings: readonly CatalogMapping[]): CatalogMapping[] {
  const bySku = new Map<string, CatalogMapping>();
  for (const mapping of mappings) if (!bySku.has(mapping.sku)) bySku.set(mapping.sku, mapping);
  return [...bySku.values()].sort((a, b) => (a.sku < b.sku ? -1 : 1));
}
