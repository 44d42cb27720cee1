import type { FastifyPluginAsync } from 'fastify';
import { isHub } from '../config/roles.ts';
import { whenFree } from '../core/loop.ts';
import { type ApiFamily, apiPlugin, type LocalApiOptions, route } from './api.ts';
import { branchRoutes } from './branch-routes.ts';
import { changeRoutes } from './change-routes.ts';
import { explainRoutes } from './explain-routes.ts';
import { orderRoutes } from './order-routes.ts';
import { outboxRoutes } from './outbox-routes.ts';
import { receiverRoutes } from './receiver-routes.ts';
import { productPage, productQuery } from './schemas.ts';
import { statusRoutes } from './status-routes.ts';

/** Returns the plugin that serves all routes below `/v1`. */
export function localApi(options: LocalApiOptions): FastifyPluginAsync {
  const ofHub = isHub(options.services.config) ? [branchRoutes] : [];
  const ofAll = [
    ...[statusRoutes, orderRoutes, productRoutes, changeRoutes, outboxRoutes, explainRoutes],
    receiverRoutes,
  ];
  const families = [...ofAll, ...ofHub];
  return apiPlugin(
    families.map((family) => family(options)),
    {
      ...options,
      shop: options.services.config.shop.name,
      onPos: (store) => void options.services.posLife.note([store]),
      describe: async (all) => (await import('./openapi.ts')).openApiDocument(all, options.version),
    },
  );
}

/** Returns the route `GET /products`. */
function productRoutes({ services, clock }: LocalApiOptions): ApiFamily {
  const find = route({
    method: 'get',
    path: '/products',
    operationId: 'findProducts',
    may: [],
    summary: 'The catalogue as the mirror has it, what was pushed included',
    query: productQuery,
    answer: productPage,
    refusals: [429],
    handle: async ({ query: { q, branch, limit, ...rest }, takePlace }) => {
      await takePlace();
      const filter = { ...rest, text: q, subsidiaryId: branch, limit: limit + 1 };
      const found = await whenFree(clock, () =>
        services.stores.read(({ catalogQueries }) => catalogQueries.products(filter)),
      );
      const products = found.slice(0, limit);
      return { products, next: found.length > limit ? (products.at(-1)?.productId ?? null) : null };
    },
  });
  return { tag: 'products', routes: [find] };
}
