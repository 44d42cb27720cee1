import type { ProductRecord } from '../../domain/platform/platform.ts';
import type { MirroredProduct, MirroredSku } from '../../domain/product/mirrored-product.ts';
import type { ProductDifference } from '../../domain/product/product-differences.ts';
import { fields, table } from './table.ts';

/** A product for people, as the mirror or the platform has it. */
export function productText(product: MirroredProduct | ProductRecord): string {
  const isMirrored = 'skus' in product;
  const skus: readonly MirroredSku[] = isMirrored ? product.skus : product.children.map(skuOf);
  const head = fields([
    ['product', isMirrored ? product.productId : product.id],
    ['name', product.name],
    ['category', product.category],
    ['show', product.show],
    ...(isMirrored && product.vanishedAt !== null
      ? [['listed no more since', product.vanishedAt] as const]
      : []),
  ]);
  const places = skus.flatMap((sku) => {
    const branches = new Set([...sku.stocks, ...sku.integrations].map(({ subsidiaryId }) => subsidiaryId));
    return [...branches].map((branch) => ({ sku, branch }));
  });
  return `${head}\n${skuTable(skus)}\n${places.length === 0 ? 'no stock, no mapping\n' : placeTable(places)}`;
}

function skuOf(record: ProductRecord['children'][number]): MirroredSku {
  const { withDiscount, discount } = record;
  return { ...record, withDiscount: asText(withDiscount), discount: asText(discount) };
}

function asText(value: string | number | boolean | null): string | number | null {
  return typeof value === 'boolean' ? String(value) : value;
}

function skuTable(skus: readonly MirroredSku[]): string {
  return table<MirroredSku>(
    [
      { title: 'SKU', cell: (sku) => sku.sku },
      { title: 'BARCODE', cell: (sku) => sku.barcode },
      { title: 'PRICE', cell: (sku) => sku.price, align: 'right' },
      { title: 'DISCOUNT', cell: (sku) => sku.discount, align: 'right' },
      { title: 'SHOW', cell: (sku) => sku.show },
    ],
    skus,
  );
}

function placeTable(places: readonly { sku: MirroredSku; branch: string }[]): string {
  type Place = (typeof places)[number];
  const stock = ({ sku, branch }: Place) => sku.stocks.find((each) => each.subsidiaryId === branch);
  const ids = ({ sku, branch }: Place) =>
    sku.integrations
      .filter((each) => each.subsidiaryId === branch)
      .flatMap(({ extId, productIdPosA, productCodePosB }) => [extId, productIdPosA, productCodePosB])
      .filter((id) => id !== null);
  return table<Place>(
    [
      { title: 'SKU', cell: ({ sku }) => sku.sku },
      { title: 'BRANCH', cell: ({ branch }) => branch },
      { title: 'QTY', cell: (place) => stock(place)?.qty, align: 'right' },
      { title: 'SHOW', cell: (place) => stock(place)?.show },
      { title: 'EXTERNAL IDS', cell: (place) => ids(place).join(', ') || null },
    ],
    places,
  );
}

/** What the mirror and the platform tell differently. */
export function differenceTable(differences: readonly ProductDifference[]): string {
  return table<ProductDifference>(
    [
      { title: 'PRODUCT', cell: (each) => each.productId },
      { title: 'SKU', cell: (each) => each.sku },
      { title: 'BRANCH', cell: (each) => each.subsidiaryId },
      { title: 'WHAT', cell: (each) => each.field },
      { title: 'MIRROR', cell: (each) => each.mirror },
      { title: 'PLATFORM', cell: (each) => each.platform },
    ],
    differences,
  );
}
