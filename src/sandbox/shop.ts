import type { Log } from '../domain/log.ts';
import type { Clock, Random } from '../domain/time/clock.ts';
import { Catalog } from './catalog.ts';
import { DEFAULT_BRANCHES, DEFAULT_PRODUCTS, type SeedOptions, seedProducts } from './catalog-seed.ts';
import { OrderBook } from './order-book.ts';
import { isOver } from './order-walk.ts';
import type { SandboxSettings } from './settings.ts';
import { WebhookDesk } from './webhook-config.ts';
import { WebhookSender } from './webhook-sender.ts';
import type { WebhookTransport } from './webhook-transport.ts';

const SEED_ORDER_SPACING_MS = 7 * 60_000;
const SEED_STEPS_MAX = 12;

export interface ShopOptions {
  clock: Clock;
  random: Random;
  settings: SandboxSettings;
  company: string;
  seed: SeedOptions;
  transport: WebhookTransport;
  log: Log;
  closing: AbortSignal;
}

/** Everything of one company: catalogue, orders, webhook. The token says whose it is. */
export class Shop {
  readonly company: string;
  readonly catalog: Catalog;
  readonly orders: OrderBook;
  readonly desk: WebhookDesk;
  readonly sender: WebhookSender;

  constructor(options: ShopOptions) {
    const { clock, random, settings, company, seed } = options;
    const nowMs = clock.nowMs() + settings.clockSkewMs;
    const branches = seed.branches ?? DEFAULT_BRANCHES;
    const products = seedProducts(seed.random ?? random, branches, seed.products ?? DEFAULT_PRODUCTS, nowMs);
    this.company = company;
    this.catalog = new Catalog({ branches, products });
    this.desk = new WebhookDesk(settings);
    this.sender = new WebhookSender({ ...options, desk: this.desk });
    this.orders = new OrderBook({
      clock,
      random,
      settings,
      company,
      catalog: this.catalog,
      onStatus: (order) => this.sender.announce(order.snapshot),
      onHidden: (orderId) => this.sender.hide(orderId),
    });
    this.#seedOrders(seed.orders ?? 0, nowMs);
  }

  /** Orders of the hours before the start, most of them over by now. */
  #seedOrders(count: number, nowMs: number): void {
    for (let n = count; n > 0; n--) {
      const order = this.orders.create({ createdAtMs: nowMs - n * SEED_ORDER_SPACING_MS });
      const steps = n > 5 ? SEED_STEPS_MAX : 5 - n;
      for (let step = 0; step < steps && !isOver(order.snapshot.status); step++) {
        this.orders.advance(order.snapshot.internalOrderId);
      }
    }
  }
}
