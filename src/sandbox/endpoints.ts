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
import { envelope, failure, firstFault, invalid, type Reply, refusal } from './exchange.ts';
import type { OrderAddress, OrderLine, OrderSnapshot, StoredOrder } from './orders.ts';
import type { OrderRecordStyle, SandboxSettings } from './settings.ts';
import type { Shop } from './shop.ts';
import type { TokenOffice } from './tokens.ts';

/** Returns one page of a list. The first page is 1; a page past the end is empty. */
function paged<T>(list: readonly T[], page: number, limit: number, show: (entry: T) => unknown) {
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

/** Returns a record of GET /order/all in one of the plausible spellings, because the document shows none. */
function orderRecord(order: StoredOrder, style: OrderRecordStyle, branchName: string): unknown {
  if (style === 'notification') return order.snapshot;
  if (style === 'internal') return internalRecord(order, branchName);
  return snakeKeys(order.snapshot);
}

/** Returns a record as a shop's own database might have it. */
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

const ADDRESS_NAMES: Record<string, string> = {
  streetAddress: 'street',
  state: 'region',
  zipCode: 'postalCode',
  phoneNumber: 'phone',
  details: 'reference',
};

function internalAddress(address: OrderAddress): unknown {
  return Object.fromEntries(
    Object.entries(address).map(([name, value]) => [ADDRESS_NAMES[name] ?? name, value]),
  );
}

function internalLine({
  product,
  amount,
  comment,
  productPrice,
  productBasePrice,
  ...line
}: OrderLine): unknown {
  return {
    product: { extId: product.externalId, name: product.name },
    quantity: amount,
    notes: comment,
    unitPrice: line.unitPrice,
    baseUnitPrice: line.baseUnitPrice,
    bestPrice: productPrice,
    price: productBasePrice,
    modifiers: line.modifiers,
  };
}

/** Names of maps whose keys are ids. The ids are data, so they are not changed to snake case. */
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

/**
 * Answers GET /order/all with orders created between two dates of the company's calendar, both included,
 * newest first.
 */
function orderAll(settings: SandboxSettings) {
  /** Texts of records, cached because few orders change between two polls, and making a text takes long. */
  const texts = new WeakMap<OrderSnapshot, { style: OrderRecordStyle; text: string }>();
  const textOf = (order: StoredOrder, catalog: Catalog): string => {
    const { record: style } = settings.shape;
    const known = texts.get(order.snapshot);
    if (known?.style === style) return known.text;
    const text = JSON.stringify(orderRecord(order, style, catalog.branchName(order.subsidiaryId)));
    texts.set(order.snapshot, { style, text });
    return text;
  };
  return ({ orders, catalog }: Shop, call: Call): Reply => {
    const { shape, validationStatus } = settings;
    const query = orderAllQuery.safeParse(Object.fromEntries(call.query));
    if (!query.success) return invalid(validationStatus, query.error);
    const found = orders.between(query.data.startDate, query.data.endDate);
    const show = (order: StoredOrder) => textOf(order, catalog);
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
  };
}

function positive(text: string | null): number | undefined {
  const value = Number(text);
  return Number.isInteger(value) && value > 0 ? value : undefined;
}

type ProductChange = z.infer<typeof productChangeItem>;
type StockChange = z.infer<typeof stockChangeItem>;

/** Result of one item: applied, or refused with the platform's message. */
type Written = { applied: true } | { applied: false; message: string };

const APPLIED: Written = { applied: true };
const refused = (message: string): Written => ({ applied: false, message });

/** PUT /product for one valid item: the price is set on the SKU, the rest on the product. */
function writeProduct(catalog: Catalog, item: ProductChange): Written {
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
 * PUT /product/stock for one valid item. The externalId gives product and branch; if several branches have it, the
 * item must name one. Only an existing stock is changed.
 */
function writeStock(catalog: Catalog, item: StockChange): Written {
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

/**
 * Returns the internal id of the branch that an item names; `unnamed` if it names none, and `unknown` if no branch has
 * the id or the item's two ids are not of the same branch.
 */
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

function productGet(catalog: Catalog, call: Call, settings: SandboxSettings): Reply {
  const query = productGetQuery.safeParse(Object.fromEntries(call.query));
  if (!query.success) return invalid(settings.validationStatus, query.error);
  const { sku, externalId } = query.data;
  const found =
    sku === undefined ? catalog.findByIntegration(externalId ?? '')[0] : catalog.findSku(Number(sku));
  return envelope(found ? shownProduct(found.product) : null);
}

/** Answers a PUT of one item. */
function putOne<T>(kind: ItemKind<T>, catalog: Catalog, call: Call, settings: SandboxSettings): Reply {
  const item = kind.schema.safeParse(call.body);
  if (!item.success) return invalid(settings.validationStatus, item.error);
  const written = kind.write(catalog, item.data);
  return written.applied ? envelope({}) : refusal(settings.refusalStatus, written.message);
}

/**
 * Answers a PUT of a batch. A fault may ignore one good item (`miscount`), or refuse the whole batch because of one bad
 * item (`batch-refused`).
 */
function putMany<T>(kind: ItemKind<T>, catalog: Catalog, call: Call, settings: SandboxSettings): Reply {
  const frame = batchRequestFrame.safeParse(call.body);
  if (!frame.success) return invalid(settings.validationStatus, frame.error);
  const items = frame.data.products;
  call.record.items = items.length;
  const poison = new Set((call.fault?.poison ?? []).map(String));
  if (call.fault?.kind === 'batch-refused' && items.some((raw) => isBad(kind, catalog, raw, poison))) {
    return failure(call.fault.status ?? settings.validationStatus, 'Bad Request');
  }
  const errors: object[] = [];
  let updated = 0;
  let lost = call.fault?.kind === 'miscount';
  for (const [index, raw] of items.entries()) {
    const item = kind.schema.safeParse(raw);
    if (item.success && lost) {
      lost = false;
      continue;
    }
    const written = item.success ? kind.write(catalog, item.data) : refused(firstFault(item.error));
    if (written.applied) updated += 1;
    else errors.push({ index, ...pick(raw, kind.named), message: written.message });
  }
  return envelope({ updated, total: items.length, errors });
}

function isBad<T>(kind: ItemKind<T>, catalog: Catalog, raw: unknown, poison: ReadonlySet<string>): boolean {
  const names = Object.values(pick(raw, ['sku', 'externalId']));
  if (names.some((name) => poison.has(String(name)))) return true;
  return !kind.schema.safeParse(raw).success || !isKnown(catalog, raw);
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

type SortKey = (product: CatalogProduct) => string | number;

const SORT_KEYS: Record<string, SortKey> = {
  CreatedDate: (product) => product.createdAtMs,
  name: (product) => product.name,
  id: (product) => product.id,
  category: (product) => product.category,
};

/** Answers GET /product/list with the products of one branch, page by page. */
function productList(catalog: Catalog, call: Call, settings: SandboxSettings): Reply {
  const query = productListQuery.safeParse(Object.fromEntries(call.query));
  if (!query.success) return invalid(settings.validationStatus, query.error);
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

/** Builds the endpoints, each of which works in the shop of the token's company. */
export function buildEndpoints(
  settings: SandboxSettings,
  tokens: TokenOffice,
  shopOf: (company: string) => Shop,
): Endpoints {
  const list = orderAll(settings);
  const shop = (call: Call) => shopOf(call.session.company);
  const catalog = (call: Call) => shop(call).catalog;
  return {
    'token.refresh': (call) => refresh(call, tokens, settings),
    'order.all': (call) => list(shop(call), call),
    'product.put': (call) => putOne(PRODUCT, catalog(call), call, settings),
    'product.stock.put': (call) => putOne(STOCK, catalog(call), call, settings),
    'product.batch': (call) => putMany(PRODUCT, catalog(call), call, settings),
    'product.stock.batch': (call) => putMany(STOCK, catalog(call), call, settings),
    'product.list': (call) => productList(catalog(call), call, settings),
    'product.get': (call) => productGet(catalog(call), call, settings),
    'webhook.put': (call) => shop(call).webhook.put(call),
    'webhook.get': (call) => shop(call).webhook.read(),
  };
}

function refresh(call: Call, tokens: TokenOffice, settings: SandboxSettings): Reply {
  const request = tokenRefreshRequest.safeParse(call.body);
  if (!request.success) return failure(settings.validationStatus, 'refreshToken is required');
  const pair = tokens.rotate(request.data.refreshToken, call.session);
  return envelope({ ...pair, expiresIn: tokens.expiresIn });
}
