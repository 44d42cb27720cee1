/** The three fields in which the platform looks for an externalId, in the order tillsync prefers them. */
export type MappingField = 'extId' | 'productIdPosA' | 'productCodePosB';
export const MAPPING_FIELDS: readonly MappingField[] = ['extId', 'productIdPosA', 'productCodePosB'];

/** One mapping of a product that carries an externalId. */
export interface CatalogMapping {
  sku: string;
  productId: string;
  subsidiaryId: string;
  field: MappingField;
  externalId: string;
}

/** What the resolution of changes asks the mirror of the catalogue. */
export interface CatalogLookup {
  /** Whether a whole sweep of every branch was mirrored; before that, absence means nothing. */
  readonly isComplete: boolean;
  /** The product of a sku; undefined when the mirror does not know it. */
  productOf(sku: string): string | undefined;
  /** All mappings of a sku, every branch and field. */
  mappingsOf(sku: string): CatalogMapping[];
  /** All mappings in which any field equals `externalId`. */
  byExternalId(externalId: string): CatalogMapping[];
}

/** The branches of the configuration; either id may be unknown, not both. */
export interface Branch {
  subsidiaryId: string | null;
  externalId: string | null;
}

export interface BranchDirectory {
  /** The internal id of a branch named by its external one; undefined when the configuration does not tell. */
  idOf(externalId: string): string | undefined;
  externalIdOf(subsidiaryId: string): string | undefined;
  /** The internal id of the only configured branch; undefined when there are several or its id is unknown. */
  readonly onlyId: string | undefined;
}

/** A directory from the configured branches. */
export function branchDirectory(branches: readonly Branch[]): BranchDirectory {
  const ids = new Map<string, string>();
  const externalIds = new Map<string, string>();
  for (const { subsidiaryId, externalId } of branches) {
    if (subsidiaryId === null || externalId === null) continue;
    ids.set(externalId, subsidiaryId);
    externalIds.set(subsidiaryId, externalId);
  }
  return {
    idOf: (externalId) => ids.get(externalId),
    externalIdOf: (subsidiaryId) => externalIds.get(subsidiaryId),
    onlyId: branches.length === 1 ? (branches[0]?.subsidiaryId ?? undefined) : undefined,
  };
}
