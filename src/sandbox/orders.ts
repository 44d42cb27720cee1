import * as z from 'zod';
import { dateIn, type Random } from '../core/time.ts';
import type { Catalog } from './catalog.ts';
import { drawChance, drawFrom, drawHex, drawInt } from './draws.ts';
import { platformNowMs, type SandboxEnvironment } from './settings.ts';
import type { WebhookSender } from './webhook.ts';

/** An order notification with all fields of the document. */
export interface OrderSnapshot {
  store: { externalId: string };
  internalOrderId: string;
  status: string;
  code: number;
  websiteId: string;
  name: string;
  createdAt: string;
  deliveryType: 'delivery' | 'pickup';
  amountToPay: number;
  amount: number;
  deliveryFee: number;
  couponDiscount: number;
  deliveryTime: string;
  isScheduled: boolean;
  /** Present only if isScheduled. The document does not show its name. */
  scheduledDate?: string;
  /** Present only for a delivery. */
  address?: OrderAddress;
  user: ReturnType<typeof drawUser>;
  items: OrderLine[];
}

export type OrderAddress = ReturnType<typeof drawAddress>;

export interface OrderLine {
  product: { externalId: string | null; name: string };
  amount: number;
  comment: string;
  unitPrice: number;
  baseUnitPrice: number;
  productPrice: number;
  productBasePrice: number;
  modifiers: OrderLineModifier[];
}

type OrderLineModifier = ReturnType<typeof drawModifier>;

/** An order as the sandbox stores it. */
export interface StoredOrder {
  /** Sequential number of the order, from 1. */
  number: number;
  /** Present state of the order, replaced by each change and never mutated. */
  snapshot: OrderSnapshot;
  subsidiaryId: string;
  serviceName: string;
  updatedAt: string;
  /** Date of its creation in the company's calendar, YYYY-MM-DD. */
  localDate: string;
}

/** Wanted fields of a new order; others are drawn. */
export const newOrderBody = z.strictObject({
  subsidiaryId: z.string().exactOptional(),
  status: z.string().exactOptional(),
  deliveryType: z.enum(['delivery', 'pickup']).exactOptional(),
  isScheduled: z.boolean().exactOptional(),
  /** SKUs and quantities; subtracted from the stock even if it has less. */
  items: z
    .array(z.strictObject({ sku: z.number(), qty: z.number(), withModifier: z.boolean().exactOptional() }))
    .exactOptional(),
});

/** Wanted fields of a new order that a program creates. The control routes do not offer all of them. */
export interface NewOrder extends z.infer<typeof newOrderBody> {
  /** Time of creation by the platform's wall clock, in epoch milliseconds; now if left out. */
  createdAtMs?: number;
  /** Fields that replace those of the finished snapshot. */
  patch?: Partial<OrderSnapshot>;
}

/** A line with the SKU whose stock it takes. */
interface DrawnLine {
  line: OrderLine;
  sku: number;
  qty: number;
}

const FIRST_NAMES = ['Ana', 'Benjamín', 'Camila', 'Diego', 'Élise', 'Francisca', 'José', 'Lucía', 'Zoë'];
const LAST_NAMES = ['Aguilar', "O'Higgins", 'Muñoz', 'Pérez', 'Soto', 'Vergara', 'Yáñez'];
const STREETS = ['Av. Providencia', 'Calle Ñuñoa', 'Los Leones', 'San Martín', 'Vicuña Mackenna'];
const COMMENTS = ['', '', '', 'sin cebolla', 'well done, please', 'bolsa de papel'];
const SERVICES = ['web', 'app', 'marketplace'] as const;

/** Returns the requested lines, or else up to three lines drawn from the branch's stock. */
function drawLines(
  random: Random,
  catalog: Catalog,
  subsidiaryId: string,
  wanted: NewOrder['items'],
): DrawnLine[] {
  const picks = wanted ?? drawPicks(random, catalog, subsidiaryId);
  return picks.flatMap((pick) => {
    const found = catalog.findSku(pick.sku);
    if (!found) return [];
    const { sku, product } = found;
    const additionals = pick.withModifier ? 500 : 0;
    const list = sku.price * pick.qty;
    const best = sku.withDiscount ? Math.round(list * (1 - sku.discount / 100)) : list;
    const line: OrderLine = {
      product: {
        externalId: pick.withModifier ? null : catalog.integrationIdOf(pick.sku, subsidiaryId),
        name: product.name,
      },
      amount: pick.qty,
      comment: drawFrom(random, COMMENTS),
      unitPrice: best / pick.qty,
      baseUnitPrice: list / pick.qty,
      productPrice: best + additionals,
      productBasePrice: list + additionals,
      modifiers: pick.withModifier ? [drawModifier(random, additionals)] : [],
    };
    return [{ line, sku: pick.sku, qty: pick.qty }];
  });
}

