import {
  type Api,
  ApiFault,
  type BoardAnswer,
  type Change,
  followOrders,
  type OutboxAnswer,
  type ProductsAnswer,
  type StatusAnswer,
  type TrendsAnswer,
} from './api.ts';
import { applyEvents, boardOf, type Decision, type OutboxTab, type Store } from './state.ts';

const STATUS_EVERY_MS = 5_000;
const TRENDS_EVERY_MS = 60_000;
/** The feed tells every change; once in a while the board is read anew all the same. */
const BOARD_EVERY_MS = 300_000;
const AGAIN_AFTER_MS = 2_000;

export interface LiveOptions {
  api: Api;
  store: Store;
  /** The key is needed even to look. */
  onLocked: () => void;
  /** The figures may have changed. */
  onStatus: () => void;
}

/** Keeps the page up to date for as long as somebody can see it. */
export class Live {
  readonly #options: LiveOptions;
  #watching: AbortController | undefined;

  constructor(options: LiveOptions) {
    this.#options = options;
  }

  /** Begins anew, whatever went on before. */
  start(): void {
    this.stop();
    const watching = new AbortController();
    this.#watching = watching;
    const { signal } = watching;
    void this.#repeat(() => this.#status(), STATUS_EVERY_MS, signal);
    void this.#repeat(() => this.#trends(), TRENDS_EVERY_MS, signal);
    void this.#repeat(() => this.#orders(signal), AGAIN_AFTER_MS, signal);
  }

  stop(): void {
    this.#watching?.abort();
    this.#watching = undefined;
  }

  async refresh(): Promise<void> {
    await this.#guard(() => this.#status());
  }

  async #repeat(work: () => Promise<void>, everyMs: number, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#guard(work);
      await rest(everyMs, signal);
    }
  }

  async #guard(work: () => Promise<void>): Promise<void> {
    const { store, onLocked } = this.#options;
    try {
      await work();
    } catch (error) {
      const code = error instanceof ApiFault ? error.code : 'internal';
      if (code === 'unreachable') store.set({ link: 'lost' });
      if (code === 'unauthorized') {
        this.stop();
        store.set({ link: 'locked' });
        onLocked();
      }
    }
  }

  async #status(): Promise<void> {
    const { api, store, onStatus } = this.#options;
    const status = await api.get<StatusAnswer>('/status');
    store.set({ status, link: 'live', nowMs: Date.parse(status.at) });
    onStatus();
  }

  async #trends(): Promise<void> {
    const { hours } = await this.#options.api.get<TrendsAnswer>('/trends');
    this.#options.store.set({ trends: hours });
  }

  /** The board, then what changes on it until the stream ends or it is time to read the board anew. */
  async #orders(signal: AbortSignal): Promise<void> {
    const { api, store } = this.#options;
    const { newest, orders } = await api.get<BoardAnswer>('/board');
    store.set({ board: boardOf(orders) });
    const until = AbortSignal.any([signal, AbortSignal.timeout(BOARD_EVERY_MS)]);
    await followOrders(
      api,
      newest,
      (events) => {
        if (events.length > 0) store.set({ board: applyEvents(store.state.board, events) });
      },
      until,
    ).catch((error) => {
      if (!until.aborted) throw error;
    });
  }
}

function rest(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    }
    signal.addEventListener('abort', done);
  });
}

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

const PAUSE_MS = 250;
const SEARCH_PAGE = 8;

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
    const query = new URLSearchParams({
      q: text.trim(),
      limit: String(SEARCH_PAGE),
      ...(after && { after }),
    });
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

const OUTBOX_PAGE = 20;
const STATE_OF: Record<OutboxTab, string> = { waiting: 'pending', held: 'held', rejected: 'rejected' };

export interface OutboxDeskOptions {
  api: Api;
  store: Store;
  keys: KeyHolder;
  /** A decision changed the figures. */
  onDecided: () => void;
}

/** The list of changes, and what a person decides about them. */
export class OutboxDesk {
  readonly #options: OutboxDeskOptions;
  #shown = OUTBOX_PAGE;

  constructor(options: OutboxDeskOptions) {
    this.#options = options;
  }

  async show(tab: OutboxTab): Promise<void> {
    const { store } = this.#options;
    this.#shown = OUTBOX_PAGE;
    store.set({ outbox: { ...store.state.outbox, tab, changes: null, before: null } });
    await this.refresh();
  }

  async more(): Promise<void> {
    this.#shown += OUTBOX_PAGE;
    await this.refresh();
  }

  /** Reads what is shown anew. What cannot be read stays as it was: the status tells why. */
  async refresh(): Promise<void> {
    const { api, store } = this.#options;
    const { tab } = store.state.outbox;
    try {
      const { changes, before } = await api.get<OutboxAnswer>(
        `/outbox?state=${STATE_OF[tab]}&limit=${this.#shown}`,
      );
      if (store.state.outbox.tab !== tab) return;
      const shown = tab === 'waiting' ? changes.filter(({ heldGuard }) => heldGuard === null) : changes;
      store.set({ outbox: { ...store.state.outbox, changes: shown, before } });
    } catch (error) {
      if (!(error instanceof ApiFault)) throw error;
    }
  }

  async decide(decision: Decision, change: Change): Promise<void> {
    const { api, store, keys, onDecided } = this.#options;
    const { changeId } = change;
    const { speech } = store.state;
    this.#deciding(changeId, true);
    store.set({ notice: null });
    try {
      await api.post(`/outbox/${changeId}/${decision}`);
      store.set({ notice: { isFault: false, text: speech.say(`done.${decision}`, { id: changeId }) } });
    } catch (error) {
      if (!(error instanceof ApiFault)) throw error;
      if (error.code === 'unauthorized') keys.ask(() => void this.decide(decision, change));
      else {
        const why = [error.message, error.hint].filter(Boolean).join(' ');
        store.set({ notice: { isFault: true, text: speech.say('fault.action', { why }) } });
      }
    } finally {
      this.#deciding(changeId, false);
    }
    await this.refresh();
    onDecided();
  }

  #deciding(changeId: number, isUnderWay: boolean): void {
    const { store } = this.#options;
    const deciding = new Set(store.state.outbox.deciding);
    if (isUnderWay) deciding.add(changeId);
    else deciding.delete(changeId);
    store.set({ outbox: { ...store.state.outbox, deciding } });
  }
}
