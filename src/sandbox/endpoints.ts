import type { z } from 'zod';
import {
  batchRequestFrame,
  orderAllQuery,
  productChangeItem,
  productGetQuery,
  productListQuery,
  stockChangeItem,
  tokenRefreshRequest,
} from '../platform/schemas.ts';
import { type Catalog, type CatalogProduct, shownProduct } from './catalog.ts';
import type { Call, Endpoints } from './engine.ts';
import { envelope, failure, type Reply, refusal } from './exchange.ts';
import type { OrderAddress, OrderBook, OrderLine, OrderSnapshot, StoredOrder } from './orders.ts';
import type { OrderRecordStyle, SandboxSettings } from './settings.ts';
import type { Shop } from './shop.ts';
import type { TokenOffice } from './tokens.ts';

/** The document's paginated list. */
export interface Page {
  docs: unknown[];
  totalDocs: number;
  limit: number;
  page: number;
  totalPages: number;
  hasNextPage: boolean;
  hasPrevPage: boolean;
}

/** One page of a list, counted from 1. A page past the end is empty. */
export function paged<T>(list: readonly T[], page: number, limit: number, show: (entry: T) => unknown): Page {
  const totalPages = Math.max(1, Math.ceil(list.length / limit));
  return {
    docs: list.slice((page - 1) * limit, page * limit).map(show),
    totalDocs: list.length,
    limit,
    page,
    totalPages,
    hasNextPage: page < totalPages,
    hasPrevPage: page > 1,
  };
}

/** A record of GET /order/all in one of the plausible spellings; the document shows none. */
export function orderRecord(order: StoredOrder, style: OrderRecordStyle, branchName: string): unknown {
  if (style === 'notification') return order.snapshot;
  if (style === 'internal') return internalRecord(order, branchName);
  return snakeKeys(order.snapshot);
}

/** As a shop's own database might keep it. */
function internalRecord(order: StoredOrder, branchName: string): unknown {
  const { snapshot } = order;
  return {
    _id: snapshot.internalOrderId,
    companyOrderNumber: snapshot.code,
    orderStatus: snapshot.status,
    company: { _id: snapshot.websiteId },
    name: snapshot.name,
    subsidiary: { _id: order.subsidiaryId, extId: branchName, name: `Sucursal ${branchName}` },
    createdAt: snapshot.createdAt,
    updatedAt: order.updatedAt,
    service: order.serviceName,
    deliveryType: snapshot.deliveryType,
    total: snapshot.amountToPay,
    subtotal: snapshot.amount,
    couponDiscount: snapshot.couponDiscount,
    estimatedDelivery: snapshot.deliveryTime,
    isScheduled: snapshot.isScheduled,
    ...(snapshot.scheduledDate === undefined ? {} : { scheduledFor: snapshot.scheduledDate }),
    shipping: {
      cost: snapshot.deliveryFee,
      ...(snapshot.address ? { address: internalAddress(snapshot.address) } : {}),
    },
    customer: {
      firstName: snapshot.user.firstName,
      lastName: snapshot.user.lastName,
      email: snapshot.user.email,
      phone: snapshot.user.phoneNumber,
    },
    products: snapshot.items.map(internalLine),
  };
}

function internalAddress(address: OrderAddress): unknown {
  return {
    lat: address.lat,
    lng: address.lng,
    address: address.address,
    streetNumber: address.streetNumber,
    street: address.streetAddress,
    country: address.country,
    region: address.state,
    city: address.city,
    postalCode: address.zipCode,
    phone: address.phoneNumber,
    reference: address.details,
  };
}

function internalLine(line: OrderLine): unknown {
  return {
    product: { extId: line.product.externalId, name: line.product.name },
    quantity: line.amount,
    notes: line.comment,
    unitPrice: line.unitPrice,
    baseUnitPrice: line.baseUnitPrice,
    bestPrice: line.productPrice,
    price: line.productBasePrice,
    modifiers: line.modifiers,
  };
}

/** Maps keyed by ids, whose keys are data and stay as they are. */
const KEYED_BY_ID: ReadonlySet<string> = new Set(['countById', 'countByExternalId']);

function snakeKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(snakeKeys);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      KEYED_BY_ID.has(key) ? inner : snakeKeys(inner),
    ]),
  );
}

