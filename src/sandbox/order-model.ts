/** The order notification of the document, whole. */
export interface OrderSnapshot {
  store: { externalId: string };
  internalOrderId: string;
  status: string;
  code: number;
  websiteId: string;
  name: string;
  createdAt: string;
  deliveryType: 'delivery' | 'pickup';
  amountToPay: number;
  amount: number;
  deliveryFee: number;
  couponDiscount: number;
  deliveryTime: string;
  isScheduled: boolean;
  /** Present only when isScheduled; the document does not show its name. */
  scheduledDate?: string;
  /** Present only for a delivery. */
  address?: OrderAddress;
  user: { firstName: string; lastName: string; email: string; phoneNumber: string };
  items: OrderLine[];
}

export interface OrderAddress {
  lat: number;
  lng: number;
  address: string;
  streetNumber: string;
  streetAddress: string;
  country: string;
  state: string;
  city: string;
  zipCode: string;
  phoneNumber: string;
  details: string;
}

export interface OrderLine {
  product: { externalId: string | null; name: string };
  amount: number;
  comment: string;
  unitPrice: number;
  baseUnitPrice: number;
  productPrice: number;
  productBasePrice: number;
  modifiers: OrderLineModifier[];
}

export interface OrderLineModifier {
  externalId: null;
  name: string;
  shortName: string;
  description: unknown[];
  countById: Record<string, number>;
  countByExternalId: Record<string, number>;
  options: { optionId: string; externalId: string | null; name: string; price: number }[];
}

/** An order as the sandbox keeps it. */
export interface StoredOrder {
  /** Counts the orders in the order of their creation, from 1. */
  number: number;
  /** Replaced with each change, never changed itself. */
  snapshot: OrderSnapshot;
  subsidiaryId: string;
  serviceName: string;
  updatedAt: string;
  /** Date of its creation in the company's calendar, YYYY-MM-DD. */
  localDate: string;
}
