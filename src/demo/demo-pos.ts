import type { MirroredProduct } from '../catalog/product.ts';
import type { Clock, Random } from '../core/time.ts';
import type { MirroredOrder } from '../orders/merging/mirrored-order.ts';
import { takesNothing } from '../orders/merging/order.ts';
import type { OrderSnapshot } from '../sandbox/orders.ts';

const TICK_MS = 400;

export interface PosBranch {
  subsidiaryId: string;
  externalId: string;
}

const FIRST_BRANCH: PosBranch = { subsidiaryId: 'sub-1', externalId: 'B1' };

interface DemoPosOptions {
  /** Address of the local API; read before each call, because a restart may change it. */
  localUrl: () => string;
  /** API key, which a POS of the group reads from the storage directory. */
  key: string;
  /** Branch of the POS; the demo's first branch if left out. */
  branch?: PosBranch;
  clock: Clock;
  random: Random;
  onEvent?: (text: string) => void;
}

/** Figures of the simulated POS, and its last count of each stock. */
export interface DemoPosSummary {
  booked: number;
  soldOverTheCounter: number;
  pushed: number;
  shelves: Shelf[];
}

interface Shelf {
  sku: number;
  subsidiaryId: string;
  externalId: string;
  qty: number;
}

/**
 * A POS that uses only the local API. It books the company's online orders from the feed, submits the new counts of
 * one branch, acknowledges the orders, and sells over the counter.
 */
export class DemoPos {
  readonly #options: DemoPosOptions;
  readonly #branch: PosBranch;
  readonly #shelves = new Map<string, Shelf>();
  readonly #booked = new Set<string>();
  #seq = 0;
  #sold = 0;
  #pushed = 0;

  constructor(options: DemoPosOptions) {
    this.#options = options;
    this.#branch = options.branch ?? FIRST_BRANCH;
  }

  /** Books online orders and sells over the counter until the signal is aborted. */
  async trade(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    while (!signal.aborted) {
      // The daemon restarts during the demo, so the POS tries again.
      await this.#tick().catch(() => {});
      await clock.sleep(TICK_MS, signal);
    }
  }

