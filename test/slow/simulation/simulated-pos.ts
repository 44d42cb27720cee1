import path from 'node:path';
import Database from 'better-sqlite3';
import { isoUtc, type Random } from '../../../src/core/time.ts';
import type { MirroredOrder } from '../../../src/orders/merging/mirrored-order.ts';
import { isPricedByPos, nameOf, type Shelf, shelvesOf } from './shelf.ts';
import { untilOpenMs } from './shop.ts';
import type { SimulatedStore } from './simulated-store.ts';

const MINUTE_MS = 60_000;
const CUSTOMER_EVERY_MS = 6_000;
const READ_SHARE = 0.7;
const CANCELLED: readonly (string | null)[] = ['cancel', 'payment-canceled', 'refund'];

interface FeedEvent {
  seq: number;
  orderId: string;
  status: string | null;
  order: MirroredOrder | null;
}

/** A POS that books online orders, sells over the counter, counts, sets prices, and submits its values. */
export class SimulatedPos {
  /** Events that the POS has read, by number. */
  readonly events = new Map<number, string>();
  /** A sentence for each thing that must never happen, such as an event that arrives twice. */
  readonly faults: string[] = [];
  readonly #store: SimulatedStore;
  readonly #random: Random;
  readonly #shelves: readonly Shelf[];
  readonly #prices = new Map<number, number>();
  readonly #orders = new Map<string, 'booked' | 'cancelled'>();
  readonly #said = new Set<Shelf>();
  #saidLast: readonly Shelf[] = [];
  readonly #unsaid = new Set<Shelf>();
  readonly #unsaidPrices = new Set<number>();
  #unacknowledged: string[] = [];
  #visiting = Promise.resolve();
  #seq = 0;

  constructor(store: SimulatedStore, random: Random) {
    this.#store = store;
    this.#random = random;
    const products = store.sandbox.control.products();
    this.#shelves = shelvesOf(products);
    for (const { sku, price } of products.flatMap(({ children }) => children)) {
      if (isPricedByPos(sku)) this.#prices.set(sku, price);
    }
  }

  async trade(signal: AbortSignal): Promise<void> {
    const { world } = this.#store;
    while (!signal.aborted) {
      await world.sleep(untilOpenMs(world.nowMs()), signal);
      await world.sleep((2 + 25 * this.#random.next()) * MINUTE_MS, signal);
      if (signal.aborted) return;
      this.#sell();
      await this.visit();
      await this.#queue(signal);
      if (signal.aborted) return;
      await this.#mistype(signal);
    }
  }

  /** Sells to customers in quick succession, and corrects prices, until the signal. */
  async rush(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#queue(signal);
      await this.#mistype(signal);
      await this.#store.world.sleep((10 + 30 * this.#random.next()) * 1_000, signal);
    }
  }

  /** Lets several customers buy or return the same product while its first count is on its way. */
  async #queue(signal: AbortSignal): Promise<void> {
    const shelf = this.#shelves[Math.floor(this.#random.next() * this.#shelves.length)];
    let sold = 0;
    while (shelf && shelf.qty > 0 && this.#random.next() < 0.7) {
      const change = sold > 0 && this.#random.next() < 0.5 ? 1 : -1;
      shelf.qty += change;
      sold -= change;
      this.#unsaid.add(shelf);
      await this.visit();
      await this.#store.world.sleep(this.#random.next() * CUSTOMER_EVERY_MS, signal);
      if (signal.aborted) return;
    }
  }