/** GET /order/all: orders created between two dates of the company's calendar, both included, newest first. */
export class OrderList {
  readonly #settings: SandboxSettings;
  /** Few orders change between two polls, and a record is much longer to write than to keep. */
  readonly #texts = new WeakMap<OrderSnapshot, { style: OrderRecordStyle; text: string }>();

  constructor(settings: SandboxSettings) {
    this.#settings = settings;
  }

  answer(orders: OrderBook, catalog: Catalog, call: Call): Reply {
    const { shape, validationStatus } = this.#settings;
    const query = orderAllQuery.safeParse(Object.fromEntries(call.query));
    if (!query.success) return failure(validationStatus, query.error.issues[0]?.message ?? 'Invalid query');
    const { startDate, endDate } = query.data;
    const found = orders.between(startDate, endDate);
    const show = (order: StoredOrder) => this.#textOf(order, catalog);
    if (shape.envelope === 'docs') {
      const limit = positive(call.query.get('limit')) ?? shape.pageSize ?? Math.max(1, found.length);
      const page = positive(call.query.get('page')) ?? 1;
      const { docs, ...rest } = paged(found, page, limit, show);
      const data = `{"docs":[${docs.join(',')}],${JSON.stringify(rest).slice(1)}`;
      return { status: 200, json: `{"success":true,"message":"OK","data":${data}}` };
    }
    const list = `[${found.map(show).join(',')}]`;
    if (shape.envelope === 'array') return { status: 200, json: list };
    if (shape.envelope === 'orders') return { status: 200, json: `{"orders":${list}}` };
    return { status: 200, json: `{"success":true,"data":${list}}` };
  }

  #textOf(order: StoredOrder, catalog: Catalog): string {
    const { snapshot, subsidiaryId } = order;
    const { record: style } = this.#settings.shape;
    const known = this.#texts.get(snapshot);
    if (known?.style === style) return known.text;
    const text = JSON.stringify(orderRecord(order, style, catalog.branchName(subsidiaryId)));
    this.#texts.set(snapshot, { style, text });
    return text;
  }
}

function positive(text: string | null): number | undefined {
  const value = Number(text);
  return Number.isInteger(value) && value > 0 ? value : undefined;
}

export type ProductChange = z.infer<typeof productChangeItem>;
export type StockChange = z.infer<typeof stockChangeItem>;

/** Applied, or the platform's message of why not. */
export type Written = { applied: true } | { applied: false; message: string };

const APPLIED: Written = { applied: true };
const refused = (message: string): Written => ({ applied: false, message });

/** PUT /product for one valid item: price at the SKU, the rest at the product. */
export function writeProduct(catalog: Catalog, item: ProductChange): Written {
  const found =
    item.sku === undefined ? catalog.findByIntegration(item.externalId ?? '')[0] : catalog.findSku(item.sku);
  if (!found) return refused('Product not found');
  if (item.price !== undefined) found.sku.price = item.price;
  if (item.name !== undefined) found.product.name = item.name;
  if (item.description !== undefined) found.product.description = item.description;
  if (item.show !== undefined) found.product.show = item.show;
  return APPLIED;
}

/**
 * PUT /product/stock for one valid item. The externalId names product and branch; found in several branches, it
 * needs the branch said. Only a stock entry that exists is changed.
 */
export function writeStock(catalog: Catalog, item: StockChange): Written {
  const everywhere = catalog.findByIntegration(item.externalId);
  if (everywhere.length === 0) return refused('Product not found');
  const branch = namedBranch(catalog, item);
  if (branch === 'unknown') return refused('Subsidiary not found');
  const here = branch === 'unnamed' ? everywhere : everywhere.filter((at) => at.subsidiaryId === branch);
  if (here.length === 0) return refused('The product has no integration in this subsidiary');
  if (new Set(here.map((at) => at.subsidiaryId)).size > 1) {
    return refused('externalId exists in several subsidiaries: send subsidiaryExternalId or subsidiaryId');
  }
  const stocks = here.flatMap((at) =>
    at.sku.stocks.filter((stock) => stock.subsidiaryId === at.subsidiaryId),
  );
  const stock = stocks[0];
  if (!stock) return refused('externalId has no subsidiary with associated stock');
  stock.qty = item.qty;
  if (item.show !== undefined) stock.show = item.show;
  return APPLIED;
}

