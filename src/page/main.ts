import { render } from 'lit-html';
import { type Actions, pageActions } from './actions.ts';
import { Api } from './api.ts';
import { Live } from './live.ts';
import { boardOf, Store } from './state.ts';
import { syncDialog } from './views/order-view.ts';
import { pageView } from './views/page-view.ts';
import { chooseLanguage, speechOf } from './words/language.ts';

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
const actions: Actions = pageActions({
  api,
  store,
  watch: () => live.start(),
  refresh: () => void live.refresh(),
  keepLanguage: (chosen) => localStorage.setItem(LANGUAGE, chosen),
});
const live = new Live({
  api,
  store,
  onLocked: () => actions.needKey(() => live.start()),
  onStatus: () => void actions.refreshChanges(),
});

/** Of this tab, else of a screen that was told to remember it. */
function keptKey(): string | null {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
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
