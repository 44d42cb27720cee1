import { TillsyncError } from '../core/errors.ts';
import { zoneCalendar } from '../core/time.ts';
import { jsonText } from '../core/values.ts';
import { ORDER_ID_LENGTH_MAX, ORDER_STATUSES, type OrderFields } from './order.ts';

/**
 * Names under which a source may send each field of the mirror, best first. Names of the notification come first
 * (document, "Order notification"). The others are plausible names in GET /order/all, whose fields the document does
 * not show. A dot means a nested object. Each name is also accepted in snake_case.
 */

/**
 * Kind of a field, which says how a sent value is read. A value that cannot be read as its kind counts as not sent.
 */
type FieldKind =
  | 'id'
  | 'status'
  | 'delivery'
  | 'key'
  | 'text'
  | 'whole'
  | 'amount'
  | 'number'
  | 'flag'
  | 'time'
  | 'list'
  | 'map'
  | 'json';

interface Spelling {
  kind: FieldKind;
  names: string[];
}

type SpellingTable = Readonly<Record<string, Spelling>>;

/** Builds an entry of the table. `names` are separated by white space. */
function named(kind: FieldKind, names: string): Spelling {
  return { kind, names: names.split(/\s+/) };
}

function within(parents: string, kind: FieldKind, names: string): Spelling {
  const paths = parents.split(' ').flatMap((parent) => names.split(' ').map((name) => `${parent}.${name}`));
  return { kind, names: paths };
}

function inAddress(kind: FieldKind, names: string): Spelling {
  return within('address deliveryAddress shippingAddress shipping.address userAddress', kind, names);
}

function ofCustomer(name: string, others: string): Spelling {
  const capital = name.charAt(0).toUpperCase() + name.slice(1);
  const { names } = within('user customer client buyer shopper userData', 'text', `${name} ${others}`);
  return { kind: 'text', names: [...names, `customer${capital}`, `user${capital}`] };
}

/**
 * Names of an order's fields. The mirror's table has one column for each field except the first two, in this order.
 */
export const ORDER_SPELLINGS = {
  orderId: named('id', 'internalOrderId orderId _id _id.$oid id idOrder uuid orderUuid'),
  items: named(
    'list',
    `items products orderItems lines lineItems orderLines orderProducts cart.items cart.products details`,
  ),
  code: named('whole', 'code companyOrderNumber orderNumber orderCode number correlative companyOrderCode'),
  status: named('status', 'status orderStatus status.name status.code status.key currentStatus state'),
  storeExternalId: named(
    'key',
    `store.externalId store.extId storeExternalId subsidiaryExternalId subsidiary.externalId subsidiary.extId
    branch.externalId branch.extId branchExternalId store._id store.id subsidiary._id subsidiary.id storeId
    subsidiaryId branchId store subsidiary`,
  ),
  websiteId: named('key', 'websiteId website._id website.id website companyId company._id company.id'),
  name: named('text', 'name orderName title displayName'),
  createdAt: named(
    'time',
    'createdAt createdAt.$date createdDate CreatedDate creationDate dateCreated orderDate date',
  ),
  deliveryType: named(
    'delivery',
    'deliveryType shippingType orderType deliveryMethod shippingMethod shipping.type',
  ),
  amountToPay: named('amount', 'amountToPay total totalToPay totalAmount totalPrice grandTotal totals.total'),
  amount: named('amount', 'amount subTotal subtotal productsTotal totalProducts itemsTotal totals.subtotal'),
  deliveryFee: named(
    'amount',
    `deliveryFee shippingCost shippingPrice deliveryCost deliveryPrice shippingAmount shipping.cost
    shipping.price`,
  ),
  couponDiscount: named('amount', 'couponDiscount coupon.discount discountCoupon couponAmount'),
  deliveryTime: named(
    'time',
    'deliveryTime estimatedDeliveryTime estimatedDelivery deliveryDate estimatedTime',
  ),
  isScheduled: named('flag', 'isScheduled scheduled isProgrammed programmed'),
  scheduledFor: named(
    'time',
    `scheduledDate scheduledAt scheduledFor scheduleDate scheduledTime scheduledDateTime scheduledDeliveryDate
    scheduledDeliveryTime dateScheduled scheduleAt programmedDate scheduled.date schedule.date scheduled schedule`,
  ),
  addressLat: inAddress('number', 'lat latitude location.lat geo.lat coordinates.lat'),
  addressLng: inAddress('number', 'lng lon longitude location.lng geo.lng coordinates.lng'),
  addressAddress: named(
    'text',
    `address.address address.fullAddress address.formattedAddress deliveryAddress.address
    shippingAddress.address shipping.address.address address`,
  ),
  addressStreetNumber: inAddress('text', 'streetNumber number'),
  addressStreetAddress: inAddress('text', 'streetAddress street streetName route'),
  addressCountry: inAddress('text', 'country'),
  addressState: inAddress('text', 'state region province'),
  addressCity: inAddress('text', 'city commune locality'),
  addressZipCode: inAddress('text', 'zipCode zip postalCode'),
  addressPhoneNumber: inAddress('text', 'phoneNumber phone'),
  addressDetails: inAddress('text', 'details detail apartment reference references'),
  customerFirstName: ofCustomer('firstName', 'name firstname'),
  customerLastName: ofCustomer('lastName', 'surname lastname'),
  customerEmail: ofCustomer('email', 'mail'),
  customerPhoneNumber: ofCustomer('phoneNumber', 'phone telephone mobile'),
} satisfies Record<'orderId' | 'items' | keyof OrderFields, Spelling>;

