/**
 * An order as the mirror stores it, read tolerantly from a notification (document, "Order notification") or from a
 * record of GET /order/all, whose fields the document does not show.
 */

import type { MirroredOrder, OrderItem } from './mirrored-order.ts';

/** Source of an observation. */
export type OrderSource = 'webhook' | 'poll';

/**
 * The scalar fields of an order. A missing key means that the source did not send the field, so the known value stays.
 * null means that the source sent it as empty.
 */
export type OrderFields = Partial<Omit<MirroredOrder, 'orderId' | 'seq' | 'updatedAt' | 'channel' | 'items'>>;

/** Longest accepted order id, in UTF-16 units. */
export const ORDER_ID_LENGTH_MAX = 512;

/** Content of one record or notification about one order. */
export interface OrderReading {
  orderId: string;
  fields: OrderFields;
  /** undefined if the source has no list of items; [] for an empty list. */
  items?: OrderItem[];
  /** True for a poll's record none of whose lines mentions modifiers. */
  isBrief?: true;
  /** Unreadable parts, each in a few words without its value; left out if none. */
  incomplete?: string[];
}

/** One observation of an order, with the bytes it was read from. */
export interface OrderObservation {
  source: OrderSource;
  /** Time of a webhook's arrival or of a poll's start, by the wall clock. Only for people, never for ordering. */
  observedAtMs: number;
  /** JSON text as received. */
  raw: string;
  reading: OrderReading;
  /**
   * The newest `order_events.seq` when the request of a poll began. A webhook applied later is newer than the
   * poll. Ordering by seq, and not by time, is safe against clock jumps.
   */
  asOfSeq?: number;
  /** True for an old observation that is read again; it resolves no held webhook. */
  isReplay?: boolean;
}

/**
 * - `created`, `changed`: written, with an event in the feed
 * - `confirmed`: nothing visible to a POS differs
 * - `held`: a webhook that would take the order backwards; stored, and not applied until a poll confirms it
 * - `superseded`: a poll older than a webhook applied in the meantime; not applied
 */
export type OrderOutcome = 'created' | 'changed' | 'confirmed' | 'held' | 'superseded';

/** Unreadable raw input, stored whole for a person. */
export interface Unreadable {
  source: OrderSource | 'catalog' | 'outbox' | 'inbox';
  receivedAtMs: number;
  /** Sentence on what was expected and not found. */
  reason: string;
  /** Text as received, or bytes if they are not UTF-8. */
  payload: string | Uint8Array;
}

/** One row of the feed of orders. */
export interface OrderEvent {
  seq: number;
  orderId: string;
  status: string | null;
  previousStatus: string | null;
  source: OrderSource;
  observedAt: string;
}

/**
 * The life cycle of an order (document, "States and transitions", which shows no transitions), and how far along each
 * status is. An end that may follow any status ranks above them all.
 */
const RANK = {
  pending: 0,
  'payment-pending': 1,
  'payment-approved': 2,
  'payment-canceled': 9,
  'picker-pending': 3,
  inProcess: 4,
  ready: 5,
  routed: 6,
  dispatched: 8,
  cancel: 9,
  refund: 10,
  shippingError: 7,
};
export type OrderStatus = keyof typeof RANK;
export const ORDER_STATUSES = Object.keys(RANK) as OrderStatus[];

/** Statuses after which no further change is expected. */
const ENDED: readonly string[] = ['dispatched', 'payment-canceled', 'cancel', 'refund'];
/** Cancelled or refunded orders take nothing from any stock. */
const TAKES_NOTHING: readonly string[] = ['cancel', 'refund', 'payment-canceled'];
const UNPAID: readonly string[] = ['pending', 'payment-pending'];

/** SQL for an open order. The index `orders_open` has the same condition, word for word. */
export const IS_OPEN = statusNotIn(ENDED);
/** SQL for an order that waits for its time. The index `orders_scheduled` has the same condition, word for word. */
export const IS_DUE = `(is_scheduled = 1 OR (is_scheduled IS NULL AND scheduled_for IS NOT NULL)) AND ${IS_OPEN}`;
/** SQL for an order that the POS should book: neither unpaid nor cancelled. */
export const IS_TO_BOOK = statusNotIn([...UNPAID, ...TAKES_NOTHING]);

