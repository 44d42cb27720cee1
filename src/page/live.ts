import {
  type Api,
  ApiFault,
  type BoardAnswer,
  type FeedEvent,
  followOrders,
  type StatusAnswer,
  type TrendsAnswer,
} from './api.ts';
import { applyEvents, boardOf, type Store } from './state.ts';

const STATUS_EVERY_MS = 5_000;
const TRENDS_EVERY_MS = 60_000;
/** The feed tells every change; once in a while the board is read anew all the same. */
const BOARD_EVERY_MS = 300_000;
const AGAIN_AFTER_MS = 2_000;

interface LiveOptions {
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
  #watching = new AbortController();

  constructor(options: LiveOptions) {
    this.#options = options;
  }

  /** Begins anew, whatever went on before. */
  start(): void {
    this.stop();
    this.#watching = new AbortController();
    const { signal } = this.#watching;
    const repeat = async (everyMs: number, work: () => Promise<void>) => {
      while (!signal.aborted) {
        await this.#guard(work);
        await rest(everyMs, signal);
      }
    };
    void repeat(STATUS_EVERY_MS, () => this.#status());
    void repeat(TRENDS_EVERY_MS, () => this.#trends());
    void repeat(AGAIN_AFTER_MS, () => this.#orders(signal));
  }

  stop(): void {
    this.#watching.abort();
  }

  refresh(): Promise<void> {
    return this.#guard(() => this.#status());
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
    const apply = (events: readonly FeedEvent[]) => {
      if (events.length > 0) store.set({ board: applyEvents(store.state.board, events) });
    };
    await followOrders(api, newest, apply, until).catch((error) => {
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
