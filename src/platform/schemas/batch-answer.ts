import { z } from 'zod';
import { jsonText } from '../../domain/json/json-text.ts';
import { BATCH_ITEMS_MAX } from '../../domain/platform/limits.ts';
import { nullableCount, nullableId } from './tolerant.ts';

/** Several for each item; far more are no answer to a batch, and reading them would take minutes. */
const ERRORS_MAX = 20 * BATCH_ITEMS_MAX;

const batchError = z.union([
  z
    .looseObject({
      index: nullableCount,
      sku: z.union([z.number(), z.string()]).nullable().catch(null),
      externalId: nullableId,
      message: z.unknown().optional(),
    })
    .transform(({ index, sku, externalId, message }) => ({
      index,
      sku,
      externalId,
      message: asMessage(message),
    })),
  z.unknown().transform((value) => ({ index: null, sku: null, externalId: null, message: asMessage(value) })),
]);

/**
 * `data` of the batch endpoints: { updated, total, errors }. An `errors` that is there and no array is a fault of
 * the answer: taking it for "none" would hide what the platform discarded.
 */
export const batchData = z
  .looseObject({
    updated: nullableCount,
    total: nullableCount,
    // Counted before they are read one by one.
    errors: z.custom<unknown[]>(isShortList).pipe(z.array(batchError)).nullish(),
  })
  .transform(({ updated, total, errors }) => ({ updated, total, errors: errors ?? [] }));

function isShortList(value: unknown): boolean {
  return Array.isArray(value) && value.length <= ERRORS_MAX;
}

function asMessage(value: unknown): string {
  return typeof value === 'string' ? value : (jsonText(value) ?? '');
}
