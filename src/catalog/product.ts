import * as z from 'zod';
import { TillsyncError } from '../core/errors.ts';
import { flag, isoTime, text } from '../core/schema.ts';

/** The three fields in which the platform searches for an externalId, in tillsync's order of preference. */
export type MappingField = 'extId' | 'productIdPosA' | 'productCodePosB';
export const MAPPING_FIELDS: readonly MappingField[] = ['extId', 'productIdPosA', 'productCodePosB'];

/** A mapping of a sku: one of the three fields, and the externalId in it. */
export interface CatalogMapping {
  sku: string;
  productId: string;
  subsidiaryId: string;
  field: MappingField;
  externalId: string;
}

/** Reads that are needed to find out which product a change means. */
export interface CatalogLookup {
  /** True if the mirror has a complete sweep of every branch. Before that, a missing product proves nothing. */
  readonly isComplete: boolean;
  /** Returns the product of a sku; undefined if the mirror does not have the sku. */
  productOf(sku: string): string | undefined;
  /** Returns all mappings of a sku, in every branch or only in this one. */
  mappingsOf(sku: string, subsidiaryId?: string): CatalogMapping[];
  /** Returns all mappings with this `externalId` in any field, in every branch or only in this one. */
  byExternalId(externalId: string, subsidiaryId?: string): CatalogMapping[];
  /**
   * Returns mappings whose externalId differs only in case, accents, blanks, invisible characters or zeros in front.
   * Reads all mappings, so it is for an id that is unknown for sure.
   */
  twinsOf(externalId: string, subsidiaryId?: string): CatalogMapping[];
}

/** A configured branch. One of its two ids may be unknown, but not both. */
export interface Branch {
  subsidiaryId: string | null;
  externalId: string | null;
}

export interface BranchDirectory {
  /** True if no branches are configured. The catalogue is then never swept. */
  readonly isEmpty: boolean;
  /** Returns the subsidiary id of a branch by its external id; undefined if the configuration does not have it. */
  idOf(externalId: string): string | undefined;
  externalIdOf(subsidiaryId: string): string | undefined;
  /**
   * Subsidiary id of the only branch, to which changes without a branch belong; undefined if there are several or its
   * id is unknown.
   */
  readonly ownId: string | undefined;
  readonly all: readonly Branch[];
  /** True if each branch has its own tillsync. Messages about a change must then not show another branch's data. */
  readonly areApart: boolean;
}

/** Makes a directory of the configured branches. A change that names no branch belongs to the only one. */
export function branchDirectory(branches: readonly Branch[], areApart = false): BranchDirectory {
  const own = branches.length === 1 ? branches[0] : undefined;
  const ids = new Map<string, string>();
  const externalIds = new Map<string, string>();
  for (const { subsidiaryId, externalId } of branches) {
    if (subsidiaryId === null || externalId === null) continue;
    ids.set(externalId, subsidiaryId);
    externalIds.set(subsidiaryId, externalId);
  }
  return {
    isEmpty: branches.length === 0,
    all: branches,
    areApart,
    idOf: (externalId) => ids.get(externalId),
    externalIdOf: (subsidiaryId) => externalIds.get(subsidiaryId),
    ownId: own?.subsidiaryId ?? undefined,
  };
}

/** A number of the catalogue; null if it was not sent as one. */
const number = z.number().nullable();

export const productSku = z.object({
  sku: z.string(),
  barcode: text,
  price: number,
  withDiscount: number,
  discount: number,
  show: flag,
  stocks: z.array(
    z.object({
      subsidiaryId: z.string(),
      qty: number,
      show: flag.describe('Stock visibility in the branch'),
    }),
  ),
  integrations: z.array(
    z.object({ subsidiaryId: z.string(), productIdPosA: text, productCodePosB: text, extId: text }),
  ),
});

/** A product as the mirror has it. */
export const product = z.object({
  productId: z.string(),
  name: text,
  category: text,
  show: flag.describe('Visibility of the whole product'),
  vanishedAt: isoTime.nullable().describe('When no branch listed it any more'),
  updatedAt: isoTime,
  skus: z.array(productSku),
});
export type MirroredProduct = z.output<typeof product>;
export type MirroredSku = MirroredProduct['skus'][number];

/** Conditions for products. All given ones must hold. */
export interface ProductFilter {
  /** Part of a name, or a whole sku, barcode or externalId. */
  text?: string | undefined;
  sku?: string | undefined;
  productId?: string | undefined;
  /** Value of any of the three mapping fields. */
  externalId?: string | undefined;
  /** Branch in which the product must have a stock or a mapping. */
  subsidiaryId?: string | undefined;
  /** Id of the last product on the previous page; only products with a higher id are returned. */
  after?: string | undefined;
  limit: number;
}

/**
 * Returns the configured branch with this id. `from` is the option that had the id, for the message. Throws `usage`.
 */
export function namedBranch(branches: readonly Branch[], name: string, from = '--branch'): Branch {
  const found = branches.filter((each) => each.subsidiaryId === name || each.externalId === name);
  if (found.length === 1 && found[0]) return found[0];
  const known = branches.map(branchName).join(', ');
  throw new TillsyncError(
    'usage',
    `${from}: found "${name}", which ${found.length === 0 ? 'names no configured branch' : 'names several branches'}.`,
    { hint: known === '' ? 'No branches are configured; add [[branches]].' : `Configured are: ${known}.` },
  );
}

/** Returns a branch's name for people: `sub-1 (B1)`. */
export function branchName({ subsidiaryId, externalId }: Branch): string {
  if (subsidiaryId === null) return externalId ?? '';
  return externalId === null ? subsidiaryId : `${subsidiaryId} (${externalId})`;
}
