import { orderAllQuery } from '../platform/schemas/orders.ts';
import type { Catalog } from './catalog.ts';
import type { Call } from './engine.ts';
import { failure, type Reply } from './exchange.ts';
import type { OrderBook } from './order-book.ts';
import type { StoredOrder } from './order-model.ts';
import { orderRecord } from './order-records.ts';
import { paged } from './paging.ts';
import type { SandboxSettings } from './settings.ts';

/** GET /order/all: orders created between two dates of the company's calendar, both included, newest first. */
export function orderList(orders: OrderBook, catalog: Catalog, call: Call, settings: SandboxSettings): Reply {
  const query = orderAllQuery.safeParse(Object.fromEntries(call.query));
  if (!query.success) {
    return failure(settings.validationStatus, query.error.issues[0]?.message ?? 'Invalid query');
  }
  const { startDate, endDate } = query.data;
  const found = orders
    .all()
    .filter((order) => startDate <= order.localDate && order.localDate <= endDate)
    .reverse();
  const { envelope, record, pageSize } = settings.shape;
  const show = (order: StoredOrder) => orderRecord(order, record, catalog.branchName(order.subsidiaryId));
  if (envelope === 'docs') {
    const limit = positive(call.query.get('limit')) ?? pageSize ?? Math.max(1, found.length);
    const page = positive(call.query.get('page')) ?? 1;
    return { status: 200, body: { success: true, message: 'OK', data: paged(found, page, limit, show) } };
  }
  const list = found.map(show);
  if (envelope === 'array') return { status: 200, body: list };
  if (envelope === 'orders') return { status: 200, body: { orders: list } };
  return { status: 200, body: { success: true, data: list } };
}

function positive(text: string | null): number | undefined {
  const value = Number(text);
  return Number.isInteger(value) && value > 0 ? value : undefined;
}