export const ITEM_SPELLINGS = {
  productExternalId: named(
    'key',
    'product.externalId product.extId productExternalId externalId extId externalProductId',
  ),
  productName: named('text', 'product.name productName name title product'),
  quantity: named('amount', 'amount quantity qty count units'),
  comment: named('text', 'comment comments instructions note notes observation observations'),
  unitPrice: named('amount', 'unitPrice priceUnit unitBestPrice bestUnitPrice'),
  baseUnitPrice: named('amount', 'baseUnitPrice unitBasePrice listUnitPrice unitListPrice'),
  productPrice: named('amount', 'productPrice totalPrice bestPrice total subtotal'),
  productBasePrice: named('amount', 'productBasePrice basePrice listPrice price'),
  modifiers: named('list', 'modifiers additionals modifierGroups extras toppings options'),
};

const MODIFIER_SPELLINGS = {
  name: named('text', 'name modifierName title'),
  shortName: named('text', 'shortName abbreviation'),
  description: named('json', 'description'),
  countById: named('map', 'countById quantityById'),
  countByExternalId: named('map', 'countByExternalId countByExtId quantityByExternalId'),
  quantity: named('number', 'quantity qty amount count'),
  price: named('amount', 'price unitPrice'),
  externalId: named('key', 'externalId extId'),
  options: named('list', 'options items modifiers values selected'),
};

const OPTION_SPELLINGS = {
  optionId: named('key', 'optionId _id _id.$oid id modifierId'),
  externalId: named('key', 'externalId extId option.externalId'),
  name: named('text', 'name optionName title'),
  price: named('amount', 'price unitPrice optionPrice'),
  quantity: named('number', 'quantity qty amount count'),
};

/** Names of objects that may contain the order of a record, as in `{"order": {…}}`. */
export const WRAPPER_NAMES = ['order', 'data', 'node', 'attributes', 'record', 'document', 'payload'];

/** Reads one sent value, which is not null. Returns undefined if the value is unreadable, which counts as not sent. */
type ValueReader = (value: unknown) => unknown;

const READERS: Readonly<Record<Exclude<FieldKind, 'time'>, ValueReader>> = {
  id: readId,
  status: readStatus,
  delivery: readDelivery,
  key: readKey,
  text: readText,
  whole: readWhole,
  amount: readAmount,
  number: readNumber,
  flag: readFlag,
  list: readList,
  map: (value) => (isRecord(value) ? value : undefined),
  json: jsonText,
};

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Placeholder for an id that was sent as a number too large to be exact. A real id never begins with a space. */
export const INEXACT_ID = ' inexact';
/**
 * Placeholder for an id with half a surrogate pair or a NUL, because the database would store two such ids as the
 * same.
 */
export const BROKEN_ID = ' broken';

/** Reads an id. Ids are texts in the mirror, so 7 becomes "7". */
function readId(value: unknown): string | undefined {
  if (Number.isSafeInteger(value)) return String(value);
  if (typeof value === 'number') return Number.isInteger(value) ? INEXACT_ID : undefined;
  if (typeof value !== 'string') return undefined;
  const id = value.trim();
  if (!id.isWellFormed() || id.includes('\0')) return BROKEN_ID;
  return id === '' || id.length > ORDER_ID_LENGTH_MAX ? undefined : id;
}