/** The internal id of the branch that an item names; two names must mean the same one. */
function namedBranch(catalog: Catalog, item: StockChange): string {
  const { subsidiaryId, subsidiaryExternalId } = item;
  const named = [
    ...(subsidiaryId === undefined ? [] : [catalog.branchById(subsidiaryId)]),
    ...(subsidiaryExternalId === undefined ? [] : [catalog.branchByExternalId(subsidiaryExternalId)]),
  ];
  if (named.length === 0) return 'unnamed';
  const ids = new Set(named.map((branch) => branch?.subsidiaryId));
  const [id] = ids;
  return ids.size === 1 && id !== undefined ? id : 'unknown';
}

interface ItemKind<T> {
  schema: z.ZodType<T>;
  write: (catalog: Catalog, item: T) => Written;
  /** Fields of an item that a batch error repeats. */
  named: readonly string[];
}

const PRODUCT = { schema: productChangeItem, write: writeProduct, named: ['sku', 'externalId'] };
const STOCK = { schema: stockChangeItem, write: writeStock, named: ['externalId'] };

/** GET /product, PUT /product, PUT /product/stock and both batches. */
export class ProductEndpoints {
  readonly #settings: SandboxSettings;

  constructor(settings: SandboxSettings) {
    this.#settings = settings;
  }

  get(catalog: Catalog, call: Call): Reply {
    const query = productGetQuery.safeParse(Object.fromEntries(call.query));
    if (!query.success) return this.invalid(query.error);
    const { sku, externalId } = query.data;
    const found =
      sku === undefined ? catalog.findByIntegration(externalId ?? '')[0] : catalog.findSku(Number(sku));
    return envelope(found ? shownProduct(found.product) : null);
  }

  put(catalog: Catalog, call: Call): Reply {
    return this.#one(PRODUCT, catalog, call);
  }

  putStock(catalog: Catalog, call: Call): Reply {
    return this.#one(STOCK, catalog, call);
  }

  batch(catalog: Catalog, call: Call): Reply {
    return this.#many(PRODUCT, catalog, call);
  }

  stockBatch(catalog: Catalog, call: Call): Reply {
    return this.#many(STOCK, catalog, call);
  }

  /** The answer to a request that does not validate. */
  invalid(error: z.ZodError): Reply {
    return failure(this.#settings.validationStatus, firstMessage(error));
  }

  #one<T>(kind: ItemKind<T>, catalog: Catalog, call: Call): Reply {
    const item = kind.schema.safeParse(call.body);
    if (!item.success) return this.invalid(item.error);
    const written = kind.write(catalog, item.data);
    return written.applied ? envelope({}) : refusal(this.#settings.refusalStatus, written.message);
  }

  #many<T>(kind: ItemKind<T>, catalog: Catalog, call: Call): Reply {
    const frame = batchRequestFrame.safeParse(call.body);
    if (!frame.success) return this.invalid(frame.error);
    const items = frame.data.products;
    call.record.items = items.length;
    if (call.fault?.kind === 'batch-refused') return this.#refuseWhole(kind, catalog, call, items);
    const errors: object[] = [];
    let updated = 0;
    let lost = call.fault?.kind === 'miscount';
    items.forEach((raw, index) => {
      const item = kind.schema.safeParse(raw);
      const written = item.success
        ? undefined
        : { applied: false as const, message: firstMessage(item.error) };
      if (!written && lost) {
        lost = false;
        return;
      }
      const result = written ?? (item.success ? kind.write(catalog, item.data) : undefined);
      if (result?.applied) updated += 1;
      else errors.push({ index, ...pick(raw, kind.named), message: result?.message ?? '' });
    });
    return envelope({ updated, total: items.length, errors });
  }

