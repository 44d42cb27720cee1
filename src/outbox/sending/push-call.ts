import { asTillsyncError, hasCode, type TillsyncError } from '../../core/errors.ts';
import type { PlatformClient } from '../../platform/client.ts';
import type { CallOptions } from '../../platform/platform.ts';
import type { ProductChangeItem, StockChangeItem } from '../../platform/schemas.ts';
import type { Answer, BatchItem, ChangeKind } from '../intake/change.ts';
import { readBatchAnswer, type Verification, verifyApplied } from './call-plan.ts';

/**
 * Maximum number of items with an unclear outcome that are read one by one. The others are sent again without a read.
 */
const ASK_MAX = 10;
/** Number of sendings after which an unclear item is left to a person. */
const DOUBTFUL_SENDS_MAX = 3;
/**
 * If this many single items in a row are refused, the last item of the call is sent next. If it is refused too,
 * probably every item would be.
 */
const HOPELESS_AFTER = 3;
/** A change sent this often without an answer may be the cause of the failure itself. */
const SUSPECT_AFTER = 2;
/** If more parts of a call fail than this, a few bad items cannot be the cause. */
const FAILURES_MAX = 16;
/** Messages of changes that are left to a person although the platform neither accepted nor clearly refused them. */
const DOUBTS: Record<Exclude<Verification, 'applied'> | 'unreadable', string> = {
  differs: 'Sent several times; the platform does not say why it has another value.',
  unseen: 'Sent several times; the platform does not say that it took it, and the product does not show it.',
  unreadable: 'Sent several times; the platform does not say that it took it, nor show the product.',
};

export type PushPlatform = Pick<
  PlatformClient,
  'productPut' | 'productStockPut' | 'productBatch' | 'productStockBatch' | 'productGet'
>;

/** Sends the items of one call and collects the outcome of each. */
export class PushCall {
  readonly #platform: PushPlatform;
  readonly #kind: ChangeKind;
  readonly #how: { endpoint: 'batch' | 'single'; call: CallOptions };
  readonly #answers = new Map<number, Answer>();

  constructor(
    platform: PushPlatform,
    kind: ChangeKind,
    how: { endpoint: 'batch' | 'single'; call: CallOptions },
  ) {
    this.#platform = platform;
    this.#kind = kind;
    this.#how = how;
  }

  /**
   * Sends the items; the promise never rejects. An item with an unknown outcome gets `retry`; sending it again is
   * harmless, because values are absolute. `isOutage` means that the previous call failed. `trouble` is the error for
   * which the sender should pause; undefined if only single items failed.
   */
  async run(items: readonly BatchItem[], isOutage = false): Promise<{ answers: Answer[]; trouble: unknown }> {
    const alone = new Map<BatchItem, TillsyncError>();
    const trouble = await this.#sendOrSplit(items, alone, isOutage).then(
      () => undefined,
      (error: unknown) => error,
    );
    for (const [item, error] of alone) {
      if (trouble === undefined && isRefusal(error)) this.#note(item, 'rejected', error.message);
      else this.#note(item, 'retry', notArrived(error), true);
    }
    const message =
      trouble === undefined
        ? 'The answer did not say whether it was taken; it is sent again.'
        : notArrived(trouble);
    for (const item of items) if (!this.#answers.has(item.changeId)) this.#note(item, 'retry', message);
    return { answers: [...this.#answers.values()], trouble };
  }

  /**
   * Sends a call. If the platform refuses it, or if it failed several times, sends halves of it until each bad item is
   * in a call of its own, and adds it to `alone`. During an outage, small parts from both ends of the list come first,
   * so that a bad item is found with few calls. Throws errors that no item causes.
   */
  async #sendOrSplit(
    items: readonly BatchItem[],
    alone: Map<BatchItem, TillsyncError>,
    isOutage: boolean,
  ): Promise<void> {
    const sentBefore = Math.max(...items.map(({ attempts }) => attempts));
    const groups = isOutage ? inParts(items, sentBefore) : [items];
    let isAnyTaken = false;
    let doubts = 0;
    let failures = 0;
    let last: TillsyncError | undefined;
    while (groups.length > 0) {
      const isFromEnd = !isAnyTaken && doubts >= HOPELESS_AFTER;
      const group = (isFromEnd ? groups.pop() : groups.shift()) ?? [];
      let unclear: readonly BatchItem[];
      try {
        unclear = await this.#send(group);
      } catch (error) {
        if (!isRefusal(error) && !(isFailure(error) && sentBefore >= SUSPECT_AFTER)) throw error;
        last = error;
        const [item] = group;
        const middle = Math.ceil(group.length / 2);
        if (group.length === 1 && item) alone.set(item, error);
        else if (isFromEnd) groups.push(group.slice(0, middle), group.slice(middle));
        else groups.unshift(group.slice(0, middle), group.slice(middle));
        if (isRefusal(error)) doubts += Number(group.length === 1);
        else {
          doubts += HOPELESS_AFTER;
          failures += 1;
        }
        // So many failures, or refusals before any item was accepted, have another cause than single items.
        if (failures > FAILURES_MAX || (!isAnyTaken && doubts > HOPELESS_AFTER)) throw error;
        continue;
      }
      isAnyTaken = true;
      await this.#settleDoubtful(unclear);
    }
    if (!isAnyTaken && doubts >= HOPELESS_AFTER) throw last;
  }

  /** Sends items in one call. Returns the items whose outcome the answer does not say. */
  async #send(items: readonly BatchItem[]): Promise<readonly BatchItem[]> {
    const { endpoint, call } = this.#how;
    const [first] = items;
    if (endpoint === 'single' && items.length === 1 && first) {
      const answer =
        this.#kind === 'stock'
          ? await this.#platform.productStockPut(first.body as StockChangeItem, call)
          : await this.#platform.productPut(first.body as ProductChangeItem, call);
      if (answer !== 'applied') return items;
      this.#note(first, 'done');
      return [];
    }
    const bodies = items.map(({ body }) => body);
    const answer =
      this.#kind === 'stock'
        ? await this.#platform.productStockBatch(bodies as StockChangeItem[], call)
        : await this.#platform.productBatch(bodies as ProductChangeItem[], call);
    const answers = readBatchAnswer(bodies, answer);
    for (const [i, item] of items.entries()) {
      const of = answers[i];
      if (of?.state === 'done') this.#note(item, 'done');
      else if (of?.state === 'rejected') this.#note(item, 'rejected', of.message);
    }
    return items.filter((_, i) => answers[i]?.state === 'unclear');
  }