function readText(value: unknown): string | undefined {
  // The database would return half a surrogate pair as another text, and SQL functions and receipt printers end a text
  // at a NUL, so both are replaced.
  if (typeof value === 'string') {
    const text = value.toWellFormed();
    // Every text of an order passes here, and `replaceAll` takes three times as long as `includes`.
    return text.includes('\0') ? text.replaceAll('\0', '\uFFFD') : text;
  }
  // An integer too large for JavaScript would become the text of another number.
  const isExact = Number.isSafeInteger(value) || !Number.isInteger(value);
  return isExact && Number.isFinite(value) ? String(value) : undefined;
}

const STATUS_OF: ReadonlyMap<string, string> = new Map(
  ORDER_STATUSES.map((status) => [status.toLowerCase(), status]),
);

/** Reads a status: "Ready " becomes `ready`. A status that the document does not name is kept as sent. */
function readStatus(value: unknown): string | undefined {
  const text = readText(value)?.trim();
  if (text === undefined || text === '') return undefined;
  return STATUS_OF.get(text.toLowerCase()) ?? text;
}

/** Reads the id of a branch, product or option. Surrounding blanks are removed; an empty id counts as not sent. */
function readKey(value: unknown): string | undefined {
  const key = readText(value)?.trim();
  return key === '' ? undefined : key;
}

const DELIVERIES: readonly string[] = ['delivery', 'pickup'];

/** Reads a delivery type: "Pickup " becomes `pickup`. A type that the document does not name is kept as sent. */
function readDelivery(value: unknown): string | undefined {
  const text = readText(value);
  const word = text?.trim().toLowerCase();
  return word !== undefined && DELIVERIES.includes(word) ? word : text;
}

/** Reads a list. A map of objects counts as the list of its values: {"0": {…}, "1": {…}} → [{…}, {…}]. */
function readList(value: unknown): unknown[] | undefined {
  if (Array.isArray(value)) return value;
  if (!isRecord(value)) return undefined;
  const entries = Object.values(value);
  return entries.some(isRecord) && entries.every((entry) => entry === null || isRecord(entry))
    ? entries
    : undefined;
}

/** Reads an amount. A plain decimal text counts as a number; "5990,55" does not, because its comma is ambiguous. */
function readAmount(value: unknown): number | undefined {
  return readNumber(typeof value === 'string' ? value.trim() : value);
}

function readWhole(value: unknown): number | undefined {
  const isText = typeof value === 'string' && /^#?\d{1,15}$/.test(value);
  const number = isText ? Number(value.replace('#', '')) : value;
  return Number.isSafeInteger(number) ? (number as number) : undefined;
}

export function readNumber(value: unknown): number | undefined {
  return finite(typeof value === 'string' && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value);
}

function finite(value: unknown): number | undefined {
  return Number.isFinite(value) ? (value as number) : undefined;
}

function readFlag(value: unknown): boolean | undefined {
  if (value === true || value === 1 || value === 'true' || value === '1') return true;
  return value === false || value === 0 || value === 'false' || value === '0' ? false : undefined;
}

/**
 * Readers of times: each form that a platform may send becomes ISO 8601 in UTC. Anything else becomes undefined,
 * because a POS that sorts by a time column must find only times there.
 */

const UTC_WITH_MS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
/**
 * Like `UTC_WITH_MS`, with a day from 1 to 28, which exists in every month, so that the date needs no further check.
 */
const SURE_UTC = /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/;
const CLOCK = String.raw`(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?:\s*([ap])\.?\s?m\.?)?`;
const ZONE = String.raw`(?:\s?(Z|[+-]\d{2}(?::?\d{2})?))?`;
const YEAR_FIRST = new RegExp(String.raw`^(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:T|,?\s+)${CLOCK}${ZONE}$`, 'i');
/** Dates with the day before the month, as in the platform's country. So 11/23/2026 is no date. */
const DAY_FIRST = new RegExp(
  String.raw`^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?:T|,?\s+)${CLOCK}${ZONE}$`,
  'i',
);
/** Dates as programs print them: `Mon, 23 Nov 2026 10:00:00 GMT`, `Mon Nov 23 2026 10:00:00 GMT-0300 (…)`. */
const PRINTED = /^[A-Z][a-z]{2},? .*\d{2}:\d{2}:\d{2} (?:GMT|UTC)\b/;
const SENT_LENGTH_MAX = 80;

/**
 * Returns a reader of times. A time without a zone is read in `timezone`; if that is undefined, the time is
 * unreadable.
 */