  /** Books the last online orders and submits the count of each stock once more. */
  async close(): Promise<DemoPosSummary> {
    await this.#book();
    const shelves = [...this.#shelves.values()];
    await this.#push(shelves);
    return { booked: this.#booked.size, soldOverTheCounter: this.#sold, pushed: this.#pushed, shelves };
  }

  async #tick(): Promise<void> {
    if (this.#shelves.size === 0) return await this.#stockTake();
    await this.#book();
    const { random, onEvent } = this.#options;
    const shelves = [...this.#shelves.values()].filter(({ qty }) => qty > 0);
    const shelf = shelves[Math.floor(random.next() * shelves.length)];
    if (!shelf) return;
    shelf.qty -= 1;
    this.#sold += 1;
    await this.#push([shelf]);
    onEvent?.(`the POS sold one ${shelf.externalId} over the counter; ${shelf.qty} are left`);
  }

  async #stockTake(): Promise<void> {
    const { subsidiaryId } = this.#branch;
    const isHere = (each: { subsidiaryId: string }) => each.subsidiaryId === subsidiaryId;
    const path = `/v1/products?branch=${subsidiaryId}&limit=200`;
    const { products } = await this.#get<{ products: MirroredProduct[] }>(path);
    for (const { sku, stocks, integrations } of products.flatMap(({ skus }) => skus)) {
      const [stock, mapping] = [stocks.find(isHere), integrations.find(isHere)];
      const externalId = mapping?.extId ?? mapping?.productIdPosA ?? mapping?.productCodePosB;
      if (!stock || externalId == null) continue;
      const shelf = { sku: Number(sku), subsidiaryId, externalId, qty: Number(stock.qty ?? 0) };
      this.#shelves.set(externalId, shelf);
    }
  }

  /** Subtracts new online orders from the shelves, submits the counts, and only then acknowledges the orders. */
  async #book(): Promise<void> {
    type Page = { events: { order: MirroredOrder | null }[]; next: number };
    const { events, next } = await this.#get<Page>(`/v1/orders?after=${this.#seq}&limit=500`);
    const changed = new Set<Shelf>();
    const orderIds: string[] = [];
    for (const { order } of events) {
      if (!order || this.#booked.has(order.orderId) || takesNothing(order.status)) continue;
      const isHere = order.storeExternalId === this.#branch.externalId;
      for (const { productExternalId, quantity } of isHere ? order.items : []) {
        const shelf = productExternalId === null ? undefined : this.#shelves.get(productExternalId);
        if (!shelf) continue;
        shelf.qty = Math.max(0, shelf.qty - Number(quantity ?? 0));
        changed.add(shelf);
      }
      this.#booked.add(order.orderId);
      orderIds.push(order.orderId);
    }
    if (changed.size > 0) await this.#push([...changed]);
    if (orderIds.length > 0) await this.#post('/v1/orders/ack', orderIds);
    this.#seq = next;
  }

  async #push(shelves: readonly Shelf[]): Promise<void> {
    if (shelves.length === 0) return;
    const items = shelves.map(({ externalId, qty, subsidiaryId }) => ({ externalId, qty, subsidiaryId }));
    await this.#post('/v1/stock', items);
    this.#pushed += items.length;
  }

  async #get<T>(path: string): Promise<T> {
    const headers = { 'x-api-key': this.#options.key };
    const answer = await fetch(this.#options.localUrl() + path, { headers });
    return (await answer.json()) as T;
  }

  async #post(path: string, body: unknown): Promise<void> {
    const headers = { 'content-type': 'application/json', 'x-api-key': this.#options.key };
    const call = { method: 'POST', headers, body: JSON.stringify(body) };
    const answer = await fetch(this.#options.localUrl() + path, call);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`The local API answered ${answer.status}: ${text}`);
  }
}

/** The columns of an order that the POS reads. */
export interface MirroredRow {
  order_id: string;
  status: string | null;
  code: number | null;
  amount_to_pay: number | string | null;
  delivery_fee: number | string | null;
  lines: number;
  pieces: number;
}

/** A query that a POS could use, in plain SQL. */
export const MIRRORED_ROWS = `
  SELECT order_id, status, code, amount_to_pay, delivery_fee,
    (SELECT count(*) FROM order_items i WHERE i.order_id = o.order_id) AS lines,
    (SELECT coalesce(sum(quantity), 0) FROM order_items i WHERE i.order_id = o.order_id) AS pieces
  FROM _orders o`;

export interface Comparison {
  atPlatform: number;
  inMirror: number;
  equal: number;
  /** A sentence for each order that differs between the platform and the mirror. */
  differences: string[];
}

/** Compares the mirror with the platform, order by order. */
export function compareOrders(
  platform: readonly OrderSnapshot[],
  mirror: readonly MirroredRow[],
): Comparison {
  const rows = new Map(mirror.map((row) => [row.order_id, row]));
  const differences: string[] = [];
  for (const order of platform) {
    const row = rows.get(order.internalOrderId);
    rows.delete(order.internalOrderId);
    const fault = row ? differenceOf(order, row) : 'is not in the mirror';
    if (fault !== undefined) differences.push(`order #${order.code} (${order.internalOrderId}) ${fault}`);
  }
  for (const row of rows.values()) differences.push(`order ${row.order_id} is in the mirror alone`);
  return {
    atPlatform: platform.length,
    inMirror: mirror.length,
    equal: platform.length - differences.filter((text) => !text.endsWith('alone')).length,
    differences,
  };
}

function differenceOf(order: OrderSnapshot, row: MirroredRow): string | undefined {
  const pieces = order.items.reduce((sum, item) => sum + item.amount, 0);
  const pairs = [
    ['status', order.status, row.status],
    ['code', order.code, row.code],
    ['amountToPay', order.amountToPay, row.amount_to_pay],
    ['deliveryFee', order.deliveryFee, row.delivery_fee],
    ['number of lines', order.items.length, row.lines],
    ['number of pieces', pieces, row.pieces],
  ] as const;
  const differing = pairs.find(([, there, here]) => there !== here);
  return differing && `has ${differing[0]} ${String(differing[1])} there and ${String(differing[2])} here`;
}
