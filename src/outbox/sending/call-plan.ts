import type { BatchAnswer, ProductChangeItem, ProductRecord, SkuRecord } from '../../platform/schemas.ts';
import { ADDRESS_KEYS, type ChangeBody, type ChangeKind } from '../intake/change.ts';
import { goesToZero, sameNumber } from '../intake/guards.ts';

/** A sold-out change is sent before all others, so that nobody buys the product any more. */
export const PRIORITY_SOLD_OUT = 0;
export const PRIORITY_OTHERS = 1;

export function priorityOf(body: object): number {
  return 'qty' in body && goesToZero(body.qty as number) ? PRIORITY_SOLD_OUT : PRIORITY_OTHERS;
}

/** Share of a call's items, in percent, that sold-out stocks may take while other changes wait. */
const SOLD_OUT_OF_100 = 80;
/**
 * Maximum number of waiting changes of one branch, not counting sold-out ones. Beyond it, a submission must be retried
 * later.
 */
export const WAITING_MAX = 20_000;
const COME_BACK_MS_PER_BRANCH = 5_000;
const COME_BACK_MS_MAX = 300_000;

/**
 * Maximum number of skipped targets that are remembered per branch. Beyond it, every further row of the branch is
 * skipped.
 */
const PASSED_MAX = 100_000;

/**
 * Rows that one pass through an inbox skips, because the queue of their branch is full. After a skipped row, later
 * rows of the same stock are skipped too: [A=5 skipped, A=0] → both stay in the inbox.
 */
export class PassedOver {
  readonly #targets = new Map<string, Set<string>>();

  get isNone(): boolean {
    return this.#targets.size === 0;
  }

  get branches(): string[] {
    return [...this.#targets.keys()];
  }

  has(branch: string, target: string): boolean {
    const targets = this.#targets.get(branch);
    return targets !== undefined && (targets.size >= PASSED_MAX || targets.has(target));
  }

  add(branch: string, target: string): void {
    const targets = this.#targets.get(branch);
    if (targets === undefined) this.#targets.set(branch, new Set([target]));
    else if (targets.size < PASSED_MAX) targets.add(target);
  }
}

/** What waits in the queue, for one kind of changes. */
export interface QueueOutlook {
  waiting: number;
  /** Whether a sold-out change waits, which is sent first. */
  urgent: boolean;
}

/**
 * Chooses the endpoint of the next call. The single endpoint is chosen only for a lone change, or while a sold-out
 * change waits, and only if its rate limit allows a call sooner than that of the batch endpoint.
 */
export function chooseEndpoint(
  { waiting, urgent }: QueueOutlook,
  freeInMs: { batch: number; single: number },
): 'batch' | 'single' | 'none' {
  if (waiting === 0) return 'none';
  return (waiting === 1 || urgent) && freeInMs.single < freeInMs.batch ? 'single' : 'batch';
}

/**
 * Returns the milliseconds after which a submitter should retry if a branch's queue is full. By then about five hundred
 * changes of the branch have been sent, because branches take turns; fewer if more than 60 branches have changes.
 */
export function comeBackMs(branchesWaiting: number): number {
  return Math.min(COME_BACK_MS_MAX, COME_BACK_MS_PER_BRANCH * Math.max(1, branchesWaiting));
}

/**
 * Yields waiting items in rounds of one item of each branch: [a1, a2, a3] and [b1] → a1, b1, a2, a3. The next call of
 * `of` begins with the branch after that of the last item.
 */
export class Turns {
  readonly #start: number;
  #last: string | undefined;

  /**
   * `start` selects the branch with which the first round begins. It differs after each restart, so that no branch is
   * always last.
   */
  constructor(start: number) {
    this.#start = start;
  }

  /** `branches` must be sorted and without duplicates. `waiting` returns a branch's items in order. */
  *of<T>(branches: readonly string[], waiting: (branch: string) => Iterator<T>): Generator<T, undefined> {
    let round = this.#inTurn(branches).map((branch) => ({ branch, line: waiting(branch) }));
    while (round.length > 0) {
      const left: typeof round = [];
      for (const each of round) {
        const { done, value } = each.line.next();
        if (done) continue;
        this.#last = each.branch;
        left.push(each);
        yield value;
      }
      round = left;
    }
    return undefined;
  }

  #inTurn(branches: readonly string[]): string[] {
    const last = this.#last;
    const next =
      last === undefined ? this.#start % branches.length : branches.findIndex((branch) => branch > last);
    return next <= 0 ? [...branches] : [...branches.slice(next), ...branches.slice(0, next)];
  }
}

