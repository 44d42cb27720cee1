import { isEnded, takesNothing } from '../orders/order.ts';

/** Times for which unneeded rows are stored, in milliseconds; 0 means for ever. */
export interface RetentionSettings {
  /** Events of the feed that are not the newest of their order. */
  readonly eventsMs: number;
  /** Payloads that a newer one replaced or confirmed. */
  readonly payloadsMs: number;
  /** Ended orders, counted from their last change. */
  readonly ordersMs: number;
  /** Changes that arrived or were superseded. */
  readonly outboxMs: number;
  readonly quarantineMs: number;
  /** Time for customer data, from the end of the order; unreadable input is stored no longer either. */
  readonly personalDataMs: number;
  /** Size of mirror.db's content above which the oldest payloads and events are deleted sooner. */
  readonly maxBytes: number;
}

/** Times (ISO 8601 UTC) before which rows may be deleted; null: none may. */
export interface RetentionCuts {
  now: string;
  events: string | null;
  payloads: string | null;
  orders: string | null;
  quarantine: string | null;
  audit: string | null;
  /** Orders that ended before this time lose their customer data. */
  customers: string | null;
}

const DAY_MS = 86_400_000;
/** Time for the audit, long enough to see the same season of the previous year. */
const AUDIT_MS = 400 * DAY_MS;
/** Minimum times even without room: enough for a POS to return and for support to look. */
const FLOOR_MS = { payloads: DAY_MS, events: 7 * DAY_MS, quarantine: 7 * DAY_MS };
/** Number of times that the retention times may be halved for lack of room. */
export const PRESSURE_MAX = 7;

/**
 * Returns the times before which rows may be deleted at `nowMs`. Each step of `pressure`, from 0 to PRESSURE_MAX,
 * halves the time for payloads, events and quarantine, down to a minimum. Orders are never deleted for lack of room.
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
    // Unreadable input may contain customer data.
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
export interface OrderStanding {
  status: string | null;
  /** ISO 8601 UTC time of its newest event. */
  updatedAt: string;
  /** Newest seq. */
  seq: number;
  isAcknowledged: boolean;
  /** Whether the POS of its store acknowledges orders at all. */
  usesAcks: boolean;
  /** First event that the stock held back for it needs; null if nothing is held back for it. */
  heldBackSeq: number | null;
}

export interface FeedStanding {
  /** The stock ledger has followed the feed up to this seq; null if nothing is held back. */
  heldBackTo: number | null;
  /** Newest seq of the whole feed. */
  newestSeq: number;
}

/**
 * Whether the order has ended and the POS needs no data of it any more. If the POS acknowledges orders, it must have
 * acknowledged this one.
 */
function isSettled(order: OrderStanding): boolean {
  const isBooked = !order.usesAcks || order.isAcknowledged || takesNothing(order.status);
  return isEnded(order.status) && isBooked;
}

/**
 * Whether an event may be deleted. The newest event of an order stays, so that a reader who begins at any seq still
 * sees every order. `order` is undefined when the order itself is deleted.
 */
export function mayDropEvent(
  event: { seq: number; observedAt: string },
  order: OrderStanding | undefined,
  feed: FeedStanding,
  cuts: RetentionCuts,
): boolean {
  if (cuts.events === null || event.observedAt >= cuts.events || event.seq === feed.newestSeq) return false;
  if (feed.heldBackTo !== null && event.seq > feed.heldBackTo) return false;
  if (order === undefined) return true;
  return event.seq !== order.seq && event.seq !== order.heldBackSeq && isSettled(order);
}

/** Whether a payload that is not the order's newest may be deleted. */
export function mayDropPayload(
  payload: { receivedAt: string },
  order: OrderStanding | undefined,
  cuts: RetentionCuts,
): boolean {
  if (cuts.payloads === null || payload.receivedAt >= cuts.payloads) return false;
  return order === undefined || isEnded(order.status);
}

/** Whether an order and all its rows may be deleted. */
export function mayDropOrder(order: OrderStanding, feed: FeedStanding, cuts: RetentionCuts): boolean {
  if (cuts.orders === null || order.updatedAt >= cuts.orders || order.seq === feed.newestSeq) return false;
  if (feed.heldBackTo !== null && order.seq > feed.heldBackTo) return false;
  return order.heldBackSeq === null && isSettled(order);
}
