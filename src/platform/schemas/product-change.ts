import { z } from 'zod';
import { BATCH_ITEMS_MAX } from '../../domain/platform/limits.ts';

/** Body of PUT /product, and one item of PUT /product/batch (document, rules 1 and 2 of both). */
export const productChangeItem = z
  .strictObject({
    sku: z.number().optional(),
    externalId: z.string().min(1).optional(),
    price: z.number().optional(),
    name: z.string().min(1).optional(),
    /** An empty text clears it. */
    description: z.string().optional(),
    /** Visibility of the whole product, not of its stock in a branch. */
    show: z.boolean().optional(),
  })
  .refine((item) => item.sku !== undefined || item.externalId !== undefined, {
    error: 'sku or externalId is needed',
  })
  .refine(
    (item) =>
      item.price !== undefined ||
      item.name !== undefined ||
      item.description !== undefined ||
      item.show !== undefined,
    { error: 'at least one of price, name, description, show is needed' },
  );

/** Body of PUT /product/batch, every item valid. */
export const productBatchRequest = z.strictObject({
  products: z.array(productChangeItem).min(1).max(BATCH_ITEMS_MAX),
});

/** Body of either batch endpoint before its items are looked at: a bad item does not stop the others. */
export const batchRequestFrame = z.looseObject({
  products: z.array(z.unknown()).min(1).max(BATCH_ITEMS_MAX),
});
