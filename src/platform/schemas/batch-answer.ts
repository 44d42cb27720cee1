import { z } from 'zod';
import { jsonText } from '../../domain/json/json-text.ts';
import { nullableCount, nullableId } from './tolerant.ts';

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
    errors: z.array(batchError).nullish(),
  })
  .transform(({ updated, total, errors }) => ({ updated, total, errors: errors ?? [] }));

function asMessage(value: unknown): string {
  return typeof value === 'string' ? value : (jsonText(value) ?? '');
}
