import { TillsyncError } from '../core/errors.ts';
import { jsonText } from '../core/values.ts';
import { ORDER_ID_LENGTH_MAX } from './order.ts';

/**
 * Under which names a source may carry what the mirror keeps, best first. The names of the order notification
 * (document, "Order notification") lead; the others are plausible names for the record of GET /order/all, whose
 * fields are not shown. Dots go into nested objects. Each name also counts in its snake_case form.
 */

/** How a sent value is read. A value of a kind that cannot be read counts as not sent. */
export type FieldKind =
  | 'id'
  | 'text'
  | 'whole'
  | 'amount'
  | 'number'
  | 'flag'
  | 'time'
  | 'list'
  | 'map'
  | 'json';

export type SpellingTable = Readonly<Record<string, readonly [kind: FieldKind, ...paths: string[]]>>;

/** The reader relies on the first three being the id, the items and the status. */
export const ORDER_SPELLINGS = {
  orderId: ['id', 'internalOrderId', 'orderId', '_id', '_id.$oid', 'id', 'idOrder', 'uuid', 'orderUuid'],
  items: [
    'list',
    'items',
    'products',
    'orderItems',
    'lines',
    'lineItems',
    'orderLines',
    'orderProducts',
    'cart.items',
    'cart.products',
    'details',
  ],
  status: [
    'text',
    'status',
    'orderStatus',
    'status.name',
    'status.code',
    'status.key',
    'currentStatus',
    'state',
  ],
  code: [
    'whole',
    'code',
    'companyOrderNumber',
    'orderNumber',
    'orderCode',
    'number',
    'correlative',
    'companyOrderCode',
  ],
  storeExternalId: [
    'text',
    'store.externalId',
    'store.extId',
    'storeExternalId',
    'subsidiaryExternalId',
    'subsidiary.externalId',
    'subsidiary.extId',
    'branch.externalId',
    'branch.extId',
    'branchExternalId',
    'store._id',
    'store.id',
    'subsidiary._id',
    'subsidiary.id',
    'storeId',
    'subsidiaryId',
    'branchId',
    'store',
    'subsidiary',
  ],
  websiteId: [
    'text',
    'websiteId',
    'website._id',
    'website.id',
    'website',
    'companyId',
    'company._id',
    'company.id',
  ],
  name: ['text', 'name', 'orderName', 'title', 'displayName'],
  createdAt: [
    'time',
    'createdAt',
    'createdAt.$date',
    'createdDate',
    'CreatedDate',
    'creationDate',
    'dateCreated',
    'orderDate',
    'date',
  ],
  deliveryType: [
    'text',
    'deliveryType',
    'shippingType',
    'orderType',
    'deliveryMethod',
    'shippingMethod',
    'shipping.type',
  ],
  amountToPay: [
    'amount',
    'amountToPay',
    'total',
    'totalToPay',
    'totalAmount',
    'totalPrice',
    'grandTotal',
    'totals.total',
  ],
  amount: [
    'amount',
    'amount',
    'subTotal',
    'subtotal',
    'productsTotal',
    'totalProducts',
    'itemsTotal',
    'totals.subtotal',
  ],
  deliveryFee: [
    'amount',
    'deliveryFee',
    'shippingCost',
    'shippingPrice',
    'deliveryCost',
    'deliveryPrice',
    'shippingAmount',
    'shipping.cost',
    'shipping.price',
  ],
  couponDiscount: ['amount', 'couponDiscount', 'coupon.discount', 'discountCoupon', 'couponAmount'],
  deliveryTime: [
    'time',
    'deliveryTime',
    'estimatedDeliveryTime',
    'estimatedDelivery',
    'deliveryDate',
    'estimatedTime',
  ],
  isScheduled: ['flag', 'isScheduled', 'scheduled', 'isProgrammed', 'programmed'],
  scheduledFor: [
    'time',
    'scheduledDate',
    'scheduledAt',
    'scheduledFor',
    'scheduleDate',
    'scheduledTime',
    'scheduledDateTime',
    'scheduledDeliveryDate',
    'scheduledDeliveryTime',
    'dateScheduled',
    'scheduleAt',
    'programmedDate',
    'scheduled.date',
    'schedule.date',
    'scheduled',
    'schedule',
  ],
  ...address('lat', 'number', 'latitude', 'location.lat', 'geo.lat', 'coordinates.lat'),
  ...address('lng', 'number', 'lon', 'longitude', 'location.lng', 'geo.lng', 'coordinates.lng'),
  addressAddress: [
    'text',
    'address.address',
    'address.fullAddress',
    'address.formattedAddress',
    'deliveryAddress.address',
    'shippingAddress.address',
    'shipping.address.address',
    'address',
  ],
  ...address('streetNumber', 'text', 'number'),
  ...address('streetAddress', 'text', 'street', 'streetName', 'route'),
  ...address('country', 'text'),
  ...address('state', 'text', 'region', 'province'),
  ...address('city', 'text', 'commune', 'locality'),
  ...address('zipCode', 'text', 'zip', 'postalCode'),
  ...address('phoneNumber', 'text', 'phone'),
  ...address('details', 'text', 'detail', 'apartment', 'reference', 'references'),
  ...customer('firstName', 'name', 'firstname'),
  ...customer('lastName', 'surname', 'lastname'),
  ...customer('email', 'mail'),
  ...customer('phoneNumber', 'phone', 'telephone', 'mobile'),
} as const satisfies SpellingTable;

