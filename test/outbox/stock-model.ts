import { isoUtc, type Random } from '../../src/core/time.ts';
import { takesNothing } from '../../src/orders/merging/order.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { BRANCHES, order, outgoing, product } from './outbox-fixture.ts';

const ITEMS: readonly (string | undefined)[] = ['X', 'Y'];
const RULES = { holdBack: true, sendAsIs: false, trustMs: 600_000 };
/**
 * Ways in which the platform may change its own stock at a sale and at a cancellation. The platform's document does not
 * describe them.
 */
export const PLATFORMS = ['takes-off', 'takes-off-and-gives-back', 'neither'] as const;
export type PlatformKind = (typeof PLATFORMS)[number];
const LATER = ['cancel', 'dispatched', 'inProcess', 'cancel'] as const;

interface ModelOrder {
  id: string;
  createdAt: string;
  status: string;
  /** Status as tillsync knows it; null if it does not know the order. */
  heard: string | null;
  /** Whether the order was acknowledged before tillsync knew it. */
  isBookedEarly: boolean;
  /**
   * Pieces that each event took or gave back. `booked` is the version of the newest count when the event was
   * acknowledged; null before that.
   */
  moves: {
    item: number;
    qty: number;
    seq: number;
    booked: number | null;
    bookedMs: number;
    /** Pieces of lines that an acknowledgement left out. */
    isLeftOut?: true;
  }[];
  /** Events at which the order's lines, and the numbers of its lines, last changed. */
  linesSeq: number;
  numbersSeq: number;
  /** Store and lines as they were last heard. */
  told: string;
  /** As of which event the POS acknowledged it, and the numbers of the lines that it left out; null: none. */
  ack: { seq: number; without: readonly number[] | null } | null;
  /** Whether it was ever in another store, whose POS acknowledges for itself. */
  hasMoved: boolean;
  /** Time of the acknowledgement, if it came before tillsync knew the order. */
  bookedEarlyMs: number;
  store: 'B1' | 'B2';
  /** Beginning of the product names in the order's lines. */
  word: string;
  isNews: boolean;
  /** Whether the platform sold more than it had, so that its stock does not show how much was subtracted. */
  isOversold: boolean;
  lines: { item: number; qty: number; byName: boolean }[];
}

interface Word {
  qty: number;
  asOfSeq: number;
  version: number;
  /** When it was counted, and when it was handed over. */
  atMs: number;
  handedMs: number;
}

interface Call {
  id: number;
  items: { changeId: number; item: number; qty: number; word: Word | null }[];
  isApplied: boolean;
}

/**
 * A random model, drawn from `random`: two stocks on a platform, a POS that counts through two interfaces and
 * acknowledges, orders that come late or out of order, calls with lost or refused outcomes, guards, restarts and
 * sweeps. It also knows the quantity that the platform must have in the end: each last count less the orders that it
 * cannot contain, less the safety stock.
 */
export class StockModel {
  /** The steps, for a person who searches for a fault's cause. */
  readonly steps: string[] = [];
  readonly #random: Random;
  readonly #skipUnchanged: boolean;
  // A walk may take longer than the usual time for which an edit is held back. That case has its own test.
  readonly #out = outgoing(undefined, undefined, undefined, { editHoldMs: 86_400_000 });
  readonly #platform = [40, 40];
  readonly #words: (Word | null)[] = [null, null];
  /** Refused counts, which are not sent again; null stands for a stock without a count. A newer count is sent. */
  readonly #refused = new Set<Word | null>([null]);
  readonly #held: ((Word & { changeId: number }) | null)[] = [null, null];
  readonly #orders: ModelOrder[] = [];
  /** Version of the newest submission of each stock, even of a refused one. */
  readonly #handed = [0, 0];
  /** Orders with an event that the ledger has not followed. */
  readonly #waiting = new Set<string>();
  /** Safety stock by product and branch; '' stands for all. */
  readonly #kept = new Map<string, number>();
  /**
   * Acknowledgements that were made while counts waited in the inbox. They take effect once these counts are copied.
   */
  #owed: { order: ModelOrder; asOf: number; atMs: number; without: readonly number[] }[] = [];
  /** Moments at which the POS may have counted, and the newest event then. */
  #moments: { ms: number; seq: number }[] = [];
  /** Version of the last count with an unknown id, which may mean any stock that was not counted since. */
  #nameless = 0;
  /** Whether the catalogue has the second product, so that its lines can be resolved. */
  #isListed = true;
  #inbox: { item: number; qty: number; asOfSeq: number; handedAt: string; isOutlived: boolean }[] = [];
  #call: Call | undefined;
  #sweep: { mark: ReturnType<ReturnType<typeof outgoing>['store']['readMark']>; seen?: number[] } | undefined;
  #calls = 0;
  #isRenamed = false;

