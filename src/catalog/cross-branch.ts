import type { ProductRecord } from '../platform/schemas.ts';
import type { Branch } from './product.ts';

/** Number of products per hundred whose quantities may differ, because shops sell while the catalogue is read. */
const DIFFERENT_OF_100 = 20;
const PRODUCTS_AT_FIRST = 1_024;
/** Largest count that is stored. A record that is readable in part gets it too, because its real count is unknown. */
const COUNT_MAX = 255;

/**
 * Collects products of other branches from the records of one branch's list. The platform seems to put the stocks of
 * all branches into each record. If so, a few lists cover all branches, and one page is enough to confirm another
 * branch.
 */
export class CrossBranchListing {
  readonly #ids: string[] = [];
  readonly #places = new Map<string, number>();
  /**
   * For each branch, one number per product (1 plus the product's number of stocks and mappings in the branch, or 0 if
   * the branch lacks the product), in the order of `#ids`.
   */
  readonly #counts: ReadonlyMap<string, { of: Uint8Array }>;
  #namesOtherBranches = false;

  constructor(branches: readonly Branch[]) {
    const ids = branches.flatMap(({ subsidiaryId }) => (subsidiaryId === null ? [] : [subsidiaryId]));
    this.#counts = new Map(ids.map((id) => [id, { of: new Uint8Array(PRODUCTS_AT_FIRST) }]));
  }

  /** Adds a record from the list of branch `listedIn`. */
  add(listedIn: Branch, record: ProductRecord): void {
    const place = this.#placeOf(record.id);
    const found = countsIn(record);
    if (found.size > 1 || !found.has(listedIn.subsidiaryId ?? '')) this.#namesOtherBranches = true;
    for (const [branch, counts] of this.#counts) counts.of[place] = found.get(branch) ?? 0;
  }

  /**
   * Returns whether `of` may know this branch's products: records must have named other branches, and this branch's id
   * must be known.
   */
  mayHave({ subsidiaryId }: Branch): boolean {
    return this.#namesOtherBranches && subsidiaryId !== null && this.#counts.has(subsidiaryId);
  }

  /** Returns the products that the branch has according to the records so far. */
  of({ subsidiaryId }: Branch): Set<string> {
    const counts = this.#counts.get(subsidiaryId ?? '')?.of ?? [];
    return new Set(this.#ids.filter((_, place) => (counts[place] ?? 0) > 0));
  }

  /** Returns whether the product has fewer than `rows` stocks and mappings in the branch according to the records. */
  hasFewer({ subsidiaryId }: Branch, productId: string, rows: number): boolean {
    const count = this.#counts.get(subsidiaryId ?? '')?.of[this.#places.get(productId) ?? -1] ?? 0;
    return count > 0 && count < COUNT_MAX && count - 1 < rows;
  }

  /**
   * Returns whether the branch's own list agrees with other lists: the same number of stocks and mappings of each
   * product, and few changed quantities. `differs` returns whether a record's quantities differ from the mirrored
   * ones.
   */
  confirms(
    { subsidiaryId }: Branch,
    records: readonly ProductRecord[],
    differs: (record: ProductRecord) => boolean,
  ): boolean {
    const branch = subsidiaryId ?? '';
    const known = records.filter(({ id }) => this.#places.has(id));
    const counts = this.#counts.get(branch)?.of;
    const isSame = known.every(
      (record) => counts?.[this.#places.get(record.id) ?? -1] === (countsIn(record).get(branch) ?? 0),
    );
    return isSame && known.filter(differs).length * 100 <= known.length * DIFFERENT_OF_100;
  }

  #placeOf(id: string): number {
    const known = this.#places.get(id);
    if (known !== undefined) return known;
    const place = this.#ids.push(id) - 1;
    this.#places.set(id, place);
    for (const counts of this.#counts.values()) {
      if (place < counts.of.length) continue;
      const larger = new Uint8Array(2 * counts.of.length);
      larger.set(counts.of);
      counts.of = larger;
    }
    return place;
  }
}

/** Returns, for each branch that the record names, 1 plus the record's number of stocks and mappings in the branch. */
function countsIn({ children, isPartial }: ProductRecord): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { subsidiaryId } of children.flatMap((child) => [...child.stocks, ...child.integrations])) {
    const count = isPartial ? COUNT_MAX : (counts.get(subsidiaryId) ?? 1) + 1;
    counts.set(subsidiaryId, Math.min(COUNT_MAX, count));
  }
  return counts;
}
