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
