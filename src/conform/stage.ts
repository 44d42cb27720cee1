import { asTillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { findWalReaders } from '../db/wal.ts';
import type { NewOrder, OrderSnapshot } from '../sandbox/orders.ts';
import { type Article, articlesOf, OTHER, OWN } from './articles.ts';
import type { Place } from './place.ts';
import type { Till } from './till.ts';

/** Until the till has acknowledged the order made last. */
const FENCE_MS = 30_000;
/** The same once a fence was in vain, so that a till that is stuck gets its verdicts soon. */
const LOST_MS = 3_000;
/** Until a count follows that may come after the fence, because nothing has to be acknowledged with it. */
const FOLLOWS_MS = 5_000;
const LOOK_MS = 40;
const READERS_EVERY_MS = 500;

/** What the till did instead of what a behaviour asks; the message is what was seen. */
export class Failing extends Error {}

/** What the kit cannot judge of this till; the message says why. */
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
  /** When tillsync took it in. */
  at: string;
}

/** Gives a behaviour its means: orders, the till, and the values that the till has handed over. */
export class Stage {
  readonly place: Place;
  /** undefined if a person started the till. */
  readonly till: Till | undefined;
  readonly signal: AbortSignal;
  /** Records the longest time for which a program kept a read of the mirror open, checked every `READERS_EVERY_MS`. */
  readonly readers = new Readers();
  /** The behaviour in which the till stopped to acknowledge. */
  lostIn: number | undefined;
  /** The behaviour that is played. */
  playing = 0;
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

  /** A paid order of one article in the till's branch, unless `wish` says otherwise. */
  order({ sku }: Article, qty: number, wish: NewOrder = {}, how: { hidden?: boolean } = {}): OrderSnapshot {
    const usual = { subsidiaryId: OWN.subsidiaryId, status: 'payment-approved', isScheduled: false };
    return this.control.createOrder({ ...usual, items: [{ sku, qty }], ...wish }, how);
  }

  /** Moves an order on, and has the platform tell it. */
  move(orderId: string, status: string): void {
    this.control.advanceOrder(orderId, status);
  }

  /** Edits an order, and has the platform tell it. */
  edit(orderId: string, patch: Partial<OrderSnapshot>): void {
    this.control.changeOrder(orderId, patch);
    void this.control.announceOrder(orderId);
  }

  /**
   * Makes one more order and waits until the till has acknowledged it, since the till has then processed all earlier
   * orders.
   */
  async fence(patienceMs = FENCE_MS): Promise<void> {
    const [article] = articlesOf(0) as [Article];
    const { internalOrderId, code } = this.order(article, 1);
    const limitMs = this.lostIn === undefined ? Math.max(patienceMs, this.#firstPatienceMs) : LOST_MS;
    const isThrough = await this.until(() => this.acks(internalOrderId).length > 0, limitMs);
    if (isThrough) {
      this.#firstPatienceMs = 0;
      this.lostIn = undefined;
      return;
    }
    const broken = this.till?.broken;
    if (broken !== undefined) throw new Failing(broken);
    const stuck =
      this.lostIn === undefined || this.lostIn === this.playing
        ? ''
        : ` It has acknowledged nothing since behaviour ${this.lostIn}.`;
    this.lostIn ??= this.playing;
    throw new Failing(
      `The order made last (number ${code}) was not acknowledged within ${limitMs / 1000} s.${stuck}`,
    );
  }

  /** Waits until `holds`, for this long at most; false if it did not. A till that is broken is not waited for. */
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

  /** Acknowledgements of an order by the till's branch. */
  acks(orderId: string): Ack[] {
    const sql = `SELECT order_id AS orderId, acked_at AS ackedAt, seq, edited_seq AS editedSeq
      FROM order_acks WHERE order_id = ? AND branch IN ('', ?)`;
    return this.place.rows<Ack>(sql, orderId, OWN.externalId);
  }

  /** The counts of an article that the till handed over, newest first; those that were merged are left out. */
  counts({ sku }: Article, shop = OWN): Count[] {
    const sql = `SELECT json_extract(body, '$.qty') AS qty, created_at AS at FROM outbox
      WHERE kind = 'stock' AND sku = ? AND subsidiary_id = ? AND source <> 'hold-back' ORDER BY version DESC`;
    return this.place.rows<Count>(sql, String(sku), shop.subsidiaryId);
  }

  /** The newest count of an article; undefined if the till has handed over none. */
  count(article: Article): number | undefined {
    return this.counts(article)[0]?.qty;
  }

  /** How often the till handed over a count of an article. */
  handOvers({ sku }: Article): number {
    const sql = `SELECT total(1 + replaced) AS n FROM outbox
      WHERE kind = 'stock' AND sku = ? AND source <> 'hold-back' AND state <> 'superseded'`;
    return this.place.rows<{ n: number }>(sql, String(sku))[0]?.n ?? 0;
  }

  /** Judges that the newest count is this one, and gives the sentence of what was seen. */
  async counted(article: Article, qty: number, what: string): Promise<string> {
    await this.until(() => this.count(article) === qty);
    const found = this.count(article);
    if (found === qty) return `${what}: counted ${qty}.`;
    const seen = found === undefined ? 'no count came' : `the last count was ${found}`;
    throw new Failing(`${what}: ${seen}, right is ${qty}.`);
  }

  /** Judges that no count differs from this one. */
  stays(article: Article, qty: number, what: string): string {
    const other = this.counts(article).find((count) => count.qty !== qty);
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

  /** Counts of the other branch that the till handed over by mistake. */
  strayCounts(article: Article): Count[] {
    return this.counts(article, OTHER);
  }

  /** Kills the till, if the kit started it. */
  requireCommand(): Till {
    if (this.till) return this.till;
    throw new Unjudged('The kit has to stop and start the till for this: give its command behind --.');
  }

  requireReport(): string[][] {
    const lines = this.place.report();
    if (lines.length > 0) return lines;
    throw new Unjudged('The till writes no report (TILL_REPORT).');
  }

  /** Watches who reads the mirror, until the signal. */
  async watchReaders(): Promise<void> {
    while (!this.signal.aborted) {
      try {
        this.readers.look(findWalReaders(this.place.mirrorFile), READERS_EVERY_MS);
      } catch (error) {
        // A process that ends while it is looked at.
        if (asTillsyncError(error).code === 'internal' && this.signal.aborted) return;
      }
      await this.clock.sleep(READERS_EVERY_MS, this.signal);
    }
  }
}

/** How long each program was found in a read of the mirror without a break. */
export class Readers {
  longestMs = 0;
  longest = '';
  readonly #heldMs = new Map<number, number>();

  look(found: readonly { pid: number; program: string }[], everyMs: number): void {
    const pids = new Set(found.map(({ pid }) => pid));
    for (const pid of this.#heldMs.keys()) if (!pids.has(pid)) this.#heldMs.delete(pid);
    for (const { pid, program } of found) {
      const heldMs = this.#heldMs.has(pid) ? (this.#heldMs.get(pid) ?? 0) + everyMs : 0;
      this.#heldMs.set(pid, heldMs);
      if (heldMs <= this.longestMs) continue;
      this.longestMs = heldMs;
      this.longest = `${program || 'a program'} (process ${pid})`;
    }
  }
}
