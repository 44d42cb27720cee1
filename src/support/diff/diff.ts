import { findProducts } from '../../app/read-only-services.ts';
import type { Services } from '../../app/services.ts';
import type { SweepEnd } from '../../catalog/catalog-store.ts';
import type { Branch } from '../../catalog/product.ts';
import { CatalogSweep, type SweepRequest, type SweepTarget } from '../../catalog/sweep.ts';
import type { Config } from '../../config/config-type.ts';
import { TillsyncError } from '../../core/errors.ts';
import { recordText, scanRecords, speaksOfMorePages } from '../../core/json-records.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { readingWithoutCustomer } from '../../orders/merging/customer.ts';
import { compileSpellings } from '../../orders/merging/field-aliases.ts';
import type { OrderReading } from '../../orders/merging/order.ts';
import { readOrderText } from '../../orders/merging/order-reader.ts';
import { believedPartOf, knownOrder } from '../../orders/merging/order-rows.ts';
import { chooseOrders } from '../../orders/receiving/order-lists.ts';
import { addDays, liesWithin, type PollWindow, pollWindow } from '../../orders/receiving/poll-window.ts';
import type { ComparedPart } from '../../outbox/ledger/stock-differences.ts';
import type { MirrorStores } from '../../outbox/sending/repositories.ts';
import type { CallOptions } from '../../platform/platform.ts';
import type { ProductRecord } from '../../platform/schemas.ts';
import {
  type OrderDifference,
  orderDifferences,
  type ProductDifference,
  productDifferences,
} from './differences.ts';

export interface OrdersDiff {
  window: PollWindow;
  /** Number of orders in the platform's answer. */
  compared: number;
  differences: OrderDifference[];
  /** Number of orders that were left out, because a callback changed them during the call. */
  moved: number;
  unreadable: number;
  /** Whether the answer names further pages, so that missing orders are not reported. */
  morePages: boolean;
}

/**
 * Compares the mirror's orders with the platform's in one call. Writes nothing. Without `window`, the days of a
 * normal poll are used.
 */
export async function diffOrders(
  services: Pick<Services, 'mirror' | 'platform' | 'config'>,
  clock: Clock,
  { window: asked, ...call }: CallOptions & { window?: PollWindow | undefined },
): Promise<OrdersDiff> {
  const { mirror, platform } = services;
  const { timezone, lookbackDays } = services.config.orders;
  const nowMs = clock.nowMs();
  const platformNowMs = nowMs + (platform.clock.skewMs() ?? 0);
  const days = { timezone, lookbackDays, lookbackDaysMax: lookbackDays, reachBackToMs: null };
  const window = asked ?? pollWindow({ nowMs, platformNowMs, ...days });
  let asOf = { seq: mirror.orders.newestSeq(), atMs: nowMs };
  const onSend = () => {
    asOf = { seq: mirror.orders.newestSeq(), atMs: clock.nowMs() };
  };
  const answer = await platform.orderAll(window, { ...call, onSend });
  const { readings, unreadable, morePages } = readingsOf(answer.body, services.config);
  const differences: OrderDifference[] = [];
  let moved = 0;
  for (const [orderId, reading] of readings) {
    const mirrored = mirror.orders.get(orderId);
    const found = mirror.read((db) => {
      const isForgotten = knownOrder(db, orderId)?.forgottenAt != null;
      const there = isForgotten ? readingWithoutCustomer(reading) : reading;
      return orderDifferences(mirrored, believedPartOf(db, there));
    });
    if (found.length > 0 && mirrored && mirrored.seq > asOf.seq) moved += 1;
    else differences.push(...found);
  }
  if (!morePages) differences.push(...missingOf(mirror, window, readings, asOf.atMs));
  return { window, compared: readings.size, differences, moved, unreadable, morePages };
}

