import type { Clock, Random } from '../../../src/core/time.ts';
import type { SandboxControl } from '../../../src/sandbox/control.ts';
import { isOver } from '../../../src/sandbox/orders.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
/**
 * Opening hours in UTC. Santiago's clock is three or four hours behind, so orders come from about nine until after
 * midnight.
 */
const OPEN_UTC_HOURS = [13, 28] as const;

export interface ShopOptions {
  clock: Clock;
  random: Random;
  control: SandboxControl;
  /** Mean time between orders while the shop is open. */
  orderEveryMs: number;
}

/** Plays customers and staff at the platform, who create, advance, edit, hide and announce orders. */
export class Shop {
  readonly #options: ShopOptions;
  readonly #open: string[] = [];
  /** Every status that an order had, by its id. */
  readonly history = new Map<string, string[]>();
  readonly #skus: { sku: number; subsidiaryId: string; mayHaveModifier: boolean }[];

  constructor(options: ShopOptions) {
    this.#options = options;
    this.#skus = options.control.products().flatMap((product) =>
      product.children.flatMap(({ sku, stocks }) =>
        stocks.map(({ subsidiaryId }) => ({
          sku,
          subsidiaryId,
          // A line with modifiers names only its product, so a POS knows the sku only if the product has a single sku.
          mayHaveModifier: product.children.length === 1,
        })),
      ),
    );
  }

  async trade(signal: AbortSignal): Promise<void> {
    const { clock, random, orderEveryMs } = this.#options;
    const repeat = async (meanMs: number, act: () => void) => {
      while (!signal.aborted) {
        await clock.sleep(untilOpenMs(clock.nowMs()), signal);
        await clock.sleep(meanMs * (0.5 + random.next()), signal);
        if (!signal.aborted) act();
      }
    };
    await Promise.all([
      repeat(orderEveryMs, () => this.#order()),
      repeat(orderEveryMs / 6, () => this.#step()),
    ]);
  }

  /** Makes a last order, which is always announced by a callback. */
  lastOrder(): void {
    this.#order(false);
  }

  #order(hidden = this.#chance(0.1)): void {
    const { control } = this.#options;
    const first = this.#skus[this.#below(this.#skus.length)];
    if (!first) return;
    const here = this.#skus.filter(({ subsidiaryId }) => subsidiaryId === first.subsidiaryId);
    const picks = new Map<number, { sku: number; qty: number; withModifier: boolean }>();
    for (let lines = 1 + this.#below(3); lines > 0; lines--) {
      const { sku, mayHaveModifier } = here[this.#below(here.length)] ?? first;
      const withModifier = mayHaveModifier && this.#chance(0.15);
      picks.set(sku, { sku, qty: 1 + this.#below(3), withModifier });
    }
    const { internalOrderId, status } = control.createOrder(
      { subsidiaryId: first.subsidiaryId, items: [...picks.values()] },
      { hidden },
    );
    this.#open.push(internalOrderId);
    this.history.set(internalOrderId, [status]);
  }

  #step(): void {
    const { control } = this.#options;
    const at = this.#below(this.#open.length);
    const orderId = this.#open[at];
    const order = orderId === undefined ? undefined : control.order(orderId);
    if (!order || orderId === undefined) return;
    if (this.#chance(0.08)) {
      const deliveryFee = order.deliveryFee + 100;
      control.changeOrder(orderId, { deliveryFee, amountToPay: order.amount + deliveryFee });
    } else {
      control.advanceOrder(orderId, this.#chance(0.02) ? 'awaiting-courier' : undefined);
      this.history.get(orderId)?.push(control.order(orderId)?.status ?? '');
    }
    if (this.#chance(0.1)) control.announceOrder(orderId);
    if (isOver(control.order(orderId)?.status ?? '') && !this.#chance(0.02)) this.#open.splice(at, 1);
  }

  #chance(share: number): boolean {
    return this.#options.random.next() < share;
  }

  #below(count: number): number {
    return Math.floor(this.#options.random.next() * count);
  }
}

/** Returns the time until the shop opens; 0 while it is open. */
export function untilOpenMs(nowMs: number): number {
  const [from, to] = OPEN_UTC_HOURS;
  const sinceMidnightMs = nowMs % (24 * HOUR_MS);
  const isOpen = sinceMidnightMs >= from * HOUR_MS || sinceMidnightMs < (to - 24) * HOUR_MS + 20 * MINUTE_MS;
  return isOpen ? 0 : from * HOUR_MS - sinceMidnightMs;
}
