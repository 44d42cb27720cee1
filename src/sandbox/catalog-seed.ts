import type { Random } from '../domain/time/clock.ts';
import type { Branch, CatalogProduct, CatalogSku, Integration } from './catalog-model.ts';
import { drawChance, drawFrom, drawHex, drawInt } from './draws.ts';

/** What the sandbox holds at its start. */
export interface SeedOptions {
  branches?: readonly Branch[];
  /** How many products to make up. */
  products?: number;
  /** Draws the products; without it the sandbox's own chance. */
  random?: Random;
  /** Orders that exist already. */
  orders?: number;
}

export const DEFAULT_BRANCHES: readonly Branch[] = [
  { subsidiaryId: 'sub-1', externalId: 'B1' },
  { subsidiaryId: 'sub-2', externalId: 'B2' },
  { subsidiaryId: 'sub-3', externalId: null },
];

export const DEFAULT_PRODUCTS = 60;

const CATEGORIES = ['Bebidas', 'Empanadas', 'Pastas', 'Pizzas', 'Postres', 'Sándwiches'];
const KINDS = ['clásica', 'de la casa', 'familiar', 'integral', 'picante', 'vegana'];
const NOUNS = ['Pizza', 'Empanada', 'Limonada', 'Lasaña', 'Torta', 'Hamburguesa'];

/** How product number `n` is mapped; every way of the document occurs in turn. */
type MappingStyle = 'posA-per-branch' | 'posB-per-branch' | 'extId-everywhere' | 'none';
const STYLES: readonly MappingStyle[] = [
  'posA-per-branch',
  'extId-everywhere',
  'posB-per-branch',
  'extId-everywhere',
  'posA-per-branch',
  'extId-everywhere',
  'posB-per-branch',
  'extId-everywhere',
  'posA-per-branch',
  'none',
];

/**
 * Made-up products. SKUs count up from 1001. Among them: ids unique to a branch (`A-<sku>-<branch>`,
 * `B-<sku>-<branch>`), ids shared by all branches (`E-<sku>`), products without any mapping, and mapped
 * branches without a stock entry.
 */
export function seedProducts(
  random: Random,
  branches: readonly Branch[],
  count: number,
  nowMs: number,
): CatalogProduct[] {
  const products: CatalogProduct[] = [];
  let sku = 1001;
  for (let n = 0; n < count; n++) {
    const children: CatalogSku[] = [];
    for (let k = n % 4 === 3 ? 3 : 1; k > 0; k--) {
      children.push(seedSku(random, branches, sku, n));
      sku += 1;
    }
    products.push({
      id: drawHex(random, 24),
      name: `${drawFrom(random, NOUNS)} ${drawFrom(random, KINDS)} ${n + 1}`,
      description: '',
      category: drawFrom(random, CATEGORIES),
      show: !drawChance(random, 0.05),
      createdAtMs: nowMs - (count - n) * 60_000,
      children,
    });
  }
  return products;
}

function seedSku(random: Random, branches: readonly Branch[], sku: number, n: number): CatalogSku {
  const withDiscount = drawChance(random, 0.2);
  // Every seventh product has a mapping in the last branch but no stock entry there.
  const stocked = n % 7 === 6 && branches.length > 1 ? branches.slice(0, -1) : branches;
  return {
    sku,
    barcode: `780${String(sku).padStart(10, '0')}`,
    price: drawInt(random, 10, 150) * 100,
    withDiscount,
    discount: withDiscount ? drawFrom(random, [10, 15, 25]) : 0,
    show: !drawChance(random, 0.05),
    stocks: stocked.map(({ subsidiaryId }) => ({ subsidiaryId, qty: drawInt(random, 5, 80), show: true })),
    integrations: branches.flatMap((branch, at) => mapping(STYLES[n % STYLES.length], sku, branch, at + 1)),
  };
}

function mapping(style: MappingStyle | undefined, sku: number, branch: Branch, at: number): Integration[] {
  const none = { subsidiaryId: branch.subsidiaryId, productIdPosA: null, productCodePosB: null, extId: null };
  if (style === 'posA-per-branch') return [{ ...none, productIdPosA: `A-${sku}-${at}` }];
  if (style === 'posB-per-branch') return [{ ...none, productCodePosB: `B-${sku}-${at}` }];
  if (style === 'extId-everywhere') return [{ ...none, extId: `E-${sku}` }];
  return [];
}
