import { configuredBranches } from '../app/read-only-services.ts';
import { namedBranch } from '../catalog/product.ts';
import { isHub } from '../config/roles.ts';
import { TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import { explainOrder, explainStocks, type ReportingBranch } from '../health/explain.ts';
import { type ApiFamily, type LocalApiOptions, route } from './api.ts';
import { orderExplanation, orderPath, skuPath, stockExplanationQuery, stockExplanations } from './schemas.ts';

/**
 * Returns the routes `GET /orders/ID/explain` and `GET /stock/SKU/explain`. They answer what `order explain` and `stock
 * explain` print.
 */
export function explainRoutes({
  services: { mirror, stores, state, config },
  clock,
}: LocalApiOptions): ApiFamily {
  const branches = (): readonly ReportingBranch[] => (isHub(config) ? state.hub.branches() : []);
  const ofOrder = route({
    method: 'get',
    path: '/orders/{orderId}/explain',
    operationId: 'explainOrder',
    may: ['orders', 'screen'],
    summary:
      'Why an order is as it is: what was heard, taken off stock, sent and acknowledged, and what is open',
    description: 'The same as `tillsync order explain`. It names no customer.',
    params: orderPath,
    answer: orderExplanation,
    refusals: [404],
    handle: ({ params: { orderId } }) =>
      whenFree(clock, () => {
        const order = mirror.orders.get(orderId);
        if (!order) {
          throw new TillsyncError('not-found', `The mirror has no order ${orderId}.`, {
            hint: 'It comes with the next poll, if the platform has it.',
          });
        }
        const { code, status } = order;
        const { hooks } = config;
        const explained = stores.read(({ db, ledger }) =>
          explainOrder(db, { orderId, hooks, branches: branches(), ledger }),
        );
        return { orderId, code, status, ...explained };
      }),
  });
  const ofStock = route({
    method: 'get',
    path: '/stock/{sku}/explain',
    operationId: 'explainStock',
    may: ['stock', 'screen'],
    summary: 'Why a stock is as it is: counts, orders, what was sent, and how its quantity comes about',
    description: 'The same as `tillsync stock explain`.',
    params: skuPath,
    query: stockExplanationQuery,
    answer: stockExplanations,
    refusals: [404],
    handle: ({ params: { sku }, query: { branch } }) =>
      whenFree(clock, () => {
        const of = branch === undefined ? undefined : namedBranch(configuredBranches(config, mirror), branch);
        const stocks = stores.read(({ db, ledger }) =>
          explainStocks(db, { sku, of, branches: branches(), ledger }),
        );
        if (stocks.length > 0) return { stocks };
        throw new TillsyncError('not-found', `The mirror has no stock of sku ${sku}.`, {
          hint: 'GET /v1/products tells the skus of a product.',
        });
      }),
  });
  return { tag: 'why', routes: [ofOrder, ofStock] };
}
