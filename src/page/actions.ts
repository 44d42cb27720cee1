import type { Language } from '../health/speech.ts';
import {
  type Api,
  ApiFault,
  type Change,
  type FoundOrders,
  type OrderAnswer,
  type OrderExplained,
  type OutboxAnswer,
  type ProductsAnswer,
  type StocksExplained,
} from './api.ts';
import type { Caller } from './calls.ts';
import type { Decision, OutboxTab, PageState, Stage, Store } from './state.ts';
import { speechOf } from './words/language.ts';

/** What a person can do on the page. */
export type Actions = ReturnType<typeof pageActions>;

interface Around {
  api: Api;
  store: Store;
  caller: Caller;
  /** Restarts the reads that the page needs. */
  watch: () => void;
  /** Reads the status again. */
  refresh: () => void;
  /** Stores the chosen language in the browser. */
  keepLanguage: (language: Language) => void;
}

export function pageActions(around: Around) {
  const { store, caller, keepLanguage } = around;
  const keys = keyActions(around);
  return {
    speak(language: Language): void {
      keepLanguage(language);
      store.set({ speech: speechOf(language, navigator.languages, store.state.speech.timezone) });
    },
    expand(stage: Stage): void {
      const expanded = new Set(store.state.expanded);
      if (!expanded.delete(stage)) expanded.add(stage);
      store.set({ expanded });
    },
    /** Changes the given parts of the filter and keeps the others. */
    findBranches(wish: Partial<Pick<PageState['branches'], 'text' | 'level' | 'isWhole'>>): void {
      store.set({ branches: { ...store.state.branches, ...wish } });
    },
    showOrder: (orderId: string) => void showOrder(around, orderId),
    explainOrder: (orderId: string) => void explainOrder(around, orderId),
    explainStock: (sku: string) => void explainStock(around, sku),
    askDiscard: (change: Change) => store.set({ dialog: { kind: 'discard', change } }),
    ...keys,
    turnCalls: (isOn: boolean) => void caller.turn(isOn),
    markSeen: (orderIds: readonly string[]) => caller.markSeen(orderIds),
    ...outboxActions(around, keys.needKey),
    ...catalogActions(around),
    ...searchActions(around),
  };
}

async function showOrder({ api, store, caller }: Around, orderId: string): Promise<void> {
  caller.markSeen([orderId]);
  store.set({ dialog: { kind: 'order', orderId, answer: undefined } });
  const answer = await orFault(api.get<OrderAnswer>(`/orders/${encodeURIComponent(orderId)}`));
  const { dialog } = store.state;
  if (dialog?.kind === 'order' && dialog.orderId === orderId) store.set({ dialog: { ...dialog, answer } });
}

async function explainOrder({ api, store }: Around, orderId: string): Promise<void> {
  store.set({ dialog: { kind: 'order-why', orderId, answer: undefined } });
  const answer = await orFault(api.get<OrderExplained>(`/orders/${encodeURIComponent(orderId)}/explain`));
  const { dialog } = store.state;
  if (dialog?.kind === 'order-why' && dialog.orderId === orderId)
    store.set({ dialog: { ...dialog, answer } });
}

async function explainStock({ api, store }: Around, sku: string): Promise<void> {
  store.set({ dialog: { kind: 'stock-why', sku, answer: undefined } });
  const answer = await orFault(api.get<StocksExplained>(`/stock/${encodeURIComponent(sku)}/explain`));
  const { dialog } = store.state;
  if (dialog?.kind === 'stock-why' && dialog.sku === sku) store.set({ dialog: { ...dialog, answer } });
}

/** Resolves to the answer, or to the fault of the API, so that a dialog can show the fault. */
async function orFault<T>(asked: Promise<T>): Promise<T | ApiFault> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof ApiFault) return error;
    throw error;
  }
}

/**
 * Returns the actions of the form for the API key. The form tries a key, and then runs the action that waited for a
 * correct one.
 */
function keyActions({ api, store, watch }: Around) {
  let waiting: (() => void) | undefined;
  const show = (fault: 'key.wrong' | 'key.no-screen' | 'key.missing' | null, isChecking = false) => {
    const { status } = store.state;
    const command = status ? `${status.commands.tillsync} key show` : api.keyCommand;
    store.set({ dialog: { kind: 'key', fault, isChecking, command } });
  };
  const forget = () => {
    api.useKey(null);
    store.set({ hasKey: false });
  };
  const use = async (key: string, forGood: boolean) => {
    if (key === '') return show('key.missing');
    api.useKey(key, forGood);
    show(null, true);
    try {
      await api.get('/status');
      // Every valid key may read the status, but only some may read the board.
      await api.get('/board');
    } catch (error) {
      const code = error instanceof ApiFault ? error.code : '';
      if (code === 'unauthorized' || code === 'forbidden') {
        forget();
        return show(code === 'forbidden' ? 'key.no-screen' : 'key.wrong');
      }
    }
    store.set({ dialog: null, hasKey: true });
    waiting?.();
    waiting = undefined;
  };
  /** Opens the form for the API key. `then` runs after a correct key was entered. */
  const needKey = (then?: () => void) => {
    waiting = then;
    show(api.hasKey && then ? 'key.wrong' : null);
  };
  /** Forgets the key, which may not read the page, and opens the form for another one. */
  const rejectKey = () => {
    forget();
    waiting = watch;
    show('key.no-screen');
  };
  const closeDialog = () => {
    if (store.state.dialog?.kind === 'key') waiting = undefined;
    store.set({ dialog: null });
  };
  return {
    needKey,
    rejectKey,
    askKey: () => needKey(store.state.link === 'locked' ? watch : undefined),
    /** Tries an API key. With `forGood`, the key stays stored after the browser is closed. */
    useKey: (key: string, forGood: boolean) => void use(key, forGood),
    forgetKey() {
      forget();
      closeDialog();
    },
    closeDialog,
  };
}

