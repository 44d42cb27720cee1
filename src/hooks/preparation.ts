import type { MirroredOrder, OrderModifier, PlacedItem } from '../orders/merging/mirrored-order.ts';
import { IS_TO_BOOK, isToBook, statusNotIn, takesNothing } from '../orders/merging/order.ts';

/**
 * Rules of the events `order.prepare`, `order.changed` and `order.undone`. What a hook is told follows from two facts
 * alone: the order as it is now, and what the hook was told of it last. No event of the order feed is looked at, so
 * nothing depends on the order or the number of callbacks and polls.
 */

/** Events of a preparation. */
export type PreparationEvent = 'order.prepare' | 'order.changed' | 'order.undone';

/** Why an order is not to be prepared any more: its status, or `moved` to another branch. */
export type UndoneReason = 'cancel' | 'refund' | 'payment-canceled' | 'moved';

/** An option of a line, as a kitchen reads it. */
interface PreparedOption {
  name: string;
  quantity: number | null;
}

/** A line of an order, as a kitchen reads it. Lines of quantity 0 are not to be prepared and have none. */
interface PreparedLine {
  /** Number of the line in the order's `items`, from 1. */
  line: number;
  name: string;
  quantity: number | null;
  options: PreparedOption[];
  /** Digest of the comment; null if there is none. */
  comment: string | null;
}

/** The part of an order that a kitchen works from. Texts of the customer are digests, because rows outlive customers. */
export interface Content {
  lines: PreparedLine[];
  dueAt: string | null;
  deliveryType: string | null;
  /** Digest of each part of the address; null for a part that nobody said. */
  address: (string | null)[];
}

/** What a hook was told last of an order. */
export interface ToldOrder {
  /** How many events of this order the hook was told; 0 for an order that was paid and due before the hook began. */
  step: number;
  isPrepared: boolean;
  /** Store whose kitchen was told, by the canonical name of its branch; null if the order named none. */
  store: string | null;
  /** null if only its digest is known, as after the loss of the mirror. */
  content: Content | null;
  /** '' once the customer was removed. */
  digest: string;
}

/** A line as it was before a change, or as it is after it. */
type LineSide = Omit<PreparedLine, 'line' | 'comment'>;

/** One difference between what was told last and what is to be prepared now. */
export type PreparationChange =
  | {
      what: 'line';
      change: 'new' | 'changed' | 'removed';
      /** Number of the line in `order.items`, from 1; null if the order has it no more. */
      line: number | null;
      before: LineSide | null;
      after: LineSide | null;
      /** True if the line's comment is another one. */
      comment?: true;
    }
  | { what: 'dueAt'; before: string | null; after: string | null }
  | { what: 'deliveryType'; before: string | null; after: string | null }
  | { what: 'address' };

/** The facts about an order that decide. */
export interface PreparationFacts {
  order: MirroredOrder;
  /** Store by the canonical name of its branch. */
  store: string | null;
  /** True at a branch whose hub says that the order belongs to another one now. */
  isAway: boolean;
  /** True if the customer was removed, so that missing comments and a missing address are no change. */
  isForgotten: boolean;
  content: Content;
  digest: string;
}

/** What a hook is to be told next of an order. */
export interface NextEvent {
  event: PreparationEvent;
  reason: UndoneReason | null;
  /** null if the earlier content is not known any more. */
  changes: PreparationChange[] | null;
  told: ToldOrder;
}

/** Statuses in which nothing is prepared any more, because the order has left the house. */
const LEFT: readonly (string | null)[] = ['routed', 'dispatched', 'shippingError'];

/** Returns whether a kitchen works on an order of this status: it is paid, not cancelled, and still in the house. */
function isInKitchen(status: string | null): boolean {
  return isToBook(status) && !LEFT.includes(status);
}

/** SQL condition for an order on which a kitchen works, by the same rule as `isInKitchen`. */
export const IS_IN_KITCHEN = `(${IS_TO_BOOK} AND ${statusNotIn(LEFT)})`;

