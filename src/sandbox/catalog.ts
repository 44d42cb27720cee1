import type { Random } from '../core/time.ts';
import { drawChance, drawFrom, drawHex, drawInt } from './draws.ts';

/** A branch of the company. The API cannot list branches. */
interface Branch {
  subsidiaryId: string;
  /** The branch's extId; null if it has none. */
  externalId: string | null;
}

/** A product as the sandbox stores it. */
export interface CatalogProduct {
  id: string;
  name: string;
  /** This field is not part of the product response. */
  description: string;
  category: string;
  show: boolean;
  /**
   * Epoch milliseconds, by which `orderBy=CreatedDate` sorts. This field is not part of the product response.
   */
  createdAtMs: number;
  children: CatalogSku[];
}

interface CatalogSku {
  sku: number;
  barcode: string;
  price: number;
  withDiscount: boolean;
  /** Discount in percent. */
  discount: number;
  show: boolean;
  stocks: { subsidiaryId: string; qty: number; show: boolean }[];
  integrations: Integration[];
}

/** A mapping in one branch to the ids of external point-of-sale platforms. */
interface Integration {
  subsidiaryId: string;
  productIdPosA: string | null;
  productCodePosB: string | null;
  extId: string | null;
}

/** The SKU and the branch for which an integration id stands. */
interface Mapping {
  product: CatalogProduct;
  sku: CatalogSku;
  subsidiaryId: string;
}

/** An order that took more pieces than the stock had. */
interface Oversell {
  orderId: string;
  sku: number;
  subsidiaryId: string;
  /** Missing quantity. */
  short: number;
}

/** Returns a mapping's ids in the order in which the platform searches them. */
function idsOf(integration: Integration): string[] {
  const { productIdPosA, productCodePosB, extId } = integration;
  return [productIdPosA, productCodePosB, extId].filter((id) => id !== null);
}

/** Returns the product as GET /product and GET /product/list show it. */
export function shownProduct(product: CatalogProduct): unknown {
  const { id, name, category, show, children } = product;
  return { id, name, category, show, children };
}

/** Initial content of the sandbox. */
export interface SeedOptions {
  branches?: readonly Branch[];
  /** Number of products to invent. */
  products?: number;
  /** Source of randomness for the products; if left out, the sandbox's own. */
  random?: Random;
  /** Number of orders that exist at the start. */
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

/** Form of a product's mappings. Products take the forms of `STYLES` in turn, so that each form occurs. */
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
 * Invents products with SKUs from 1001. Some have an id for each branch (`A-<sku>-<branch>`, `B-<sku>-<branch>`), some
 * one id for all branches (`E-<sku>`), some are hidden and have no id, and some have an id in a branch without stock.
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
      // A product without a mapping is not for sale, because a shop maps what it shows.
      show: !drawChance(random, 0.05) && STYLES[n % STYLES.length] !== 'none',
      createdAtMs: nowMs - (count - n) * 60_000,
      children,
    });
  }
  return products;
}

