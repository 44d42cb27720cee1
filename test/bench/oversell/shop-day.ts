import type { Random } from '../../../src/core/time.ts';
import { seededRandom } from '../../support/fake-clock.ts';

/** Parameters of a day, times in seconds. They are assumptions, which `--strategy` and a report's sweeps may change. */
export interface DaySettings {
  products: number;
  /** Number of customers a day, in the shop and online together. */
  customers: number;
  /** Share of the customers who order online. */
  onlineShare: number;
  /** Mean time until staff book an order in the POS and take its pieces from the shelf. */
  bookingS: number;
  /** Whether the store learns of an order by callback within seconds, or by the next poll. */
  hears: 'callback' | 'poll';
}

export const DAY: DaySettings = {
  products: 20,
  customers: 140,
  onlineShare: 0.5,
  bookingS: 600,
  hears: 'callback',
};

export const OPEN_S = 12 * 3_600;
/** Share of products of which only a few pieces are on the shelf in the morning, as with fresh goods. */
const SCARCE_SHARE = 0.6;
const SCARCE_MAX = 6;
const PLENTY_MAX = 30;
const BASKET_S = { min: 60, max: 480 };
const CALLBACK_S = { min: 0.2, max: 2 };
const POLL_EVERY_S = 120;
const TWO_PIECES_SHARE = 0.1;

/** A customer's wish; the same for every strategy. */
export interface Visit {
  atS: number;
  product: number;
  qty: number;
  isOnline: boolean;
  /** Time from the shelf to the till, for a customer in the shop. */
  basketS: number;
  /** Time from an order until the store learns of it. */
  hearingS: number;
  /** Time from when the store learns of the order until the order is booked. */
  bookingS: number;
}

export interface ShopDay {
  /** Stock on the shelf in the morning, by product. */
  stock: number[];
  /** Visits in the order of their times. */
  visits: Visit[];
}

/**
 * Returns the day with this number. Each day has its own stream of random numbers, so that all strategies get the same
 * customers.
 */
export function shopDay(settings: DaySettings, seed: number, day: number): ShopDay {
  const random = seededRandom(seed * 1_000_003 + day);
  const between = ({ min, max }: { min: number; max: number }) => min + random.next() * (max - min);
  const stock = Array.from({ length: settings.products }, () => {
    const isScarce = random.next() < SCARCE_SHARE;
    return isScarce ? 1 + below(random, SCARCE_MAX) : SCARCE_MAX + below(random, PLENTY_MAX - SCARCE_MAX);
  });
  const visits = Array.from({ length: settings.customers }, (): Visit => {
    const atS = random.next() * OPEN_S;
    const product = favourite(random, settings.products);
    const qty = random.next() < TWO_PIECES_SHARE ? 2 : 1;
    const isOnline = random.next() < settings.onlineShare;
    const basketS = between(BASKET_S);
    const callbackS = between(CALLBACK_S);
    const bookingS = exponential(random) * settings.bookingS;
    const nextPollS = Math.ceil(atS / POLL_EVERY_S) * POLL_EVERY_S - atS + callbackS;
    const hearingS = settings.hears === 'callback' ? callbackS : nextPollS;
    return { atS, product, qty, isOnline, basketS, hearingS, bookingS };
  });
  return { stock, visits: visits.sort((a, b) => a.atS - b.atS) };
}

/**
 * Draws from the exponential distribution of mean 1 by comparisons alone (von Neumann, 1951). A logarithm may differ in
 * its last bit between processors and versions of V8, and then the same seed would give other days.
 */
export function exponential(random: Random): number {
  for (let whole = 0; ; whole++) {
    const first = random.next();
    let [last, length] = [first, 1];
    for (let next = random.next(); next < last; next = random.next()) {
      last = next;
      length += 1;
    }
    if (length % 2 === 1) return whole + first;
  }
}

function below(random: Random, max: number): number {
  return Math.floor(random.next() * max);
}

/** Draws a product. A few products are far more popular than the others, so the n-th product has the weight 1/n. */
function favourite(random: Random, products: number): number {
  const weights = Array.from({ length: products }, (_, rank) => 1 / (rank + 1));
  const total = weights.reduce((sum, each) => sum + each, 0);
  let rest = random.next() * total;
  for (const [product, weight] of weights.entries()) {
    rest -= weight;
    if (rest < 0) return product;
  }
  return products - 1;
}
