import { asTillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { findWalReaders } from '../db/wal.ts';
import type { NewOrder, OrderSnapshot } from '../sandbox/orders.ts';
import { type Article, articlesOf, OTHER, OWN } from './articles.ts';
import { Readers } from './mirror-readers.ts';
import type { Place } from './place.ts';
import type { Till } from './till.ts';

/** Longest wait until the till acknowledges the order that `fence` makes. */
const FENCE_MS = 30_000;
/** Replaces `FENCE_MS` once the till did not acknowledge in time, so that a stuck till is judged quickly. */
const LOST_MS = 3_000;
/** Longest wait for a count after the last acknowledgement, because a till may hand a count over later. */
const FOLLOWS_MS = 5_000;
/** Longest wait until the platform has sent all callbacks. */
const SENT_MS = 5_000;
const LOOK_MS = 40;
const READERS_EVERY_MS = 500;

/** Whether two quantities are equal but for the last digits of a sum of fractions. */
function isSame(one: number | undefined, other: number): boolean {
  return one !== undefined && Math.abs(one - other) < 1e-6;
}

/** Thrown if the till failed a behaviour. The message says what the till did. */
export class Failing extends Error {}

/** Thrown if the kit cannot judge a behaviour of this till. The message says why. */
export class Unjudged extends Error {}

export interface Ack {
  orderId: string;
  ackedAt: string;
  seq: number | null;
  editedSeq: number | null;
}

/** A count that the till handed over. */
export interface Count {
  qty: number;
  /** Time at which tillsync accepted it. */
  at: string;
}

/** The tools of a behaviour, which make orders, control the till, and read what the till handed over. */
export class Stage {
  readonly place: Place;
  /** The till's process; undefined if a person started the till. */
  readonly till: Till | undefined;
  readonly signal: AbortSignal;
  /** Records the longest time for which a program kept a read of the mirror open; checked every `READERS_EVERY_MS`. */
  readonly readers = new Readers();
  /** Id of the behaviour in which the till stopped acknowledging; undefined if it did not. */
  lostIn: number | undefined;
  /** Id of the running behaviour. */
  playing = 0;
  /** Whether the till has acknowledged an order. */
  hasAcknowledged = false;
  #firstPatienceMs: number;

  constructor(place: Place, till: Till | undefined, signal: AbortSignal, firstPatienceMs: number) {
    this.place = place;
    this.till = till;
    this.signal = signal;
    this.#firstPatienceMs = firstPatienceMs;
  }

  get clock(): Clock {
    return this.place.clock;
  }

  get control(): Place['sandbox']['control'] {
    return this.place.sandbox.control;
  }

  /** Makes a paid order of one article in the till's branch. `wish` overrides parts of it. */
  order({ sku }: Article, qty: number, wish: NewOrder = {}, how: { hidden?: boolean } = {}): OrderSnapshot {
    const usual = { subsidiaryId: OWN.subsidiaryId, status: 'payment-approved', isScheduled: false };
    return this.control.createOrder({ ...usual, items: [{ sku, qty }], ...wish }, how);
  }

  /** Changes the status of an order, and lets the platform send a callback. */
  move(orderId: string, status: string): void {
    this.control.advanceOrder(orderId, status);
  }

  /** Changes fields of an order, and lets the platform send a callback. */
  edit(orderId: string, patch: Partial<OrderSnapshot>): void {
    this.control.changeOrder(orderId, patch);
    void this.control.announceOrder(orderId);
  }

  /**
   * Makes one more order and waits until the till has acknowledged it. The till has then processed all earlier orders,
   * because the callbacks of earlier orders are sent before.
   */
  async fence(patienceMs = FENCE_MS): Promise<void> {
    await Promise.race([this.control.settled(), this.pause(SENT_MS)]);
    const [article] = articlesOf(0) as [Article];
    const { internalOrderId, code } = this.order(article, 1);
    const limitMs = this.lostIn === undefined ? Math.max(patienceMs, this.#firstPatienceMs) : LOST_MS;
    const isThrough = await this.until(() => this.acks(internalOrderId).length > 0, limitMs);
    if (isThrough) {
      this.#firstPatienceMs = 0;
      this.hasAcknowledged = true;
      this.lostIn = undefined;
      return;
    }
    const broken = this.till?.broken;
    if (broken !== undefined) throw new Failing(broken);
    this.lostIn ??= this.playing;
    if (this.lostIn !== this.playing)
      throw new Unjudged(
        `The till has acknowledged nothing since behaviour ${this.lostIn}. Mend that one first.`,
      );
    throw new Failing(
      `The order made last (number ${code}) was not acknowledged within ${limitMs / 1000} s.`,
    );
  }

  /**
   * Waits until the till has handed over the counts of all earlier sales, even if it hands over with an order only. A
   * till may handle the first order in a turn that read the sales too early, so there is a second one.
   */
  async fenceSales(): Promise<void> {
    await this.fence();
    await this.fence();
  }

  /**
   * Waits until `holds` returns true, and returns false if it did not within `limitMs`. Ends at once if the till's
   * command is broken.
   */
  async until(holds: () => boolean, limitMs = FOLLOWS_MS): Promise<boolean> {
    const endMs = this.clock.monotonicMs() + limitMs;
    for (;;) {
      if (holds()) return true;
      if (this.signal.aborted || this.clock.monotonicMs() > endMs || this.till?.broken !== undefined)
        return false;
      await this.clock.sleep(LOOK_MS, this.signal);
    }
  }

  async pause(ms: number): Promise<void> {
    await this.clock.sleep(ms, this.signal);
  }

  /** Whether the mirror has the order with this status. */
  mirrored(orderId: string, status: string): boolean {
    const sql = 'SELECT 1 FROM orders WHERE order_id = ? AND status = ?';
    return this.place.rows(sql, orderId, status).length > 0;
  }

  /** Returns the acknowledgements of a whole order by the till's branch. */
  acks(orderId: string): Ack[] {
    const sql = `SELECT order_id AS orderId, acked_at AS ackedAt, seq, edited_seq AS editedSeq
      FROM order_acks WHERE order_id = ? AND branch IN ('', ?) AND without IS NULL`;
    return this.place.rows<Ack>(sql, orderId, OWN.externalId);
  }

  /**
   * Returns the counts of an article that the till handed over, newest first. Counts that were replaced while they
   * waited are missing.
   */
  counts({ sku }: Article, shop = OWN): Count[] {
    const sql = `SELECT json_extract(body, '$.qty') AS qty, created_at AS at FROM _outbox
      WHERE kind = 'stock' AND sku = ? AND subsidiary_id = ? AND source <> 'hold-back' ORDER BY version DESC`;
    return this.place.rows<Count>(sql, String(sku), shop.subsidiaryId);
  }

  /** Returns the newest count of an article; undefined if the till handed over none. */
  count(article: Article): number | undefined {
    return this.counts(article)[0]?.qty;
  }

  /** Returns how many counts of an article the till handed over, including those that newer counts replaced. */
  handOvers({ sku }: Article): number {
    const sql = `SELECT total(1 + replaced) AS n FROM _outbox
      WHERE kind = 'stock' AND sku = ? AND source <> 'hold-back' AND state <> 'superseded'`;
    return this.place.rows<{ n: number }>(sql, String(sku))[0]?.n ?? 0;
  }

  /**
   * Waits until the newest count of an article is `qty`, and returns a sentence that says so. Throws `Failing` if it is
   * not.
   */
  counted(article: Article, qty: number, what: string): Promise<string> {
    return this.#counted(article, qty, what, () => isSame(this.count(article), qty));
  }

  /**
   * Waits until the newest count of an article is `qty` or less, and returns a sentence that says so. Throws `Failing`
   * if it is more, so that a till that books an order twice fails behaviour 2 alone.
   */
  countedDown(article: Article, qty: number, what: string): Promise<string> {
    return this.#counted(article, qty, what, () => (this.count(article) ?? article.qty) <= qty);
  }

  async #counted(article: Article, qty: number, what: string, isRight: () => boolean): Promise<string> {
    await this.until(isRight);
    const found = this.count(article);
    if (isRight()) return `${what}: counted ${found}.`;
    const seen = found === undefined ? 'no count came' : `the last count was ${found}`;
    throw new Failing(`${what}: ${seen}, right is ${qty}.`);
  }

  /** Returns a sentence that says that every count was `qty`. Throws `Failing` if one was not. */
  stays(article: Article, qty: number, what: string): string {
    const other = this.counts(article).find((count) => !isSame(count.qty, qty));
    if (!other) return `${what}: the count stayed ${qty}.`;
    throw new Failing(`${what}: ${other.qty} was handed over, right is ${qty}.`);
  }

  acknowledged(orders: readonly OrderSnapshot[], what: string): string {
    const missing = orders.filter(({ internalOrderId }) => this.acks(internalOrderId).length === 0);
    if (missing.length === 0) return `${what}: ${orders.length} of ${orders.length} acknowledged.`;
    const [first] = missing;
    throw new Failing(
      `${what}: ${missing.length} of ${orders.length} not acknowledged, the first is number ${first?.code}.`,
    );
  }

  unacknowledged({ internalOrderId, code }: OrderSnapshot, what: string): void {
    if (this.acks(internalOrderId).length > 0) throw new Failing(`${what}: order ${code} was acknowledged.`);
  }

  /** Returns counts of the other branch, which the till handed over by mistake. */
  strayCounts(article: Article): Count[] {
    return this.counts(article, OTHER);
  }

  /** Returns the till's process, which the behaviour will stop. Throws `Unjudged` if a person started the till. */
  requireCommand(): Till {
    if (this.till) return this.till;
    throw new Unjudged('The kit has to stop and start the till for this: give its command behind --.');
  }

  requireReport(): string[][] {
    const lines = this.place.report();
    if (lines.length > 0) return lines;
    throw new Unjudged('The till writes no report (TILL_REPORT).');
  }

  /** Checks every `READERS_EVERY_MS` which programs read the mirror, until the signal is aborted. */
  async watchReaders(): Promise<void> {
    while (!this.signal.aborted) {
      try {
        this.readers.look(findWalReaders(this.place.mirrorFile), READERS_EVERY_MS);
      } catch (error) {
        // A process may end while it is being checked; if every check fails, behaviour 23 is not judged.
        this.readers.fault = asTillsyncError(error).message;
      }
      await this.clock.sleep(READERS_EVERY_MS, this.signal);
    }
  }
}
