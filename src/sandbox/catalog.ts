import type { Random } from '../domain/time/clock.ts';
import {
  type Branch,
  type CatalogProduct,
  type CatalogSku,
  idsOf,
  type Mapping,
  type Oversell,
} from './catalog-model.ts';
import { drawInt } from './draws.ts';

/** Tries at finding something in stock before the branch counts as sold out. */
const SELLABLE_TRIES = 20;

export interface CatalogOptions {
  branches: readonly Branch[];
  products: readonly CatalogProduct[];
}

/** The company's branches, products and stock. */
export class Catalog {
  readonly branches: readonly Branch[];
  readonly #products = new Map<string, CatalogProduct>();
  readonly #bySku = new Map<number, { product: CatalogProduct; sku: CatalogSku }>();
  readonly #byIntegration = new Map<string, Mapping[]>();
  readonly #oversells: Oversell[] = [];
  #skus: number[] = [];

  constructor(options: CatalogOptions) {
    this.branches = options.branches;
    for (const product of options.products) this.put(product);
  }

  /** Adds a product, or replaces the one of its id. */
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

  /** Products with a stock entry or a mapping in the branch. */
  productsOf(subsidiaryId: string): CatalogProduct[] {
    const isHere = (entry: { subsidiaryId: string }) => entry.subsidiaryId === subsidiaryId;
    return this.products().filter((product) =>
      product.children.some((sku) => sku.stocks.some(isHere) || sku.integrations.some(isHere)),
    );
  }

  findSku(sku: number): { product: CatalogProduct; sku: CatalogSku } | undefined {
    return this.#bySku.get(sku);
  }

  /** Every mapping that carries the id, in any branch. */
  findByIntegration(externalId: string): readonly Mapping[] {
    return this.#byIntegration.get(externalId) ?? [];
  }

  branchById(subsidiaryId: string): Branch | undefined {
    return this.branches.find((branch) => branch.subsidiaryId === subsidiaryId);
  }

  branchByExternalId(externalId: string): Branch | undefined {
    return this.branches.find((branch) => branch.externalId === externalId);
  }

  /** Integration extId of the branch, or its internal id when it has none. */
  branchName(subsidiaryId: string): string {
    return this.branchById(subsidiaryId)?.externalId ?? subsidiaryId;
  }

  /** The integration id by which an order names the SKU in a branch; null when it is not mapped there. */
  integrationIdOf(sku: number, subsidiaryId: string): string | null {
    const mapping = this.findSku(sku)?.sku.integrations.find((entry) => entry.subsidiaryId === subsidiaryId);
    return mapping ? (mapping.extId ?? idsOf(mapping)[0] ?? null) : null;
  }

  /** Something the branch shows and has; undefined when nothing was found. */
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

  /** An online order takes from the stock, which never falls below zero; what was missing is noted. */
  take(sku: number, subsidiaryId: string, qty: number, orderId: string): void {
    const stock = this.findSku(sku)?.sku.stocks.find((entry) => entry.subsidiaryId === subsidiaryId);
    const had = stock?.qty ?? 0;
    if (stock) stock.qty = Math.max(0, had - qty);
    if (qty > had) this.#oversells.push({ orderId, sku, subsidiaryId, short: qty - had });
  }

  oversells(): readonly Oversell[] {
    return this.#oversells;
  }
}