export const ITEM_SPELLINGS = {
  productExternalId: [
    'text',
    'product.externalId',
    'product.extId',
    'productExternalId',
    'externalId',
    'extId',
    'externalProductId',
  ],
  productName: ['text', 'product.name', 'productName', 'name', 'title', 'product'],
  quantity: ['amount', 'amount', 'quantity', 'qty', 'count', 'units'],
  comment: ['text', 'comment', 'comments', 'instructions', 'note', 'notes', 'observation', 'observations'],
  unitPrice: ['amount', 'unitPrice', 'priceUnit', 'unitBestPrice', 'bestUnitPrice'],
  baseUnitPrice: ['amount', 'baseUnitPrice', 'unitBasePrice', 'listUnitPrice', 'unitListPrice'],
  productPrice: ['amount', 'productPrice', 'totalPrice', 'bestPrice', 'total', 'subtotal'],
  productBasePrice: ['amount', 'productBasePrice', 'basePrice', 'listPrice', 'price'],
  modifiers: ['list', 'modifiers', 'additionals', 'modifierGroups', 'extras', 'toppings', 'options'],
} as const satisfies SpellingTable;

export const MODIFIER_SPELLINGS = {
  name: ['text', 'name', 'modifierName', 'title'],
  shortName: ['text', 'shortName', 'abbreviation'],
  description: ['json', 'description'],
  countById: ['map', 'countById', 'quantityById'],
  countByExternalId: ['map', 'countByExternalId', 'countByExtId', 'quantityByExternalId'],
  quantity: ['number', 'quantity', 'qty', 'amount', 'count'],
  price: ['amount', 'price', 'unitPrice'],
  externalId: ['text', 'externalId', 'extId'],
  options: ['list', 'options', 'items', 'modifiers', 'values', 'selected'],
} as const satisfies SpellingTable;

export const OPTION_SPELLINGS = {
  optionId: ['text', 'optionId', '_id', '_id.$oid', 'id', 'modifierId'],
  externalId: ['text', 'externalId', 'extId', 'option.externalId'],
  name: ['text', 'name', 'optionName', 'title'],
  price: ['amount', 'price', 'unitPrice', 'optionPrice'],
  quantity: ['number', 'quantity', 'qty', 'amount', 'count'],
} as const satisfies SpellingTable;

/** Objects in which a record may carry its order, instead of being the order itself. */
export const WRAPPER_NAMES = [
  'order',
  'data',
  'node',
  'attributes',
  'record',
  'document',
  'payload',
] as const;

type Capital<N extends string, P extends string> = `${P}${Capitalize<N>}`;

function address<N extends string, K extends FieldKind>(name: N, kind: K, ...others: string[]) {
  const paths = ['address', 'deliveryAddress', 'shippingAddress', 'shipping.address', 'userAddress'].flatMap(
    (parent) => [name, ...others].map((each) => `${parent}.${each}`),
  );
  return { [`address${capital(name)}`]: [kind, ...paths] } as Record<Capital<N, 'address'>, [K, ...string[]]>;
}

