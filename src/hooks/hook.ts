import { fold } from '../core/folding.ts';
import type { EventName, FeedName } from '../core/values.ts';
import type { MirroredOrder } from '../orders/merging/mirrored-order.ts';
import type { OrderEvent } from '../orders/merging/order.ts';
import type { OutboxEntry } from '../outbox/intake/change.ts';
import type { PreparationChange, PreparationEvent, UndoneReason } from './preparation.ts';

/** A hook of the configuration (`[[hooks]]`). */
export interface HookSettings {
  readonly name: string;
  /** Address of the receiver; empty if the receiver is a command. */
  readonly url: string;
  readonly command: readonly string[];
  /** Kinds of events that the hook gets; at least one, in the order of `HOOK_EVENTS`. */
  readonly events: readonly EventName[];
  /**
   * An order event is sent only if its status is one of these, and an order is to be prepared only from the first of
   * these on; if this is empty, the status does not matter.
   */
  readonly statuses: readonly string[];
  /** How long before it is due a scheduled order is to be prepared. */
  readonly prepareBeforeMs: number;
  readonly from: 'now' | 'start';
  readonly timeoutMs: number;
}

/** An event of an order as a receiver gets it, in the form of `/v1/orders`. */
export type HookEvent = Omit<OrderEvent, 'source'> & {
  source: OrderEvent['source'] | 'test';
  /** The order in its present state; null if it was deleted meanwhile. */
  order: MirroredOrder | null;
  /** True for an event of `hooks test`; otherwise missing. */
  test?: true;
};

/** A rejected change as a receiver gets it. */
export interface RejectedChangeEvent {
  event: 'change.rejected';
  /** The change's `settledSeq`. */
  seq: number;
  /** The change in its present state, in the form of `/v1/outbox`. */
  change: OutboxEntry;
  /** True for an event of `hooks test`; otherwise missing. */
  test?: true;
}

/** That an order is to be prepared, that this changed, or that it is not to be prepared any more. */
export interface PreparationMessage {
  event: PreparationEvent;
  /** Number of the event among this hook's events of this kind. */
  seq: number;
  /** As the header `webhook-id`: the same for each try. */
  id: string;
  orderId: string;
  /** Present status of the order. */
  status: string | null;
  /** For `order.undone`; otherwise null. */
  reason: UndoneReason | null;
  /** For `order.changed`: what is different since the last event of this order; null if that is not known any more. */
  changes: PreparationChange[] | null;
  /** When it was decided, ISO 8601 UTC. */
  observedAt: string;
  /** When the order is due, ISO 8601 UTC, or a day without a time; null if it is not scheduled. */
  dueAt: string | null;
  /** Times by the clock of the shop, such as `2026-11-28 13:30`. */
  local: { timezone: string; createdAt: string | null; dueAt: string | null; observedAt: string | null };
  /** The order in its present state; null if it was deleted meanwhile. */
  order: MirroredOrder | null;
  /** True for an event of `hooks test`; otherwise missing. */
  test?: true;
}

/** The body that a receiver gets. */
export type HookMessage = HookEvent | PreparationMessage | RejectedChangeEvent;

/** Identifies the cursor of one hook in one feed of events. */
export interface CursorKey {
  /** Name of the hook. */
  name: string;
  event: FeedName;
}

/** Lag from which the alarm is amber, because somebody should check the hook. */
export const LAGS_AFTER_MS = 2 * 60_000;
/** Lag from which the alarm is red, because somebody must act now. */
export const LAGS_BADLY_AFTER_MS = 15 * 60_000;

/** A hook's state in one of its feeds, for the commands and the metrics. */
export interface HookStatus extends CursorKey {
  /** Receiver of the events, without secret parts of its address. */
  to: string;
  /** Seq up to which all events were delivered or skipped; null if the hook has not started. */
  seq: number | null;
  /** Number of waiting events, at most `COUNTED_MAX`. */
  waiting: number;
  /** True if more events may wait than were counted. */
  isMore: boolean;
  waitsSince: string | null;
  lastOkAt: string | null;
  /** Number of failed tries since the last successful one. */
  failures: number;
  lastFailureAt: string | null;
  lastFailure: string | null;
  nextTryAt: string | null;
}

/** Maximum number of waiting events that are counted. */
export const COUNTED_MAX = 10_000;

