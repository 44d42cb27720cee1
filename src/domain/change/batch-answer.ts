import type { BatchAnswer, ProductChangeItem } from '../platform/platform.ts';

/**
 * - `applied`: the platform counted it as updated
 * - `rejected`: the platform discarded it, with its message
 * - `uncertain`: the answer does not say; re-read it or send it again, values are absolute
 */
export type ItemOutcome =
  | { state: 'applied' }
  | { state: 'rejected'; message: string }
  | { state: 'uncertain'; message: string };

/** An item's messages are joined until they are this long. */
const MESSAGE_MAX = 500;

type BatchError = BatchAnswer['errors'][number];
/** What of an item the platform repeats in its errors. */
type Named = Pick<ProductChangeItem, 'sku' | 'externalId'>;

/**
 * One outcome per sent item from a batch answer. An error is placed by its index; when that is missing, out of
 * range or contradicts the ids beside it, by its ids, if exactly one item has them. When an error cannot be
 * placed, or `updated`, `errors` and `total` do not add up, no item that was not named is taken for applied.
 */
export function readBatchAnswer(items: readonly Named[], answer: BatchAnswer): ItemOutcome[] {
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
  return items.map((_, i): ItemOutcome => {
    const message = messages.get(i);
    if (message !== undefined) return { state: 'rejected', message };
    return doubt === undefined ? { state: 'applied' } : { state: 'uncertain', message: doubt };
  });
}

function placeOf(error: BatchError, items: readonly Named[]): number | undefined {
  const { index } = error;
  const atIndex =
    index !== null && Number.isInteger(index) && index >= 0 && index < items.length
      ? items[index]
      : undefined;
  if (atIndex && !contradicts(error, atIndex)) return index as number;
  if (!hasIds(error)) return undefined;
  const same = items.flatMap((item, i) => (matches(error, item) ? [i] : []));
  return same.length === 1 ? same[0] : undefined;
}

function hasIds(error: BatchError): boolean {
  return error.sku !== null || error.externalId !== null;
}

/** Whether an id that both sides name differs. */
function contradicts(error: BatchError, item: Named): boolean {
  return (
    (error.sku !== null && item.sku !== undefined && String(error.sku) !== String(item.sku)) ||
    (error.externalId !== null && item.externalId !== undefined && error.externalId !== item.externalId)
  );
}

/** Whether both sides name an id, and all that both name are the same. */
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
