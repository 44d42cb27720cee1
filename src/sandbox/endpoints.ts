import { tokenRefreshRequest } from '../platform/schemas/token.ts';
import type { Call, Endpoints } from './engine.ts';
import { envelope, failure, type Reply } from './exchange.ts';
import { OrderList } from './order-list.ts';
import { ProductEndpoints } from './product-endpoints.ts';
import { productList } from './product-list.ts';
import type { SandboxSettings } from './settings.ts';
import type { Shop } from './shop.ts';
import type { TokenOffice } from './token-office.ts';

export interface EndpointsOptions {
  settings: SandboxSettings;
  tokens: TokenOffice;
  shopOf: (company: string) => Shop;
}

/** The work of each endpoint, done in the shop of the company that the token names. */
export function buildEndpoints({ settings, tokens, shopOf }: EndpointsOptions): Endpoints {
  const products = new ProductEndpoints(settings);
  const orderList = new OrderList(settings);
  const shop = (call: Call) => shopOf(call.session.company);
  const catalog = (call: Call) => shop(call).catalog;
  return {
    'token.refresh': (call) => refresh(call, tokens, settings),
    'order.all': (call) => orderList.answer(shop(call).orders, catalog(call), call),
    'product.put': (call) => products.put(catalog(call), call),
    'product.stock.put': (call) => products.putStock(catalog(call), call),
    'product.batch': (call) => products.batch(catalog(call), call),
    'product.stock.batch': (call) => products.stockBatch(catalog(call), call),
    'product.list': (call) => productList(catalog(call), call, settings),
    'product.get': (call) => products.get(catalog(call), call),
    'webhook.put': (call) => shop(call).desk.put(call),
    'webhook.get': (call) => shop(call).desk.read(),
  };
}

function refresh(call: Call, tokens: TokenOffice, settings: SandboxSettings): Reply {
  const request = tokenRefreshRequest.safeParse(call.body);
  if (!request.success) return failure(settings.validationStatus, 'refreshToken is required');
  const pair = tokens.rotate(request.data.refreshToken, call.session);
  return envelope({ ...pair, expiresIn: tokens.expiresIn });
}