  /** `batch-refused`: nothing is applied when one item is bad; without a bad one the batch passes. */
  #refuseWhole<T>(kind: ItemKind<T>, catalog: Catalog, call: Call, items: unknown[]): Reply {
    const poison = new Set((call.fault?.poison ?? []).map(String));
    const isBad = (raw: unknown) => {
      const names = Object.values(pick(raw, ['sku', 'externalId']));
      if (names.some((name) => poison.has(String(name)))) return true;
      const item = kind.schema.safeParse(raw);
      return !item.success || !isKnown(catalog, raw);
    };
    if (!items.some(isBad)) return this.#many(kind, catalog, { ...call, fault: undefined });
    return failure(call.fault?.status ?? this.#settings.validationStatus, 'Bad Request');
  }
}

function isKnown(catalog: Catalog, raw: unknown): boolean {
  const { sku, externalId } = pick(raw, ['sku', 'externalId']);
  if (typeof sku === 'number') return catalog.findSku(sku) !== undefined;
  return typeof externalId === 'string' && catalog.findByIntegration(externalId).length > 0;
}

function pick(raw: unknown, keys: readonly string[]): Record<string, unknown> {
  if (typeof raw !== 'object' || raw === null) return {};
  const source: Record<string, unknown> = { ...raw };
  return Object.fromEntries(keys.filter((key) => key in source).map((key) => [key, source[key]]));
}

function firstMessage(error: z.ZodError): string {
  const issue = error.issues[0];
  return issue ? `${issue.path.join('.')} ${issue.message}`.trim() : 'Invalid';
}

type SortKey = (product: CatalogProduct) => string | number;

const SORT_KEYS: Record<string, SortKey> = {
  CreatedDate: (product) => product.createdAtMs,
  name: (product) => product.name,
  id: (product) => product.id,
  category: (product) => product.category,
};

/** GET /product/list: the products of one branch, a page at a time. */
export function productList(catalog: Catalog, call: Call, settings: SandboxSettings): Reply {
  const query = productListQuery.safeParse(Object.fromEntries(call.query));
  if (!query.success) {
    return failure(settings.validationStatus, query.error.issues[0]?.message ?? 'Invalid query');
  }
  const { subsidiaryId, externalId, page, limit, order, orderBy } = query.data;
  const branch =
    subsidiaryId === undefined
      ? catalog.branchByExternalId(externalId ?? '')
      : catalog.branchById(subsidiaryId);
  if (!branch) return refusal(settings.refusalStatus, 'Subsidiary not found');
  const key = SORT_KEYS[orderBy];
  if (!key) return failure(settings.validationStatus, `Cannot sort by ${orderBy}`);
  const sign = order === 'asc' ? 1 : -1;
  const sorted = catalog.productsOf(branch.subsidiaryId).sort((a, b) => sign * compare(key(a), key(b)));
  const capped = Math.min(limit, settings.maxPageSize ?? limit);
  return envelope(paged(sorted, page, capped, shownProduct));
}

function compare(a: string | number, b: string | number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

export interface EndpointsOptions {
  settings: SandboxSettings;
  tokens: TokenOffice;
  shopOf: (company: string) => Shop;
}

/** The work of each endpoint, done in the shop of the company that the token names. */
export function buildEndpoints({ settings, tokens, shopOf }: EndpointsOptions): Endpoints {
  const products = new ProductEndpoints(settings);
  const orderList = new OrderList(settings);
  const shop = (call: Call) => shopOf(call.session.company);
  const catalog = (call: Call) => shop(call).catalog;
  return {
    'token.refresh': (call) => refresh(call, tokens, settings),
    'order.all': (call) => orderList.answer(shop(call).orders, catalog(call), call),
    'product.put': (call) => products.put(catalog(call), call),
    'product.stock.put': (call) => products.putStock(catalog(call), call),
    'product.batch': (call) => products.batch(catalog(call), call),
    'product.stock.batch': (call) => products.stockBatch(catalog(call), call),
    'product.list': (call) => productList(catalog(call), call, settings),
    'product.get': (call) => products.get(catalog(call), call),
    'webhook.put': (call) => shop(call).desk.put(call),
    'webhook.get': (call) => shop(call).desk.read(),
  };
}

function refresh(call: Call, tokens: TokenOffice, settings: SandboxSettings): Reply {
  const request = tokenRefreshRequest.safeParse(call.body);
  if (!request.success) return failure(settings.validationStatus, 'refreshToken is required');
  const pair = tokens.rotate(request.data.refreshToken, call.session);
  return envelope({ ...pair, expiresIn: tokens.expiresIn });
}