function drawPicks(random: Random, catalog: Catalog, subsidiaryId: string): NonNullable<NewOrder['items']> {
  const picks = new Map<number, { sku: number; qty: number; withModifier: boolean }>();
  for (let tries = drawInt(random, 1, 3); tries > 0; tries--) {
    const sellable = catalog.drawSellable(random, subsidiaryId);
    if (!sellable) continue;
    const qty = Math.min(drawInt(random, 1, 3), sellable.qty);
    picks.set(sellable.sku, { sku: sellable.sku, qty, withModifier: drawChance(random, 0.15) });
  }
  return [...picks.values()];
}

function drawModifier(random: Random, price: number) {
  const id = drawHex(random, 24);
  const externalId = `MOD-${drawInt(random, 1, 40)}`;
  return {
    externalId: null,
    name: 'Extras',
    shortName: 'Extra',
    description: [] as unknown[],
    countById: { [id]: 1 },
    countByExternalId: { [externalId]: 1 },
    options: [{ optionId: id, externalId, name: 'Queso extra', price }],
  };
}

function drawUser(random: Random) {
  const firstName = drawFrom(random, FIRST_NAMES);
  const lastName = drawFrom(random, LAST_NAMES);
  const phoneNumber = `+569${drawInt(random, 10_000_000, 99_999_999)}`;
  return { firstName, lastName, email: `customer${drawInt(random, 1, 9999)}@example.com`, phoneNumber };
}

function drawAddress(random: Random, phoneNumber: string) {
  const streetAddress = drawFrom(random, STREETS);
  const streetNumber = String(drawInt(random, 1, 4999));
  return {
    lat: -33.4 - random.next() / 10,
    lng: -70.6 - random.next() / 10,
    address: `${streetAddress} ${streetNumber}, Santiago, Chile`,
    streetNumber,
    streetAddress,
    country: 'Chile',
    state: 'Región Metropolitana',
    city: 'Santiago',
    zipCode: String(drawInt(random, 7_500_000, 8_999_999)),
    phoneNumber,
    details: drawChance(random, 0.4) ? `Depto ${drawInt(random, 11, 1204)}` : '',
  };
}

/** Plausible next statuses; likelier ones are repeated. The document shows no transitions. */
const NEXT: Record<string, readonly string[]> = {
  pending: ['payment-pending', 'payment-approved', 'picker-pending', 'picker-pending', 'cancel'],
  'payment-pending': ['payment-approved', 'payment-approved', 'payment-approved', 'payment-canceled'],
  'payment-approved': ['picker-pending'],
  'picker-pending': ['inProcess', 'inProcess', 'inProcess', 'inProcess', 'cancel'],
  inProcess: ['ready', 'ready', 'ready', 'ready', 'ready', 'cancel'],
  ready: ['routed', 'routed', 'dispatched'],
  routed: ['dispatched', 'dispatched', 'dispatched', 'dispatched', 'shippingError'],
  shippingError: ['routed', 'cancel'],
  cancel: ['refund'],
};

/** Returns a possible next status, or undefined at an end of the life cycle. An unknown status goes to `inProcess`. */
function nextStatus(random: Random, status: string, deliveryType: string): string | undefined {
  if (status === 'dispatched' || status === 'refund' || status === 'payment-canceled') return undefined;
  if (status === 'ready') return deliveryType === 'delivery' ? 'routed' : 'dispatched';
  return drawFrom(random, NEXT[status] ?? ['inProcess']);
}

/** Whether an order of this status has ended. A cancelled one may still be refunded. */
export function isOver(status: string): boolean {
  return ['dispatched', 'refund', 'payment-canceled', 'cancel'].includes(status);
}

