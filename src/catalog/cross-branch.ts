import type { ProductRecord } from '../platform/schemas.ts';
import type { Branch } from './product.ts';

/** Number of a page's hundred products that may differ, because shops sell while the catalogue is read. */
const DIFFERENT_OF_100 = 20;
const PRODUCTS_AT_FIRST = 1_024;

/**
 * Collects, from the records of one sweep, the products of branches other than the listed one. The platform seems to
 * put the stocks of all branches into each record. Then a few lists cover all branches, and one page is enough to
 * confirm another branch.
 */
export class CrossBranchListing {
  readonly #ids: string[] = [];
  readonly #places = new Map<string, number>();
  /** By branch, for each product: 0 if the branch does not have it, else one more than its number of stocks there. */
  readonly #counts: ReadonlyMap<string, { of: Uint8Array }>;
  #namesOtherBranches = false;

  constructor(branches: readonly Branch[]) {
    const ids = branches.flatMap(({ subsidiaryId }) => (subsidiaryId === null ? [] : [subsidiaryId]));
    this.#counts = new Map(ids.map((id) => [id, { of: new Uint8Array(PRODUCTS_AT_FIRST) }]));
  }

  /** Adds a record of this branch's list. */
  add(listedIn: Branch, record: ProductRecord): void {
    const place = this.#placeOf(record.id);
    const found = countsIn(record);
    if (found.size > 1 || !found.has(listedIn.subsidiaryId ?? '')) this.#namesOtherBranches = true;
    for (const [branch, counts] of this.#counts) counts.of[place] = found.get(branch) ?? 0;
  }

  /** Whether asking `of` is useful: records have named other branches, and this branch has an id to find it by. */
  mayHave({ subsidiaryId }: Branch): boolean {
    return this.#namesOtherBranches && subsidiaryId !== null && this.#counts.has(subsidiaryId);
  }

  /** Returns the products that the branch has by the records so far. */
  of({ subsidiaryId }: Branch): Set<string> {
    const counts = this.#counts.get(subsidiaryId ?? '')?.of ?? [];
    return new Set(this.#ids.filter((_, place) => (counts[place] ?? 0) > 0));
  }

  /**
   * Whether the branch's own list has the number of stocks of each product that other lists had, and few changed
   * quantities. `differs` returns whether a record's quantities differ from the mirrored ones.
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

/** Returns, by branch, one more than the number of stocks that the record has of it. */
function countsIn({ children }: ProductRecord): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { stocks, integrations } of children) {
    for (const { subsidiaryId } of integrations) {
      if (!counts.has(subsidiaryId)) counts.set(subsidiaryId, 1);
    }
    for (const { subsidiaryId } of stocks) {
      counts.set(subsidiaryId, Math.min(255, (counts.get(subsidiaryId) ?? 1) + 1));
    }
  }
  return counts;
}
