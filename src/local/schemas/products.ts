import { z } from 'zod';
import type { MirroredProduct } from '../../domain/product/mirrored-product.ts';
import { amount, flag, isoTime, limitOf, text } from './common.ts';

const sku = z.object({
  sku: z.string(),
  barcode: text,
  price: amount,
  withDiscount: amount,
  discount: amount,
  show: flag,
  stocks: z.array(
    z.object({
      subsidiaryId: z.string(),
      qty: amount,
      show: flag.describe('Stock visibility in the branch'),
    }),
  ),
  integrations: z.array(
    z.object({ subsidiaryId: z.string(), productIdPosA: text, productCodePosB: text, extId: text }),
  ),
});

/** A product as the mirror has it. */
export const product = z.object({
  productId: z.string(),
  name: text,
  category: text,
  show: flag.describe('Visibility of the whole product'),
  vanishedAt: isoTime.nullable().describe('When no branch listed it any more'),
  updatedAt: isoTime,
  skus: z.array(sku),
}) satisfies z.ZodType<MirroredProduct>;

const term = z.string().min(1).max(200).optional();

export const productQuery = z.strictObject({
  q: term.describe('Part of a name, or a whole sku, barcode or externalId'),
  sku: term,
  externalId: term.describe('Searched in all three mapping fields'),
  branch: term.describe('subsidiaryId: only products with a stock or a mapping there'),
  after: term.describe('`next` of the page before'),
  limit: limitOf(50, 200),
});

export const productPage = z.object({
  products: z.array(product).describe('By productId'),
  next: z.string().nullable().describe('Pass it as `after` for the next page; null: there is none'),
});
