import path from 'node:path';
import Database from 'better-sqlite3';
import { request } from 'undici';
import { systemClock } from '../../../src/core/system-clock.ts';
import type { Random } from '../../../src/core/time.ts';
import type { SandboxControl } from '../../../src/sandbox/control.ts';

/** Statuses that an order passes through, never backwards, so that every notification is applied on arrival. */
const LIFE = ['payment-approved', 'picker-pending', 'inProcess', 'ready', 'dispatched'];
/**
 * The busiest store gets 600 orders an hour with six notifications each, so one notification a second. The test sends
 * ten times as many steadily, and as many again in bursts.
 */
const STEADY_EVERY_MS = 100;
const BURST_EVERY_MS = 20_000;
/**
 * Start of the first burst. The bursts do not coincide with submissions of stock, which keep this process from sending
 * callbacks for a moment.
 */
const FIRST_BURST_MS = 10_000;
const BURST = 200;
const HAND_OVER_EVERY_MS = 60_000;
export const HAND_OVER_ITEMS = 5_000;

export interface BusyStoreOptions {
  control: SandboxControl;
  random: Random;
  localUrl: string;
  storage: string;
}

interface Shelf {
  sku: number;
  externalId: string;
  subsidiaryId: string;
}

/** Makes orders and changes at ten times the rate of the busiest store, and submits counts of all stock each minute. */
export class BusyStore {
  readonly #o: BusyStoreOptions;
  readonly #shelves: Shelf[];
  readonly #ordered: number[];
  readonly #open = new Map<string, number>();
  /** The newest count of each shelf. */
  readonly #counted = new Map<Shelf, number>();
  handOvers = 0;

  constructor(options: BusyStoreOptions) {
    this.#o = options;
    const skus = options.control.products().flatMap(({ children }) => children);
    this.#shelves = skus
      .flatMap(({ sku, stocks, integrations }) =>
        integrations.flatMap(({ subsidiaryId, extId, productIdPosA, productCodePosB }) => {
          const externalId = extId ?? productIdPosA ?? productCodePosB;
          const isStocked = stocks.some((stock) => stock.subsidiaryId === subsidiaryId);
          return externalId && isStocked ? [{ sku, externalId, subsidiaryId }] : [];
        }),
      )
      .slice(0, HAND_OVER_ITEMS);
    // Orders only products that the POS never counts, because tillsync would hold back ordered pieces from the counts.
    this.#ordered = skus.filter(({ integrations }) => integrations.length === 0).map(({ sku }) => sku);
    if (this.#shelves.length < HAND_OVER_ITEMS || this.#ordered.length < 20) {
      throw new Error(`The sandbox has ${this.#shelves.length} shelves and ${this.#ordered.length} others.`);
    }
  }

  /** Runs until the signal; resolves when the last submission was answered. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([
      repeat(STEADY_EVERY_MS, signal, () => this.#step()),
      repeat(BURST_EVERY_MS, signal, () => this.#burst(), FIRST_BURST_MS),
      repeat(HAND_OVER_EVERY_MS, signal, () => this.#handOver()),
    ]);
  }

  /** Returns the shelves whose quantity on the platform is not the last count. */
  wrongShelves(): string[] {
    return [...this.#counted].flatMap(([{ sku, subsidiaryId, externalId }, qty]) => {
      const there = this.#o.control.stockOf(sku, subsidiaryId);
      return there === qty
        ? []
        : [`${externalId} in ${subsidiaryId}: counted ${qty}, the platform has ${there}`];
    });
  }

  #burst(): void {
    for (let n = 0; n < BURST; n++) this.#step();
  }

  #step(): void {
    const { control, random } = this.#o;
    const open = [...this.#open.keys()];
    if (open.length < 20 || random.next() < 1 / 6) {
      const sku = this.#ordered[Math.floor(random.next() * this.#ordered.length)] ?? 0;
      const { internalOrderId } = control.createOrder({ status: 'pending', items: [{ sku, qty: 1 }] });
      this.#open.set(internalOrderId, 0);
      return;
    }
    const orderId = open[Math.floor(random.next() * open.length)] ?? '';
    const step = this.#open.get(orderId) ?? 0;
    control.advanceOrder(orderId, LIFE[step]);
    if (step + 1 < LIFE.length) this.#open.set(orderId, step + 1);
    else this.#open.delete(orderId);
  }

  /** Submits a count of every shelf, half of them by HTTP and half by SQL. */
  async #handOver(): Promise<void> {
    this.handOvers += 1;
    const counts = this.#shelves.map((shelf) => {
      const qty = 1 + Math.floor(this.#o.random.next() * 500);
      this.#counted.set(shelf, qty);
      return { externalId: shelf.externalId, subsidiaryId: shelf.subsidiaryId, qty };
    });
    const half = counts.length / 2;
    this.#insert(counts.slice(half));
    const { statusCode, body } = await request(`${this.#o.localUrl}/v1/stock`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(counts.slice(0, half)),
    });
    const answer = await body.text();
    if (statusCode !== 200)
      throw new Error(`The counts were answered with ${statusCode}: ${answer.slice(0, 300)}`);
  }

  #insert(counts: readonly { externalId: string; subsidiaryId: string; qty: number }[]): void {
    const db = new Database(path.join(this.#o.storage, 'inbox/inbox.db'), { timeout: 5_000 });
    try {
      const insert = db.prepare(
        'INSERT INTO stock_changes (external_id, subsidiary_id, qty) VALUES (?, ?, ?)',
      );
      db.transaction(() => {
        for (const { externalId, subsidiaryId, qty } of counts) insert.run(externalId, subsidiaryId, qty);
      }).immediate();
    } finally {
      db.close();
    }
  }
}

/** Repeats `act` at a constant rate: after a late repetition, the next one comes sooner. */
async function repeat(
  everyMs: number,
  signal: AbortSignal,
  act: () => void | Promise<void>,
  firstMs = 0,
): Promise<void> {
  for (let dueMs = performance.now() + firstMs; !signal.aborted; dueMs += everyMs) {
    await systemClock.sleep(Math.max(0, dueMs - performance.now()), signal);
    if (!signal.aborted) await act();
  }
}