const PAUSE_MS = 250;
const SEARCH_PAGE = 8;

/** Returns the actions of the catalogue search, which is debounced while a person types. */
function catalogActions({ api, store }: Around) {
  let pause: ReturnType<typeof setTimeout> | undefined;
  const load = async (text: string, after: string | null) => {
    const query = new URLSearchParams({
      q: text.trim(),
      limit: String(SEARCH_PAGE),
      ...(after && { after }),
    });
    try {
      const answer = await api.get<ProductsAnswer>(`/products?${query}`);
      const { catalog } = store.state;
      // The person has typed more in the meantime, so this answer is outdated.
      if (catalog.text !== text) return;
      const products = after === null ? answer.products : [...(catalog.products ?? []), ...answer.products];
      store.set({ catalog: { text, products, next: answer.next, fault: null } });
    } catch (error) {
      if (!(error instanceof ApiFault)) throw error;
      store.set({ catalog: { text, products: null, next: null, fault: error.message } });
    }
  };
  return {
    search(text: string): void {
      clearTimeout(pause);
      if (text.trim() === '') {
        store.set({ catalog: { text, products: null, next: null, fault: null } });
        return;
      }
      store.set({ catalog: { ...store.state.catalog, text } });
      pause = setTimeout(() => void load(text, null), PAUSE_MS);
    },
    moreProducts: () => void load(store.state.catalog.text, store.state.catalog.next),
  };
}

/** Returns the actions of the order search, which is debounced while a person types. */
function searchActions({ api, store }: Around) {
  let pause: ReturnType<typeof setTimeout> | undefined;
  const set = (change: Partial<typeof store.state.search>) =>
    store.set({ search: { ...store.state.search, ...change } });
  const load = async () => {
    const { text, day } = store.state.search;
    const query = new URLSearchParams({ ...(text.trim() && { q: text.trim() }), ...(day && { day }) });
    const found = await api.get<FoundOrders>(`/orders/search?${query}`).then(
      (answer) => ({ ...answer, fault: null }),
      (error) => {
        if (!(error instanceof ApiFault)) throw error;
        return { orders: [], hasMore: false, fault: error.message };
      },
    );
    const { search } = store.state;
    // The answer is shown only if the person has not typed more in the meantime.
    if (search.text === text && search.day === day) set(found);
  };
  return {
    /** Changes the given parts of the search. With neither text nor day, the board is shown again. */
    searchOrders(wish: { text?: string; day?: string }): void {
      clearTimeout(pause);
      set(wish);
      const { text, day } = store.state.search;
      if (text.trim() === '' && day === '') set({ orders: null, hasMore: false, fault: null });
      else pause = setTimeout(() => void load(), PAUSE_MS);
    },
  };
}

const OUTBOX_PAGE = 20;

/** Returns the actions of the list of changes, and a person's decisions about changes. */
function outboxActions({ api, store, refresh }: Around, needKey: (then: () => void) => void) {
  let size = OUTBOX_PAGE;
  const set = (change: Partial<typeof store.state.outbox>) =>
    store.set({ outbox: { ...store.state.outbox, ...change } });
  /** Reads the shown list again. If that fails, the list stays, and the status shows the reason. */
  const refreshChanges = async () => {
    const { tab } = store.state.outbox;
    try {
      const answer = await api.get<OutboxAnswer>(`/outbox?state=${tab}&limit=${size}`);
      if (store.state.outbox.tab !== tab) return;
      set({ changes: answer.changes, before: answer.before });
    } catch (error) {
      if (!(error instanceof ApiFault)) throw error;
    }
  };
  const deciding = (changeId: number, isUnderWay: boolean) => {
    const others = [...store.state.outbox.deciding].filter((each) => each !== changeId);
    set({ deciding: new Set(isUnderWay ? [...others, changeId] : others) });
  };
  const carryOut = async (decision: Decision, change: Change) => {
    const { changeId } = change;
    const { speech } = store.state;
    deciding(changeId, true);
    store.set({ notice: null });
    try {
      await api.post(`/outbox/${changeId}/${decision}`);
      store.set({ notice: { isFault: false, text: speech.say(`done.${decision}`, { id: changeId }) } });
    } catch (error) {
      if (!(error instanceof ApiFault)) throw error;
      if (error.code === 'unauthorized') needKey(() => void carryOut(decision, change));
      else {
        const why = [error.message, error.hint].filter(Boolean).join(' ');
        store.set({ notice: { isFault: true, text: speech.say('fault.action', { why }) } });
      }
    } finally {
      deciding(changeId, false);
    }
    await refreshChanges();
    refresh();
  };
  return {
    refreshChanges,
    /** Shows the list of a tab. `isJump` also moves the focus there. */
    showChanges(tab: OutboxTab, isJump = false): void {
      if (isJump) document.getElementById('outbox')?.focus();
      size = OUTBOX_PAGE;
      set({ tab, changes: null, before: null });
      void refreshChanges();
    },
    moreChanges(): void {
      size += OUTBOX_PAGE;
      void refreshChanges();
    },
    decide(decision: Decision, change: Change): void {
      store.set({ dialog: null });
      void carryOut(decision, change);
    },
  };
}
