import { isEnded, takesNothing } from '../orders/order.ts';

/** How long what is no longer needed stays. Durations in milliseconds; 0: for ever. */
export interface RetentionSettings {
  /** Events of the feed that are not the newest of their order. */
  readonly eventsMs: number;
  /** Payloads that a newer one replaced or confirmed. */
  readonly payloadsMs: number;
  /** Orders whose life has ended, since their last change. */
  readonly ordersMs: number;
  /** Changes that arrived or were superseded. */
  readonly outboxMs: number;
  readonly quarantineMs: number;
  /** Customers, since the end of their orders; no unread input is kept for longer. */
  readonly personalDataMs: number;
  /** Content of mirror.db from which on the oldest payloads and events go sooner. */
  readonly maxBytes: number;
}

/** Times in ISO 8601 UTC before which something may go; null: nothing may. */
export interface RetentionCuts {
  now: string;
  events: string | null;
  payloads: string | null;
  orders: string | null;
  quarantine: string | null;
  audit: string | null;
  /** Orders that ended before it lose their customers. */
  customers: string | null;
}

const DAY_MS = 86_400_000;
/** Long enough to look back at the same season of the year before. */
const AUDIT_MS = 400 * DAY_MS;
/** However little room there is, this stays: time enough for a POS to come back, and for support to look. */
const FLOOR_MS = { payloads: DAY_MS, events: 7 * DAY_MS, quarantine: 7 * DAY_MS };
/** How often the time that things stay is halved for want of room. */
export const PRESSURE_MAX = 7;

/**
 * What may go at `nowMs`. Each step of `pressure`, from 0 to PRESSURE_MAX, halves the time that payloads, events and
 * quarantine stay, down to a floor; orders never go for want of room.
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
    // Nobody knows whether there are customers in what could not be read.
    quarantine: latest(pressed(settings.quarantineMs, FLOOR_MS.quarantine), customers),
    customers,
    orders: before(settings.ordersMs),
    audit: before(AUDIT_MS),
  };
}

function latest(a: string | null, b: string | null): string | null {
  return a === null || (b !== null && b > a) ? b : a;
}

/** What decides whether something of an order may go. */
export interface OrderStanding {
  status: string | null;
  /** ISO 8601 UTC, of its newest event. */
  updatedAt: string;
  /** Newest seq. */
  seq: number;
  isAcknowledged: boolean;
  /** Whether the POS of its store acknowledges orders at all. */
  usesAcks: boolean;
  /** First event that the stock held back for it goes by; null: nothing is held back for it. */
  heldBackSeq: number | null;
}

export interface FeedStanding {
  /** Up to this seq held-back stock has taken the feed in; null: nothing is held back. */
  heldBackTo: number | null;
  /** Of the whole feed. */
  newestSeq: number;
}

/** Over, and the POS waits for none of it: where it acknowledges orders, it has this one. */
function isSettled(order: OrderStanding): boolean {
  const isBooked = !order.usesAcks || order.isAcknowledged || takesNothing(order.status);
  return isEnded(order.status) && isBooked;
}

/**
 * Whether an event may go. Never the newest of an order, so that whoever begins at any seq still learns of every
 * order there is. `order` is undefined when the order itself is gone.
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

/** Whether a payload that is not the order's newest may go. */
export function mayDropPayload(
  payload: { receivedAt: string },
  order: OrderStanding | undefined,
  cuts: RetentionCuts,
): boolean {
  if (cuts.payloads === null || payload.receivedAt >= cuts.payloads) return false;
  return order === undefined || isEnded(order.status);
}

/** Whether an order may go with all that belongs to it. */
export function mayDropOrder(order: OrderStanding, feed: FeedStanding, cuts: RetentionCuts): boolean {
  if (cuts.orders === null || order.updatedAt >= cuts.orders || order.seq === feed.newestSeq) return false;
  if (feed.heldBackTo !== null && order.seq > feed.heldBackTo) return false;
  return order.heldBackSeq === null && isSettled(order);
}
