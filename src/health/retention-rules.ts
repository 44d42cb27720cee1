import { isEnded, takesNothing } from '../orders/merging/order.ts';

/** Retention times in milliseconds; 0 means for ever. */
export interface RetentionSettings {
  /** Retention of feed events that are not the newest of their order. */
  readonly eventsMs: number;
  /** Retention of payloads that a newer payload replaced or confirmed. */
  readonly payloadsMs: number;
  /** Retention of ended orders, counted from their last change. */
  readonly ordersMs: number;
  /** Retention of changes that are done or superseded. */
  readonly outboxMs: number;
  readonly quarantineMs: number;
  /** Retention of customer data, counted from the end of the order, and longest retention of quarantine entries. */
  readonly personalDataMs: number;
  /** Size of mirror.db's content above which payloads, events and quarantine entries are deleted sooner. */
  readonly maxBytes: number;
}

/** Times before which rows are deleted, ISO 8601 UTC; null if none are. `now` is the present time. */
export interface RetentionCuts {
  now: string;
  events: string | null;
  payloads: string | null;
  orders: string | null;
  quarantine: string | null;
  audit: string | null;
  /** Customer data is removed from orders that ended before this time. */
  customers: string | null;
}

const DAY_MS = 86_400_000;
/** Retention of the audit: more than a year, so that the same season can be compared. */
const AUDIT_MS = 400 * DAY_MS;
/**
 * Minimum retention times when room is short, so that support, and a POS that was switched off, still find the rows.
 */
const FLOOR_MS = { payloads: DAY_MS, events: 7 * DAY_MS, quarantine: 7 * DAY_MS };
/** Maximum number of times that the retention times are halved for lack of room. */
export const PRESSURE_MAX = 7;

/**
 * Returns the times before which rows are deleted. Each step of `pressure`, from 0 to `PRESSURE_MAX`, halves the time
 * for payloads, events and quarantine, down to a minimum. Orders are never deleted for lack of room.
 */
export function retentionCuts(settings: RetentionSettings, nowMs: number, pressure: number): RetentionCuts {
  const before = (ms: number) => (ms === 0 ? null : new Date(nowMs - ms).toISOString());
  const customers = before(settings.personalDataMs);
  const pressed = (ms: number, floorMs: number) => {
    if (pressure === 0) return before(ms);
    const usualMs = ms === 0 ? FLOOR_MS.events * 2 ** PRESSURE_MAX : ms;
    return before(Math.max(Math.min(usualMs, floorMs), usualMs / 2 ** pressure));
  };
  return {
    now: new Date(nowMs).toISOString(),
    events: pressed(settings.eventsMs, FLOOR_MS.events),
    payloads: pressed(settings.payloadsMs, FLOOR_MS.payloads),
    // Unreadable input may contain customer data, so it is deleted as early as customer data.
    quarantine: latest(pressed(settings.quarantineMs, FLOOR_MS.quarantine), customers),
    customers,
    orders: before(settings.ordersMs),
    audit: before(AUDIT_MS),
  };
}

function latest(a: string | null, b: string | null): string | null {
  return a === null || (b !== null && b > a) ? b : a;
}

/** Facts that decide whether an order's rows may be deleted. */
export interface OrderFacts {
  status: string | null;
  /** Time of the order's newest event, ISO 8601 UTC. */
  updatedAt: string;
  /** Seq of the order's newest event. */
  seq: number;
  isAcknowledged: boolean;
  /** Whether the POS of the order's store acknowledges orders at all. */
  usesAcks: boolean;
  /**
   * Seq of the first event that the ledger still needs to hold back stock for the order; null if it holds back none.
   */
  heldBackSeq: number | null;
}

export interface FeedFacts {
  /** Seq up to which the stock ledger has processed the feed; null if no stock is held back. */
  heldBackTo: number | null;
  /** Newest seq of the whole feed. */
  newestSeq: number;
}

/**
 * Returns whether the order has ended and no booking is awaited: the POS has acknowledged it, the order takes nothing
 * (for example, it was cancelled), or its store's POS never acknowledges.
 */
function isSettled(order: OrderFacts): boolean {
  const isBooked = !order.usesAcks || order.isAcknowledged || takesNothing(order.status);
  return isEnded(order.status) && isBooked;
}

/**
 * Returns whether an event may be deleted. An order's newest event is kept, so that a reader who starts at any seq
 * sees every order. `order` is undefined if the order itself is deleted.
 */
export function mayDropEvent(
  event: { seq: number; observedAt: string },
  order: OrderFacts | undefined,
  feed: FeedFacts,
  cuts: RetentionCuts,
): boolean {
  if (cuts.events === null || event.observedAt >= cuts.events || event.seq === feed.newestSeq) return false;
  if (feed.heldBackTo !== null && event.seq > feed.heldBackTo) return false;
  if (order === undefined) return true;
  return event.seq !== order.seq && event.seq !== order.heldBackSeq && isSettled(order);
}

/** Returns whether a payload that is not the order's newest may be deleted. */
export function mayDropPayload(
  payload: { receivedAt: string },
  order: OrderFacts | undefined,
  cuts: RetentionCuts,
): boolean {
  if (cuts.payloads === null || payload.receivedAt >= cuts.payloads) return false;
  return order === undefined || isEnded(order.status);
}

/** Returns whether an order and all its rows may be deleted. */
export function mayDropOrder(order: OrderFacts, feed: FeedFacts, cuts: RetentionCuts): boolean {
  if (cuts.orders === null || order.updatedAt >= cuts.orders || order.seq === feed.newestSeq) return false;
  if (feed.heldBackTo !== null && order.seq > feed.heldBackTo) return false;
  return order.heldBackSeq === null && isSettled(order);
}
