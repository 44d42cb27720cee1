/**
 * Content that the mirror must have of a notification, according to the platform's document alone. The model shares no
 * tables with the reader under test, so that the two can disagree. Columns that are not listed here are not checked.
 */
export interface ExpectedOrder {
  orderId: string;
  columns: Record<string, unknown>;
  /** null if the notification has no items. */
  items: Record<string, unknown>[] | null;
}

type Json = Record<string, unknown>;
type Read = (value: unknown) => unknown;

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
const known = (value: unknown) => (value === undefined ? null : value);

const text: Read = (value) => {
  if (typeof value === 'string') return value.toWellFormed().replaceAll('\0', '\uFFFD');
  if (!isNumber(value)) return null;
  // As 1e21, whose digits nobody sent.
  return Number.isInteger(value) && !Number.isSafeInteger(value) ? null : `${value}`;
};
/** Reads an id, without blanks at its start and end. */
const key: Read = (value) => {
  const sent = text(value);
  return typeof sent === 'string' && sent.trim() !== '' ? sent.trim() : null;
};
const delivery: Read = (value) => {
  const sent = text(value);
  const word = typeof sent === 'string' ? sent.trim().toLowerCase() : '';
  return word === 'delivery' || word === 'pickup' ? word : sent;
};
const STATUSES = [
  ...['pending', 'payment-pending', 'payment-approved', 'payment-canceled', 'picker-pending', 'inProcess'],
  ...['ready', 'routed', 'dispatched', 'cancel', 'refund', 'shippingError'],
];
/** Reads a status. The document's statuses are recognised in any letter case, and with blanks around them. */
const status: Read = (value) => {
  const sent = text(value);
  if (typeof sent !== 'string' || sent.trim() === '') return null;
  return STATUSES.find((name) => name.toLowerCase() === sent.trim().toLowerCase()) ?? sent.trim();
};
const whole: Read = (value) => {
  if (typeof value === 'string')
    return /^#?[0-9]{1,15}$/.test(value) ? Number.parseInt(value.replace('#', ''), 10) : null;
  return Number.isSafeInteger(value) ? value : null;
};
const number: Read = (value) => {
  if (typeof value === 'string') return /^-?[0-9]+(\.[0-9]+)?$/.test(value) ? Number.parseFloat(value) : null;
  return isNumber(value) ? value : null;
};
const amount: Read = (value) => number(typeof value === 'string' ? value.trim() : value);
const flag: Read = (value) => {
  if (value === true || value === 1 || value === 'true' || value === '1') return 1;
  return value === false || value === 0 || value === 'false' || value === '0' ? 0 : null;
};

const TOP: [field: string, column: string, read: Read][] = [
  ['status', 'status', status],
  ['code', 'code', whole],
  ['websiteId', 'website_id', key],
  ['name', 'name', text],
  ['deliveryType', 'delivery_type', delivery],
  ['amountToPay', 'amount_to_pay', amount],
  ['amount', 'amount', amount],
  ['deliveryFee', 'delivery_fee', amount],
  ['couponDiscount', 'coupon_discount', amount],
  ['isScheduled', 'is_scheduled', flag],
];
const ADDRESS: [string, string, Read][] = [
  ['lat', 'address_lat', number],
  ['lng', 'address_lng', number],
  ['streetNumber', 'address_street_number', text],
  ['streetAddress', 'address_street_address', text],
  ['country', 'address_country', text],
  ['state', 'address_state', text],
  ['city', 'address_city', text],
  ['zipCode', 'address_zip_code', text],
  ['phoneNumber', 'address_phone_number', text],
  ['details', 'address_details', text],
];
const USER: [string, string, Read][] = [
  ['firstName', 'customer_first_name', text],
  ['lastName', 'customer_last_name', text],
  ['email', 'customer_email', text],
  ['phoneNumber', 'customer_phone_number', text],
];
const ITEM: [string, string, Read][] = [
  ['amount', 'quantity', amount],
  ['comment', 'comment', text],
  ['unitPrice', 'unit_price', amount],
  ['baseUnitPrice', 'base_unit_price', amount],
  ['productPrice', 'product_price', amount],
  ['productBasePrice', 'product_base_price', amount],
];

/**
 * Returns what the mirror must have. `unreadable` means that the callback belongs in quarantine, `unsure` that its id
 * is a number that JavaScript cannot represent, such as 1e21.
 */
export function expectedOrder(json: string): ExpectedOrder | 'unreadable' | 'unsure' {
  const value: unknown = JSON.parse(withLongNumbersAsTexts(json));
  if (!isObject(value)) return 'unreadable';
  const id = own(value, 'internalOrderId');
  if (typeof id === 'number' && !Number.isSafeInteger(id)) return 'unsure';
  const orderId =
    typeof id === 'number' ? String(id) : typeof id === 'string' ? id.trim().toWellFormed() : '';
  if (orderId === '' || orderId.includes('\0') || orderId.length > 512) return 'unreadable';
  const items = own(value, 'items');
  // Of a pickup, the mirror has no address, even if the notification has one.
  const isPickup = delivery(own(value, 'deliveryType')) === 'pickup';
  const address = isPickup ? undefined : own(value, 'address');
  return {
    orderId,
    columns: {
      ...columnsOf(value, TOP),
      ...columnsOf(address, ADDRESS),
      ...columnsOf(own(value, 'user'), USER),
      // A text in place of the object is read as the field that identifies the object.
      store_external_id: named(own(value, 'store'), 'externalId', key),
      address_address: named(address, 'address'),
    },
    items: listOf(items)?.map(itemOf) ?? null,
  };
}

/** Returns the JSON with each integer that JavaScript cannot represent as a text of its digits. */
function withLongNumbersAsTexts(json: string): string {
  return json.replace(/"(?:[^"\\]+|\\.)*"|-?[0-9][0-9.eE+-]*/g, (token) =>
    /^-?[0-9]+$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token,
  );
}

/** Returns the lines of an order. An object that holds the lines is read as the list of its values. */
function listOf(items: unknown): unknown[] | undefined {
  if (Array.isArray(items)) return items;
  const values = isObject(items) ? Object.values(items) : [];
  return values.some(isObject) && values.every((value) => value === null || isObject(value))
    ? values
    : undefined;
}

/** Returns the expected row of a line; for an unreadable line, a row without values. */
function itemOf(line: unknown): Json {
  const item = isObject(line) ? line : {};
  const product = own(item, 'product');
  return {
    ...columnsOf(item, ITEM),
    product_external_id: isObject(product) ? key(own(product, 'externalId')) : null,
    product_name: named(product, 'name'),
  };
}

function named(value: unknown, field: string, read = text): unknown {
  return read(isObject(value) ? own(value, field) : value);
}

function columnsOf(value: unknown, fields: [string, string, Read][]): Json {
  const source = isObject(value) ? value : {};
  return Object.fromEntries(fields.map(([field, column, read]) => [column, known(read(own(source, field)))]));
}

function own(value: Json, field: string): unknown {
  return Object.hasOwn(value, field) ? value[field] : undefined;
}
