import type { Log } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import type { PlatformLimits } from '../platform/platform.ts';
import { Catalog, DEFAULT_BRANCHES, DEFAULT_PRODUCTS, type SeedOptions, seedProducts } from './catalog.ts';
import { isOver, OrderBook } from './orders.ts';
import type { OrderShape, SandboxSettings } from './settings.ts';
import { WebhookDesk, WebhookSender, type WebhookTransport } from './webhook.ts';

/** How to start a sandbox. The settings among these can be changed later through `control.configure`. */
export interface SandboxOptions extends Partial<Omit<SandboxSettings, 'shape'>> {
  clock: Clock;
  random: Random;
  limits: PlatformLimits;
  log?: Log;
  shape?: Partial<OrderShape>;
  /** Id of the company whose tokens `issueTokens` hands out. */
  company?: string;
  seed?: SeedOptions;
  /** One hour unless told. */
  accessTokenLifetimeMs?: number;
  /** Thirty days unless told. */
  refreshTokenLifetimeMs?: number;
  /** Carries the notifications; real HTTP unless told. */
  webhookTransport?: WebhookTransport;
}

export interface SandboxServerOptions extends SandboxOptions {
  /** Loopback unless told. */
  host?: string;
  /** 0, the default, picks a free one. */
  port?: number;
}

const SEED_ORDER_SPACING_MS = 7 * 60_000;
const SEED_STEPS_MAX = 12;

interface ShopOptions {
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
    this.catalog = new Catalog(branches, products);
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
