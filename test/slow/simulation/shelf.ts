import type { CatalogProduct } from '../../../src/sandbox/catalog.ts';

/** Branches whose stock the POS manages; it manages no others. */
const BRANCHES: readonly { subsidiaryId: string; store: string }[] = [
  { subsidiaryId: 'sub-1', store: 'B1' },
  { subsidiaryId: 'sub-3', store: 'sub-3' },
];
/** A product in a branch, as the POS has it. */
export interface Shelf {
  sku: number;
  subsidiaryId: string;
  store: string;
  name: string;
  externalId: string;
  /** Whether the POS names the product by sku. */
  bySku: boolean;
  qty: number;
  /** The POS's last submitted count, and the one before. */
  said: number;
  saidBefore: number;
  /** Time of the last submitted count, on the world's clock. */
  saidAtMs: number;
}

/** Whether the POS also sets the price of this SKU. */
export function isPricedByPos(sku: number): boolean {
  return sku % 3 === 0;
}

/** Returns the products in the POS's branches that have an id there. */
export function shelvesOf(products: readonly CatalogProduct[]): Shelf[] {
  return products.flatMap(({ name, children }) =>
    children.flatMap(({ sku, stocks, integrations }) =>
      BRANCHES.flatMap(({ subsidiaryId, store }): Shelf[] => {
        const qty = stocks.find((each) => each.subsidiaryId === subsidiaryId)?.qty;
        const [externalId] = integrations
          .filter((each) => each.subsidiaryId === subsidiaryId)
          .flatMap(
            ({ productIdPosA, productCodePosB, extId }) => productIdPosA ?? productCodePosB ?? extId ?? [],
          );
        if (qty === undefined || externalId === undefined) return [];
        const count = { qty, said: qty, saidBefore: qty, saidAtMs: 0 };
        return [{ sku, subsidiaryId, store, name, externalId, bySku: sku % 4 === 1, ...count }];
      }),
    ),
  );
}

/** Returns the id by which the POS names the product. */
export function nameOf({ bySku, sku, externalId }: Pick<Shelf, 'bySku' | 'sku' | 'externalId'>): object {
  return bySku ? { sku } : { externalId };
}
