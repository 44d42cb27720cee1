import type { Clock, Random } from '../domain/time/clock.ts';
import { localDate } from './calendar.ts';
import type { Catalog } from './catalog.ts';
import { drawChance, drawFrom, drawHex, drawInt } from './draws.ts';
import { drawAddress, drawLines, drawUser, type NewOrder, SERVICES } from './order-factory.ts';
import type { OrderSnapshot, StoredOrder } from './order-model.ts';
import { nextStatus } from './order-walk.ts';
import type { SandboxSettings } from './settings.ts';

export interface OrderBookOptions {
  clock: Clock;
  random: Random;
  settings: SandboxSettings;
  company: string;
  catalog: Catalog;
  /** Told of a creation and of every change of status. */
  onStatus: (order: StoredOrder) => void;
  /** Told, before that, of an order nobody may announce. */
  onHidden: (orderId: string) => void;
}

/** The company's orders. `code` counts up by one with each. */
export class OrderBook {
  readonly #options: OrderBookOptions;
  readonly #orders = new Map<string, StoredOrder>();
  readonly #byDate = new Map<string, StoredOrder[]>();

  constructor(options: OrderBookOptions) {
    this.#options = options;
  }

  /** Creates an order, takes its items from the stock and announces it, unless it is hidden from the webhook. */
  create(wish: NewOrder = {}, { hidden = false } = {}): StoredOrder {
    const { random, catalog, settings } = this.#options;
    const subsidiaryId = wish.subsidiaryId ?? drawFrom(random, catalog.branches).subsidiaryId;
    const createdAtMs = wish.createdAtMs ?? this.#nowMs();
    const drawn = drawLines(random, catalog, subsidiaryId, wish.items);
    const snapshot = this.#compose(
      wish,
      subsidiaryId,
      createdAtMs,
      drawn.map(({ line }) => line),
    );
    const order: StoredOrder = {
      number: this.#orders.size + 1,
      snapshot,
      subsidiaryId,
      serviceName: snapshot.name.split(' - ').at(-1) ?? '',
      updatedAt: new Date(createdAtMs).toISOString(),
      localDate: localDate(settings.timeZone, createdAtMs),
    };
    this.#orders.set(snapshot.internalOrderId, order);
    const sameDay = this.#byDate.get(order.localDate);
    if (sameDay) sameDay.push(order);
    else this.#byDate.set(order.localDate, [order]);
    if (hidden) this.#options.onHidden(snapshot.internalOrderId);
    for (const { sku, qty } of drawn) catalog.take(sku, subsidiaryId, qty, snapshot.internalOrderId);
    this.#options.onStatus(order);
    return order;
  }

  /** Moves an order on, by itself to a plausible status or to the one named. Undefined: it is at its end. */
  advance(orderId: string, status?: string): StoredOrder | undefined {
    const order = this.get(orderId);
    const next =
      status ?? nextStatus(this.#options.random, order.snapshot.status, order.snapshot.deliveryType);
    if (next === undefined) return undefined;
    this.change(orderId, { status: next });
    this.#options.onStatus(order);
    return order;
  }

  /** Changes fields without announcing it: only a poll can see it. */
  change(orderId: string, patch: Partial<OrderSnapshot>): StoredOrder {
    const order = this.get(orderId);
    order.snapshot = { ...order.snapshot, ...patch };
    order.updatedAt = new Date(this.#nowMs()).toISOString();
    return order;
  }

  /** Throws RangeError for an order that does not exist. */
  get(orderId: string): StoredOrder {
    const order = this.#orders.get(orderId);
    if (!order) throw new RangeError(`There is no order ${orderId}`);
    return order;
  }

  has(orderId: string): boolean {
    return this.#orders.has(orderId);
  }

  /** In order of creation. */
  all(): StoredOrder[] {
    return [...this.#orders.values()];
  }

  /** Created on these dates of the company's calendar or between them, newest first. */
  between(startDate: string, endDate: string): StoredOrder[] {
    return [...this.#byDate]
      .flatMap(([date, orders]) => (startDate <= date && date <= endDate ? orders : []))
      .sort((a, b) => b.number - a.number);
  }

  #compose(
    wish: NewOrder,
    subsidiaryId: string,
    createdAtMs: number,
    items: OrderSnapshot['items'],
  ): OrderSnapshot {
    const { random, catalog, company } = this.#options;
    const code = this.#orders.size + 1;
    const user = drawUser(random);
    const deliveryType = wish.deliveryType ?? (drawChance(random, 0.6) ? 'delivery' : 'pickup');
    const isScheduled = wish.isScheduled ?? drawChance(random, 0.1);
    const deliveryFee = deliveryType === 'delivery' ? drawInt(random, 10, 50) * 100 : 0;
    const total = items.reduce((sum, item) => sum + item.productPrice, 0);
    const couponDiscount = drawChance(random, 0.1) ? Math.min(1000, total) : 0;
    const amount = total - couponDiscount;
    const service = drawFrom(random, SERVICES);
    const inMinutes = (minutes: number) => new Date(createdAtMs + minutes * 60_000).toISOString();
    return {
      store: { externalId: catalog.branchName(subsidiaryId) },
      internalOrderId: drawHex(random, 24),
      status: wish.status ?? 'pending',
      code,
      websiteId: company,
      name: `#${code} - ${user.firstName} ${user.lastName} - ${deliveryType} - ${service}`,
      createdAt: new Date(createdAtMs).toISOString(),
      deliveryType,
      amountToPay: amount + deliveryFee,
      amount,
      deliveryFee,
      couponDiscount,
      deliveryTime: deliveryType === 'delivery' ? inMinutes(45) : '',
      isScheduled,
      ...(isScheduled ? { scheduledDate: inMinutes(180) } : {}),
      ...(deliveryType === 'delivery' ? { address: drawAddress(random, user.phoneNumber) } : {}),
      user,
      items,
      ...wish.patch,
    };
  }

  #nowMs(): number {
    return this.#options.clock.nowMs() + this.#options.settings.clockSkewMs;
  }
}
