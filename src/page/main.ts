import { render } from 'lit-html';
import { Api, ApiFault, type OrderAnswer } from './api.ts';
import { CatalogSearch, KeyHolder, Live, OutboxDesk } from './live.ts';
import { type Actions, boardOf, Store } from './state.ts';
import { syncDialog } from './views/order-view.ts';
import { pageView } from './views/page-view.ts';
import { chooseLanguage, type Language, speechOf } from './words/language.ts';

const TICK_MS = 5_000;
const KEY = 'tillsync.key';
const LANGUAGE = 'tillsync.language';

const narrow = matchMedia('(max-width: 40rem)');
const root = document.getElementById('page') ?? document.body;
root.replaceChildren();
const remembered = localStorage.getItem(LANGUAGE);
const language = chooseLanguage([...(remembered === null ? [] : [remembered]), ...navigator.languages]);

const store = new Store(
  {
    speech: speechOf(language, navigator.languages),
    nowMs: Date.now(),
    link: 'connecting',
    hasKey: keptKey() !== null,
    isNarrow: narrow.matches,
    status: null,
    board: boardOf([]),
    expanded: new Set(),
    trends: [],
    outbox: { tab: 'waiting', changes: null, before: null, deciding: new Set() },
    catalog: { text: '', products: null, next: null, fault: null },
    dialog: null,
    notice: null,
  },
  (state) => {
    document.documentElement.lang = state.speech.language;
    const { speech, status } = state;
    document.title = status === null ? speech.say('title') : speech.say('title.shop', { shop: status.shop });
    render(pageView(state, actions), root);
    syncDialog(state);
  },
);
const api = new Api(keptKey(), (key, forGood) => {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  if (key !== null) (forGood ? localStorage : sessionStorage).setItem(KEY, key);
});
const keys = new KeyHolder(api, store);
const outbox = new OutboxDesk({ api, store, keys, onDecided: () => void live.refresh() });
const catalog = new CatalogSearch(api, store);
const live = new Live({
  api,
  store,
  onLocked: () => keys.ask(() => live.start()),
  onStatus: () => void outbox.refresh(),
});

const actions: Actions = {
  speak(chosen: Language) {
    localStorage.setItem(LANGUAGE, chosen);
    store.set({ speech: speechOf(chosen, navigator.languages) });
  },
  expand(stage) {
    const expanded = new Set(store.state.expanded);
    if (!expanded.delete(stage)) expanded.add(stage);
    store.set({ expanded });
  },
  showOrder: (orderId) => void showOrder(orderId),
  showChanges(tab, isJump = false) {
    if (isJump) document.getElementById('outbox')?.focus();
    void outbox.show(tab);
  },
  moreChanges: () => void outbox.more(),
  decide(decision, change) {
    store.set({ dialog: null });
    void outbox.decide(decision, change);
  },
  askDrop: (change) => store.set({ dialog: { kind: 'drop', change } }),
  search: (text) => catalog.search(text),
  moreProducts: () => void catalog.more(),
  askKey: () => keys.ask(store.state.link === 'locked' ? () => live.start() : undefined),
  useKey: (key, forGood) => void keys.use(key, forGood),
  forgetKey() {
    keys.forget();
    actions.closeDialog();
  },
  closeDialog() {
    if (store.state.dialog?.kind === 'key') keys.cancel();
    store.set({ dialog: null });
  },
};

/** Of this tab, else of a screen that was told to remember it. */
function keptKey(): string | null {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
}

async function showOrder(orderId: string): Promise<void> {
  store.set({ dialog: { kind: 'order', orderId, order: undefined } });
  const order = await api.get<OrderAnswer>(`/orders/${encodeURIComponent(orderId)}`).then(
    (answer) => answer.order,
    (error) => {
      if (error instanceof ApiFault) return null;
      throw error;
    },
  );
  const { dialog } = store.state;
  if (dialog?.kind === 'order' && dialog.orderId === orderId) {
    store.set({ dialog: { ...dialog, order } });
  }
}

/** A tab that nobody sees asks for nothing: a browser keeps few connections open at once. */
function watchWhileSeen(): void {
  if (document.hidden) live.stop();
  else live.start();
}

narrow.addEventListener('change', ({ matches }) => store.set({ isNarrow: matches }));
document.addEventListener('visibilitychange', watchWhileSeen);
setInterval(() => store.set({ nowMs: store.state.nowMs + TICK_MS }), TICK_MS);
store.set({});
watchWhileSeen();
