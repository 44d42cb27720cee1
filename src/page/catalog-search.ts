import type { ProductsAnswer } from './answers.ts';
import { type Api, ApiFault } from './api.ts';
import type { Store } from './state.ts';

const PAUSE_MS = 250;
const PAGE = 8;

/** Searches while somebody types, at the pace of their pauses. */
export class CatalogSearch {
  readonly #api: Api;
  readonly #store: Store;
  #pause: ReturnType<typeof setTimeout> | undefined;

  constructor(api: Api, store: Store) {
    this.#api = api;
    this.#store = store;
  }

  search(text: string): void {
    const { catalog } = this.#store.state;
    clearTimeout(this.#pause);
    if (text.trim() === '') {
      this.#store.set({ catalog: { text, products: null, next: null, fault: null } });
      return;
    }
    this.#store.set({ catalog: { ...catalog, text } });
    this.#pause = setTimeout(() => void this.#load(text, null), PAUSE_MS);
  }

  async more(): Promise<void> {
    const { text, next } = this.#store.state.catalog;
    await this.#load(text, next);
  }

  async #load(text: string, after: string | null): Promise<void> {
    const query = new URLSearchParams({ q: text.trim(), limit: String(PAGE), ...(after && { after }) });
    try {
      const answer = await this.#api.get<ProductsAnswer>(`/products?${query}`);
      const { catalog } = this.#store.state;
      // Somebody typed on meanwhile.
      if (catalog.text !== text) return;
      const products = after === null ? answer.products : [...(catalog.products ?? []), ...answer.products];
      this.#store.set({ catalog: { text, products, next: answer.next, fault: null } });
    } catch (error) {
      if (!(error instanceof ApiFault)) throw error;
      this.#store.set({ catalog: { text, products: null, next: null, fault: error.message } });
    }
  }
}
