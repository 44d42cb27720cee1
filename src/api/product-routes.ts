import { z } from 'zod';
import type { MirroredProduct, ProductFilter } from '../catalog/product.ts';
import { whenFree } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { type ApiFamily, amount, flag, isoTime, limitOf, type RouteDoc, readAs, text } from './api.ts';

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

export interface ProductRoutesOptions {
  /** By product id; a short read that may throw `storage-…`. */
  products: (filter: ProductFilter) => readonly MirroredProduct[];
  clock: Clock;
}

const docs = (): readonly RouteDoc[] => [
  {
    method: 'get',
    path: '/products',
    operationId: 'findProducts',
    summary: 'The catalogue as the mirror has it, what was pushed included',
    query: productQuery,
    answers: { 200: productPage },
  },
];

/** `GET /products`. */
export function productRoutes({ products, clock }: ProductRoutesOptions): ApiFamily {
  return {
    docs,
    plugin: async (app) => {
      app.get('/products', async (request) => {
        const { q, branch, limit, ...rest } = readAs(productQuery, request.query, 'query');
        const filter = { ...rest, text: q, subsidiaryId: branch, limit: limit + 1 };
        const found = await whenFree(clock, () => products(filter));
        const page = found.slice(0, limit);
        const next = found.length > limit ? (page.at(-1)?.productId ?? null) : null;
        return { products: page, next };
      });
    },
  };
}