  /** Submits a wrong price and, some seconds later, the right one. */
  async #mistype(signal: AbortSignal): Promise<void> {
    if (this.#random.next() > 0.2) return;
    const skus = [...this.#prices.keys()];
    const sku = skus[Math.floor(this.#random.next() * skus.length)];
    const price = this.#prices.get(sku ?? 0);
    if (sku === undefined || price === undefined) return;
    for (const each of [price + 100, price]) {
      this.#prices.set(sku, each);
      this.#unsaidPrices.add(sku);
      await this.visit();
      await this.#store.world.sleep(this.#random.next() * CUSTOMER_EVERY_MS, signal);
    }
  }

  /** Undoes the last submission of counts: sets these stocks back to their counts before it, and submits those. */
  takeBack(): Promise<void> {
    for (const shelf of this.#saidLast) {
      shelf.qty = shelf.saidBefore;
      this.#unsaid.add(shelf);
    }
    return this.visit();
  }

  /**
   * Usually reads the feed, then submits what is not submitted yet. Visits run one after the other; what fails is
   * submitted at the next visit.
   */
  visit({ readShare = READ_SHARE } = {}): Promise<void> {
    this.#visiting = this.#visiting.then(() => this.#visit(readShare));
    return this.#visiting;
  }

  async #visit(readShare: number): Promise<void> {
    const { daemon, profile } = this.#store;
    try {
      // A till does not always know the latest online orders when it counts.
      if (daemon && this.#random.next() < readShare) await this.#read();
      if (profile.bySql) this.#sayBySql();
      else if (daemon) await this.#sayByHttp();
    } catch (error) {
      if (error instanceof PosFault) this.faults.push(error.message);
    }
  }

  /** Whether the POS has read all events and submitted all values. */
  isUpToDate(newestSeq: number): boolean {
    const unsaid = this.#unsaid.size + this.#unsaidPrices.size + this.#unacknowledged.length;
    return unsaid === 0 && this.#seq === newestSeq;
  }

  /** Returns a sentence for each of the POS's values that the platform does not have. */
  unheard(): string[] {
    const { control } = this.#store.sandbox;
    const stocks = [...this.#said].flatMap(({ sku, subsidiaryId, qty }) => {
      const there = control.stockOf(sku, subsidiaryId);
      return there === qty ? [] : [`stock of ${sku} in ${subsidiaryId} is ${there}, the POS says ${qty}`];
    });
    const prices = control
      .products()
      .flatMap(({ children }) => children)
      .flatMap(({ sku, price }) => {
        const wanted = this.#prices.get(sku);
        return wanted === undefined || wanted === price
          ? []
          : [`price of ${sku} is ${price}, the POS says ${wanted}`];
      });
    const unsaid = this.#unsaid.size + this.#unsaidPrices.size + this.#unacknowledged.length;
    return [...stocks, ...prices, ...(unsaid > 0 ? [`${unsaid} words could not be handed over`] : [])];
  }

  get words(): number {
    return this.#said.size;
  }

  #sell(): void {
    for (let times = 1 + Math.floor(this.#random.next() * 4); times > 0; times--) {
      const shelf = this.#shelves[Math.floor(this.#random.next() * this.#shelves.length)];
      if (!shelf) return;
      // Now and then a product sells out, because tillsync sends zeros before other changes; new pieces follow later.
      const chance = this.#random.next();
      shelf.qty = chance < 0.03 ? 0 : shelf.qty < 4 ? shelf.qty + 40 : shelf.qty - (chance < 0.8 ? 1 : 0);
      this.#unsaid.add(shelf);
    }
    const skus = [...this.#prices.keys()];
    const sku = skus[Math.floor(this.#random.next() * skus.length)];
    if (sku === undefined || this.#random.next() > 0.3) return;
    this.#prices.set(sku, 1_000 + 50 * Math.floor(this.#random.next() * 100));
    this.#unsaidPrices.add(sku);
  }

  async #read(): Promise<void> {
    for (;;) {
      const { events, next } = await this.#get<{ events: FeedEvent[]; next: number }>(
        `/v1/orders?after=${this.#seq}&limit=200`,
      );
      for (const event of events) this.#hear(event);
      if (next < this.#seq) throw new PosFault(`the feed went back from ${this.#seq} to ${next}`);
      this.#seq = next;
      if (events.length < 200) return;
    }
  }

  #hear({ seq, orderId, status, order }: FeedEvent): void {
    if (seq <= this.#seq || this.events.has(seq)) this.faults.push(`event ${seq} came twice`);
    this.events.set(seq, `${orderId} ${status}`);
    if (!order) return;
    const known = this.#orders.get(orderId);
    const state = CANCELLED.includes(order.status) ? 'cancelled' : 'booked';
    if (known === state) return;
    this.#orders.set(orderId, state);
    const sign = state === 'booked' ? -1 : known === 'booked' ? 1 : 0;
    for (const { productExternalId, productName, quantity } of order.items) {
      const shelf = this.#shelves.find(
        (each) =>
          each.store === order.storeExternalId &&
          (productExternalId === null ? each.name === productName : each.externalId === productExternalId),
      );
      if (!shelf) continue;
      // With hold-back, tillsync itself offers the pieces of a cancelled order again if the last count is newer than
      // the order. So no new count is needed.
      const isGivenBack = this.#store.profile.holdBack && shelf.saidAtMs > Date.parse(order.createdAt ?? '');
      if (sign === 0 && isGivenBack) continue;
      shelf.qty = Math.max(0, shelf.qty + sign * Number(quantity));
      this.#unsaid.add(shelf);
    }
    if (!this.#unacknowledged.includes(orderId)) this.#unacknowledged.push(orderId);
  }

  /** Submits the counts first, then acknowledges the orders they include. */
  async #sayByHttp(): Promise<void> {
    const shelves = [...this.#unsaid];
    if (shelves.length > 0) {
      await this.#post(
        '/v1/stock',
        shelves.map(({ qty, subsidiaryId, ...shelf }) => ({ ...nameOf(shelf), qty, subsidiaryId })),
      );
      this.#heard(shelves);
    }
    const skus = [...this.#unsaidPrices];
    if (skus.length > 0) {
      await this.#post(
        '/v1/products',
        skus.map((sku) => ({ sku, price: this.#prices.get(sku) })),
      );
      for (const sku of skus) this.#unsaidPrices.delete(sku);
    }
    if (this.#unacknowledged.length > 0) {
      await this.#post('/v1/orders/ack', this.#unacknowledged);
      this.#unacknowledged = [];
    }
  }

  #sayBySql(): void {
    if (this.#unsaid.size + this.#unsaidPrices.size + this.#unacknowledged.length === 0) return;
    const db = new Database(path.join(this.#store.directory, 'inbox', 'inbox.db'), { timeout: 0 });
    const shelves = [...this.#unsaid];
    try {
      const stock = db.prepare(
        'INSERT INTO stock_changes (external_id, sku, qty, subsidiary_id, inserted_at) VALUES (?, ?, ?, ?, ?)',
      );
      const price = db.prepare('INSERT INTO product_changes (sku, price, inserted_at) VALUES (?, ?, ?)');
      const ack = db.prepare('INSERT INTO order_acks (order_id, inserted_at) VALUES (?, ?)');
      // The simulated time, because SQLite would insert the real time.
      const at = isoUtc(this.#store.clock.nowMs());
      db.transaction(() => {
        for (const { externalId, sku, bySku, qty, subsidiaryId } of shelves) {
          stock.run(bySku ? null : externalId, bySku ? sku : null, qty, subsidiaryId, at);
        }
        for (const sku of this.#unsaidPrices) price.run(sku, this.#prices.get(sku), at);
        for (const orderId of this.#unacknowledged) ack.run(orderId, at);
      })();
    } finally {
      db.close();
    }
    this.#heard(shelves);
    this.#unsaidPrices.clear();
    this.#unacknowledged = [];
  }

  #heard(shelves: readonly Shelf[]): void {
    if (shelves.length > 0) this.#saidLast = shelves;
    for (const shelf of shelves) {
      shelf.saidBefore = shelf.said;
      shelf.said = shelf.qty;
      shelf.saidAtMs = this.#store.world.nowMs();
      this.#said.add(shelf);
      this.#unsaid.delete(shelf);
    }
  }

  async #get<T>(route: string): Promise<T> {
    const { status, text } = await this.#store.stillness.call(this.#url(route));
    if (status !== 200) throw new Error(`${route} answered ${status}`);
    return JSON.parse(text) as T;
  }

  async #post(route: string, body: unknown): Promise<void> {
    const { status, text } = await this.#store.stillness.call(this.#url(route), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (status === 200) return;
    if (status === 503) throw new Error(`${route} answered 503`);
    throw new PosFault(`${route} answered ${status}: ${text.slice(0, 500)}`);
  }

  #url(route: string): string {
    const { daemon } = this.#store;
    if (!daemon) throw new Error('connection refused');
    return daemon.localUrl + route;
  }
}

class PosFault extends Error {}
