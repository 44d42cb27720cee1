import type { Log } from '../core/log.ts';
import type { Clock, Random } from '../core/time.ts';
import type { PlatformLimits } from '../platform/platform.ts';
import { Catalog, DEFAULT_BRANCHES, DEFAULT_PRODUCTS, type SeedOptions, seedProducts } from './catalog.ts';
import { isOver, OrderBook } from './orders.ts';
import { type OrderShape, platformNowMs, type SandboxEnvironment, type SandboxSettings } from './settings.ts';
import { WebhookSender, type WebhookTransport } from './webhook.ts';

/** Options of a sandbox. Those that are settings can be changed later by `control.configure`. */
export interface SandboxOptions extends Partial<Omit<SandboxSettings, 'shape'>> {
  clock: Clock;
  random: Random;
  limits: PlatformLimits;
  log?: Log;
  shape?: Partial<OrderShape>;
  /** Id of the company for which `issueTokens` issues tokens. */
  company?: string;
  seed?: SeedOptions;
  /** Lifetime of an access token; one hour if left out. */
  accessTokenLifetimeMs?: number;
  /** Lifetime of a refresh token; thirty days if left out. */
  refreshTokenLifetimeMs?: number;
  /** Sends the notifications; real HTTP if left out. */
  webhookTransport?: WebhookTransport;
}

export interface SandboxServerOptions extends SandboxOptions {
  /** Address to listen at; loopback if left out. */
  host?: string;
  /** 0, the default, chooses a free port. */
  port?: number;
}

const SEED_ORDER_SPACING_MS = 7 * 60_000;
const SEED_STEPS_MAX = 12;

/** Everything of one company: catalogue, orders, webhook. The token selects the company. */
export class Shop {
  readonly company: string;
  readonly catalog: Catalog;
  readonly orders: OrderBook;
  readonly webhook: WebhookSender;

  constructor(
    environment: SandboxEnvironment,
    company: string,
    seed: SeedOptions,
    transport: WebhookTransport,
  ) {
    const nowMs = platformNowMs(environment);
    const branches = seed.branches ?? DEFAULT_BRANCHES;
    const count = seed.products ?? DEFAULT_PRODUCTS;
    this.company = company;
    this.catalog = new Catalog(
      branches,
      seedProducts(seed.random ?? environment.random, branches, count, nowMs),
    );
    this.webhook = new WebhookSender(environment, transport);
    this.orders = new OrderBook(environment, company, this.catalog, this.webhook);
    this.#seedOrders(seed.orders ?? 0, nowMs);
  }

  /** Creates orders of the hours before the start; most have ended by now. */
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