/** Whether the POS should book an order of this status; the same rule as `IS_TO_BOOK`. */
export function isToBook(status: string | null): boolean {
  return status === null || !(UNPAID.includes(status) || TAKES_NOTHING.includes(status));
}

function statusNotIn(statuses: readonly string[]): string {
  return `(status IS NULL OR status NOT IN (${statuses.map((status) => `'${status}'`).join(', ')}))`;
}

/** Whether this change of status is a step back. A status that the document does not name is never one. */
export function isBackwards(from: string | null | undefined, to: string | null | undefined): boolean {
  return from != null && to != null && isKnownStatus(from) && isKnownStatus(to) && RANK[to] < RANK[from];
}

/** Whether no further change is expected. An unknown status counts as open. */
export function isEnded(status: string | null | undefined): boolean {
  return status != null && ENDED.includes(status);
}

/** Whether the document names the status. */
export function isKnownStatus(status: string): status is OrderStatus {
  return Object.hasOwn(RANK, status);
}

/** Whether an order of this status takes nothing from any stock, because it was cancelled or refunded. */
export function takesNothing(status: string | null): boolean {
  return status !== null && TAKES_NOTHING.includes(status);
}

export interface OrderFilter {
  status?: string | undefined;
  /** Only orders that have not ended. */
  open?: boolean | undefined;
  /** Only scheduled orders that have not ended, the next one first. */
  due?: boolean | undefined;
  /** At most this many orders, newest created first. */
  limit: number;
  /** Only orders created before this time (ISO 8601 UTC): the key for the next page. */
  createdBefore?: string | undefined;
  /** Only orders created at this time or later, ISO 8601 UTC. */
  createdFrom?: string | undefined;
  /** Only orders with this number. */
  code?: number | undefined;
  /** Only orders of a branch, by any of its ids. */
  stores?: readonly string[] | undefined;
  /** Only orders whose customer's name, phone number or e-mail address contains this text. */
  customer?: string | undefined;
  /** Only orders whose number, customer, address or items contain this text. */
  text?: string | undefined;
  /** Only paid orders that were not cancelled, and that no POS acknowledged as they are now. */
  unbooked?: boolean | undefined;
}

/** The events and decisions that led to an order's present state. */
export interface OrderHistory {
  /** Events of the order, oldest first. The oldest events of a long-lived order may be deleted. */
  events: OrderEvent[];
  /** Time at which a POS acknowledged the order, and the interface; null if none did. */
  acknowledged: { at: string; source: string } | null;
  /** Why the last acknowledgement by SQL was refused; null if a later one was accepted. */
  refused: { at: string; seq: number | null; message: string } | null;
}

/** Makes observations durable. The receiver waits for it before it answers 2xx. */
export interface OrderSink {
  /**
   * Merges all entries in one transaction, which is on the disk when the promise resolves; one outcome per entry, in
   * order. Rejects with `storage-…` when nothing was stored.
   */
  save(entries: readonly IncomingEntry[]): Promise<SaveOutcome[]>;
}

export type IncomingEntry =
  | { kind: 'order'; observation: OrderObservation }
  | { kind: 'unreadable'; unreadable: Unreadable };

export type SaveOutcome = OrderOutcome | 'quarantined';

export interface ImportOptions {
  observedAtMs: number;
  /** Newest seq when the request began. */
  asOfSeq: number;
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
}

export interface ImportReport {
  /** False if no list of orders was found; the whole answer is then in quarantine. */
  listFound: boolean;
  records: number;
  created: number;
  changed: number;
  confirmed: number;
  superseded: number;
  /** Number of quarantined records, without an order id or otherwise unreadable. */
  unreadable: number;
  /** Ids of orders that this poll created, at most 1,000, to compare with webhooks. */
  createdIds: string[];
  /** Whether the envelope names further pages. */
  morePages: boolean;
  /** Smallest and largest `code` in the answer; null when there was none. */
  codes: { min: number; max: number } | null;
}

/**
 * Jump of the feed's seq when the last number is not certain. It is more events than a busy store has in years, and two
 * thousand such jumps fit into a POS's 32-bit number.
 */
export const SEQ_JUMP = 1_000_000;

/** An order that no POS has acknowledged in time. */
export interface WaitingOrder {
  orderId: string;
  code: number | null;
  /** ISO 8601 UTC. */
  since: string;
}
