import type { OrderFields, OrderItem, OrderModifier } from '../../domain/order/order.ts';

/** Every scalar field of an order with its column, in the order in which rows are read and written. */
export const ORDER_COLUMNS: readonly (readonly [field: keyof OrderFields, column: string])[] = [
  ['code', 'code'],
  ['status', 'status'],
  ['storeExternalId', 'store_external_id'],
  ['websiteId', 'website_id'],
  ['name', 'name'],
  ['createdAt', 'created_at'],
  ['deliveryType', 'delivery_type'],
  ['amountToPay', 'amount_to_pay'],
  ['amount', 'amount'],
  ['deliveryFee', 'delivery_fee'],
  ['couponDiscount', 'coupon_discount'],
  ['deliveryTime', 'delivery_time'],
  ['isScheduled', 'is_scheduled'],
  ['scheduledFor', 'scheduled_for'],
  ['addressLat', 'address_lat'],
  ['addressLng', 'address_lng'],
  ['addressAddress', 'address_address'],
  ['addressStreetNumber', 'address_street_number'],
  ['addressStreetAddress', 'address_street_address'],
  ['addressCountry', 'address_country'],
  ['addressState', 'address_state'],
  ['addressCity', 'address_city'],
  ['addressZipCode', 'address_zip_code'],
  ['addressPhoneNumber', 'address_phone_number'],
  ['addressDetails', 'address_details'],
  ['customerFirstName', 'customer_first_name'],
  ['customerLastName', 'customer_last_name'],
  ['customerEmail', 'customer_email'],
  ['customerPhoneNumber', 'customer_phone_number'],
];

export const STATUS_AT = ORDER_COLUMNS.findIndex(([field]) => field === 'status');

/** What SQLite gives back for a column. */
export type Value = string | number | null;

/** The columns' values of what was read; what was not sent comes from `known`, else is null. */
export function fieldValues(fields: OrderFields, known?: readonly Value[]): Value[] {
  const values: Value[] = new Array(ORDER_COLUMNS.length);
  for (let i = 0; i < ORDER_COLUMNS.length; i++) {
    const sent = fields[(ORDER_COLUMNS[i] as (typeof ORDER_COLUMNS)[number])[0]];
    if (sent === undefined) values[i] = known?.[i] ?? null;
    else values[i] = typeof sent === 'boolean' ? Number(sent) : sent;
  }
  return values;
}

export function itemRow(orderId: string, line: number, item: OrderItem): Value[] {
  return [
    orderId,
    line,
    item.productExternalId,
    item.productName,
    item.quantity,
    item.comment,
    item.unitPrice,
    item.baseUnitPrice,
    item.productPrice,
    item.productBasePrice,
  ];
}

export function modifierRow(orderId: string, line: number, modifier: number, sent: OrderModifier): Value[] {
  return [
    orderId,
    line,
    modifier,
    sent.name,
    sent.shortName,
    sent.description,
    sent.optionId,
    sent.optionExternalId,
    sent.optionName,
    sent.optionPrice,
    sent.quantity,
  ];
}

export function sameRow(a: readonly Value[], b: readonly Value[]): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return a.length === b.length;
}

/**
 * For binding, in place: numbers are bound as reals, which a reader in a column without a type would see as
 * `1500.0`.
 */
export function bound(row: (Value | bigint)[]): (Value | bigint)[] {
  for (let i = 0; i < row.length; i++) {
    const value = row[i];
    if (typeof value === 'number' && Number.isSafeInteger(value)) row[i] = BigInt(value);
  }
  return row;
}