function timeReader(timezone: string | undefined): (value: unknown) => string | undefined {
  return (value) => {
    if (typeof value === 'number') return epochTime(value);
    if (typeof value !== 'string' || value.length > SENT_LENGTH_MAX) return undefined;
    // Most times have the mirror's form already. `toISOString` turns a 31 February into another day, so the comparison
    // rejects such a time.
    if (value.length === 24 && SURE_UTC.test(value)) return value;
    if (value.length === 24 && UTC_WITH_MS.test(value)) {
      const ms = Date.parse(value);
      return Number.isNaN(ms) || new Date(ms).toISOString() !== value ? undefined : value;
    }
    const sent = value.trim();
    if (/^\d{10}(\d{3})?$/.test(sent)) return epochTime(Number(sent));
    const yearFirst = YEAR_FIRST.exec(sent);
    if (yearFirst) {
      const [, year, month, day, ...rest] = yearFirst;
      return clockTime([year, month, day], rest, timezone);
    }
    const dayFirst = DAY_FIRST.exec(sent);
    if (dayFirst) {
      const [, day, month, year, ...rest] = dayFirst;
      return clockTime([year, month, day], rest, timezone);
    }
    return PRINTED.test(sent) ? isoOf(Date.parse(sent)) : undefined;
  };
}

type Part = string | undefined;

function clockTime(
  [year, month, day]: readonly Part[],
  [hours, minutes, seconds = '0', fraction = '0', half, zone]: readonly Part[],
  timezone: string | undefined,
): string | undefined {
  const twelve = half === undefined ? Number(hours) : twelveHours(Number(hours), half);
  if (twelve === undefined || twelve > 23 || Number(minutes) > 59 || Number(seconds) > 59) return undefined;
  const dayMs = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const isDay =
    new Date(dayMs).getUTCDate() === Number(day) && new Date(dayMs).getUTCMonth() === Number(month) - 1;
  if (!isDay) return undefined;
  const wallMs =
    dayMs +
    ((twelve * 60 + Number(minutes)) * 60 + Number(seconds)) * 1000 +
    Math.trunc(Number(`0.${fraction}`) * 1000);
  if (zone !== undefined) return isoOf(wallMs - offsetMs(zone));
  return timezone === undefined ? undefined : isoOf(zoneCalendar(timezone).firstInstantMs(wallMs));
}

function twelveHours(hours: number, half: string): number | undefined {
  if (hours < 1 || hours > 12) return undefined;
  return (hours % 12) + (half.toLowerCase() === 'p' ? 12 : 0);
}

function offsetMs(zone: string): number {
  if (zone.toUpperCase() === 'Z') return 0;
  const minutes = Number(zone.slice(1, 3)) * 60 + Number(zone.slice(3).replace(':', '') || 0);
  return (zone.startsWith('-') ? -minutes : minutes) * 60_000;
}

/**
 * Reads a number as seconds or milliseconds since 1970. For times from 1973 to 5138, the size shows which of the two is
 * meant.
 */
function epochTime(value: number): string | undefined {
  if (value >= 1e8 && value < 1e11) return isoOf(value * 1000);
  return value >= 1e11 && value < 1e14 ? isoOf(value) : undefined;
}

function isoOf(ms: number): string | undefined {
  return Number.isNaN(ms) ? undefined : new Date(ms).toISOString();
}

/**
 * Further names from the configuration, tried before the known ones: field of the mirror → names that the source uses.
 * Fields of items, modifiers and options are written `item.quantity`, `modifier.name`, `option.optionId`.
 */
export type ExtraSpellings = Readonly<Record<string, readonly string[]>>;

/**
 * Kinds of fields that make an order incomplete if their value is unreadable. This holds only for names of the
 * document or the configuration; a guessed name such as `details` may mean something else.
 */
const TOLD: ReadonlySet<FieldKind> = new Set<FieldKind>([
  'status',
  'delivery',
  'key',
  'text',
  'whole',
  'amount',
  'number',
  'flag',
  'time',
  'list',
  'map',
]);

/**
 * Fields that the document describes without their names. All known names of such a field are guesses and may mean
 * something else.
 */
const UNNAMED: ReadonlySet<string> = new Set(['scheduledFor']);

/** Meanings of one name in a record: fields, an object with further names, or both. */
export interface SpellingNode {
  /** Fields that the name may mean. `slot` is the field's index in the tree's `fields`; the lowest `rank` wins. */
  hits: { slot: number; rank: number; read: ValueReader; isTold: boolean }[];
  inside: Map<string, SpellingNode> | undefined;
  /**
   * Slot of the first field inside this object that is reported if unreadable. If another value is sent in place of the
   * object, this field is reported, unless the value is empty or readable itself.
   */
  holds: number | undefined;
}

