import { whenFree } from '../domain/busy.ts';
import type { MirroredProduct, ProductFilter } from '../domain/product/mirrored-product.ts';
import type { Clock } from '../domain/time/clock.ts';
import { type ApiFamily, type RouteDoc, readAs } from './api-route.ts';
import { productPage, productQuery } from './schemas/products.ts';

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
