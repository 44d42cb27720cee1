import type { Change, OutboxAnswer } from './answers.ts';
import { type Api, ApiFault } from './api.ts';
import type { KeyHolder } from './key-holder.ts';
import type { Decision, OutboxTab, Store } from './state.ts';

const PAGE = 20;
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
  #shown = PAGE;

  constructor(options: OutboxDeskOptions) {
    this.#options = options;
  }

  async show(tab: OutboxTab): Promise<void> {
    const { store } = this.#options;
    this.#shown = PAGE;
    store.set({ outbox: { ...store.state.outbox, tab, changes: null, before: null } });
    await this.refresh();
  }

  async more(): Promise<void> {
    this.#shown += PAGE;
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