/** Fields of an order that identify the customer. */
const PERSONAL = [
  ...['customerFirstName', 'customerLastName', 'customerEmail', 'customerPhoneNumber'],
  ...['addressAddress', 'addressStreetAddress', 'addressStreetNumber', 'addressDetails'],
  ...['addressPhoneNumber', 'addressZipCode', 'addressLat', 'addressLng', 'name'],
] as const satisfies readonly (keyof MirroredOrder)[];
/** Minimum length of a word that is removed. Shorter words occur in any text. */
const WORD_MIN = 3;

/**
 * Removes the customer's data from a receiver's answer, in any spelling: a name may come back without accents, a
 * number without blanks.
 */
export function withoutCustomer(text: string, order: MirroredOrder | null): string {
  if (order === null) return text;
  const values = PERSONAL.flatMap((field) => (order[field] == null ? [] : [String(order[field])]));
  const comments = order.items.flatMap(({ comment }) => (comment ? [comment] : []));
  let found = text;
  for (const whole of [...values, ...comments].sort((a, b) => b.length - a.length)) {
    if (whole.length >= WORD_MIN) found = found.replaceAll(whole, HIDDEN);
  }
  const hidden = new Set(values.flatMap((value) => [folded(value), ...wordsOf(value).map(folded)]));
  return found.replace(WORD, (word) => {
    const plain = folded(word);
    return plain.length >= WORD_MIN && hidden.has(plain) ? HIDDEN : word;
  });
}

const HIDDEN = '[customer]';
const WORD = /[\p{L}\p{M}\p{N}@._+-]+/gu;

function wordsOf(value: string): string[] {
  return value.match(WORD) ?? [];
}

/** Returns the letters, in lower case and without accents, and the digits of a word. */
function folded(word: string): string {
  return fold(word).replace(/[^\p{L}\p{N}]/gu, '');
}

/** Returns the event of an invented change that was rejected, in the form of a real one. */
export function madeUpRejection(nowIso: string): RejectedChangeEvent {
  const change: OutboxEntry = {
    changeId: 0,
    kind: 'stock',
    target: 'ext:test@sub-2',
    body: { externalId: 'test', subsidiaryId: 'sub-2', qty: 12 },
    state: 'rejected',
    attempts: 0,
    message: 'externalId test is not in branch sub-2; it is sku 1001 in branch sub-1 (externalId test).',
    createdAt: nowIso,
    settledAt: nowIso,
    heldGuard: null,
    source: 'http',
    origin: 'http 127.0.0.1',
    reference: 'test',
    countedAt: null,
    replaced: 0,
    supersededBy: null,
    settledSeq: 0,
  };
  return { event: 'change.rejected', seq: 0, change, test: true };
}

/** Returns an event of an invented order, in the form of a real one. */
export function madeUpEvent(nowIso: string): HookEvent {
  const order: MirroredOrder = {
    orderId: 'test',
    seq: 0,
    updatedAt: nowIso,
    code: 0,
    status: 'payment-approved',
    storeExternalId: null,
    websiteId: null,
    name: 'Prueba',
    channel: 'Web',
    createdAt: nowIso,
    deliveryType: 'delivery',
    amountToPay: 12_990,
    amount: 10_990,
    deliveryFee: 2_000,
    couponDiscount: 0,
    deliveryTime: null,
    isScheduled: false,
    scheduledFor: null,
    addressLat: null,
    addressLng: null,
    addressAddress: 'Avenida Ñuñoa 123',
    addressStreetNumber: '123',
    addressStreetAddress: 'Avenida Ñuñoa',
    addressCountry: 'Chile',
    addressState: null,
    addressCity: 'Santiago',
    addressZipCode: null,
    addressPhoneNumber: null,
    addressDetails: null,
    customerFirstName: 'María José',
    customerLastName: 'Prueba',
    customerEmail: null,
    customerPhoneNumber: null,
    items: [
      {
        productExternalId: 'test',
        productName: 'Té de prueba',
        quantity: 2,
        comment: 'sin azúcar',
        unitPrice: 5_495,
        baseUnitPrice: 5_495,
        productPrice: 10_990,
        productBasePrice: 10_990,
        sku: '1001',
        productId: 'product-1',
        matchedBy: 'external_id',
        modifiers: [],
      },
    ],
  };
  return testEvent(order, nowIso);
}

/** Returns an invented event of a real order. */
export function testEvent(order: MirroredOrder, nowIso: string): HookEvent {
  const { orderId, status } = order;
  const event = { seq: 0, orderId, status, previousStatus: null, observedAt: nowIso };
  return { ...event, source: 'test', test: true, order };
}
