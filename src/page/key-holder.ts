import { type Api, ApiFault } from './api.ts';
import type { Store } from './state.ts';

/** Asks for the key where it is needed, tries it, and then does what had to wait for it. */
export class KeyHolder {
  readonly #api: Api;
  readonly #store: Store;
  #waiting: (() => void) | undefined;

  constructor(api: Api, store: Store) {
    this.#api = api;
    this.#store = store;
  }

  /** Opens the form; `then` is done once a right key is there. */
  ask(then?: () => void): void {
    this.#waiting = then;
    this.#show(this.#api.hasKey && then ? 'key.wrong' : null);
  }

  async use(key: string, forGood: boolean): Promise<void> {
    if (key === '') return this.#show('key.missing');
    this.#api.useKey(key, forGood);
    this.#store.set({ dialog: { kind: 'key', fault: null, isChecking: true } });
    try {
      await this.#api.get('/status');
    } catch (error) {
      if (error instanceof ApiFault && error.code === 'unauthorized') {
        this.forget();
        return this.#show('key.wrong');
      }
    }
    this.#store.set({ dialog: null, hasKey: true });
    this.#waiting?.();
    this.#waiting = undefined;
  }

  forget(): void {
    this.#api.useKey(null);
    this.#store.set({ hasKey: false });
  }

  cancel(): void {
    this.#waiting = undefined;
  }

  #show(fault: 'key.wrong' | 'key.missing' | null): void {
    this.#store.set({ dialog: { kind: 'key', fault, isChecking: false } });
  }
}
