/**
 * Types of an order, read tolerantly from a notification (document, "Order notification") or from a record of GET
 * /order/all, whose fields the document does not show.
 */

import type { MirroredOrder, OrderItem } from './mirrored-order.ts';

/** Where an observation came from. */
export type OrderSource = 'webhook' | 'poll';

/**
 * How well a value is known:
 * - `NOT_SAID`: nothing that came had the field
 * - `POLL_GUESS`: a poll had it, under a name that is neither the document's nor the configuration's
 * - `CALLBACK_GUESS`: a callback had it, under such a name
 * - `NAMED`: said under a name of the document or of `orders.fields`
 */
export const NOT_SAID = '0';
const POLL_GUESS = '1';
const CALLBACK_GUESS = '2';
export const NAMED = '3';
/** A digit, so that the weights of many values are one text; a heavier one is also greater as a text. */
export type Weight = typeof NOT_SAID | typeof POLL_GUESS | typeof CALLBACK_GUESS | typeof NAMED;

/** Returns the weight of a value that was found under a guessed name. */
export function guessBy(source: OrderSource): Weight {
  return source === 'poll' ? POLL_GUESS : CALLBACK_GUESS;
}

/**
 * The scalar fields of an order. A missing property means that the source did not send the field, so the known value is
 * kept. null clears the known value, as for an unreadable amount or the address of a pickup order.
 */
export type OrderFields = Partial<Omit<MirroredOrder, 'orderId' | 'seq' | 'updatedAt' | 'channel' | 'items'>>;

/** Longest accepted order id, in UTF-16 units. */
export const ORDER_ID_LENGTH_MAX = 512;
/**
 * Age up to which people are told of an order that waits, is held or lacks a part. Nobody prepares or books an older
 * one, which `order list` still shows.
 */
export const TOLD_WITHIN_MS = 7 * 24 * 3_600_000;