/** The company's orders. Each new order gets the next `code`. */
export class OrderBook {
  readonly #environment: SandboxEnvironment;
  readonly #company: string;
  readonly #catalog: Catalog;
  readonly #webhook: WebhookSender;
  readonly #orders = new Map<string, StoredOrder>();
  readonly #byDate = new Map<string, StoredOrder[]>();

  constructor(environment: SandboxEnvironment, company: string, catalog: Catalog, webhook: WebhookSender) {
    this.#environment = environment;
    this.#company = company;
    this.#catalog = catalog;
    this.#webhook = webhook;
  }

  /** Creates an order, subtracts its items from the stock and announces it, unless it is hidden from the webhook. */
  create(request: NewOrder = {}, { hidden = false } = {}): StoredOrder {
    const { random, settings } = this.#environment;
    const catalog = this.#catalog;
    const subsidiaryId = request.subsidiaryId ?? drawFrom(random, catalog.branches).subsidiaryId;
    const createdAtMs = request.createdAtMs ?? platformNowMs(this.#environment);
    const drawn = drawLines(random, catalog, subsidiaryId, request.items);
    const items = drawn.map(({ line }) => line);
    const snapshot = this.#compose(request, subsidiaryId, createdAtMs, items);
    const order: StoredOrder = {
      number: this.#orders.size + 1,
      snapshot,
      subsidiaryId,
      serviceName: snapshot.name.split(' - ').at(-1) ?? '',
      updatedAt: new Date(createdAtMs).toISOString(),
      localDate: dateIn(settings.timeZone, createdAtMs),
    };
    this.#orders.set(snapshot.internalOrderId, order);
    const sameDay = this.#byDate.get(order.localDate);
    if (sameDay) sameDay.push(order);
    else this.#byDate.set(order.localDate, [order]);
    if (hidden) this.#webhook.hide(snapshot.internalOrderId);
    for (const { sku, qty } of drawn) catalog.take(sku, subsidiaryId, qty, snapshot.internalOrderId);
    this.#webhook.announce(snapshot);
    return order;
  }

  /** Moves an order to the given or a plausible next status. Returns undefined if there is no next status. */
  advance(orderId: string, status?: string): StoredOrder | undefined {
    const order = this.get(orderId);
    const next =
      status ?? nextStatus(this.#environment.random, order.snapshot.status, order.snapshot.deliveryType);
    if (next === undefined) return undefined;
    this.change(orderId, { status: next });
    this.#webhook.announce(order.snapshot);
    return order;
  }

  /** Changes fields without a notification, so that only a poll shows the change. */
  change(orderId: string, patch: Partial<OrderSnapshot>): StoredOrder {
    const order = this.get(orderId);
    order.snapshot = { ...order.snapshot, ...patch };
    order.updatedAt = new Date(platformNowMs(this.#environment)).toISOString();
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

  /** Returns all orders, in order of creation. */
  all(): StoredOrder[] {
    return [...this.#orders.values()];
  }

  /** Returns orders created from `startDate` to `endDate` of the company's calendar, newest first. */
  between(startDate: string, endDate: string): StoredOrder[] {
    return [...this.#byDate]
      .flatMap(([date, orders]) => (startDate <= date && date <= endDate ? orders : []))
      .sort((a, b) => b.number - a.number);
  }

  #compose(
    request: NewOrder,
    subsidiaryId: string,
    createdAtMs: number,
    items: OrderSnapshot['items'],
  ): OrderSnapshot {
    const { random } = this.#environment;
    const code = this.#orders.size + 1;
    const user = drawUser(random);
    const deliveryType = request.deliveryType ?? (drawChance(random, 0.6) ? 'delivery' : 'pickup');
    const isScheduled = request.isScheduled ?? drawChance(random, 0.1);
    const deliveryFee = deliveryType === 'delivery' ? drawInt(random, 10, 50) * 100 : 0;
    const total = items.reduce((sum, item) => sum + item.productPrice, 0);
    const couponDiscount = drawChance(random, 0.1) ? Math.min(1000, total) : 0;
    const amount = total - couponDiscount;
    const service = drawFrom(random, SERVICES);
    const inMinutes = (minutes: number) => new Date(createdAtMs + minutes * 60_000).toISOString();
    return {
      store: { externalId: this.#catalog.branchName(subsidiaryId) },
      internalOrderId: drawHex(random, 24),
      status: request.status ?? 'pending',
      code,
      websiteId: this.#company,
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
      ...request.patch,
    };
  }
}
