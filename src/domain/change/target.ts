import type { MappingField } from '../product/catalog-lookup.ts';
import type { ProductChange, StockChange } from './change.ts';

/** What a change is for, once known: two changes of one kind with equal keys are for the same thing. */
export interface Target {
  /** `sku:12@sub-1` for a stock, `sku:12` for a product; `ext:…` while the mirror does not know the product. */
  key: string;
  /** Changes of one kind that share it are never under way in two calls at once: the product's id, where known. */
  conflictKey: string;
  sku: string | null;
  productId: string | null;
  subsidiaryId: string | null;
}

/** How a body names its product and branch. */
export interface Address {
  sku?: number;
  externalId?: string;
  subsidiaryId?: string;
  subsidiaryExternalId?: string;
}

/** One place a change may have been meant for, to be shown to a person. */
export interface Candidate {
  sku: string;
  productId: string;
  subsidiaryId: string | null;
  externalId: string | null;
  field: MappingField | null;
}

export type RejectionCode =
  | 'unknown-product'
  | 'unknown-branch'
  | 'not-in-branch'
  | 'ambiguous'
  | 'contradiction' // sku and externalId, or the two names of the branch, do not belong together
  | 'no-external-id'; // a stock named by a sku that has no usable mapping

/** What GET /product is asked for. */
export type ProductQuery = { sku: string } | { externalId: string };

/**
 * - `resolved`: the mirror knows the one target
 * - `as-is`: the mirror cannot say; the platform decides by the change's own words
 * - `needs-read`: the mirror may be out of date; read the product by GET /product, then resolve again
 * - `rejected`: it cannot be determined, with what it may have meant
 */
export type Resolution =
  | { state: 'resolved' | 'as-is'; target: Target; address: Address }
  | { state: 'needs-read'; query: ProductQuery }
  | { state: 'rejected'; code: RejectionCode; message: string; candidates: Candidate[] };

/** The candidates as a person reads them; the first ten. */
export function describeCandidates(candidates: readonly Candidate[]): string {
  const shown = candidates.slice(0, 10).map((each) => {
    const branch = each.subsidiaryId === null ? '' : ` in branch ${each.subsidiaryId}`;
    const mapping = each.externalId === null ? '' : ` (externalId ${each.externalId})`;
    return `sku ${each.sku}${branch}${mapping}`;
  });
  const more = candidates.length > 10 ? ` and ${candidates.length - 10} more` : '';
  return shown.join(', ') + more;
}

/** The target by the change's own words, while or because the mirror cannot say what they stand for. */
export function literalTarget(change: StockChange | ProductChange): Target {
  const product = change.sku === undefined ? `ext:${change.externalId}` : `sku:${change.sku}`;
  const subsidiaryId = 'subsidiaryId' in change ? (change.subsidiaryId ?? null) : null;
  const external = 'subsidiaryExternalId' in change ? change.subsidiaryExternalId : undefined;
  const place = subsidiaryId ?? (external === undefined ? undefined : `ext:${external}`);
  const key = place === undefined ? product : `${product}@${place}`;
  return { key, conflictKey: key, sku: null, productId: null, subsidiaryId };
}

/** The change's own words for its product and branch. */
export function literalAddress(change: StockChange | ProductChange): Address {
  const address: Address = {};
  if (change.sku !== undefined) address.sku = Number(change.sku);
  if (change.externalId !== undefined) address.externalId = change.externalId;
  if ('subsidiaryId' in change && change.subsidiaryId !== undefined) {
    address.subsidiaryId = change.subsidiaryId;
  }
  if ('subsidiaryExternalId' in change && change.subsidiaryExternalId !== undefined) {
    address.subsidiaryExternalId = change.subsidiaryExternalId;
  }
  return address;
}