/** Yields the elements of two lists alternately, then the rest of the longer list: [a, b, c] and [x] → a, x, b, c. */
export function* alternate<T>(a: Iterable<T>, b: Iterable<T>): Generator<T, undefined> {
  const lines = [a[Symbol.iterator](), b[Symbol.iterator]()];
  while (lines.length > 0) {
    for (const line of [...lines]) {
      const { done, value } = line.next();
      if (done) lines.splice(lines.indexOf(line), 1);
      else yield value;
    }
  }
  return undefined;
}

/**
 * Selects the items of a call from two lanes. Sold-out items come first and get four fifths of the call; they get the
 * rest only as far as other items leave it free. At most `lookMax` items are examined; `take` decides whether an item
 * is sent.
 */
export function fillCall<T>(
  lanes: { soldOut: Iterator<T>; others: Iterator<T> },
  { places, lookMax }: { places: number; lookMax: number },
  take: (each: T) => boolean,
): T[] {
  const soldOut: T[] = [];
  const others: T[] = [];
  let looked = 0;
  const fill = (taken: T[], lane: Iterator<T>, placesMax: number, looksMax: number) => {
    while (soldOut.length + others.length < placesMax && looked < looksMax) {
      const { done, value } = lane.next();
      if (done) return;
      looked += 1;
      if (take(value)) taken.push(value);
    }
  };
  fill(soldOut, lanes.soldOut, ofSoldOut(places), ofSoldOut(lookMax));
  fill(others, lanes.others, places, lookMax);
  fill(soldOut, lanes.soldOut, places, lookMax);
  return [...soldOut, ...others];
}

function ofSoldOut(count: number): number {
  return Math.ceil((count * SOLD_OUT_OF_100) / 100);
}

/**
 * - `done`: the platform counted the item as updated
 * - `rejected`: the platform discarded the item, with a message
 * - `unclear`: the answer shows neither; the item is read or sent again, which is harmless because values are absolute
 */
type ItemAnswer = { state: 'done' } | { state: 'rejected' | 'unclear'; message: string };

/** Length of an item's joined messages, in characters, from which no further message is added. */
const MESSAGE_MAX = 500;

type BatchError = BatchAnswer['errors'][number];
/** The ids of an item that the platform repeats in its errors. */
type Named = Pick<ProductChangeItem, 'sku' | 'externalId'>;

/**
 * Returns one outcome per item of a sent batch. An error belongs to the item at its index. If the index is missing,
 * out of range or contradicts the error's ids, the error belongs to the only item with these ids. If an error matches
 * no item, or the numbers of the answer do not add up, items without an error are `unclear`.
 */
export function readBatchAnswer(items: readonly Named[], answer: BatchAnswer): ItemAnswer[] {
  const messages = new Map<number, string>();
  const unplaced: BatchError[] = [];
  for (const error of answer.errors) {
    const place = placeOf(error, items);
    const before = place === undefined ? undefined : messages.get(place);
    const repeatsItself = before !== undefined && !hasIds(error) && before !== error.message;
    if (place === undefined || repeatsItself) unplaced.push(error);
    else if (before === undefined) messages.set(place, error.message);
    else if (before !== error.message && before.length < MESSAGE_MAX) {
      messages.set(place, `${before}; ${error.message}`);
    }
  }
  const doubt = doubtOf(items.length, messages.size, unplaced, answer);
  return items.map((_, i): ItemAnswer => {
    const message = messages.get(i);
    if (message !== undefined) return { state: 'rejected', message };
    return doubt === undefined ? { state: 'done' } : { state: 'unclear', message: doubt };
  });
}

function placeOf(error: BatchError, items: readonly Named[]): number | undefined {
  const { index } = error;
  const atIndex =
    index !== null && Number.isInteger(index) && index >= 0 && index < items.length
      ? items[index]
      : undefined;
  if (atIndex && !contradicts(error, atIndex)) return index as number;
  const same = items.flatMap((item, i) => (matches(error, item) ? [i] : []));
  return same.length === 1 ? same[0] : undefined;
}

function hasIds(error: BatchError): boolean {
  return error.sku !== null || error.externalId !== null;
}

/** Whether the error and the item have different values of the same id. */
function contradicts(error: BatchError, item: Named): boolean {
  return (
    (error.sku !== null && item.sku !== undefined && String(error.sku) !== String(item.sku)) ||
    (error.externalId !== null && item.externalId !== undefined && error.externalId !== item.externalId)
  );
}

/** Whether the error and the item have an id in common, and all common ids are equal. */
function matches(error: BatchError, item: Named): boolean {
  const shared =
    (error.sku !== null && item.sku !== undefined) ||
    (error.externalId !== null && item.externalId !== undefined);
  return shared && !contradicts(error, item);
}

