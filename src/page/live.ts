import {
  type Api,
  ApiFault,
  type BoardAnswer,
  type BranchesAnswer,
  followOrders,
  type StatusAnswer,
  type TrendsAnswer,
} from './api.ts';
import { boardOf, type Store } from './state.ts';

const STATUS_EVERY_MS = 5_000;
const TRENDS_EVERY_MS = 60_000;
/** Interval at which the board is read, because the feed does not report acknowledgements. */
const BOARD_EVERY_MS = 5_000;
/** Shortest pause between two reads of the board, however many orders change. */
const BOARD_PAUSE_MS = 1_000;
const AGAIN_AFTER_MS = 2_000;
/** Interval at which a hidden tab reads the status. */
const HIDDEN_STATUS_EVERY_MS = 60_000;

/**
 * What a tab reads: `all` for a visible page, `orders` for a hidden page that rings for new orders, `verdict` for a
 * hidden page that only shows its title and icon.
 */
export type Subscription = 'all' | 'orders' | 'verdict';

interface LiveOptions {
  api: Api;
  store: Store;
  /** Called if even reading needs the API key. `lacksRight` is true if the key in use has not the right to read. */
  onLocked: (lacksRight: boolean) => void;
  /** Called after the status was read. */
  onStatus: () => void;
  /** Called after the board was read. */
  onBoard: () => void;
}

/** Reads the page's data again whenever it may have changed. */
export class Live {
  readonly #options: LiveOptions;
  #watching = new AbortController();
  /** Aborted when the board must be read again. */
  #changed = new AbortController();

  constructor(options: LiveOptions) {
    this.#options = options;
  }

  /** Stops the running reads and starts the reads of `watch`. */
  start(watch: Subscription): void {
    this.stop();
    this.#watching = new AbortController();
    const { signal } = this.#watching;
    const repeat = async (everyMs: number, work: () => Promise<void>) => {
      while (!signal.aborted) {
        await this.#guard(work);
        await rest(everyMs, signal);
      }
    };
    void repeat(watch === 'all' ? STATUS_EVERY_MS : HIDDEN_STATUS_EVERY_MS, () => this.#status());
    if (watch === 'all') void repeat(TRENDS_EVERY_MS, () => this.#trends());
    if (watch === 'verdict') return;
    void this.#boards(signal);
    void repeat(AGAIN_AFTER_MS, () => this.#follow(signal));
  }

  stop(): void {
    this.#watching.abort();
  }

  refresh(): Promise<void> {
    return this.#guard(() => this.#status());
  }

  async #guard(work: () => Promise<void>): Promise<void> {
    const { store, onLocked } = this.#options;
    const { signal } = this.#watching;
    try {
      await work();
    } catch (error) {
      // After a stop, the refusal may be of an earlier key.
      if (signal.aborted) return;
      const code = error instanceof ApiFault ? error.code : 'internal';
      if (code === 'unreachable') store.set({ link: 'lost' });
      if (code === 'unauthorized' || code === 'forbidden') {
        this.stop();
        store.set({ link: 'locked', shop: this.#options.api.shop });
        onLocked(code === 'forbidden');
      }
    }
  }

  async #status(): Promise<void> {
    const { api, store, onStatus } = this.#options;
    const { signal } = this.#watching;
    const status = await api.get<StatusAnswer>('/status').catch((error) => {
      const isLocked = signal.aborted || (error instanceof ApiFault && error.code === 'unauthorized');
      // A proxy answers even if tillsync does not, so its errors count as a lost connection too.
      if (!isLocked) store.set({ link: 'lost' });
      throw error;
    });
    // After a stop the page may be locked, or read with another key.
    if (signal.aborted) return;
    store.set({ status, link: 'live', nowMs: Date.parse(status.at) });
    onStatus();
    if (status.role !== 'hub') return;
    const { branches: all } = await api.get<BranchesAnswer>('/branches');
    store.set({ branches: { ...store.state.branches, all } });
  }

  async #trends(): Promise<void> {
    const { hours } = await this.#options.api.get<TrendsAnswer>('/trends');
    this.#options.store.set({ trends: hours });
  }

  /** Reads the board after each change, and regularly. */
  async #boards(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#guard(() => this.#board());
      await rest(BOARD_PAUSE_MS, signal);
      await rest(BOARD_EVERY_MS, AbortSignal.any([signal, this.#changed.signal]));
    }
  }

  async #board(): Promise<void> {
    const { api, store, onBoard } = this.#options;
    // Renewed before the request, because a change from here on may be missing in the answer.
    this.#changed = new AbortController();
    const { orders } = await api.get<BoardAnswer>('/board');
    store.set({ board: boardOf(orders, store.state.board) });
    onBoard();
  }

  async #follow(signal: AbortSignal): Promise<void> {
    await followOrders(this.#options.api, () => this.#changed.abort(), signal).catch((error) => {
      if (!signal.aborted) throw error;
    });
  }
}

function rest(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    }
    signal.addEventListener('abort', done);
  });
}