function customer<N extends string>(name: N, ...others: string[]) {
  const paths = ['user', 'customer', 'client', 'buyer', 'shopper', 'userData'].flatMap((parent) =>
    [name, ...others].map((each) => `${parent}.${each}`),
  );
  const flat = [`customer${capital(name)}`, `user${capital(name)}`];
  return { [`customer${capital(name)}`]: ['text', ...paths, ...flat] } as Record<
    Capital<N, 'customer'>,
    ['text', ...string[]]
  >;
}

function capital(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/**
 * Read one sent value as the kind its field needs. null stays null; undefined means that the value cannot be
 * read so and counts as not sent.
 */
export const SENT_VALUE_READERS: Readonly<Record<FieldKind, (value: unknown) => unknown>> = {
  id: readId,
  text: readText,
  whole: readWhole,
  amount: readAmount,
  number: readNumber,
  flag: readFlag,
  time: readTime,
  list: (value) => (Array.isArray(value) || value === null ? value : undefined),
  map: (value) => (isRecord(value) || value === null ? value : undefined),
  json: readJson,
};

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What stands for an id that was a number too large to be exact; no id begins with a space. */
export const INEXACT_ID = ' inexact';
/** What stands for an id with half a surrogate pair, which a database cannot keep: two of them would be one. */
export const BROKEN_ID = ' broken';

/** Ids are texts in the mirror. */
function readId(value: unknown): string | null | undefined {
  if (value === null) return null;
  if (typeof value === 'number') return readNumericId(value);
  if (typeof value !== 'string') return undefined;
  const id = value.trim();
  if (!id.isWellFormed()) return BROKEN_ID;
  return id === '' || id.length > ORDER_ID_LENGTH_MAX ? undefined : id;
}

function readNumericId(value: number): string | undefined {
  if (Number.isSafeInteger(value)) return String(value);
  return Number.isInteger(value) ? INEXACT_ID : undefined;
}

function readText(value: unknown): string | null | undefined {
  if (value === null) return null;
  // Half a surrogate pair could be sent escaped, and would come back from the database as another text.
  if (typeof value === 'string') return value.toWellFormed();
  // A whole number beyond what JavaScript keeps exactly would become the text of another number.
  const isExact = typeof value === 'number' && (Number.isSafeInteger(value) || !Number.isInteger(value));
  return isExact && Number.isFinite(value) ? String(value) : undefined;
}

function readAmount(value: unknown): number | string | null | undefined {
  if (value === null) return null;
  if (typeof value === 'string') return value.toWellFormed();
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

function readWhole(value: unknown): number | null | undefined {
  if (value === null) return null;
  const number =
    typeof value === 'string' && /^#?\d{1,15}$/.test(value) ? Number(value.replace('#', '')) : value;
  return typeof number === 'number' && Number.isSafeInteger(number) ? number : undefined;
}

function readNumber(value: unknown): number | null | undefined {
  if (value === null) return null;
  const number = typeof value === 'string' && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : undefined;
}

function readFlag(value: unknown): boolean | null | undefined {
  if (value === null) return null;
  if (typeof value === 'boolean') return value;
  if (value === 1 || value === 'true' || value === '1') return true;
  return value === 0 || value === 'false' || value === '0' ? false : undefined;
}

const UTC_WITH_MS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const ISO_WITH_ZONE = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?\s?(Z|z|[+-]\d{2}(:?\d{2})?)$/;

/** A time without a zone stays as sent: nothing says whose clock it is. */
function readTime(value: unknown): string | null | undefined {
  if (value === null) return null;
  if (typeof value === 'number')
    return epochTime(value) ?? (Number.isFinite(value) ? String(value) : undefined);
  if (typeof value !== 'string') return undefined;
  // Already as the mirror writes times, or so wrong that it stays as sent: the same text either way.
  if (value === '' || (value.length === 24 && UTC_WITH_MS.test(value))) return value;
  if (/^\d{10}(\d{3})?$/.test(value)) return epochTime(Number(value)) ?? value;
  if (!ISO_WITH_ZONE.test(value)) return value.toWellFormed();
  const normal = value
    .replace(' ', 'T')
    .replace(',', '.')
    .replace(/\s/, '')
    .replace(/([+-]\d{2})$/, '$1:00');
  const ms = Date.parse(normal);
  return Number.isNaN(ms) ? value : new Date(ms).toISOString();
}

/** Seconds and milliseconds since the epoch differ by their size from 1973 to 5138. */
function epochTime(value: number): string | undefined {
  if (value >= 1e8 && value < 1e11) return new Date(value * 1000).toISOString();
  return value >= 1e11 && value < 1e14 ? new Date(value).toISOString() : undefined;
}

function readJson(value: unknown): string | null | undefined {
  return value === null ? null : jsonText(value);
}

/**
 * Further names from the config, tried before the known ones: field of the mirror to names as the source
 * spells them. Fields of items, modifiers and options are written `item.quantity`, `modifier.name`,
 * `option.optionId`.
 */
export type ExtraSpellings = Readonly<Record<string, readonly string[]>>;

/** What one name may be a spelling of. */
export interface SpellingHit {
  /** Place of the field in the tree's `fields`. */
  slot: number;
  /** Lower is better. */
  rank: number;
  read: (value: unknown) => unknown;
}

/** Where one name leads: to values of fields, to names inside the object there, or to both. */
export interface SpellingNode {
  hits: SpellingHit[];
  inside: Map<string, SpellingNode> | undefined;
}

export interface SpellingTree {
  fields: readonly string[];
  /** As many slots as fields, with nothing in them. */
  empty: readonly unknown[];
  names: ReadonlyMap<string, SpellingNode>;
}

/** All tables as trees, so that one walk over a record's own names finds every field. */
export interface OrderSpellings {
  order: SpellingTree;
  item: SpellingTree;
  modifier: SpellingTree;
  option: SpellingTree;
}

const TABLES: Record<keyof OrderSpellings, SpellingTable> = {
  order: ORDER_SPELLINGS,
  item: ITEM_SPELLINGS,
  modifier: MODIFIER_SPELLINGS,
  option: OPTION_SPELLINGS,
};

/** Every field that may get further names in the config. */
export const SPELLABLE_FIELDS: readonly string[] = Object.entries(TABLES).flatMap(([table, spellings]) =>
  Object.keys(spellings).map((field) => (table === 'order' ? field : `${table}.${field}`)),
);

const NONE: ExtraSpellings = {};
const compiled = new WeakMap<ExtraSpellings, OrderSpellings>();

/** The trees, made once for each config. Throws `config-invalid` when `extra` names a field that does not exist. */
export function compileSpellings(extra: ExtraSpellings = NONE): OrderSpellings {
  const known = compiled.get(extra);
  if (known) return known;
  const strange = Object.keys(extra).find((field) => !SPELLABLE_FIELDS.includes(field));
  if (strange !== undefined) {
    throw new TillsyncError('config-invalid', `There is no field "${strange}" to give further names to.`, {
      hint: `Allowed are: ${SPELLABLE_FIELDS.join(', ')}.`,
    });
  }
  const spellings = {
    order: compile('order', extra),
    item: compile('item', extra),
    modifier: compile('modifier', extra),
    option: compile('option', extra),
  };
  compiled.set(extra, spellings);
  return spellings;
}

function compile(table: keyof OrderSpellings, extra: ExtraSpellings): SpellingTree {
  const names = new Map<string, SpellingNode>();
  const fields = Object.keys(TABLES[table]);
  for (const [slot, [kind, ...known]] of Object.values(TABLES[table]).entries()) {
    const field = fields[slot] as string;
    const configured = extra[table === 'order' ? field : `${table}.${field}`] ?? [];
    for (const [rank, path] of [...configured, ...known].entries()) {
      for (const spelling of new Set([path, snakeCase(path)])) {
        const { hits } = nodeAt(names, spelling.split('.'));
        if (!hits.some((hit) => hit.slot === slot)) hits.push({ slot, rank, read: SENT_VALUE_READERS[kind] });
      }
    }
  }
  return { fields, names, empty: fields.map(() => undefined) };
}

function nodeAt(root: Map<string, SpellingNode>, names: string[]): SpellingNode {
  let level = root;
  let node: SpellingNode | undefined;
  for (const name of names) {
    if (node) {
      node.inside ??= new Map();
      level = node.inside;
    }
    node = level.get(name) ?? { hits: [], inside: undefined };
    level.set(name, node);
  }
  return node ?? { hits: [], inside: undefined };
}

/** As SQL writes it. */
export function snakeCase(path: string): string {
  return path.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toLowerCase();
}
