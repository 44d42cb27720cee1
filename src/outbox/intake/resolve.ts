import {
  type BranchDirectory,
  type CatalogLookup,
  type CatalogMapping,
  MAPPING_FIELDS,
} from '../../catalog/product.ts';
import {
  type Address,
  type Change,
  describeCandidates,
  literalAddress,
  literalTarget,
  namedBy,
  type ProductChange,
  type ProductQuery,
  type Resolution,
  type StockChange,
  type SubmittedChange,
} from './change.ts';
import type { ArticleRow, Row } from './same-article.ts';

interface ResolveOptions {
  catalog: CatalogLookup;
  branches: BranchDirectory;
  /** True if the product was just read by GET /product, so that an id that the mirror lacks does not exist. */
  alreadyRead?: boolean;
  /**
   * Whether any branch subtracts orders from counts; then no stock may be sent with its own ids. It reads the
   * database, so it is called only for a stock that the mirror lacks.
   */
  holdsBack?: () => boolean;
}

type Rejection = Extract<Resolution, { state: 'rejected' }>;

/** Resolves the target of a change of either kind. */
export function resolveChange(named: Change, options: ResolveOptions): Resolution {
  return named.kind === 'stock' ? resolveStock(named.change, options) : resolveProduct(named.change, options);
}

/**
 * Resolves the sku of a product change, so that a sku and an externalId of one product are one target. The platform
 * accepts both. A known sku is sent, because it means one product in all branches.
 */
export function resolveProduct(
  change: ProductChange,
  { catalog, alreadyRead = false }: Omit<ResolveOptions, 'branches'>,
): Resolution {
  const { sku, externalId } = change;
  if (sku !== undefined) {
    const productId = catalog.productOf(sku);
    if (productId === undefined) return unknownProduct({ sku }, catalog, alreadyRead);
    const mappings = catalog.mappingsOf(sku);
    if (externalId !== undefined && !mappings.some((each) => each.externalId === externalId)) {
      return rejected('contradiction', `externalId ${externalId} is no mapping of sku ${sku}.`, mappings);
    }
    return ofProduct(sku, productId, externalId);
  }
  if (externalId === undefined) throw new TypeError('A change without sku and externalId was not read.');
  const mappings = catalog.byExternalId(externalId);
  const [first, ...others] = oneEach(mappings);
  if (!first) return unknownProduct({ externalId }, catalog, alreadyRead);
  const isOneProduct = others.every((each) => each.productId === first.productId);
  // Name, description and show belong to the product, so any of its skus can be named. A price belongs to one sku.
  if (others.length === 0 || (isOneProduct && change.price === undefined)) {
    return ofProduct(first.sku, first.productId, externalId);
  }
  const among = describeCandidates(mappings);
  return rejected(
    'ambiguous',
    `externalId ${externalId} stands for several products: ${among}. Name the sku.`,
    mappings,
  );
}

function ofProduct(sku: string, productId: string, externalId: string | undefined): Resolution {
  const target = { key: `sku:${sku}`, conflictKey: `product:${productId}`, sku, subsidiaryId: null };
  const number = Number(sku);
  // The platform's document defines a sku as a number. A sku that is no number can be named only by its externalId.
  if (String(number) === sku) return { state: 'resolved', target, address: { sku: number } };
  if (externalId !== undefined) return { state: 'resolved', target, address: { externalId } };
  return rejected('no-external-id', `sku ${sku} is not a number and has no externalId to name it by.`);
}

function unknownProduct(query: ProductQuery, catalog: CatalogLookup, alreadyRead: boolean): Resolution {
  if (alreadyRead) {
    const twins = 'externalId' in query ? catalog.twinsOf(query.externalId) : [];
    const why = `The platform knows no product with ${nameOf(query)}.`;
    return rejected('unknown-product', `${why}${twinsText(twins)}`, twins);
  }
  return catalog.isComplete
    ? { state: 'needs-read', query }
    : { state: 'as-is', target: literalTarget(query), address: literalAddress(query) };
}

/** Returns the first mapping of each sku, sorted by sku. */
function oneEach(mappings: readonly CatalogMapping[]): CatalogMapping[] {
  const bySku = new Map<string, CatalogMapping>();
  for (const mapping of mappings) if (!bySku.has(mapping.sku)) bySku.set(mapping.sku, mapping);
  return [...bySku.values()].sort((a, b) => (a.sku < b.sku ? -1 : 1));
}

/** The branch that a change names, with its known ids. */
interface NamedBranch {
  id: string | undefined;
  externalId: string | undefined;
}

/**
 * Resolves the one stock (sku and branch) of a change. If several branches have the externalId, the change must name
 * the branch, or the configuration must have only one. A sku is replaced by its externalId, because the stock
 * endpoints accept nothing else.
 */