function readingsOf(
  body: Uint8Array,
  { orders: { fields, statuses, timezone }, quirks: { listPath } }: Config,
) {
  const spellings = compileSpellings(fields, timezone, statuses);
  const scanned = scanRecords(body);
  const found = chooseOrders(body, scanned, { listPath, spellings });
  if (!found) {
    throw new TillsyncError(
      'platform-garbled',
      'The answer of GET /order/all holds no list of orders that tillsync can find.',
      { hint: 'A poll keeps the whole answer: {tillsync} sync orders, then {tillsync} quarantine list' },
    );
  }
  const { list } = found;
  const readings = new Map<string, OrderReading>();
  let unreadable = 0;
  for (let index = 0; index < list.length; index++) {
    const reading = readOrderText(recordText(body, list, index), spellings, 'poll');
    if ('orderId' in reading) readings.set(reading.orderId, reading);
    else unreadable += 1;
  }
  return { readings, unreadable, morePages: speaksOfMorePages(scanned.hints, list.length) };
}

/**
 * Returns orders of the mirror that the answer should contain but does not: those created before the call, on a day
 * that is inside the window in every time zone.
 */
function missingOf(
  mirror: Services['mirror'],
  window: PollWindow,
  readings: ReadonlyMap<string, OrderReading>,
  askedAtMs: number,
): OrderDifference[] {
  const createdFrom = addDays(window.startDate, -1);
  const createdBefore = isoUtc(askedAtMs);
  return mirror.orders
    .list({ createdFrom, createdBefore, limit: Number.MAX_SAFE_INTEGER })
    .filter(({ orderId, createdAt }) => {
      const createdAtMs = Date.parse(createdAt ?? '');
      return !readings.has(orderId) && !Number.isNaN(createdAtMs) && liesWithin(window, createdAtMs);
    })
    .reverse()
    .map(({ orderId, status }) => ({ orderId, field: 'order', mirror: status ?? 'there', platform: null }));
}

export interface ProductsDiff {
  /** Number of listed products. Each product counts once per branch. */
  compared: number;
  differences: ProductDifference[];
  /** Number of products that were left out, because changes for them were sent during the comparison. */
  moved: number;
  /** Number of list entries that are not readable as a product. */
  unreadable: number;
}

/** Compares the mirror's catalogue with the platform's. Writes nothing. Throws what CatalogSweep.run throws. */
export async function diffProducts(
  { stores, platform, config }: Pick<Services, 'stores' | 'platform' | 'config'>,
  clock: Clock,
  request: SweepRequest & { branches: readonly Branch[]; onBranch: (branch: Branch) => void },
): Promise<ProductsDiff> {
  const diff = { compared: 0, moved: 0, unreadable: 0 };
  const found = new Map<string, ProductDifference>();
  const { pageSize } = config.catalog;
  for (const branch of request.branches) {
    request.onBranch(branch);
    const comparer = new Comparer(stores, branch);
    const sweep = new CatalogSweep({ platform, stores, clock, pageSize }, branch, comparer, request);
    const { products, unreadable } = await sweep.run();
    diff.compared += products;
    diff.unreadable += unreadable;
    diff.moved += comparer.moved.size;
    for (const each of [...comparer.byProduct.values()].flat()) {
      const { productId, sku, subsidiaryId, field, platform: there } = each;
      found.set(JSON.stringify([productId, sku, subsidiaryId, field, there]), each);
    }
  }
  return { ...diff, differences: [...found.values()] };
}

/** Takes the place of the mirror in a sweep: it compares each product instead of writing it. */
class Comparer implements SweepTarget {
  /** Differences of each product as last read. A product is read again if the list shifted while it was read. */
  readonly byProduct = new Map<string, ProductDifference[]>();
  readonly moved = new Set<string>();
  readonly #stores: Services['stores'];
  readonly #branch: Branch;

  constructor(stores: Services['stores'], branch: Branch) {
    this.#stores = stores;
    this.#branch = branch;
  }

  async page(records: readonly ProductRecord[], mark: { push: number }) {
    const { subsidiaryId } = this.#branch;
    const own = new Set(subsidiaryId === null ? [] : [subsidiaryId]);
    for (const record of records) this.#compare(record, mark, own);
    return { written: 0 };
  }

  async product(record: ProductRecord, mark: { push: number }): Promise<void> {
    this.#compare(record, mark, undefined);
  }

