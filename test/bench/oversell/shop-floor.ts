import type { ShopDay, Visit } from './shop-day.ts';
import type { HeardOrder } from './strategy.ts';

/** Figures of a day: `orders` and `calls` are numbers of orders and calls, the others are numbers of pieces. */
export interface DayOutcome {
  orders: number;
  sold: number;
  /** Pieces sold online that were not free at that time. */
  atsale: number;
  /** Pieces among `atsale` that were wrongly offered, because by the shop's knowledge they were not free. */
  outside: number;
  /** Pieces that were free when ordered, but sold over the counter before staff took them. Nothing prevents this. */
  conflict: number;
  /** Pieces that a customer wanted online and that were free, but were not offered. */
  lost: number;
  calls: number;
}

/** The platform, the POS's listeners and the time of a day; simulated, or a real daemon with its sandbox. */
export interface World {
  /** Seconds since the morning. */
  nowS(): number;
  at(atS: number, action: () => unknown): void;
  /** Returns the quantity that the platform offers. */
  offered(product: number): number;
  /** Lets the platform accept an order of this customer and subtract its pieces. Returns the order's id. */
  order(visit: Visit): string;
  heard(order: HeardOrder): unknown;
  posChanged(product: number): unknown;
  booked(order: HeardOrder): unknown;
}

/** The shortest time in which anybody in the shop learns of an order. */
const HEARD_AFTER_S = 0.2;

/**
 * The shelf, the POS's stock and what customers and staff do with both. It counts what is sold twice, and does not
 * depend on who sends quantities to the platform.
 */
export class ShopFloor {
  readonly outcome: DayOutcome = {
    orders: 0,
    sold: 0,
    atsale: 0,
    outside: 0,
    conflict: 0,
    lost: 0,
    calls: 0,
  };
  readonly #world: World;
  readonly #knownWithinS: number;
  readonly #shelf: number[];
  readonly #pos: number[];
  /** Pieces of each product that are ordered online and still on the shelf. */
  readonly #unpicked: number[];
  /** Pieces of each product in unbooked orders that somebody in the shop can know of. */
  readonly #knowable: number[];
  /**
   * For each product, the quantities that were right to offer by the shop's knowledge, each with the time from which it
   * was right.
   */
  readonly #known: { atS: number; qty: number }[][];

  /** A quantity that was right within the last `knownWithinS` may still be offered, because a call takes that long. */
  constructor({ stock }: ShopDay, world: World, knownWithinS: number) {
    this.#world = world;
    this.#knownWithinS = knownWithinS;
    this.#shelf = [...stock];
    this.#pos = [...stock];
    this.#unpicked = stock.map(() => 0);
    this.#knowable = stock.map(() => 0);
    this.#known = stock.map((qty) => [{ atS: 0, qty }]);
  }

  posStock(product: number): number {
    return this.#pos[product] ?? 0;
  }

  /** Returns the POS's stock less all orders that are not booked, also those that nobody has heard of. */
  freeByRecord(product: number): number {
    return this.posStock(product) - (this.#unpicked[product] ?? 0);
  }

  visit(visit: Visit): void {
    if (visit.isOnline) this.#orderOnline(visit);
    else this.#buyInShop(visit);
  }

  #buyInShop({ product, qty, basketS }: Visit): void {
    const taken = Math.min(qty, this.#shelf[product] ?? 0);
    if (taken === 0) return;
    add(this.#shelf, product, -taken);
    this.#world.at(this.#world.nowS() + basketS, () => this.#changePos(product, -taken));
  }

  #orderOnline(visit: Visit): void {
    const { product, qty, hearingS, bookingS } = visit;
    const { outcome } = this;
    const world = this.#world;
    const free = (this.#shelf[product] ?? 0) - (this.#unpicked[product] ?? 0);
    const offered = world.offered(product);
    if (offered < qty) {
      if (free >= qty) outcome.lost += qty;
      return;
    }
    const missing = Math.min(qty, Math.max(0, qty - Math.max(0, free)));
    const nowS = world.nowS();
    outcome.orders += 1;
    outcome.sold += qty;
    outcome.atsale += missing;
    outcome.outside += Math.min(missing, Math.max(0, offered - Math.max(0, this.#rightOf(product))));
    add(this.#unpicked, product, qty);
    const order: HeardOrder = { id: world.order(visit), product, qty, atS: nowS };
    world.at(nowS + HEARD_AFTER_S, () => {
      add(this.#knowable, product, qty);
      this.#learn(product);
    });
    world.at(nowS + hearingS, () => world.heard(order));
    world.at(nowS + hearingS + bookingS, () => this.#book(order, missing));
  }

  async #book(order: HeardOrder, missing: number): Promise<void> {
    const { product, qty } = order;
    const there = Math.min(qty, this.#shelf[product] ?? 0);
    // Pieces that were free when they were ordered and are missing now were sold over the counter in between.
    this.outcome.conflict += Math.max(0, qty - there - missing);
    add(this.#shelf, product, -there);
    add(this.#unpicked, product, -qty);
    add(this.#knowable, product, -qty);
    await this.#changePos(product, -qty);
    await this.#world.booked(order);
  }

  async #changePos(product: number, by: number): Promise<void> {
    this.#pos[product] = Math.max(0, this.posStock(product) + by);
    this.#learn(product);
    await this.#world.posChanged(product);
  }

  #learn(product: number): void {
    const qty = this.posStock(product) - (this.#knowable[product] ?? 0);
    this.#known[product]?.push({ atS: this.#world.nowS(), qty });
  }

  /** Returns the highest quantity that was right to offer within the time that a call needs. */
  #rightOf(product: number): number {
    const all = this.#known[product] ?? [];
    const fromS = this.#world.nowS() - this.#knownWithinS;
    let most = Number.NEGATIVE_INFINITY;
    for (let i = all.length - 1; i >= 0; i--) {
      const fact = all[i];
      if (!fact) break;
      most = Math.max(most, fact.qty);
      if (fact.atS < fromS) break;
    }
    return most;
  }
}

function add(counts: number[], product: number, by: number): void {
  counts[product] = (counts[product] ?? 0) + by;
}
