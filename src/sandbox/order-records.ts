import type { OrderAddress, OrderLine, StoredOrder } from './order-model.ts';
import type { OrderRecordStyle } from './settings.ts';

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