  async end({ seen }: { seen: ReadonlySet<string> }): Promise<SweepEnd> {
    const subsidiaryId = this.#branch.subsidiaryId ?? this.#branch.externalId;
    for (const { productId } of this.#stores.read(({ catalog }) => catalog.unlisted(this.#branch, seen))) {
      const field = 'product';
      const difference = { productId, sku: null, subsidiaryId, field, mirror: 'listed', platform: null };
      this.byProduct.set(productId, [difference]);
    }
    return { vanished: 0, doubted: 0 };
  }

  /** A comparison stores no unreadable entries; the mirror's own sweep does. */
  async unreadable(): Promise<void> {}

  #compare(record: ProductRecord, mark: { push: number }, speaksFor: ReadonlySet<string> | undefined): void {
    const [mirrored] = findProducts(this.#stores, { productId: record.id });
    const differences = productDifferences(mirrored, record, speaksFor);
    this.moved.delete(record.id);
    this.byProduct.delete(record.id);
    if (differences.length === 0) return;
    // A change that was sent after the call cannot be in the answer, so the product is not compared.
    if (this.#pushedSince(record.id, mark.push)) this.moved.add(record.id);
    else this.byProduct.set(record.id, differences);
  }

  #pushedSince(productId: string, mark: number): boolean {
    const query = `
      SELECT 1 FROM _products WHERE product_id = @productId AND pushed_mark > @mark
      UNION ALL SELECT 1 FROM _skus WHERE product_id = @productId AND pushed_mark > @mark
      UNION ALL SELECT 1 FROM _skus s JOIN _stocks k USING (sku)
        WHERE s.product_id = @productId AND k.pushed_mark > @mark`;
    return this.#stores.read(({ db }) => db.prepare(query).get({ productId, mark })) !== undefined;
  }
}

/** A counted stock whose quantity on the platform is not the wanted one. */
interface StockDifferenceTold {
  sku: string;
  branch: string;
  name: string | null;
  countedQty: number;
  wantedQty: number;
  platformQty: number;
  /**
   * Time at which the difference was first found, and time at which the platform last showed the value; ISO 8601 UTC.
   */
  since: string;
  seenAt: string;
}

export interface StockDiff {
  /** Number of counted stocks that were compared. */
  compared: number;
  /** Number of stocks that cannot be judged now. */
  unsure: number;
  /** Sorted, the largest difference first. */
  differences: StockDifferenceTold[];
}

/** Compares the last counts with the mirrored stock of the platform; only those of the branch `of`, if it is given. */
export function diffStock(
  stores: MirrorStores,
  branches: readonly Branch[],
  { lastPollOkMs, of }: { lastPollOkMs: number | null; of: Branch | undefined },
): StockDiff {
  const diff: StockDiff = { compared: 0, unsure: 0, differences: [] };
  const nameOf = new Map(branches.map(({ subsidiaryId, externalId }) => [subsidiaryId, externalId]));
  let after: ComparedPart['next'];
  do {
    const part = stores.read(({ differences }) => differences.part(lastPollOkMs, after));
    after = part.next;
    const isOf = ({ subsidiaryId }: { subsidiaryId: string }) => !of || subsidiaryId === of.subsidiaryId;
    diff.compared += part.compared.filter(isOf).length;
    diff.unsure += [...part.unsure, ...part.kept].filter(isOf).length;
    for (const stock of part.found.filter(isOf)) {
      const { sku, subsidiaryId, countedQty, wantedQty, expectedQty, confirmedMs } = stock;
      const sinceMs = stores.read(({ differences }) => differences.sinceMs(stock)) ?? confirmedMs;
      diff.differences.push({
        sku,
        branch: nameOf.get(subsidiaryId) ?? subsidiaryId,
        countedQty,
        wantedQty,
        name: findProducts(stores, { sku })[0]?.name ?? null,
        platformQty: expectedQty ?? 0,
        since: isoUtc(sinceMs),
        seenAt: isoUtc(confirmedMs),
      });
    }
  } while (after);
  const size = ({ platformQty, wantedQty }: StockDifferenceTold) => Math.abs(platformQty - wantedQty);
  diff.differences.sort((a, b) => size(b) - size(a));
  return diff;
}