function doubtOf(
  sent: number,
  rejected: number,
  unplaced: readonly BatchError[],
  answer: BatchAnswer,
): string | undefined {
  const [first] = unplaced;
  if (first) {
    return `The platform discarded an item without saying which: ${first.message}`;
  }
  if (answer.total !== null && answer.total !== sent) {
    return `The platform counted ${answer.total} items of ${sent} that were sent.`;
  }
  if (answer.updated === null) return 'The platform did not say how many items it updated.';
  if (answer.updated !== sent - rejected) {
    return `The platform updated ${answer.updated} of ${sent} items and named ${rejected} as discarded.`;
  }
  return undefined;
}

/**
 * Result of reading a product after a change was sent:
 * - `applied`: the product has every readable value of the change
 * - `differs`: a value differs
 * - `unseen`: no value of the change is readable, such as a description, or several stocks may be meant and differ
 */
export type Verification = 'applied' | 'differs' | 'unseen';

/**
 * Compares a sent change with the present product of the platform; null means that there is no such product. A
 * product without the ids of the change proves nothing, whatever its values.
 */
export function verifyApplied(body: ChangeBody, record: ProductRecord | null): Verification {
  if (!record) return 'differs';
  const seen = 'qty' in body ? stockSeen(body, record) : productSeen(body, record);
  if (seen.length === 0) return 'unseen';
  return seen.every((each) => each) ? 'applied' : 'differs';
}

function productSeen(body: ChangeBody, record: ProductRecord): boolean[] {
  const skus = record.children.filter((child) => names(body, child));
  if (skus.length === 0) return [false];
  const seen: boolean[] = [];
  if ('price' in body) seen.push(skus.every((child) => sameNumber(child.price, body.price)));
  if ('name' in body) seen.push(record.name === body.name);
  if (body.show !== undefined && record.show !== null) seen.push(record.show === body.show);
  return seen;
}

function stockSeen(body: Extract<ChangeBody, { qty: number }>, record: ProductRecord): boolean[] {
  const entries = record.children.flatMap((child) =>
    child.stocks.filter((stock) => {
      const mappings = child.integrations.filter((each) => each.subsidiaryId === stock.subsidiaryId);
      const named = mappings.some((mapping) => hasExternalId(mapping, body.externalId));
      return named && (body.subsidiaryId === undefined || body.subsidiaryId === stock.subsidiaryId);
    }),
  );
  const same = entries.map((entry) => {
    const showDiffers = body.show !== undefined && entry.show !== null && entry.show !== body.show;
    return sameNumber(entry.qty, body.qty) && !showDiffers;
  });
  // If the change names no branch, several stocks may have the externalId. If only some of them match, that proves
  // nothing.
  return same.includes(true) && same.includes(false) ? [] : [same.includes(true)];
}

function names(body: ChangeBody, child: SkuRecord): boolean {
  if ('sku' in body && body.sku !== undefined) return child.sku === String(body.sku);
  return child.integrations.some((mapping) => hasExternalId(mapping, body.externalId));
}

function hasExternalId(mapping: SkuRecord['integrations'][number], externalId: string | undefined): boolean {
  const { extId, productIdPosA, productCodePosB } = mapping;
  return externalId !== undefined && [extId, productIdPosA, productCodePosB].includes(externalId);
}

/** Fields that all skus of a product share (the platform's document, "Product level fields"). */
export const SHARED_FIELDS = ['name', 'description', 'show'] as const;

type Fields = Record<string, unknown>;

/**
 * Merges a newer change of a target over an older one, field by field. The newer ids are used. {qty: 5, show: true} +
 * {qty: 3} → {qty: 3, show: true}.
 */
export function mergeBodies<T extends ChangeBody>(older: T, newer: T): T {
  const merged: Fields = { ...older };
  for (const key of ADDRESS_KEYS) delete merged[key];
  return Object.assign(merged, newer) as T;
}

/**
 * Removes from an older change the fields that a newer one sets: {name: a, price: 1} − {price: 2} → {name: a}.
 * `scope` is `all` for the same target, and `shared` for another sku of the product, whose price stays. Returns
 * undefined if no field is left.
 */
export function withoutOverruled<T extends ChangeBody>(
  older: T,
  newer: ChangeBody,
  scope: 'all' | 'shared',
): T | undefined {
  const rest: Fields = { ...older };
  const fields = scope === 'shared' ? SHARED_FIELDS : valueKeys(newer);
  for (const field of fields) if (Object.hasOwn(newer, field)) delete rest[field];
  return valueKeys(rest).length === 0 ? undefined : (rest as T);
}

/** Returns the keys of a body except those that identify the product and the branch. */
export function valueKeys(body: object): string[] {
  return Object.keys(body).filter((key) => !(ADDRESS_KEYS as readonly string[]).includes(key));
}

/** Whether the change sets a field that all skus of a product share. */
export function hasSharedFields(kind: ChangeKind, body: object): boolean {
  return kind === 'product' && SHARED_FIELDS.some((field) => Object.hasOwn(body, field));
}

/** Range of versions, both ends included. */
export interface Versions {
  first: number;
  last: number;
}
