import { render } from 'lit-html';
import { type Actions, pageActions } from './actions.ts';
import { Api } from './api.ts';
import { Caller, rememberedCalls } from './calls.ts';
import { Live } from './live.ts';
import { NO_BOARD, NO_BRANCHES, Store } from './state.ts';
import { syncDialog } from './views/order-view.ts';
import { pageView } from './views/page-view.ts';
import { drawTab } from './views/tab-view.ts';
import { chooseLanguage, speechOf } from './words/language.ts';

const TICK_MS = 5_000;
const CALL_EVERY_MS = 1_000;
const KEY = 'tillsync.key';
const LANGUAGE = 'tillsync.language';

const narrow = matchMedia('(max-width: 40rem)');
const root = document.getElementById('page') ?? document.body;
root.replaceChildren();
keepKeyOfLink();
const remembered = localStorage.getItem(LANGUAGE);
const language = chooseLanguage([...(remembered === null ? [] : [remembered]), ...navigator.languages]);

const store = new Store(
  {
    speech: speechOf(language, navigator.languages),
    nowMs: Date.now(),
    link: 'connecting',
    hasKey: keptKey() !== null,
    shop: null,
    isNarrow: narrow.matches,
    status: null,
    board: NO_BOARD,
    expanded: new Set(),
    branches: NO_BRANCHES,
    trends: [],
    outbox: { tab: 'waiting', changes: null, before: null, deciding: new Set() },
    catalog: { text: '', products: null, next: null, fault: null },
    search: { text: '', day: '', orders: null, hasMore: false, fault: null },
    calls: rememberedCalls(),
    dialog: null,
    notice: null,
  },
  (state) => {
    document.documentElement.lang = state.speech.language;
    drawTab(state);
    render(pageView(state, actions), root);
    syncDialog(state);
  },
);
const api = new Api(keptKey(), keepKey);
const caller = new Caller(store, (orderId) => actions.showOrder(orderId), watch);
const actions: Actions = pageActions({
  api,
  store,
  caller,
  watch,
  refresh: () => void live.refresh(),
  keepLanguage: (chosen) => localStorage.setItem(LANGUAGE, chosen),
});
const live = new Live({
  api,
  store,
  onLocked: (lacksRight) => (lacksRight ? actions.rejectKey() : actions.needKey(watch)),
  onStatus() {
    const { status, speech } = store.state;
    if (status && status.timezone !== speech.timezone) {
      store.set({ speech: speechOf(speech.language, navigator.languages, status.timezone) });
    }
    if (!document.hidden) void actions.refreshChanges();
  },
  onBoard: () => caller.call(),
});

// A link that is opened in a tab which shows the page already changes the fragment alone.
addEventListener('hashchange', () => {
  if (keepKeyOfLink()) location.reload();
});

function keepKey(key: string | null, forGood: boolean): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  if (key !== null) (forGood ? localStorage : sessionStorage).setItem(KEY, key);
}

/**
 * Keeps the API key of a link such as `/#key=KEY` for this browser, and removes it from the address bar and the history.
 * Returns whether there was one.
 */
function keepKeyOfLink(): boolean {
  const key = new URLSearchParams(location.hash.slice(1)).get('key') ?? '';
  if (key === '') return false;
  keepKey(key, true);
  history.replaceState(null, '', location.pathname + location.search);
  return true;
}

/**
 * Returns the API key that is stored for this tab, else the one that is stored for this browser; null if there is none.
 */
function keptKey(): string | null {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
}

/**
 * Starts the reads that this tab needs. A hidden tab reads little, because a browser opens only few connections at the
 * same time.
 */
function watch(): void {
  if (!document.hidden) live.start('all');
  else live.start(store.state.calls.isOn ? 'orders' : 'verdict');
}

narrow.addEventListener('change', ({ matches }) => store.set({ isNarrow: matches }));
document.addEventListener('visibilitychange', watch);
setInterval(() => store.set({ nowMs: store.state.nowMs + TICK_MS }), TICK_MS);
setInterval(() => caller.call(), CALL_EVERY_MS);
store.set({});
watch();