/** Returns an order's number as a person or a POS writes it, such as `1005` or `#1005`; undefined if it is none. */
export function orderCode(word: string): number | undefined {
  const digits = /^#?(\d{1,15})$/.exec(word.trim())?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/**
 * SQL condition for the rows of `refused_acks` that were about the order `@orderId`: by its id, or by its number, which
 * is refused because it is no id.
 */
export const REFUSED_ACKS_OF = `(order_id = @orderId OR (
  order_id = (SELECT CAST(o.code AS TEXT) FROM _orders o WHERE o.order_id = @orderId)
  AND NOT EXISTS (SELECT 1 FROM _orders o WHERE o.order_id = refused_acks.order_id)))`;

/** Content of one record or notification of an order. */
export interface OrderReading {
  orderId: string;
  fields: OrderFields;
  /** Items of the order; undefined if the source has no list of items, [] for an empty list. */
  items?: OrderItem[];
  /** True for a poll's record in which no line mentions modifiers. */
  isBrief?: true;
  /** Weights of fields, and of `items`, that were found under guessed names. Without one, the name was not a guess. */
  weights?: Partial<Record<keyof OrderFields | 'items', Weight>>;
  /** The same for the parts of each line. */
  lineWeights?: Partial<Record<keyof OrderItem, Weight>>[];
  /** Unreadable parts, each described without its value; missing if there are none. */
  incomplete?: string[];
}

/** One observation of an order, with the text from which it was read. */
export interface OrderObservation {
  source: OrderSource;
  /** When a webhook arrived or a poll started, by the wall clock. Shown to people, never used for ordering. */
  observedAtMs: number;
  /** JSON text as received. */
  raw: string;
  reading: OrderReading;
  /**
   * For a poll, the newest `order_events.seq` when its request began; a webhook applied later is newer than the poll.
   * seq is used instead of time, because clocks can be set back.
   */
  asOfSeq?: number;
  /** For a poll, the newest `held_id` when its request began; a webhook held later waits for the next poll. */
  asOfHeldId?: number;
  /** True for an old observation that is read again. It is not held, and resolves no held webhook. */
  isReplay?: boolean;
  /** True for an order as the hub has it. All that it says is believed. */
  isWhole?: boolean;
}

/**
 * - `created`, `changed`: written, with an event in the feed
 * - `confirmed`: nothing visible to a POS differs
 * - `held`: a callback whose status contradicts what was known; stored, applied only if a poll confirms it
 * - `superseded`: a poll whose request began before a callback was applied to the order; the poll is not applied
 */
export type OrderOutcome = 'created' | 'changed' | 'confirmed' | 'held' | 'superseded';

/** Unreadable input, stored in quarantine for a person to read. */
export interface Unreadable {
  source: OrderSource | 'catalog' | 'outbox' | 'inbox';
  receivedAtMs: number;
  /** Sentence that says what was expected and not found. */
  reason: string;
  /** Text as received, or bytes if they are not UTF-8. */
  payload: string | Uint8Array;
}

/** One event of the feed. */
export interface OrderEvent {
  seq: number;
  orderId: string;
  status: string | null;
  previousStatus: string | null;
  source: OrderSource;
  observedAt: string;
}

/**
 * Position of each status in the life cycle of an order; the higher one is the later. The platform's document ("States
 * and transitions") gives no order. A status that may end an order at any time, such as `cancel`, ranks highest.
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
/** Statuses of orders that take nothing from any stock. */
const TAKES_NOTHING: readonly string[] = ['cancel', 'refund', 'payment-canceled'];
const UNPAID: readonly string[] = ['pending', 'payment-pending'];

/** SQL condition for an open order. The index `orders_open` must have the same condition, word for word. */
export const IS_OPEN = statusNotIn(ENDED);
/**
 * SQL condition for a scheduled order that has not ended. The index `orders_scheduled` must have the same condition,
 * word for word.
 */
export const IS_SCHEDULED = `(is_scheduled = 1 OR (is_scheduled IS NULL AND scheduled_for IS NOT NULL)) AND ${IS_OPEN}`;
/** SQL condition for an order that the POS should book: neither unpaid nor cancelled. */
export const IS_TO_BOOK = statusNotIn([...UNPAID, ...TAKES_NOTHING]);
const hasTablesOf = (role: string) => `EXISTS (SELECT 1 FROM marks WHERE name = 'role.${role}')`;
/**
 * SQL condition for a row of `orders` that the POS of its store has not acknowledged as a whole. At a branch of a hub any
 * acknowledgement counts, because all are from its own POS.
 */
export const IS_UNACKNOWLEDGED = `NOT EXISTS (SELECT 1 FROM _order_acks a WHERE a.order_id = _orders.order_id AND a.without IS NULL
  AND (a.branch IN ('', coalesce(store_external_id, '')) OR (${hasTablesOf('branch')} AND NOT ${hasTablesOf('hub')})))`;

/** Returns whether the POS should book an order of this status, by the same rule as `IS_TO_BOOK`. */
export function isToBook(status: string | null): boolean {
  return status === null || !(UNPAID.includes(status) || TAKES_NOTHING.includes(status));
}

/** Returns the SQL condition that a status is none of these. */
export function statusNotIn(statuses: readonly (string | null)[]): string {
  return `(status IS NULL OR status NOT IN (${statuses.map((status) => `'${status}'`).join(', ')}))`;
}

/** Returns whether a change of status is a step back; always false if the document does not name both statuses. */
export function isBackwards(from: string | null | undefined, to: string | null | undefined): boolean {
  return from != null && to != null && isKnownStatus(from) && isKnownStatus(to) && RANK[to] < RANK[from];
}

/** Returns whether the document says of this status that the order was paid. */
export function isPaid(status: string | null): boolean {
  return status !== null && isKnownStatus(status) && isToBook(status);
}

/** Returns whether the order has ended, so that no further change is expected. An unknown status counts as open. */
export function isEnded(status: string | null | undefined): boolean {
  return status != null && ENDED.includes(status);
}

/** Returns whether the document names the status. */
export function isKnownStatus(status: string): status is OrderStatus {
  return Object.hasOwn(RANK, status);
}

/** Returns whether an order of this status takes nothing from any stock, because it was cancelled or refunded. */
export function takesNothing(status: string | null): boolean {
  return status !== null && TAKES_NOTHING.includes(status);
}

export interface OrderFilter {
  status?: string | undefined;
  /** Only orders that have not ended. */
  open?: boolean | undefined;
  /** Only scheduled orders that have not ended, the next one first. */
  due?: boolean | undefined;
  /** Only orders with a newer event than this `seq`, in the order of `seq`. */
  after?: number | undefined;
  /** Maximum number of orders to return; newest created first, unless `due` or `after` says otherwise. */
  limit: number;
  /** Only orders created before this time, ISO 8601 UTC. The creation time of the last order gives the next page. */
  createdBefore?: string | undefined;
  /** Only orders created at this time or later, ISO 8601 UTC. */
  createdFrom?: string | undefined;
  /** Only orders with this number. */
  code?: number | undefined;
  /** Only orders of one branch, given by all its ids. */
  stores?: readonly string[] | undefined;
  /** Only orders whose customer's name, phone number or e-mail address contains this text. */
  customer?: string | undefined;
  /** Only orders whose number, customer, address or items contain this text. */
  text?: string | undefined;
  /** Only paid orders that were not cancelled and that no POS has acknowledged in their present state. */
  unbooked?: boolean | undefined;
}

/** The events and decisions that led to an order's present state. */
export interface OrderHistory {
  /** Events of the order, oldest first. Old events of a long-lived order may have been deleted. */
  events: OrderEvent[];
  /** When a POS acknowledged the order, by which interface, and which lines it left out; null if none did. */
  acknowledged: { at: string; source: string; without: number[] } | null;
  /** Why the last acknowledgement by SQL was refused; null if a later one was accepted. */
  refused: { at: string; seq: number | null; message: string } | null;
}

/** Stores observations durably. The receiver answers 2xx only after `save` has resolved. */
export interface OrderSink {
  /**
   * Merges all entries in one transaction, which is on the disk when the promise resolves. Returns one outcome per
   * entry, in the order of the entries. Rejects with `storage-…` if nothing was stored.
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
  /** Newest `held_id` when the request began. */
  asOfHeldId: number;
  /**
   * True for an answer about old days. An unknown order that has ended is left out then, because it may have been
   * deleted here for its age.
   */
  isOld?: boolean | undefined;
  /** Ids of orders that the answer should have. */
  watched?: readonly string[] | undefined;
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
}

/** A filled list in an answer of GET /order/all that is not read as orders. */
export interface UnreadList {
  /** Its names from the root, joined by dots; `[]` stands for the elements of a list, `{}` for those of an object. */
  path: string;
  /** Number of records; null if it was not searched, because it is nested too deeply. */
  records: number | null;
  /** True if its records may be orders, so that orders may be missing. */
  mayBeOrders: boolean;
}

export interface ImportReport {
  /** False if the answer has no list of orders; the whole answer is then in quarantine. */
  listFound: boolean;
  /** Number of records in all lists of orders. */
  records: number;
  /** Number of records of an order that the answer has before; its first record is read. */
  repeated: number;
  /** Lists that are not read as orders. */
  unreadLists: UnreadList[];
  created: number;
  changed: number;
  confirmed: number;
  superseded: number;
  /** Number of records put into quarantine, because they have no order id or are otherwise unreadable. */
  unreadable: number;
  /** Ids of orders that this poll created, at most 1,000, to compare with webhooks. */
  createdIds: string[];
  /** True if the answer says that there are further pages. */
  morePages: boolean;
  /** True if one of the lists of orders has a round number of records, so that it may be limited to so many. */
  mayBeCut: boolean;
  /** Ids of the watched orders that are not in the answer. */
  unlisted: string[];
  /** Smallest and largest `code` in the answer; null if it has none. */
  codes: { min: number; max: number } | null;
}

/**
 * Number by which the feed's seq jumps if the last used seq is uncertain. Even a busy store has fewer events in years,
 * and a POS that stores seqs as 32-bit numbers has room for two thousand jumps.
 */
export const SEQ_JUMP = 1_000_000;

/** An order that waits for a POS to acknowledge it. */
export interface WaitingOrder {
  orderId: string;
  code: number | null;
  /** Start of the wait, ISO 8601 UTC. */
  since: string;
}

/** An order about which callbacks contradict what is known. */
export interface HeldOrder {
  orderId: string;
  code: number | null;
  /** Known status of the order. */
  status: string | null;
  /** Status in the callback that was held last. */
  heldStatus: string | null;
  /** When the order was placed, ISO 8601 UTC; null if unknown. */
  createdAt: string | null;
}