export interface SpellingTree {
  fields: readonly string[];
  /** Initial values of a record's fields, all undefined. */
  nothing: readonly undefined[];
  names: ReadonlyMap<string, SpellingNode>;
}

/** Returns whether a non-empty value is sent under a name of the field. The platform writes '' for "none". */
export function hasValueOf(field: string, sent: object, { fields, names }: SpellingTree): boolean {
  const isName = (name: string) => names.get(name)?.hits.some(({ slot }) => fields[slot] === field) === true;
  return Object.entries(sent).some(([name, value]) => isName(name) && String(value ?? '').trim() !== '');
}

/** All tables of names as trees, so that one walk over a record's names finds every field. */
export type SpellingTrees = Record<'order' | 'item' | 'modifier' | 'option', SpellingTree>;

export interface OrderSpellings extends SpellingTrees {
  /** Reads a time in any of the accepted forms. */
  readTime: (value: unknown) => string | undefined;
}

export const SPELLING_TABLES: Record<keyof SpellingTrees, SpellingTable> = {
  order: ORDER_SPELLINGS,
  item: ITEM_SPELLINGS,
  modifier: MODIFIER_SPELLINGS,
  option: OPTION_SPELLINGS,
};

/** Names of all fields for which the configuration may give further names. */
export const SPELLABLE_FIELDS: readonly string[] = Object.entries(SPELLING_TABLES).flatMap(
  ([table, spellings]) =>
    Object.keys(spellings).map((field) => (table === 'order' ? field : `${table}.${field}`)),
);

const NONE: ExtraSpellings = {};
/** Cache of compiled trees by their input. A process uses only a few inputs. */
const compiled = new Map<string, OrderSpellings>();

/**
 * Compiles the tables of names into trees, once per input. `timezone` applies to times without a zone, which are
 * otherwise unreadable. Throws `config-invalid` if `extra` names an unknown field.
 */
export function compileSpellings(extra: ExtraSpellings = NONE, timezone?: string): OrderSpellings {
  const key = JSON.stringify([extra, timezone]);
  const known = compiled.get(key);
  if (known) return known;
  const strange = Object.keys(extra).find((field) => !SPELLABLE_FIELDS.includes(field));
  if (strange !== undefined) {
    throw new TillsyncError('config-invalid', `There is no field "${strange}" to give further names to.`, {
      hint: `Allowed are: ${SPELLABLE_FIELDS.join(', ')}.`,
    });
  }
  const readers: Record<FieldKind, ValueReader> = { ...READERS, time: timeReader(timezone) };
  const spellings = {
    order: compile('order', extra, readers),
    item: compile('item', extra, readers),
    modifier: compile('modifier', extra, readers),
    option: compile('option', extra, readers),
    readTime: timeReader(timezone),
  };
  compiled.set(key, spellings);
  return spellings;
}

function compile(
  table: keyof SpellingTrees,
  extra: ExtraSpellings,
  readers: Record<FieldKind, ValueReader>,
): SpellingTree {
  const names = new Map<string, SpellingNode>();
  const spellings = Object.entries(SPELLING_TABLES[table]);
  for (const [slot, [field, { kind, names: known }]] of spellings.entries()) {
    const configured = extra[table === 'order' ? field : `${table}.${field}`] ?? [];
    for (const [rank, path] of [...configured, ...known].entries()) {
      const isNamed = rank < configured.length || (rank === configured.length && !UNNAMED.has(field));
      const isTold = TOLD.has(kind) && isNamed;
      for (const spelling of [path, snakeCase(path)]) {
        const parts = spelling.split('.');
        const { hits } = nodeAt(names, parts);
        if (!hits.some((hit) => hit.slot === slot)) hits.push({ slot, rank, read: readers[kind], isTold });
        for (let depth = 1; isTold && depth < parts.length; depth++)
          nodeAt(names, parts.slice(0, depth)).holds ??= slot;
      }
    }
  }
  return { fields: spellings.map(([field]) => field), nothing: spellings.map(() => undefined), names };
}

function nodeAt(names: Map<string, SpellingNode>, [name = '', ...rest]: string[]): SpellingNode {
  const node = names.get(name) ?? { hits: [], inside: undefined, holds: undefined };
  names.set(name, node);
  if (rest.length === 0) return node;
  node.inside ??= new Map();
  return nodeAt(node.inside, rest);
}

/** Converts camelCase to snake_case: `storeExternalId` → `store_external_id`. */
export function snakeCase(path: string): string {
  return path.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toLowerCase();
}
