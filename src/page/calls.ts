import type { BoardOrder } from '../orders/merging/mirrored-order.ts';
import { calledFor, type PageState, type Store } from './state.ts';

const RING_EVERY_MS = 8_000;
/** Pause before a hidden tab rings, so that a visible tab rings first; and the longest random pause of every tab. */
const HIDDEN_WAITS_MS = 500;
const WAITS_AT_MOST_MS = 200;

/** Names of the values in the browser's storage, which all tabs of this address share. */
const KEYS = { isOn: 'tillsync.calls', seen: 'tillsync.seen', rangAt: 'tillsync.rang' } as const;

/** Returns the state of the announcement for a page that opens, with the stored switch and the stored seen orders. */
export function rememberedCalls(): PageState['calls'] {
  const isOn = localStorage.getItem(KEYS.isOn) === 'on';
  return { isOn, seen: rememberedSeen(), isSilent: isOn, canNotify: mayNotify() };
}

/** Returns the stored order ids; empty if the stored text is unreadable. */
function rememberedSeen(): ReadonlySet<string> {
  try {
    const ids: unknown = JSON.parse(localStorage.getItem(KEYS.seen) ?? '[]');
    return new Set(Array.isArray(ids) ? ids.map(String) : []);
  } catch {
    return new Set();
  }
}

function mayNotify(): boolean {
  return 'Notification' in globalThis && Notification.permission === 'granted';
}

/**
 * Announces new orders by sound and desktop notifications, until a person has seen each or the POS acknowledged it.
 * All tabs of a browser share the seen orders, and only one of them rings at a time.
 */
export class Caller {
  readonly #store: Store;
  readonly #open: (orderId: string) => void;
  readonly #onSwitched: () => void;
  readonly #notifications = new Map<string, Notification>();
  #audio: AudioContext | undefined;
  #isAboutToRing = false;

  /**
   * `open` shows an order after a click on its notification. `onSwitched` is called if another tab switches the
   * announcement on or off.
   */
  constructor(store: Store, open: (orderId: string) => void, onSwitched: () => void) {
    this.#store = store;
    this.#open = open;
    this.#onSwitched = onSwitched;
    addEventListener('storage', ({ key }) => this.#takeOver(key));
    for (const touch of ['pointerdown', 'keydown']) addEventListener(touch, () => void this.#unlock());
    if (store.state.calls.isOn) void this.#unlock();
  }

  /**
   * Switches the announcement on or off. Must be called in a click, because browsers allow notifications and sound
   * only then.
   */
  async turn(isOn: boolean): Promise<void> {
    localStorage.setItem(KEYS.isOn, isOn ? 'on' : 'off');
    this.#set({ isOn });
    if (!isOn) return this.call();
    // The person who switches the sound on sees the present orders, so they count as seen.
    this.markSeen(calledFor(this.#store.state).map(({ orderId }) => orderId));
    await this.#unlock();
    if (this.#audio?.state === 'running') ring(this.#audio);
    if ('Notification' in globalThis) await Notification.requestPermission();
    this.#set({ canNotify: mayNotify() });
  }

  /** Records that a person has seen these orders. */
  markSeen(orderIds: readonly string[]): void {
    const { calls, board } = this.#store.state;
    // Orders that have left the board need not be remembered.
    const known = [...calls.seen].filter((orderId) => !board.isRead || board.orders.has(orderId));
    const seen = new Set([...known, ...orderIds]);
    localStorage.setItem(KEYS.seen, JSON.stringify([...seen]));
    this.#set({ seen });
    this.call();
  }

  /** Rings and shows notifications if there are unseen orders. Called after each read of the board, and regularly. */
  call(): void {
    const due = calledFor(this.#store.state);
    const ids = new Set(due.map(({ orderId }) => orderId));
    for (const [orderId, notification] of this.#notifications) {
      if (ids.has(orderId)) continue;
      notification.close();
      this.#notifications.delete(orderId);
    }
    if (!document.hasFocus()) for (const order of due) this.#notify(order);
    if (due.length > 0) this.#ringSoon();
  }

  #set(change: Partial<PageState['calls']>): void {
    this.#store.set({ calls: { ...this.#store.state.calls, ...change } });
  }

  /** Applies a change by another tab, which switched the sound or marked an order as seen. */
  #takeOver(key: string | null): void {
    if (key !== KEYS.isOn && key !== KEYS.seen) return;
    const { isOn, seen } = rememberedCalls();
    this.#set({ isOn, seen });
    if (key === KEYS.isOn) this.#onSwitched();
    if (isOn) void this.#unlock();
    this.call();
  }

  async #unlock(): Promise<void> {
    if (!this.#store.state.calls.isOn || this.#audio?.state === 'running') return;
    if (this.#audio === undefined) {
      this.#audio = new AudioContext();
      this.#audio.addEventListener('statechange', () => this.#heed());
    }
    // The browser resumes the sound only after the first click on the page.
    void this.#audio.resume().catch(() => undefined);
    this.#heed();
  }

  #heed(): void {
    this.#set({ isSilent: this.#audio?.state !== 'running' });
  }

  #notify({ orderId, code, deliveryType, amountToPay }: BoardOrder): void {
    if (!mayNotify() || this.#notifications.has(orderId)) return;
    const { speech, status } = this.#store.state;
    const way = deliveryType === 'delivery' || deliveryType === 'pickup' ? speech.say(deliveryType) : '';
    const amount = speech.format.money(amountToPay, status?.currency ?? null);
    try {
      // The text does not name the customer, because everybody may see the screen. The tag makes two tabs show one
      // notification.
      const title = speech.say('calls.order', { code: `#${code ?? orderId}` });
      const body = [way, amount].filter(Boolean).join(', ');
      const notification = new Notification(title, { body, tag: orderId, lang: speech.language });
      notification.addEventListener('click', () => {
        window.focus();
        this.#open(orderId);
      });
      this.#notifications.set(orderId, notification);
    } catch {
      // Browsers of phones allow notifications only for installed pages.
      this.#set({ canNotify: false });
    }
  }

  #ringSoon(): void {
    if (this.#isAboutToRing || this.#audio?.state !== 'running') return;
    this.#isAboutToRing = true;
    const firstMs = document.hidden ? HIDDEN_WAITS_MS : 0;
    setTimeout(
      () => {
        this.#isAboutToRing = false;
        const rangAgoMs = Date.now() - Number(localStorage.getItem(KEYS.rangAt));
        // The absolute value makes the page ring also after the clock was set back.
        const isQuiet = Math.abs(rangAgoMs) >= RING_EVERY_MS;
        if (!isQuiet || this.#audio?.state !== 'running' || calledFor(this.#store.state).length === 0) return;
        localStorage.setItem(KEYS.rangAt, String(Date.now()));
        ring(this.#audio);
      },
      firstMs + Math.random() * WAITS_AT_MOST_MS,
    );
  }
}

const TONES_HERTZ = [880, 1175, 880, 1175];
const TONE_S = 0.2;

/** Plays two notes twice. They are generated, so that no sound file must be loaded. */
function ring(audio: AudioContext): void {
  for (const [n, hertz] of TONES_HERTZ.entries()) {
    const at = audio.currentTime + n * TONE_S;
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    tone.type = 'triangle';
    tone.frequency.value = hertz;
    volume.gain.setValueAtTime(0, at);
    volume.gain.linearRampToValueAtTime(0.6, at + 0.02);
    volume.gain.exponentialRampToValueAtTime(0.001, at + TONE_S);
    tone.connect(volume).connect(audio.destination);
    tone.start(at);
    tone.stop(at + TONE_S);
  }
}