  readonly #kind: PlatformKind;
  /** Milliseconds by which the platform's clock is ahead. */
  readonly #skewMs: number;

  readonly #followsEdits: boolean;

  constructor(random: Random, kind: PlatformKind) {
    this.#random = random;
    this.#kind = kind;
    // Crashes are simulated between transactions, so durability is not tested here.
    this.#out.db.pragma('synchronous = off');
    this.#out.db.pragma('journal_mode = memory');
    this.#skipUnchanged = this.#below(4) > 0;
    this.#followsEdits = this.#below(2) === 0;
    const isTold = this.#below(2) === 0;
    // A clock difference that tillsync does not know stays within the margin that it allows.
    this.#skewMs =
      this.#below(isTold ? (this.#below(2) ? 7_200_000 : 120_000) : 25_000) * (this.#below(2) ? 1 : -1);
    if (isTold) this.#out.skew.ms = this.#skewMs;
    this.#isListed = this.#below(3) > 0;
    this.#out.sweep(this.#records(this.#platform));
    this.#out.reservations.begin(true);
    this.steps.push(`${kind}, skew ${this.#skewMs} ms${isTold ? ' told' : ''}`);
  }

  get db() {
    return this.#out.db;
  }

  async act(): Promise<void> {
    const acts = [
      ...[() => this.#count(), () => this.#count(), () => this.#place(), () => this.#place()],
      ...[() => this.#hearOne(), () => this.#moveOn(), () => this.#book(), () => this.#edit()],
      ...[() => this.#stepCall(), () => this.#stepCall(), () => this.#refuse(), () => this.#restart()],
      ...[() => this.#catchUp(), () => this.#stepSweep(), () => this.#zeros(), () => this.#decide()],
      ...[() => this.#keepBack(), () => this.#moveAway(), () => this.#book(), () => this.#rename()],
      ...[() => this.#insert(), () => this.#look(), () => this.#misname(), () => this.#appear()],
      ...[() => this.#countAsOf(), () => this.#countAsOf()],
    ];
    await this.#out.clock.advance(200 + this.#below(20_000));
    // An event and a count of the same millisecond have no order that anybody knows.
    this.#moments.push({ ms: this.#out.clock.nowMs() - 1, seq: this.#seq() });
    acts[this.#below(acts.length)]?.();
  }

  /**
   * Lets tillsync learn all orders, decides held changes and sends all that waits; the model can continue afterwards.
   * Returns the quantities that the platform has and must have (null for a refused count), and the number of calls.
   */
  async rest(): Promise<{ got: unknown[]; wanted: unknown[]; calls: number }> {
    this.#look();
    if (this.#held.some(Boolean)) this.#decide();
    await this.#out.clock.advance(5_000);
    for (const each of this.#orders) if (each.isNews) this.#hear(each);
    if (this.#call) this.#answer();
    const before = this.#calls;
    for (let times = 0; times < 8; times++) {
      this.#catchUp();
      this.#claim();
      if (this.#call) this.#answer();
      await this.#out.clock.advance(1_000);
    }
    const isTold = (item: number) => !this.#refused.has(this.#words[item] ?? null);
    return {
      got: this.#platform.map((qty, item) => (isTold(item) ? qty : null)),
      wanted: this.#words.map((word, item) => (word && isTold(item) ? this.#wanted(word, item) : null)),
      calls: this.#calls - before,
    };
  }

  #wanted({ qty, asOfSeq, version, atMs, handedMs }: Word, wanted: number): number {
    const reserved = this.#orders.map(({ moves }) => {
      const own = moves.filter(({ item }) => item === wanted);
      const live = own.reduce((sum, move) => sum + move.qty, 0);
      const openOf = (some: typeof own) =>
        some.reduce((sum, move) => {
          const isIn = move.seq <= asOfSeq;
          const isBookedSince = move.bookedMs > atMs && move.bookedMs < handedMs;
          if (isIn && move.booked !== null && move.booked <= version && !isBookedSince) return sum;
          return move.qty > 0 || !isIn ? sum + move.qty : sum;
        }, 0);
      const { leftOut = [], others = [] } = Object.groupBy(own, ({ isLeftOut }) =>
        isLeftOut ? 'leftOut' : 'others',
      );
      return Math.max(0, Math.min(live, Math.max(0, openOf(others)) + openOf(leftOut)));
    });
    return Math.max(0, qty - reserved.reduce((sum, each) => sum + each, 0) - this.#safetyOf(wanted));
  }

  /** Returns the quantity of the most specific rule. */
  #safetyOf(item: number): number {
    const places = [`1${item}@s1`, `1${item}@`, '@s1', '@'];
    return this.#kept.get(places.find((place) => this.#kept.has(place)) ?? '') ?? 0;
  }

  /**
   * Sets or deletes a safety rule: for one product as a person does, for all products of a branch or of all branches as
   * a new configuration does.
   */
  #keepBack(): void {
    const sku = ['', '10', '11'][this.#below(3)] ?? '';
    const subsidiaryId = this.#below(2) ? 's1' : '';
    const place = `${sku}@${subsidiaryId}`;
    if (this.#below(3) === 0) this.#kept.delete(place);
    else this.#kept.set(place, this.#below(8));
    const qty = this.#kept.get(place);
    const { safety } = this.#out;
    if (sku === '') {
      const rules = ['', 's1'].map((branch) => ({ branch, qty: this.#kept.get(`@${branch}`) }));
      safety.configure(
        rules.flatMap((rule) =>
          rule.qty === undefined ? [] : [{ sku: null, subsidiaryId: rule.branch || null, qty: rule.qty }],
        ),
      );
    } else if (qty === undefined) safety.remove({ sku, subsidiaryId: subsidiaryId || null });
    else safety.set({ sku, subsidiaryId: subsidiaryId || null, qty });
    this.steps.push(`keep back ${qty} of ${place}`);
  }

  /** Draws a product that can be counted. */
  #item(): number {
    return this.#isListed ? this.#below(2) : 0;
  }

  /** Returns the version of the newest submission of a stock, even of a refused one. */
  #handedOf(item: number): number {
    const text = `SELECT counted_version FROM _stock_ledger WHERE sku = '1${item}'`;
    const counted = this.#out.db.prepare<[], number>(text).pluck().get() ?? 0;
    return Math.max(this.#handed[item] ?? 0, this.#nameless >= counted ? this.#nameless : 0);
  }

  /**
   * Counts with an id that even the platform does not know. The count is refused, but ranks as a submission
   * nevertheless.
   */
  #misname(): void {
    if (this.#below(4) > 0) return;
    const name = `nobody ${this.#version()}`;
    this.#out.accept('stock', [{ externalId: name, subsidiaryId: 's1', qty: this.#below(40) }]);
    this.#nameless = this.#version();
    for (const change of this.#out.admin.unresolved('needs-read', { limit: 9 })) {
      this.#out.admin.retarget(change, this.#out.resolve(change, true));
    }
    this.steps.push(`misname with ${this.#nameless}`);
  }

  /** Adds the second product to the catalogue, after orders have taken pieces of it. */
  #appear(): void {
    if (this.#isListed || this.#sweep || this.#below(4) > 0) return;
    this.#catchUp();
    this.#isListed = true;
    this.#moments = [];
    const [branch] = BRANCHES;
    const { store } = this.#out;
    if (branch) store.applyPage(branch, this.#records(this.#platform), store.readMark());
    this.#catchUp();
    for (const { moves } of this.#orders) {
      for (const move of moves) if (move.item === 1 && move.booked !== null) move.booked = this.#handedOf(1);
    }
    this.steps.push('appear');
  }

  /** Whether an order has a line that cannot be resolved yet. Its events take effect once the line can be resolved. */
  #isUnplaced({ lines }: ModelOrder): boolean {
    return !this.#isListed && lines.some(({ item }) => item === 1);
  }

  #count(): void {
    const item = this.#item();
    const qty = this.#below(4) ? 30 + this.#below(30) : this.#below(8) - 2;
    // The inbox's rows are copied first, or rank below this change when they are copied later.
    const isBlind = this.#inbox.length > 0 && this.#below(2) === 0;
    if (!isBlind) this.#look();
    const beforeInbox = isBlind ? isoUtc(this.#out.clock.nowMs()) : undefined;
    const change = { externalId: ITEMS[item] ?? '', qty };
    this.#out.intake.accept([{ kind: 'stock', change }], { source: 'cli', guards: GUARDS_OFF, beforeInbox });
    if (isBlind) for (const row of this.#inbox) row.isOutlived ||= row.item === item;
    const nowMs = this.#out.clock.nowMs();
    const times = { atMs: nowMs, handedMs: nowMs };
    this.#isWord(item, { qty, asOfSeq: this.#seq(), version: this.#version(), ...times });
    this.steps.push(`count ${ITEMS[item]} ${qty}${isBlind ? ' before the inbox is read' : ''}`);
  }

  /** Hands over a count that was made some time ago. A count of the stock that was made later stays. */
  #countAsOf(): void {
    const moment = this.#moments[this.#below(this.#moments.length)];
    if (!moment) return;
    const item = this.#item();
    const qty = this.#below(4) ? 30 + this.#below(30) : this.#below(8) - 2;
    const nowMs = this.#out.clock.nowMs();
    const isBlind = this.#inbox.length > 0 && this.#below(2) === 0;
    if (!isBlind) this.#look();
    const beforeInbox = isBlind ? isoUtc(nowMs) : undefined;
    const change = { externalId: ITEMS[item] ?? '', qty };
    const given = { kind: 'stock', change, countedAt: isoUtc(moment.ms) } as const;
    this.#out.intake.accept([given], { source: 'cli', guards: GUARDS_OFF, beforeInbox });
    const later = Math.max(this.#words[item]?.atMs ?? 0, this.#held[item]?.atMs ?? 0);
    this.steps.push(
      `count ${ITEMS[item]} ${qty} as of ${moment.seq}${later > moment.ms ? ', too late' : ''}`,
    );
    if (later > moment.ms) return;
    for (const row of this.#inbox)
      row.isOutlived ||= row.item === item && Date.parse(row.handedAt) < moment.ms;
    const times = { atMs: moment.ms, handedMs: nowMs };
    this.#isWord(item, { qty, asOfSeq: moment.seq, version: this.#version(), ...times });
  }

  #isWord(item: number, word: Word): void {
    this.#handed[item] = word.version;
    this.#words[item] = word;
    this.#held[item] = null;
  }

  /** Counts through the inbox, which is read later. */
  #insert(): void {
    const item = this.#item();
    const row = { item, qty: 30 + this.#below(30), asOfSeq: this.#seq(), isOutlived: false };
    this.#inbox.push({ ...row, handedAt: isoUtc(this.#out.clock.nowMs()) });
    this.steps.push(`insert ${ITEMS[item]} ${row.qty}`);
  }

  #look(): void {
    if (this.#owed.length > 0) this.#catchUp();
    const before = this.#version();
    const changes = this.#inbox.map(({ item, qty, handedAt }, n) => {
      const row = { table: 'stock_changes', id: `${n}`, key: `${before}.${n}`, keyHex: `${n}` } as const;
      const value = { externalId: ITEMS[item], qty };
      return { ...row, tooLong: null, kind: 'stock' as const, reference: null, handedAt, value };
    });
    const batch = { changes, acks: [], more: false };
    this.#out.inbox.ingest(batch, GUARDS_OFF);
    this.#out.inbox.forget(batch);
    for (const [n, { item, isOutlived, qty, asOfSeq, handedAt }] of this.#inbox.entries()) {
      const times = { atMs: Date.parse(handedAt), handedMs: Date.parse(handedAt) };
      if (!isOutlived) this.#isWord(item, { qty, asOfSeq, version: before + 1 + n, ...times });
    }
    this.#inbox = [];
    this.#out.intake.inboxWasEmpty(isoUtc(this.#out.clock.nowMs()));
    for (const { order: booked, asOf, atMs, without } of this.#owed) {
      this.#isBooked(booked, asOf, atMs, without);
    }
    // Of several acknowledgements that waited, the ledger knows only the newest time.
    if (this.#owed.length > 0) this.#moments = [];
    this.#owed = [];
    if (changes.length > 0) this.steps.push(`take in ${changes.length}`);
  }

  /** Places an order. The platform subtracts the pieces, unless its kind is `neither`. */
  #place(): void {
    const byName = this.#below(4) === 0;
    const both = [0, 1].map((item) => ({ item, qty: 1 + item, byName }));
    const one = { item: this.#below(2), qty: 1 + this.#below(2), byName };
    const lines = [both, [one, { ...one, qty: 1 }], [one], [one]][this.#below(4)] ?? [one];
    const isOversold = [0, 1].some((item) => (this.#platform[item] ?? 0) < sumOf(lines, item));
    if (this.#kind !== 'neither') this.#move(lines, -1);
    const createdAt = new Date(this.#out.clock.nowMs() + this.#skewMs).toISOString();
    const facts = { id: `o${this.#orders.length}`, createdAt, status: 'pending', lines, isOversold };
    const placed = {
      ...facts,
      heard: null,
      moves: [],
      isBookedEarly: false,
      bookedEarlyMs: 0,
      ...{ linesSeq: 0, numbersSeq: 0, told: '', ack: null, hasMoved: false },
      store: 'B1' as const,
      word: '',
      isNews: true,
    };
    this.#orders.push(placed);
    this.steps.push(`order ${placed.id} ${JSON.stringify(lines)}, platform ${this.#platform}`);
    if (this.#below(2)) this.#hear(placed);
  }

  /** Lets tillsync learn an order's state. The ledger may follow late, but never two events of one order at once. */
  #hear(heard: ModelOrder): void {
    const { id, status, createdAt, lines, store, moves, isBookedEarly, bookedEarlyMs } = heard;
    if (this.#waiting.has(id)) this.#catchUp();
    if (heard.heard === null) heard.word = this.#word;
    const items = lines.map(({ item, qty, byName }): [string | null, number, string] => {
      return [byName ? null : (ITEMS[item] ?? ''), qty, `${heard.word} of ${ITEMS[item]}`];
    });
    order(this.#out, id, store, items, status, { createdAt });
    const seq = this.#seq();
    const texts = lines.map(({ item, qty }) => `${item} ${qty}`);
    const told = JSON.stringify([store, texts]);
    const isSame = JSON.stringify([store, texts.toSorted()]) === sorted(heard.told);
    if (!isSame) heard.linesSeq = seq;
    if (told !== heard.told) heard.numbersSeq = seq;
    heard.told = told;
    if (isBookedEarly && heard.heard === null) heard.ack = { seq, without: null };
    const takes = !takesNothing(status) && store === 'B1';
    for (const item of [0, 1]) {
      const now = takes ? sumOf(lines, item) : 0;
      const before = moves.reduce((sum, move) => sum + (move.item === item ? move.qty : 0), 0);
      const booked = isBookedEarly && heard.heard === null ? this.#handedOf(item) : null;
      if (now !== before) moves.push({ item, qty: now - before, seq, booked, bookedMs: bookedEarlyMs });
    }
    if (isBookedEarly && heard.heard === null) this.#catchUp();
    else this.#waiting.add(id);
    heard.heard = status;
    heard.isNews = false;
    this.steps.push(`hear ${id} ${status} at ${store} with ${seq}`);
  }

  #hearOne(): void {
    const news = this.#orders.find(({ isNews }) => isNews);
    if (news) this.#hear(news);
  }

  #moveOn(): void {
    const moved = this.#orders[this.#below(this.#orders.length)];
    if (!moved || isUntold(moved) || this.#isUnplaced(moved)) return;
    const before = moved.status;
    moved.status = LATER[this.#below(LATER.length)] ?? 'cancel';
    if (moved.status === before) return;
    moved.isNews = true;
    if (this.#kind === 'takes-off-and-gives-back' && takesNothing(before) !== takesNothing(moved.status)) {
      this.#move(moved.lines, takesNothing(moved.status) ? 1 : -1);
    }
    this.steps.push(`${moved.id} becomes ${moved.status}, platform ${this.#platform}`);
    if (this.#below(2)) this.#hear(moved);
  }

  /**
   * Edits an order. Whether the platform's stock follows edits is random, because nobody knows it. It always follows
   * for an order unknown to tillsync, whose first known content counts as subtracted (except for the kind `neither`).
   */
  #edit(): void {
    const pending = this.#orders.filter(({ status }) => status === 'pending');
    const edited = pending[this.#below(pending.length)];
    if (!edited || isUntold(edited) || this.#isUnplaced(edited)) return;
    const follows = this.#kind !== 'neither' && (edited.heard === null || this.#followsEdits);
    const lines = edited.lines.map((line) => ({ ...line, qty: this.#below(4) }));
    // An edit beyond the platform's stock would be subtracted only in part, without tillsync knowing it. If it were
    // given back later, the stock would be too high.
    const has = (item: number) => (this.#platform[item] ?? 0) + sumOf(edited.lines, item);
    if (follows && [0, 1].some((item) => has(item) < sumOf(lines, item))) return;
    if (follows) this.#move(edited.lines, 1);
    edited.lines = lines;
    if (follows) this.#move(edited.lines, -1);
    edited.isNews = true;
    this.steps.push(`edit ${edited.id} ${JSON.stringify(edited.lines)}, platform ${this.#platform}`);
    if (this.#below(2)) this.#hear(edited);
  }

  #move(lines: ModelOrder['lines'], sign: 1 | -1): void {
    for (const { item, qty } of lines) {
      this.#platform[item] = Math.max(0, (this.#platform[item] ?? 0) + sign * qty);
    }
  }

  /** Moves an order to a store that has neither stock, or back. */
  #moveAway(): void {
    const heard = this.#orders.filter(({ heard, isNews }) => heard !== null && !isNews);
    const moved = heard[this.#below(heard.length)];
    if (!moved || takesNothing(moved.status) || this.#isUnplaced(moved)) return;
    moved.store = moved.store === 'B1' ? 'B2' : 'B1';
    moved.hasMoved = true;
    if (this.#kind === 'takes-off-and-gives-back') this.#move(moved.lines, moved.store === 'B1' ? -1 : 1);
    moved.isNews = true;
    this.steps.push(`move ${moved.id} to ${moved.store}, platform ${this.#platform}`);
    if (this.#below(2)) this.#hear(moved);
  }

  /** The POS books an order, as of now or as of an older event. */
  #book(): void {
    const booked = this.#orders[this.#below(this.#orders.length)];
    if (!booked) return;
    const { id, moves } = booked;
    if (booked.heard === null && !booked.isBookedEarly) {
      booked.isBookedEarly = true;
      booked.bookedEarlyMs = this.#out.clock.nowMs();
    }
    const [first] = moves;
    const isOlder = first !== undefined && this.#below(3) === 0;
    const asOf = isOlder ? first.seq + this.#below(this.#seq() - first.seq + 1) : this.#seq();
    const isWaiting = booked.heard !== null && this.#inbox.length > 0 && this.#below(2) === 0;
    const beforeInbox = isWaiting ? isoUtc(this.#out.clock.nowMs()) : undefined;
    // What waits for the inbox is booked as a whole here, because an edit meanwhile would change its lines.
    const mayLeaveOut = booked.heard !== null && !booked.isNews && !isOlder && !isWaiting && !booked.hasMoved;
    const given = mayLeaveOut && this.#below(3) === 0 ? [this.#below(booked.lines.length) + 1] : [];
    const ack = { orderId: id, seq: isOlder ? asOf : undefined, without: given };
    this.#out.reservations.acknowledge([ack], 'http', { beforeInbox });
    const atMs = this.#out.clock.nowMs();
    const without = leftOutOf(booked, given);
    if (without !== undefined && booked.heard !== null) {
      const before = booked.ack?.without ?? null;
      const now = without.length > 0 ? without : null;
      const seq = Math.max(booked.ack?.seq ?? 0, asOf);
      booked.ack = { seq, without: asOf >= booked.linesSeq ? now : before };
    }
    if (without === undefined) this.steps.push(`${id} is booked already`);
    else if (isWaiting) this.#owed.push({ order: booked, asOf, atMs, without });
    else this.#isBooked(booked, asOf, atMs, without);
    this.#waiting.clear();
    this.steps.push(`book ${id} as of ${asOf} without ${given}`);
  }

  #isBooked(
    { moves, heard, lines }: ModelOrder,
    asOf: number,
    atMs: number,
    without: readonly number[] = [],
  ): void {
    const known = moves.filter((move) => move.seq <= asOf);
    const takesOf = (wanted: number) =>
      known.reduce((sum, { item, qty }) => (item === wanted ? sum + qty : sum), 0);
    // The POS of the store that the order was in at that time acknowledges it.
    const isHere = [0, 1].some((item) => takesOf(item) > 0) || takesNothing(heard);
    if (!isHere) return;
    for (const item of [0, 1]) {
      const open = known
        .filter((move) => move.item === item && move.booked === null)
        .toSorted((one, other) => one.seq - other.seq);
      const unbooked = open.reduce((sum, { qty }) => sum + qty, 0);
      const unknown = sumOf(
        lines.filter((_, i) => without.includes(i + 1)),
        item,
      );
      let left = Math.max(0, Math.min(unknown, unbooked));
      if (left > 0 && left === unbooked && open.every(({ qty }) => qty >= 0)) continue;
      for (const move of open) {
        const qty = Math.min(left, Math.max(0, move.qty));
        left -= qty;
        if (qty > 0) moves.push({ ...move, qty, booked: null, isLeftOut: true });
        move.qty -= qty;
        move.booked = this.#handedOf(item);
        move.bookedMs = atMs;
      }
    }
  }

  /** Renames one of the products in the catalogue, or restores its name. */
  #rename(): void {
    // The ledger follows all orders first, because a line with a name that no product has any more cannot be resolved.
    if (this.#sweep || !this.#isListed) return;
    this.#catchUp();
    this.#isRenamed = !this.#isRenamed;
    const [branch] = BRANCHES;
    const { store } = this.#out;
    if (branch) store.applyPage(branch, this.#records(this.#platform), store.readMark());
    this.steps.push(this.#isRenamed ? 'rename' : 'name as before');
  }

  #catchUp(): void {
    while (this.#out.dispatcher.catchUp({ holdBack: true }));
    this.#waiting.clear();
    if (this.#below(3) === 0) this.steps.push(`collect ${this.#out.reservations.collect()}`);
  }

  #stepCall(): void {
    if (!this.#call) this.#claim();
    else if (!this.#call.isApplied) this.#apply(this.#call);
    else this.#settle(this.#below(5) ? 'done' : 'retry');
  }

  #claim(): void {
    const { callId, items } = this.#out.dispatcher.claim('stock', 100, {
      ...RULES,
      skipUnchanged: this.#skipUnchanged,
      platformDeducts: this.#kind !== 'neither',
    });
    this.#waiting.clear();
    if (callId === null) return;
    this.#calls += 1;
    const sent = items.map(({ changeId, body }) => {
      const item = ITEMS.indexOf(body.externalId);
      const qty = 'qty' in body ? body.qty : Number.NaN;
      return { changeId, item, qty, word: this.#words[item] ?? null };
    });
    this.#call = { id: callId, isApplied: false, items: sent };
    this.steps.push(`claim ${JSON.stringify(sent)}`);
  }

  #apply(call: Call): void {
    for (const { item, qty } of call.items) this.#platform[item] = qty;
    call.isApplied = true;
    this.steps.push(`apply, platform ${this.#platform}`);
  }

  #answer(): void {
    if (this.#call) this.#apply(this.#call);
    this.#settle('done');
  }

  #settle(state: 'done' | 'retry' | 'rejected'): void {
    const { id, items = [] } = this.#call ?? {};
    this.#call = undefined;
    if (id === undefined) return;
    if (state === 'rejected') for (const { word } of items) this.#refused.add(word);
    this.#out.dispatcher.settle(
      id,
      items.map(({ changeId }) => ({ changeId, state, message: 'No.' })),
    );
    this.steps.push(`settle ${state}`);
  }

  #refuse(): void {
    if (!this.#call || this.#below(2)) return;
    this.#settle('rejected');
  }

  #restart(): void {
    if (this.#below(3)) return;
    if (this.#call && !this.#call.isApplied && this.#below(2)) this.#apply(this.#call);
    this.#call = undefined;
    this.#sweep = undefined;
    this.#out.restart();
    this.#out.dispatcher.reclaim();
    this.steps.push('restart');
  }

  /**
   * Makes the next step of a sweep. A sweep takes several steps, so that the mirrored values are older than the
   * platform's.
   */
  #stepSweep(): void {
    const { store, clock } = this.#out;
    const [branch] = BRANCHES;
    if (!branch) return;
    if (!this.#sweep) this.#sweep = { mark: store.readMark() };
    else if (!this.#sweep.seen) this.#sweep.seen = [...this.#platform];
    else {
      const { mark, seen } = this.#sweep;
      const records = this.#records(seen);
      store.applyPage(branch, records, mark);
      const whole = {
        branch,
        mark,
        startedAtMs: clock.nowMs(),
        pages: 1,
        seen: new Set(records.map(({ id }) => id)),
      };
      if (this.#below(2)) store.completeSweep(whole);
      this.steps.push(`sweep ${seen}`);
      this.#sweep = undefined;
    }
  }

  /** Sets both stocks to zero. The guard holds them if neither was zero before. */
  #zeros(): void {
    if (!this.#isListed) return;
    this.#look();
    const zeros = ITEMS.map((externalId) => ({ externalId, qty: 0 }));
    const accepted = this.#out.accept('stock', zeros, { zeroItemsMax: 1, zeroItemsWindowMs: 60_000 });
    for (const [item, { state, changeId }] of accepted.entries()) {
      const version = this.#version() - 1 + item;
      this.#handed[item] = version;
      const nowMs = this.#out.clock.nowMs();
      const word = { qty: 0, asOfSeq: this.#seq(), version, atMs: nowMs, handedMs: nowMs };
      this.#held[item] = state === 'held' ? { ...word, changeId } : null;
      if (state !== 'held') this.#words[item] = word;
    }
    this.steps.push(`zeros ${accepted.map(({ state }) => state)}`);
  }

  #decide(): void {
    for (const [item, held] of this.#held.entries()) {
      this.#held[item] = null;
      if (held && this.#below(2)) {
        this.#out.admin.discard(held.changeId);
      } else if (held) {
        this.#out.admin.release({ changeId: held.changeId });
        this.#words[item] = held;
      }
      if (held)
        this.steps.push(`decide about ${ITEMS[item]}: ${this.#words[item] === held ? 'release' : 'drop'}`);
    }
  }

  #records(qtys: readonly number[]) {
    return ITEMS.slice(0, this.#isListed ? 2 : 1).map((id, item) => {
      return product(`p${id}`, `${this.#word} of ${id}`, [
        { sku: `1${item}`, stocks: { s1: [id ?? '', qtys[item] ?? 0] } },
      ]);
    });
  }

  #seq(): number {
    const newest = this.#out.db.prepare<[], number>('SELECT coalesce(max(seq), 0) FROM order_events').pluck();
    return newest.get() ?? 0;
  }

  /** Beginning of the names of products. */
  get #word(): string {
    return this.#isRenamed ? 'New name' : 'Name';
  }

  #version(): number {
    const newest = this.#out.db
      .prepare<[], number>("SELECT value FROM marks WHERE name = 'outbox.version'")
      .pluck();
    return newest.get() ?? 0;
  }

  #below(count: number): number {
    return Math.floor(this.#random.next() * count);
  }
}

/**
 * Whether an order's events are invisible. Events before tillsync knows an order show only in the platform's stock, and
 * those of an oversold order not even there.
 */
function isUntold({ heard, isOversold }: ModelOrder): boolean {
  return heard === null && isOversold;
}

/** Returns how many pieces of an item the lines have. */
function sumOf(lines: ModelOrder['lines'], item: number): number {
  return lines.reduce((sum, line) => (line.item === item ? sum + line.qty : sum), 0);
}

/** Returns what was told of an order with its lines in one order, whatever their numbers. */
function sorted(told: string): string {
  if (told === '') return '';
  const [store, lines] = JSON.parse(told) as [string, string[]];
  return JSON.stringify([store, lines.toSorted()]);
}

/**
 * Returns the numbers of the lines that stay unbooked: of the same lines, an acknowledgement only adds. Undefined if all
 * are booked already.
 */
function leftOutOf(
  { ack, linesSeq, numbersSeq }: ModelOrder,
  given: readonly number[],
): readonly number[] | undefined {
  if (given.length === 0 || ack === null) return given;
  const { seq, without } = ack;
  if (without === null) return seq >= linesSeq ? undefined : given;
  return seq < numbersSeq ? given : given.filter((line) => without.includes(line));
}