  /**
   * Reads the products of items with an unclear outcome. An item that stays unclear is sent again, a few times at most.
   */
  async #settleDoubtful(doubtful: readonly BatchItem[]): Promise<void> {
    for (const item of doubtful.slice(0, ASK_MAX)) {
      const verdict = await this.#verify(item);
      if (verdict === 'applied') this.#note(item, 'done');
      else if (item.attempts + 1 >= DOUBTFUL_SENDS_MAX) this.#note(item, 'rejected', DOUBTS[verdict]);
    }
  }

  /**
   * Compares the product on the platform with the sent change. `unreadable` means that the platform refuses to show
   * the product, which says nothing about the change.
   */
  async #verify({ body }: BatchItem): Promise<Verification | 'unreadable'> {
    const query =
      'sku' in body && body.sku !== undefined
        ? { sku: String(body.sku) }
        : { externalId: body.externalId ?? '' };
    try {
      return verifyApplied(body, await this.#platform.productGet(query, this.#how.call));
    } catch (error) {
      if (isRefusal(error)) return 'unreadable';
      throw error;
    }
  }

  #note({ changeId }: BatchItem, state: Answer['state'], message?: string, isAlone = false): void {
    this.#answers.set(changeId, {
      changeId,
      state,
      ...(message !== undefined && { message }),
      ...(isAlone && { isAlone }),
    });
  }
}

/**
 * Whether the platform refuses the content and would refuse it again. HTTP 408 and 425 are no refusals, because they
 * may mean that the call was too slow or early.
 */
export function isRefusal(error: unknown): error is TillsyncError {
  return hasCode(error, 'platform-refused') && !error.retryable;
}

/** Whether a single item may cause the failure, in the platform or in a proxy before it. */
function isFailure(error: unknown): error is TillsyncError {
  return (
    hasCode(error, 'platform-failed') ||
    (hasCode(error, 'platform-garbled') && Number(error.httpStatus) >= 400)
  );
}

function notArrived(error: unknown): string {
  return `Not known to have arrived (${asTillsyncError(error).message}); it is sent again.`;
}

/** Splits a call into beginning, middle and end. The outer parts get smaller each time that the call is sent. */
function inParts(items: readonly BatchItem[], sentBefore: number): (readonly BatchItem[])[] {
  const size = Math.ceil(items.length / 2 ** Math.max(0, sentBefore + 1 - SUSPECT_AFTER));
  const end = Math.max(size, items.length - size);
  return [items.slice(0, size), items.slice(size, end), items.slice(end)].filter(({ length }) => length > 0);
}
