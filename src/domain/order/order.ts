/**
 * An order as the mirror keeps it, read tolerantly from a notification (document, "Order notification")
 * or from a record of GET /order/all, whose fields are not shown.
 */

/** Where an observation came from. */
export type OrderSource = 'webhook' | 'poll';

/**
 * The scalar fields of an order. A missing key means that the source said nothing of it, so what the mirror
 * knows stays; null means that the source said it is empty.
 */
export interface OrderFields {
  code?: number | null;
  status?: string | null;
  storeExternalId?: string | null;
  websiteId?: string | null;
  name?: string | null;
  /** ISO 8601 UTC when the sent text could be read as a time, else the text as sent. So for all times. */
  createdAt?: string | null;
  deliveryType?: string | null;
  /** Amounts as sent, in the company's currency. */
  amountToPay?: number | string | null;
  amount?: number | string | null;
  deliveryFee?: number | string | null;
  couponDiscount?: number | string | null;
  deliveryTime?: string | null;
  isScheduled?: boolean | null;
  scheduledFor?: string | null;
  addressLat?: number | null;
  addressLng?: number | null;
  addressAddress?: string | null;
  addressStreetNumber?: string | null;
  addressStreetAddress?: string | null;
  addressCountry?: string | null;
  addressState?: string | null;
  addressCity?: string | null;
  addressZipCode?: string | null;
  addressPhoneNumber?: string | null;
  addressDetails?: string | null;
  customerFirstName?: string | null;
  customerLastName?: string | null;
  customerEmail?: string | null;
  customerPhoneNumber?: string | null;
}

export interface OrderModifier {
  name: string | null;
  shortName: string | null;
  /** JSON text of the array as sent. */
  description: string | null;
  optionId: string | null;
  optionExternalId: string | null;
  optionName: string | null;
  optionPrice: number | string | null;
  quantity: number | null;
}

export interface OrderItem {
  productExternalId: string | null;
  productName: string | null;
  quantity: number | string | null;
  comment: string | null;
  unitPrice: number | string | null;
  baseUnitPrice: number | string | null;
  productPrice: number | string | null;
  productBasePrice: number | string | null;
  modifiers: OrderModifier[];
}

/** Longest order id that is taken, in UTF-16 units. */
export const ORDER_ID_LENGTH_MAX = 512;

/** What one record or notification says of one order. */
export interface OrderReading {
  orderId: string;
  fields: OrderFields;
  /** undefined: the source carries no items; []: it says that there are none. */
  items?: OrderItem[];
}

/** One sighting of an order, with the bytes it was read from. */
export interface OrderObservation {
  source: OrderSource;
  /** Wall clock: arrival for a webhook, the request's start for a poll. For people; never for ordering. */
  observedAtMs: number;
  /** JSON text as received. */
  raw: string;
  reading: OrderReading;
  /**
   * For a poll: the newest `order_events.seq` when its request began. What a webhook applied after that is
   * newer than the poll's word. Ordering by seq, not by time, is immune to clock jumps.
   */
  asOfSeq?: number;
  /** Received long ago and read again: it decides nothing about webhooks that are held. */
  isReplay?: boolean;
}

/**
 * - `created`, `changed`: written, with an event in the feed
 * - `confirmed`: nothing a POS could see differs
 * - `held`: a webhook that would take the order backwards; noted, not applied until a poll confirms it
 * - `superseded`: a poll's word older than what a webhook applied meanwhile; not applied
 */
export type OrderOutcome = 'created' | 'changed' | 'confirmed' | 'held' | 'superseded';

/** Raw input nobody could read, kept whole for a person. */
export interface Unreadable {
  source: OrderSource | 'catalog' | 'outbox' | 'inbox';
  receivedAtMs: number;
  /** One sentence: what was expected and not found. */
  reason: string;
  /** Text as received; bytes that are not UTF-8 are kept as they are. */
  payload: string | Uint8Array;
}

/** One line of the change feed. */
export interface OrderEvent {
  seq: number;
  orderId: string;
  status: string | null;
  previousStatus: string | null;
  source: OrderSource;
  observedAt: string;
}
