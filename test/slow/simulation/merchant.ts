import type { Clock, Random } from '../../../src/core/time.ts';
import type { CatalogProduct } from '../../../src/sandbox/catalog.ts';
import type { SandboxControl } from '../../../src/sandbox/control.ts';
import { isPricedByPos } from './shelf.ts';

const CHANGE_EVERY_MS = 5 * 3_600_000;
/** A branch in which the POS keeps no stock. */
const BRANCH = 'sub-2';
const NEW_SKUS_FROM = 900_000;

/**
 * Plays the person who maintains the platform's catalogue, who renames, hides, adds and removes products, and sets the
 * prices of SKUs that the POS does not price.
 */
export class Merchant {
  readonly #options: { clock: Clock; random: Random; control: SandboxControl };
  readonly #taken: CatalogProduct[] = [];
  #newSkus = 0;

  constructor(options: { clock: Clock; random: Random; control: SandboxControl }) {
    this.#options = options;
  }

  async trade(signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#options;
    const acts = [
      () => this.#describe(),
      () => this.#price(),
      () => this.#add(),
      () => this.#remove(),
      () => this.#bringBack(),
    ];
    while (!signal.aborted) {
      await clock.sleep(CHANGE_EVERY_MS * (0.5 + random.next()), signal);
      if (!signal.aborted) acts[Math.floor(random.next() * acts.length)]?.();
    }
  }

  /**
   * Changes the name, category or visibility of a product with several SKUs. A product with a single SKU keeps its
   * name, because a line with modifiers names only the product.
   */
  #describe(): void {
    const product = this.#any(({ children }) => children.length > 1);
    if (!product) return;
    const { name, category, show } = product;
    const [base] = name.split(' · ');
    const chance = this.#options.random.next();
    const changed =
      chance < 0.4
        ? { name: `${base} · ${Math.floor(chance * 1_000)}` }
        : chance < 0.7
          ? { show: !show }
          : { category: category === 'Season' ? 'Other' : 'Season' };
    this.#options.control.putProduct({ ...product, ...changed });
  }

  #price(): void {
    const product = this.#any(({ children }) => children.some(({ sku }) => !isPricedByPos(sku)));
    if (!product) return;
    const children = product.children.map((sku) =>
      isPricedByPos(sku.sku) ? sku : { ...sku, price: sku.price + 50 },
    );
    this.#options.control.putProduct({ ...product, children });
  }

  #add(): void {
    const like = this.#any(() => true);
    if (!like) return;
    const sku = NEW_SKUS_FROM + this.#newSkus++;
    const [child] = like.children;
    if (!child) return;
    const integration = {
      subsidiaryId: BRANCH,
      productIdPosA: null,
      productCodePosB: null,
      extId: `N-${sku}`,
    };
    const stocks = [{ subsidiaryId: BRANCH, qty: 7, show: true }];
    const children = [{ ...child, sku, barcode: `78${sku}`, stocks, integrations: [integration] }];
    const createdAtMs = this.#options.clock.nowMs();
    this.#options.control.putProduct({
      ...like,
      id: `new-${sku}`,
      name: `New ${sku}`,
      createdAtMs,
      children,
    });
  }

  #remove(): void {
    const product = this.#any(({ id }) => id.startsWith('new-'));
    if (!product) return;
    this.#taken.push(product);
    this.#options.control.removeProduct(product.id);
  }

  #bringBack(): void {
    const product = this.#taken.pop();
    if (product) this.#options.control.putProduct(product);
  }

  #any(isWanted: (product: CatalogProduct) => boolean): CatalogProduct | undefined {
    const wanted = this.#options.control.products().filter(isWanted);
    return wanted[Math.floor(this.#options.random.next() * wanted.length)];
  }
}
