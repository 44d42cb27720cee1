import { z } from 'zod';
import { BATCH_ITEMS_MAX } from '../../domain/platform/limits.ts';

/** Body of PUT /product/stock, and one item of PUT /product/stock/batch. */
export const stockChangeItem = z.strictObject({
  externalId: z.string().min(1),
  qty: z.number(),
  /** Stock visibility in that branch; untouched when omitted. */
  show: z.boolean().optional(),
  subsidiaryExternalId: z.string().min(1).optional(),
  subsidiaryId: z.string().min(1).optional(),
});

/** Body of PUT /product/stock/batch, every item valid. */
export const stockBatchRequest = z.strictObject({
  products: z.array(stockChangeItem).min(1).max(BATCH_ITEMS_MAX),
});