export function resolveStock(change: StockChange, options: ResolveOptions): Resolution {
  const { catalog, branches, alreadyRead = false, holdsBack = () => false } = options;
  const { sku, externalId } = change;
  const branch = namedBranch(change, branches);
  if ('state' in branch) return branch;
  const mappingsIn = (within?: string) =>
    externalId === undefined
      ? catalog.mappingsOf(sku ?? '', within)
      : catalog.byExternalId(externalId, within);
  if (branch.id !== undefined) {
    // Hundreds of branches may have the same externalId, so other branches are read only if this one lacks it.
    const inBranch = mappingsIn(branch.id);
    const places = sku === undefined ? inBranch : inBranch.filter((each) => each.sku === sku);
    if (places.length > 0) return ofStocks(change, branch, places, inBranch, catalog);
  }
  const mappings = mappingsIn();
  if (mappings.length === 0) return unknownStock(change, branch, options);
  // Mappings have internal ids, so a branch with an unknown internal id cannot be found among them.
  if (branch.id === undefined && branch.externalId !== undefined) {
    const words = holdsBack() ? undefined : asIs(change, branch, mappings);
    return words ?? unknownBranch(change, branch, mappings, branches);
  }

  const ofSku = sku === undefined ? mappings : mappings.filter((each) => each.sku === sku);
  if (ofSku.length === 0) {
    const why = `externalId ${externalId} is no mapping of sku ${sku}`;
    return rejectedElsewhere('contradiction', `${why}.`, `${why}; it belongs to`, mappings, branches);
  }
  if (branch.id !== undefined) {
    if (!alreadyRead) return { state: 'needs-read', query: queryOf(change) };
    const why = `${nameOf(change)} is not in branch ${branch.id}`;
    return rejectedElsewhere('not-in-branch', `${why}.`, `${why}; it is`, ofSku, branches);
  }
  const own = countPlaces(ofSku) > 1 ? ofSku.filter((each) => each.subsidiaryId === branches.ownId) : [];
  return ofStocks(change, branch, own.length > 0 ? own : ofSku, mappings, catalog);
}

function namedBranch(change: StockChange, branches: BranchDirectory): NamedBranch | Rejection {
  const { subsidiaryId: id, subsidiaryExternalId: externalId } = change;
  const ofExternalId = externalId === undefined ? undefined : branches.idOf(externalId);
  if (id !== undefined && ofExternalId !== undefined && id !== ofExternalId) {
    const why = `subsidiaryExternalId ${externalId} is branch ${ofExternalId}, not ${id}.`;
    return rejected('contradiction', why);
  }
  return { id: id ?? ofExternalId, externalId };
}

/**
 * Resolves a change to the one stock of `places`, by ids that mean only that stock. Rejects it if there are several.
 * `mappings` are the mappings with the change's id; if the named branch is known, only those in that branch.
 */
function ofStocks(
  change: StockChange,
  branch: NamedBranch,
  places: readonly CatalogMapping[],
  mappings: readonly CatalogMapping[],
  catalog: CatalogLookup,
): Resolution {
  if (countPlaces(places) > 1) {
    return rejectedAmong('ambiguous', `${nameOf(change)} is sold in several places. Say which one:`, places);
  }
  const { sku, subsidiaryId } = places[0] as CatalogMapping;
  const names =
    change.externalId === undefined
      ? MAPPING_FIELDS.flatMap((field) => places.filter((each) => each.field === field))
      : places.slice(0, 1);
  for (const { externalId } of names) {
    const all = externalId === change.externalId ? mappings : catalog.byExternalId(externalId, branch.id);
    if (all.some((each) => each.subsidiaryId === subsidiaryId && each.sku !== sku)) continue;
    const needsBranch = branch.id !== undefined || all.some((each) => each.subsidiaryId !== subsidiaryId);
    const address: Address = needsBranch ? { externalId, subsidiaryId } : { externalId };
    const key = `sku:${sku}@${subsidiaryId}`;
    return { state: 'resolved', target: { key, conflictKey: key, sku, subsidiaryId }, address };
  }
  const why = `sku ${sku} shares every externalId in branch ${subsidiaryId} with another product`;
  return rejectedAmong('no-external-id', why, places);
}

function unknownStock(
  change: StockChange,
  branch: NamedBranch,
  { catalog, branches, alreadyRead = false, holdsBack = () => false }: ResolveOptions,
): Resolution {
  const { sku, externalId } = change;
  if (!alreadyRead) {
    // While the catalogue is incomplete, a missing product proves nothing, so the change is sent with its own ids. A
    // sku is read first, to learn its externalId.
    const maySay = !catalog.isComplete && !(branches.isEmpty && holdsBack());
    return (maySay && asIs(change, branch, [])) || { state: 'needs-read', query: queryOf(change) };
  }
  if (externalId === undefined && catalog.productOf(sku ?? '') !== undefined) {
    return rejected('no-external-id', `sku ${sku} has no externalId; map it on the platform first.`);
  }
  // A branch with its own tillsync learns nothing of the ids of others.
  const within = branch.id ?? branches.ownId;
  const mayName = externalId !== undefined && (within !== undefined || !branches.areApart);
  const twins = mayName ? catalog.twinsOf(externalId, within) : [];
  const why = `The platform knows no product with ${nameOf(change)}.`;
  return rejected('unknown-product', `${why}${twinsText(twins)}`, twins);
}