/**
 * Returns the statuses in which a hook is told to prepare an order; empty means all in which a kitchen works on it. A
 * filter that has none of those restricts only the other events of the hook.
 */
export function preparedStatuses(statuses: readonly string[]): readonly string[] {
  return statuses.filter(isInKitchen);
}

/** Returns what the hook is to be told next; undefined if it knows all. */
export function nextEvent(
  { order, store, isAway, isForgotten, content, digest }: PreparationFacts,
  told: ToldOrder | undefined,
  { isDue, statuses }: { isDue: boolean; statuses: readonly string[] },
): NextEvent | undefined {
  const step = (told?.step ?? 0) + 1;
  const now = { step, isPrepared: true, store, content, digest };
  if (told?.isPrepared) {
    const reason = undoneReason(order.status, isAway || isAnotherStore(told.store, store));
    if (reason !== null) {
      return { event: 'order.undone', reason, changes: null, told: { ...told, step, isPrepared: false } };
    }
    if (!isInKitchen(order.status) || digest === told.digest) return undefined;
    const changes = told.content && differences(told.content, content, isForgotten);
    if (changes === null ? isForgotten || told.digest === '' : changes.length === 0) return undefined;
    return { event: 'order.changed', reason: null, changes, told: now };
  }
  if (told?.step === 0) return undefined;
  if (!isDue || isAway || !isInKitchen(order.status)) return undefined;
  if (statuses.length > 0 && !(order.status !== null && statuses.includes(order.status))) return undefined;
  return { event: 'order.prepare', reason: null, changes: null, told: now };
}

function isAnotherStore(before: string | null, now: string | null): boolean {
  return before !== null && now !== null && before !== now;
}

function undoneReason(status: string | null, isMoved: boolean): UndoneReason | null {
  if (takesNothing(status)) return status as UndoneReason;
  return isMoved ? 'moved' : null;
}

/**
 * Returns when an order is due, ISO 8601 in UTC or a day without a time; null for an order that is not scheduled, and
 * for one whose time cannot be read.
 */
export function dueAtOf({ isScheduled, scheduledFor, deliveryTime }: MirroredOrder): string | null {
  if (isScheduled === false || (isScheduled === null && scheduledFor === null)) return null;
  return [scheduledFor, deliveryTime].find((time) => time !== null && IS_TIME.test(time)) ?? null;
}

const IS_TIME = /^\d{4}-\d{2}-\d{2}(?:T[\d:.]+Z)?$/;

/**
 * Returns from when on an order is prepared, epoch milliseconds: `beforeMs` before it is due, or at the begin of a due
 * day without a time. Returns undefined for an order that is prepared at once.
 */
export function prepareFromMs(
  dueAt: string | null,
  { beforeMs, dayStartMs }: { beforeMs: number; dayStartMs: (day: string) => number },
): number | undefined {
  if (dueAt === null) return undefined;
  return dueAt.includes('T') ? Date.parse(dueAt) - beforeMs : dayStartMs(dueAt);
}

/** Returns what a kitchen works from. `digest` makes the digest of a text of the customer. */
export function contentOf(order: MirroredOrder, digest: (text: string) => string): Content {
  const digestOf = (text: string) => (text === '' ? null : digest(text));
  const address = [order.addressAddress, order.addressStreetAddress, order.addressStreetNumber];
  const place = [...address, order.addressCity, order.addressDetails];
  return {
    lines: order.items.flatMap((item, i) => lineOf(item, i + 1, digestOf)),
    dueAt: dueAtOf(order),
    deliveryType: order.deliveryType,
    address: place.map((part) => digestOf(plain(part ?? ''))),
  };
}

function lineOf(item: PlacedItem, line: number, digestOf: (text: string) => string | null): PreparedLine[] {
  const quantity = quantityOf(item.quantity);
  if (quantity !== null && quantity <= 0) return [];
  const name = plain(item.productName ?? item.productExternalId ?? '');
  const options = item.modifiers.flatMap(optionOf);
  return [{ line, name, quantity, options, comment: digestOf(plain(item.comment ?? '')) }];
}

