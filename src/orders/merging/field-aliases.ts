import { TillsyncError } from '../../core/errors.ts';
import {
  type FieldKind,
  READERS,
  type StatusWords,
  statusReader,
  timeReader,
  type ValueReader,
} from './field-values.ts';
import type { OrderItem } from './mirrored-order.ts';
import type { OrderFields } from './order.ts';

/**
 * Names under which a source may send each field of the mirror, best first. Names of the notification come first
 * (document, "Order notification"). The others are plausible names in GET /order/all, whose fields the document does
 * not show. A dot means a nested object. Each name is also accepted in snake_case.
 */

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

/** Names of an order's scalar fields. Each has a column with the same name in snake_case. */
export const ORDER_FIELDS = Object.keys(ORDER_SPELLINGS).filter(
  (name) => name !== 'orderId' && name !== 'items',
) as (keyof OrderFields)[];

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

/** Names of the scalar fields of items. */
export const ITEM_FIELDS = Object.keys(ITEM_SPELLINGS).filter((name) => name !== 'modifiers') as Exclude<
  keyof OrderItem,
  'modifiers'
>[];

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

/** Further fields of which the document names none. */
const UNNAMED_PARTS: ReadonlySet<string> = new Set([
  'modifier.quantity',
  'modifier.price',
  'option.quantity',
]);

/**
 * Whose name it is: `named` by the document or the configuration; an `object` of the document, in place of which one
 * value is sent (`"store": "B1"`); or a `guess`.
 */
export type Naming = 'named' | 'object' | 'guess';

/** Meanings of one name in a record: fields, an object with further names, or both. */
export interface SpellingNode {
  /**
   * Fields that the name may mean. `slot` is the field's index in the tree's `fields`; the lowest `rank` wins.
   */
  hits: {
    slot: number;
    rank: number;
    kind: FieldKind;
    read: ValueReader;
    isTold: boolean;
    naming: Naming;
  }[];
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
 * otherwise unreadable. `statuses` maps the platform's words to statuses of the document. Throws `config-invalid` if
 * `extra` names an unknown field.
 */
export function compileSpellings(
  extra: ExtraSpellings = NONE,
  timezone?: string,
  statuses: StatusWords = {},
): OrderSpellings {
  const key = JSON.stringify([extra, timezone, statuses]);
  const known = compiled.get(key);
  if (known) return known;
  const strange = Object.keys(extra).find((field) => !SPELLABLE_FIELDS.includes(field));
  if (strange !== undefined) {
    throw new TillsyncError('config-invalid', `There is no field "${strange}" to give further names to.`, {
      hint: `Allowed are: ${SPELLABLE_FIELDS.join(', ')}.`,
    });
  }
  const readers: Record<FieldKind, ValueReader> = {
    ...READERS,
    time: timeReader(timezone),
    status: statusReader(statuses),
  };
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
  const objects = new Set(
    spellings.flatMap(
      ([
        ,
        {
          names: [path = ''],
        },
      ]) => (path.includes('.') ? [path.slice(0, path.indexOf('.'))] : []),
    ),
  );
  for (const [slot, [field, { kind, names: known }]] of spellings.entries()) {
    const configured = extra[table === 'order' ? field : `${table}.${field}`] ?? [];
    for (const [rank, path] of [...configured, ...known].entries()) {
      const isMeant = rank < configured.length || (rank === configured.length && !UNNAMED.has(field));
      const isNamed = isMeant && (rank < configured.length || !UNNAMED_PARTS.has(`${table}.${field}`));
      const naming = isNamed ? 'named' : objects.has(path) ? 'object' : 'guess';
      const isTold = TOLD.has(kind) && isMeant;
      for (const spelling of [path, snakeCase(path)]) {
        const parts = spelling.split('.');
        const { hits } = nodeAt(names, parts);
        if (!hits.some((hit) => hit.slot === slot)) {
          hits.push({ slot, rank, kind, read: readers[kind], isTold, naming });
        }
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
