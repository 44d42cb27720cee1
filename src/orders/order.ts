/**
 * An order as the mirror keeps it, read tolerantly from a notification (document, "Order notification")
 * or from a record of GET /order/all, whose fields are not shown.
 */

import type { MirroredOrder, OrderItem } from './mirrored-order.ts';

/** Where an observation came from. */
export type OrderSource = 'webhook' | 'poll';

/**
 * The scalar fields of an order. A missing key means that the source said nothing of it, so what the mirror
 * knows stays; null means that the source said it is empty.
 */
export type OrderFields = Partial<Omit<MirroredOrder, 'orderId' | 'seq' | 'updatedAt' | 'items'>>;

/** Longest order id that is taken, in UTF-16 units. */
export const ORDER_ID_LENGTH_MAX = 512;

/** What one record or notification says of one order. */
export interface OrderReading {
  orderId: string;
  fields: OrderFields;
  /** undefined: the source carries no items; []: it says that there are none. */
  items?: OrderItem[];
  /** Of a poll's record: none of its lines says anything of modifiers. */
  isBrief?: true;
  /** What was sent and cannot be read, each in a few words without its value; left out: nothing. */
  incomplete?: string[];
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

/**
 * The order life cycle (document, "States and transitions"; transitions are not shown there), and how far along it
 * each status is. Ends that may follow anything rank above all that precede them.
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

/** No further change is expected. */
const ENDED: readonly string[] = ['dispatched', 'payment-canceled', 'cancel', 'refund'];
/** Cancelled or paid back: nothing of any stock is taken. */
const TAKES_NOTHING: readonly string[] = ['cancel', 'refund', 'payment-canceled'];
const UNPAID: readonly string[] = ['pending', 'payment-pending'];

/** SQL that an order's life has not ended: word for word the condition of the index `orders_open`. */
export const IS_OPEN = statusNotIn(ENDED);
/** SQL that an order waits for its time: word for word the condition of the index `orders_scheduled`. */
export const IS_DUE = `(is_scheduled = 1 OR (is_scheduled IS NULL AND scheduled_for IS NOT NULL)) AND ${IS_OPEN}`;
/** SQL that an order is to be booked by the POS: neither unpaid nor cancelled. */
export const IS_TO_BOOK = statusNotIn([...UNPAID, ...TAKES_NOTHING]);

/** Whether an order of this status is to be booked by the POS, as in `IS_TO_BOOK`. */
export function isToBook(status: string | null): boolean {
  return status === null || !(UNPAID.includes(status) || TAKES_NOTHING.includes(status));
}

function statusNotIn(statuses: readonly string[]): string {
  return `(status IS NULL OR status NOT IN (${statuses.map((status) => `'${status}'`).join(', ')}))`;
}

/** Whether going from one status to the other would be a step back; of one the document does not name nobody knows. */
export function isBackwards(from: string | null | undefined, to: string | null | undefined): boolean {
  return from != null && to != null && isKnownStatus(from) && isKnownStatus(to) && RANK[to] < RANK[from];
}

/** Whether no further change is expected; an unknown status counts as open. */
export function isEnded(status: string | null | undefined): boolean {
  return status != null && ENDED.includes(status);
}

/** Whether the document names it. */
export function isKnownStatus(status: string): status is OrderStatus {
  return Object.hasOwn(RANK, status);
}

/** Whether an order of this status takes nothing of any stock: it was cancelled or paid back. */
export function takesNothing(status: string | null): boolean {
  return status !== null && TAKES_NOTHING.includes(status);
}

export interface OrderFilter {
  status?: string | undefined;
  /** Only orders whose life has not ended. */
  open?: boolean | undefined;
  /** Only scheduled orders whose life has not ended, the next one first. */
  due?: boolean | undefined;
  /** Newest created first, at most this many. */
  limit: number;
  /** Only orders created before this time, ISO 8601 UTC, to page on. */
  createdBefore?: string | undefined;
  /** Only orders created then or later, ISO 8601 UTC. */
  createdFrom?: string | undefined;
  /** Only orders with this number, as people say it. */
  code?: number | undefined;
  /** Only orders of a branch, by any of these ids. */
  stores?: readonly string[] | undefined;
  /** Only orders whose customer's name, phone number or e-mail address has this text in it. */
  customer?: string | undefined;
  /** Only orders that have this text in their number, customer, address or items. */
  text?: string | undefined;
  /** Only orders that were not cancelled and that no POS acknowledged. */
  unbooked?: boolean | undefined;
}

/** How an order came to be as it is. */
export interface OrderHistory {
  /** Oldest first; the oldest of a long-lived order may be deleted by now. */
  events: OrderEvent[];
  /** When a POS acknowledged that it has it, and how that came in; null: none did. */
  acknowledged: { at: string; source: string } | null;
  /** Why the last acknowledgement that came by SQL was refused; null: none was since. */
  refused: { at: string; seq: number | null; message: string } | null;
}

/** Where observations become durable; what the receiver waits for before it answers 2xx. */
export interface OrderKeeper {
  /**
   * Merges all entries in one transaction that is on the disk when the promise resolves; one outcome per
   * entry, in order. Rejects with a `storage-…` code when nothing of them was kept.
   */
  keep(entries: readonly IntakeEntry[]): Promise<IntakeOutcome[]>;
}

export type IntakeEntry =
  | { kind: 'order'; observation: OrderObservation }
  | { kind: 'unreadable'; unreadable: Unreadable };

export type IntakeOutcome = OrderOutcome | 'quarantined';

export interface ImportOptions {
  observedAtMs: number;
  /** Newest event seq when the request began. */
  asOfSeq: number;
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
}

export interface ImportReport {
  /** False: no list of orders was found; the whole answer is in quarantine. */
  listFound: boolean;
  records: number;
  created: number;
  changed: number;
  confirmed: number;
  superseded: number;
  /** Records without an order id or otherwise unreadable, in quarantine. */
  unreadable: number;
  /** Ids of orders that this poll created, at most 1,000, to compare with what webhooks announced. */
  createdIds: string[];
  /** The envelope speaks of further pages. */
  morePages: boolean;
  /** Smallest and largest `code` seen; null when there was none. */
  codes: { min: number; max: number } | null;
}

/**
 * How far the order feed leaps when nothing tells for certain how far it came: more events than a busy store has in
 * years, and two thousand such leaps still fit into a 32-bit number of a POS.
 */
export const FEED_JUMP = 1_000_000;

/** An order that the POS was to acknowledge by now and has not. */
export interface WaitingOrder {
  orderId: string;
  code: number | null;
  /** ISO 8601 UTC. */
  since: string;
}