/** Returns a sentence about the known ids that an unknown id may mean; '' if there are none. */
export function twinsText(twins: readonly CatalogMapping[]): string {
  const named = twins.map(
    ({ externalId, sku, subsidiaryId }) => `${externalId} (sku ${sku} in ${subsidiaryId})`,
  );
  const shown = [...new Set(named)].slice(0, 3).join(', ');
  return shown === ''
    ? ''
    : ` The catalogue has a similar id: ${shown}. Correct the id in the POS or on the platform.`;
}

/**
 * Returns the change with its own ids. Returns undefined if it has no externalId and the mirror does not know exactly
 * one.
 */
function asIs(
  change: StockChange,
  branch: NamedBranch,
  mappings: readonly CatalogMapping[],
): Resolution | undefined {
  const externalIds = new Set(mappings.map((each) => each.externalId));
  const externalId = change.externalId ?? (externalIds.size === 1 ? mappings[0]?.externalId : undefined);
  if (externalId === undefined) return undefined;
  const words: StockChange = { externalId, qty: change.qty };
  if (branch.id !== undefined) words.subsidiaryId = branch.id;
  else if (branch.externalId !== undefined) words.subsidiaryExternalId = branch.externalId;
  return { state: 'as-is', target: literalTarget(words), address: literalAddress(words) };
}

function unknownBranch(
  change: StockChange,
  branch: NamedBranch,
  mappings: readonly CatalogMapping[],
  branches: BranchDirectory,
): Rejection {
  const { sku, externalId } = change;
  const why = `The configuration does not say which subsidiaryId branch ${branch.externalId}`;
  const told =
    externalId === undefined ? `${why} has; sku ${sku} is` : `${why} has; externalId ${externalId} is`;
  return rejectedElsewhere('unknown-branch', `${why} has.`, told, mappings, branches);
}

function rejected(
  code: Rejection['code'],
  message: string,
  candidates: readonly CatalogMapping[] = [],
): Rejection {
  return { state: 'rejected', code, message, candidates: [...candidates] };
}

/** Returns a rejection. `why` is the beginning of its message; the candidates follow. */
function rejectedAmong(
  code: Rejection['code'],
  why: string,
  candidates: readonly CatalogMapping[],
): Rejection {
  return rejected(code, `${why} ${describeCandidates(candidates)}.`, candidates);
}

/**
 * Rejects a change whose product is in another branch. The message is `told` with the candidates; if each branch has
 * its own tillsync, it is `why`, which names no other branch.
 */
function rejectedElsewhere(
  code: Rejection['code'],
  why: string,
  told: string,
  candidates: readonly CatalogMapping[],
  { areApart }: BranchDirectory,
): Rejection {
  return areApart ? rejected(code, why, candidates) : rejectedAmong(code, told, candidates);
}

function countPlaces(mappings: readonly CatalogMapping[]): number {
  if (mappings.length <= 1) return mappings.length;
  return new Set(mappings.map((each) => `${each.sku}@${each.subsidiaryId}`)).size;
}

function queryOf({ sku, externalId }: StockChange): ProductQuery {
  return externalId === undefined ? { sku: sku ?? '' } : { externalId };
}

function nameOf({ sku, externalId }: { sku?: string; externalId?: string }): string {
  return externalId === undefined ? `sku ${sku}` : `externalId ${externalId}`;
}

/** Returns what a row is about, by the resolution of its ids; nothing if its ids are unreadable or mean nothing for sure. */
export function articleOf(
  item: SubmittedChange,
  resolve: (change: Change) => Resolution,
  branches: BranchDirectory,
): Pick<ArticleRow<Row>, 'key' | 'productKey' | 'unplaced'> {
  const change = namedBy(item);
  const resolution = change && resolve(change);
  if (change === undefined || resolution === undefined || resolution.state === 'rejected') {
    return { key: undefined, productKey: undefined };
  }
  if (resolution.state === 'resolved') {
    const { key, conflictKey } = resolution.target;
    return { key, productKey: conflictKey };
  }
  const product = nameOf(change.change);
  const { subsidiaryId, subsidiaryExternalId: name } = change.change as StockChange;
  const branch = subsidiaryId ?? (name === undefined ? branches.ownId : (branches.idOf(name) ?? name));
  const key = `${product} in ${branch ?? ''}`;
  return { key, productKey: key, unplaced: { product, branch: branch ?? null } };
}