function seedSku(random: Random, branches: readonly Branch[], sku: number, n: number): CatalogSku {
  const withDiscount = drawChance(random, 0.2);
  // Every seventh product has a mapping in the last branch but no stock there.
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

/** Maximum number of SKUs drawn to find one in stock. If none is found, the branch counts as sold out. */
const SELLABLE_TRIES = 20;

/** The company's branches, products and stock. */
export class Catalog {
  readonly branches: readonly Branch[];
  readonly #products = new Map<string, CatalogProduct>();
  readonly #bySku = new Map<number, { product: CatalogProduct; sku: CatalogSku }>();
  readonly #byIntegration = new Map<string, Mapping[]>();
  readonly #oversells: Oversell[] = [];
  #skus: number[] = [];

  constructor(branches: readonly Branch[], products: readonly CatalogProduct[]) {
    this.branches = branches;
    for (const product of products) this.put(product);
  }

  /** Adds a product, or replaces the one with its id. */
  put(product: CatalogProduct): void {
    this.remove(product.id);
    this.#products.set(product.id, product);
    for (const sku of product.children) {
      this.#bySku.set(sku.sku, { product, sku });
      this.#skus.push(sku.sku);
      for (const integration of sku.integrations) {
        for (const id of idsOf(integration)) {
          const known = this.#byIntegration.get(id) ?? [];
          known.push({ product, sku, subsidiaryId: integration.subsidiaryId });
          this.#byIntegration.set(id, known);
        }
      }
    }
  }

  remove(productId: string): void {
    const product = this.#products.get(productId);
    if (!product) return;
    this.#products.delete(productId);
    for (const { sku, integrations } of product.children) {
      this.#bySku.delete(sku);
      this.#skus = this.#skus.filter((other) => other !== sku);
      for (const id of integrations.flatMap(idsOf)) {
        const rest = (this.#byIntegration.get(id) ?? []).filter((mapping) => mapping.product !== product);
        this.#byIntegration.set(id, rest);
      }
    }
  }

  products(): CatalogProduct[] {
    return [...this.#products.values()];
  }

  /** Returns products with a stock or a mapping in the branch. */
  productsOf(subsidiaryId: string): CatalogProduct[] {
    const isHere = (entry: { subsidiaryId: string }) => entry.subsidiaryId === subsidiaryId;
    return this.products().filter((product) =>
      product.children.some((sku) => sku.stocks.some(isHere) || sku.integrations.some(isHere)),
    );
  }

  findSku(sku: number): { product: CatalogProduct; sku: CatalogSku } | undefined {
    return this.#bySku.get(sku);
  }

  stockOf(sku: number, subsidiaryId: string): CatalogSku['stocks'][number] | undefined {
    return this.findSku(sku)?.sku.stocks.find((entry) => entry.subsidiaryId === subsidiaryId);
  }

  /** Returns every mapping with the id, in any branch. */
  findByIntegration(externalId: string): readonly Mapping[] {
    return this.#byIntegration.get(externalId) ?? [];
  }

  branchById(subsidiaryId: string): Branch | undefined {
    return this.branches.find((branch) => branch.subsidiaryId === subsidiaryId);
  }

  branchByExternalId(externalId: string): Branch | undefined {
    return this.branches.find((branch) => branch.externalId === externalId);
  }

  /** Returns the branch's integration extId, or its internal id when it has none. */
  branchName(subsidiaryId: string): string {
    return this.branchById(subsidiaryId)?.externalId ?? subsidiaryId;
  }

  /** Returns the integration id of the SKU in a branch's orders; null when it is not mapped there. */
  integrationIdOf(sku: number, subsidiaryId: string): string | null {
    const mapping = this.findSku(sku)?.sku.integrations.find((entry) => entry.subsidiaryId === subsidiaryId);
    return mapping ? (mapping.extId ?? idsOf(mapping)[0] ?? null) : null;
  }

  /** Draws a SKU that the branch shows and has in stock; undefined when none was found. */
  drawSellable(random: Random, subsidiaryId: string): { sku: number; qty: number } | undefined {
    for (let tries = 0; tries < SELLABLE_TRIES && this.#skus.length > 0; tries++) {
      const number = this.#skus[drawInt(random, 0, this.#skus.length - 1)];
      const found = number === undefined ? undefined : this.findSku(number);
      const stock = found?.sku.stocks.find((entry) => entry.subsidiaryId === subsidiaryId);
      if (found?.product.show && found.sku.show && stock?.show && stock.qty >= 1) {
        return { sku: found.sku.sku, qty: Math.floor(stock.qty) };
      }
    }
    return undefined;
  }

  /** Subtracts an online order's quantity from the stock, but not below zero. A missing quantity is recorded. */
  take(sku: number, subsidiaryId: string, qty: number, orderId: string): void {
    const stock = this.stockOf(sku, subsidiaryId);
    const had = stock?.qty ?? 0;
    if (stock) stock.qty = Math.max(0, had - qty);
    if (qty > had) this.#oversells.push({ orderId, sku, subsidiaryId, short: qty - had });
  }

  oversells(): readonly Oversell[] {
    return this.#oversells;
  }
}
