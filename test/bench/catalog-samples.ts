import type { Branch } from '../../src/catalog/product.ts';
import type { ProductRecord } from '../../src/platform/schemas.ts';

export const BENCH_BRANCH: Branch = { subsidiaryId: 'sub-1', externalId: 'B1' };

export const externalIdOf = (n: number) => `POS-${100_000 + n}`;
export const skuOf = (n: number) => String(1_000_000 + n);
export const targetOf = (n: number) => `sku:${skuOf(n)}@sub-1`;

/** Makes products with one sku each, in stock in the one branch. */
export function benchProducts(count: number): ProductRecord[] {
  return Array.from({ length: count }, (_, n) => {
    const record = {
      id: `product-${n}`,
      name: `Producto ${n}`,
      category: 'Bebidas',
      show: true,
      children: [
        {
          sku: skuOf(n),
          barcode: `780${1_000_000_000 + n}`,
          price: 1990,
          withDiscount: false,
          discount: 0,
          show: true,
          stocks: [{ subsidiaryId: 'sub-1', qty: 1_000_000, show: true }],
          integrations: [
            { subsidiaryId: 'sub-1', productIdPosA: null, productCodePosB: null, extId: externalIdOf(n) },
          ],
        },
      ],
    };
    return { ...record, raw: JSON.stringify(record) };
  });
}