function optionOf(option: OrderModifier): PreparedOption[] {
  if (option.quantity !== null && option.quantity <= 0) return [];
  return [{ name: optionName(option), quantity: option.quantity }];
}

/** Returns how a kitchen calls an option: by its own name, or by the modifier's where it has none. */
function optionName(option: OrderModifier): string {
  const { optionName: own, name, shortName, optionExternalId, optionId } = option;
  return plain(own ?? name ?? shortName ?? optionExternalId ?? optionId ?? '');
}

function quantityOf(quantity: number | string | null): number | null {
  const number = typeof quantity === 'string' && quantity.trim() !== '' ? Number(quantity) : quantity;
  return typeof number === 'number' && Number.isFinite(number) ? number : null;
}

/** Returns a text without what no reader sees: other blanks, other forms of one letter. */
function plain(text: string): string {
  return text.normalize('NFC').replace(/\s+/gu, ' ').trim();
}

/** Returns the content as one text, which is equal if the same is to be prepared, in whatever order the lines are. */
export function canonical({ lines, ...rest }: Content): string {
  const texts = lines.map((each) => JSON.stringify([sideKey(each), each.comment])).sort();
  return JSON.stringify([texts, rest.dueAt, rest.deliveryType, rest.address]);
}

function sideKey({ name, quantity, options }: LineSide): string {
  return JSON.stringify([name, quantity, optionsKey(options)]);
}

function optionsKey(options: readonly PreparedOption[]): string {
  return JSON.stringify(options.map(({ name, quantity }) => [name, quantity ?? 1]).sort());
}

/** How alike two lines must be to be one line that was changed; tried in this order. */
const ALIKE: ((a: PreparedLine, b: PreparedLine) => boolean)[] = [
  (a, b) => sideKey(a) === sideKey(b) && a.comment === b.comment,
  (a, b) => sideKey(a) === sideKey(b),
  (a, b) => a.name === b.name && optionsKey(a.options) === optionsKey(b.options),
  (a, b) => a.name === b.name,
];

/** Returns the differences, those of lines in the order of the new lines, removed ones last. */
function differences(before: Content, after: Content, isForgotten: boolean): PreparationChange[] {
  const pairs = new Map<PreparedLine, PreparedLine>();
  const left = new Set(before.lines);
  for (const isAlike of ALIKE) {
    for (const line of after.lines) {
      if (pairs.has(line)) continue;
      const match = [...left].find((each) => isAlike(each, line));
      if (match === undefined) continue;
      pairs.set(line, match);
      left.delete(match);
    }
  }
  const lines = after.lines.flatMap((line) => lineChange(pairs.get(line), line, isForgotten));
  const removed = [...left].map(
    (line): PreparationChange => ({
      ...{ what: 'line', change: 'removed', line: null, before: sideOf(line), after: null },
    }),
  );
  const rest: PreparationChange[] = [];
  if (before.dueAt !== after.dueAt) rest.push({ what: 'dueAt', before: before.dueAt, after: after.dueAt });
  if (before.deliveryType !== after.deliveryType) {
    rest.push({ what: 'deliveryType', before: before.deliveryType, after: after.deliveryType });
  }
  // A poll says parts that the callback left out, and the reverse: only a part that became another one is a change.
  const isMoved = after.address.some((part, i) => part !== null && (before.address[i] ?? part) !== part);
  if (isMoved && !isForgotten) rest.push({ what: 'address' });
  return [...lines, ...removed, ...rest];
}

function lineChange(
  before: PreparedLine | undefined,
  line: PreparedLine,
  isForgotten: boolean,
): PreparationChange[] {
  const after = sideOf(line);
  if (before === undefined) {
    return [{ what: 'line', change: 'new', line: line.line, before: null, after }];
  }
  const isComment = before.comment !== line.comment && !isForgotten;
  if (!isComment && sideKey(before) === sideKey(line)) return [];
  const change = { what: 'line', change: 'changed', line: line.line, before: sideOf(before), after } as const;
  return [isComment ? { ...change, comment: true } : change];
}

function sideOf({ name, quantity, options }: PreparedLine): LineSide {
  return { name, quantity, options };
}
