import {
  type BranchDirectory,
  type CatalogLookup,
  type CatalogMapping,
  MAPPING_FIELDS,
} from '../catalog/product.ts';
import {
  type Address,
  type Candidate,
  describeCandidates,
  literalAddress,
  literalTarget,
  type ProductChange,
  type ProductQuery,
  type RejectionCode,
  type Resolution,
  type StockChange,
  type Target,
} from './change.ts';

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

export interface ResolveStockOptions {
  catalog: CatalogLookup;
  branches: BranchDirectory;
  /** The product was just read by GET /product, so what the mirror does not know does not exist. */
  alreadyRead?: boolean;
}

/**
 * Finds the one stock entry (sku and branch) a change is for. The branch is added by itself where an externalId
 * is in several branches and the change, or a configuration with a single branch, says which. A sku is turned
 * into the externalId of its mapping, since the stock endpoints take nothing else.
 */
export function resolveStock(change: StockChange, options: ResolveStockOptions): Resolution {
  const { catalog, branches, alreadyRead = false } = options;
  const branch = namedBranch(change, branches);
  if ('state' in branch) return branch;
  const mappings =
    change.externalId === undefined
      ? catalog.mappingsOf(change.sku ?? '')
      : catalog.byExternalId(change.externalId);
  if (mappings.length === 0) return unknown(change, branch, catalog, alreadyRead);
  // A branch whose internal id nobody knows cannot be compared with the mappings.
  if (branch.id === undefined && branch.externalId !== undefined) return asIs(change, branch, mappings);

  const ofSku = change.sku === undefined ? mappings : mappings.filter((each) => each.sku === change.sku);
  if (ofSku.length === 0) {
    return rejected(
      'contradiction',
      `externalId ${change.externalId} is no mapping of sku ${change.sku}; it belongs to`,
      mappings,
    );
  }
  let places = ofSku;
  if (branch.id !== undefined) {
    places = ofSku.filter((each) => each.subsidiaryId === branch.id);
    if (places.length === 0 && !alreadyRead) return { state: 'needs-read', query: queryOf(change) };
    if (places.length === 0) {
      return rejected('not-in-branch', `${nameOf(change)} is not in branch ${branch.id}; it is`, ofSku);
    }
  } else if (countPlaces(ofSku) > 1 && branches.onlyId !== undefined) {
    const own = ofSku.filter((each) => each.subsidiaryId === branches.onlyId);
    if (own.length > 0) places = own;
  }
  const [place] = places;
  if (!place || countPlaces(places) > 1) {
    return rejected('ambiguous', `${nameOf(change)} is sold in several places. Say which one:`, places);
  }
  return at(place, { places, mappings, change, branch, catalog });
}

interface NamedBranch {
  id: string | undefined;
  externalId: string | undefined;
}

function namedBranch(change: StockChange, branches: BranchDirectory): NamedBranch | Resolution {
  const externalId = change.subsidiaryExternalId;
  const ofExternalId = externalId === undefined ? undefined : branches.idOf(externalId);
  const id = change.subsidiaryId;
  if (id !== undefined && ofExternalId !== undefined && id !== ofExternalId) {
    return rejected(
      'contradiction',
      `subsidiaryExternalId ${externalId} is branch ${ofExternalId}, not ${id}`,
      [],
    );
  }
  return { id: id ?? ofExternalId, externalId };
}

interface Found {
  /** The mappings of the place. */
  places: CatalogMapping[];
  /** All mappings of the change's own name. */
  mappings: CatalogMapping[];
  change: StockChange;
  branch: NamedBranch;
  catalog: CatalogLookup;
}

/** The change for one stock entry, named so that the platform can mean no other. */
function at(place: CatalogMapping, { places, mappings, change, branch, catalog }: Found): Resolution {
  const wanted =
    change.externalId === undefined
      ? MAPPING_FIELDS.flatMap((field) => places.filter((each) => each.field === field))
      : [place];
  for (const { externalId } of wanted) {
    const all = externalId === change.externalId ? mappings : catalog.byExternalId(externalId);
    if (all.some((each) => each.subsidiaryId === place.subsidiaryId && each.sku !== place.sku)) continue;
    const severalBranches = all.some((each) => each.subsidiaryId !== place.subsidiaryId);
    const needsBranch = severalBranches || branch.id !== undefined;
    const address: Address = needsBranch ? { externalId, subsidiaryId: place.subsidiaryId } : { externalId };
    const key = `sku:${place.sku}@${place.subsidiaryId}`;
    return {
      state: 'resolved',
      target: {
        key,
        conflictKey: key,
        sku: place.sku,
        productId: place.productId,
        subsidiaryId: place.subsidiaryId,
      },
      address,
    };
  }
  return rejected(
    'no-external-id',
    `sku ${place.sku} shares every externalId in branch ${place.subsidiaryId} with another product`,
    places,
  );
}

function unknown(
  change: StockChange,
  branch: NamedBranch,
  catalog: CatalogLookup,
  alreadyRead: boolean,
): Resolution {
  if (!alreadyRead) {
    // Without a whole catalogue absence means nothing; only a sku must be read, to learn its externalId.
    if (!catalog.isComplete && change.externalId !== undefined) return asIs(change, branch, []);
    return { state: 'needs-read', query: queryOf(change) };
  }
  if (change.externalId === undefined && catalog.productOf(change.sku ?? '') !== undefined) {
    return rejected(
      'no-external-id',
      `sku ${change.sku} has no externalId; map it on the platform first`,
      [],
    );
  }
  return rejected('unknown-product', `The platform knows no product with ${nameOf(change)}`, []);
}

function asIs(change: StockChange, branch: NamedBranch, mappings: CatalogMapping[]): Resolution {
  const externalIds = new Set(mappings.map((each) => each.externalId));
  const externalId = change.externalId ?? (externalIds.size === 1 ? mappings[0]?.externalId : undefined);
  if (externalId === undefined) {
    return rejected(
      'unknown-branch',
      `The configuration does not say which subsidiaryId branch ${branch.externalId} has; sku ${change.sku} is`,
      mappings,
    );
  }
  const words: StockChange = { externalId, qty: change.qty };
  if (branch.id !== undefined) words.subsidiaryId = branch.id;
  else if (branch.externalId !== undefined) words.subsidiaryExternalId = branch.externalId;
  return { state: 'as-is', target: literalTarget(words), address: literalAddress(words) };
}

function rejected(code: RejectionCode, message: string, candidates: Candidate[]): Resolution {
  const list = candidates.length === 0 ? '' : ` ${describeCandidates(candidates)}`;
  return { state: 'rejected', code, message: `${message}${list}.`, candidates };
}

function countPlaces(mappings: readonly CatalogMapping[]): number {
  if (mappings.length <= 1) return mappings.length;
  return new Set(mappings.map((each) => `${each.sku}@${each.subsidiaryId}`)).size;
}

function queryOf(change: StockChange): ProductQuery {
  return change.externalId === undefined ? { sku: change.sku ?? '' } : { externalId: change.externalId };
}

function nameOf(change: StockChange): string {
  return change.externalId === undefined ? `sku ${change.sku}` : `externalId ${change.externalId}`;
}

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
