import { silentLog } from '../../domain/log.ts';
import type { ProductRecord } from '../../domain/platform/platform.ts';
import type { Branch } from '../../domain/product/catalog-lookup.ts';
import { type ProductDifference, productDifferences } from '../../domain/product/product-differences.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { type CatalogKeeper, CatalogSweep, type SweepRequest } from '../../sync/catalog-sweep.ts';
import type { Parts } from '../parts.ts';
import { findProducts } from './read-stores.ts';

export type { ProductDifference };

export interface ProductsDiff {
  /** Products that the platform listed, each counted once for every branch. */
  compared: number;
  differences: ProductDifference[];
  /** Products left out, since changes of them arrived while they were compared. */
  moved: number;
  /** Entries of the list that could not be read as a product. */
  unreadable: number;
}

export interface DiffProductsRequest extends SweepRequest {
  branches: readonly Branch[];
  onBranch: (branch: Branch) => void;
}

/**
 * What the mirror says of the catalogue against what the platform says now. Nothing is written. Errors: those of
 * CatalogSweep.sweep.
 */
export async function diffProducts(
  parts: Pick<Parts, 'stores' | 'platform' | 'config'>,
  clock: Clock,
  request: DiffProductsRequest,
): Promise<ProductsDiff> {
  const { stores, platform, config } = parts;
  const diff: ProductsDiff = { compared: 0, differences: [], moved: 0, unreadable: 0 };
  const found = new Map<string, ProductDifference>();
  for (const branch of request.branches) {
    request.onBranch(branch);
    const keeper = new Comparer(stores);
    const { pageSize } = config.catalog;
    const sweep = new CatalogSweep({ platform, keeper, clock, log: silentLog, pageSize });
    const { products, unreadable } = await sweep.sweep(branch, request);
    diff.compared += products;
    diff.unreadable += unreadable;
    diff.moved += keeper.moved.size;
    for (const each of [...keeper.byProduct.values()].flat()) {
      found.set(
        JSON.stringify([each.productId, each.sku, each.subsidiaryId, each.field, each.platform]),
        each,
      );
    }
  }
  diff.differences.push(...found.values());
  return diff;
}

/** Takes the place of the mirror in a sweep, and compares where that would write. */
class Comparer implements CatalogKeeper {
  /** What was found of each product when it was last seen; a list that shifted is read again. */
  readonly byProduct = new Map<string, ProductDifference[]>();
  readonly moved = new Set<string>();
  readonly #stores: Parts['stores'];

  constructor(stores: Parts['stores']) {
    this.#stores = stores;
  }

  readMark() {
    return this.#stores.read(({ catalog }) => catalog.readMark());
  }

  async applyPage(branch: Branch, records: readonly ProductRecord[], mark: { push: number }) {
    const { subsidiaryId } = branch;
    const own = new Set(subsidiaryId === null ? [] : [subsidiaryId]);
    for (const record of records) this.#compare(record, mark, own);
    return { written: 0 };
  }

  async applyRead(record: ProductRecord, mark: { push: number }): Promise<boolean> {
    this.#compare(record, mark, undefined);
    return false;
  }

  unlisted(branch: Branch, seen: ReadonlySet<string>) {
    return this.#stores.read(({ catalog }) => catalog.unlisted(branch, seen));
  }

  async completeSweep({ branch, seen }: { branch: Branch; seen: ReadonlySet<string> }): Promise<number> {
    const subsidiaryId = branch.subsidiaryId ?? branch.externalId;
    for (const { productId } of this.unlisted(branch, seen)) {
      const difference = {
        productId,
        sku: null,
        subsidiaryId,
        field: 'product',
        mirror: 'listed',
        platform: null,
      };
      this.byProduct.set(productId, [difference]);
    }
    return 0;
  }

  /** The mirror has its own way of keeping these; looking keeps nothing. */
  async quarantine(): Promise<void> {}

  #compare(record: ProductRecord, mark: { push: number }, speaksFor: ReadonlySet<string> | undefined): void {
    const [mirrored] = findProducts(this.#stores, { productId: record.id });
    const differences = productDifferences(mirrored, record, speaksFor);
    this.moved.delete(record.id);
    this.byProduct.delete(record.id);
    if (differences.length === 0) return;
    // What was pushed after the platform was asked is not in its answer.
    if (this.#pushedSince(record.id, mark.push)) this.moved.add(record.id);
    else this.byProduct.set(record.id, differences);
  }

  #pushedSince(productId: string, mark: number): boolean {
    return (
      this.#stores.read(({ db }) =>
        db
          .prepare<{ productId: string; mark: number }, number>(
            `SELECT 1 FROM products WHERE product_id = @productId AND pushed_mark > @mark
           UNION ALL SELECT 1 FROM skus WHERE product_id = @productId AND pushed_mark > @mark
           UNION ALL SELECT 1 FROM skus s JOIN stocks k USING (sku)
             WHERE s.product_id = @productId AND k.pushed_mark > @mark`,
          )
          .pluck()
          .get({ productId, mark }),
      ) === 1
    );
  }
}
