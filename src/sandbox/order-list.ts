import { orderAllQuery } from '../platform/schemas/orders.ts';
import type { Catalog } from './catalog.ts';
import type { Call } from './engine.ts';
import { failure, type Reply } from './exchange.ts';
import type { OrderBook } from './order-book.ts';
import type { OrderSnapshot, StoredOrder } from './order-model.ts';
import { orderRecord } from './order-records.ts';
import { paged } from './paging.ts';
import type { OrderRecordStyle, SandboxSettings } from './settings.ts';

/** GET /order/all: orders created between two dates of the company's calendar, both included, newest first. */
export class OrderList {
  readonly #settings: SandboxSettings;
  /** Few orders change between two polls, and a record is much longer to write than to keep. */
  readonly #texts = new WeakMap<OrderSnapshot, { style: OrderRecordStyle; text: string }>();

  constructor(settings: SandboxSettings) {
    this.#settings = settings;
  }

  answer(orders: OrderBook, catalog: Catalog, call: Call): Reply {
    const { shape, validationStatus } = this.#settings;
    const query = orderAllQuery.safeParse(Object.fromEntries(call.query));
    if (!query.success) return failure(validationStatus, query.error.issues[0]?.message ?? 'Invalid query');
    const { startDate, endDate } = query.data;
    const found = orders.between(startDate, endDate);
    const show = (order: StoredOrder) => this.#textOf(order, catalog);
    if (shape.envelope === 'docs') {
      const limit = positive(call.query.get('limit')) ?? shape.pageSize ?? Math.max(1, found.length);
      const page = positive(call.query.get('page')) ?? 1;
      const { docs, ...rest } = paged(found, page, limit, show);
      const data = `{"docs":[${docs.join(',')}],${JSON.stringify(rest).slice(1)}`;
      return { status: 200, json: `{"success":true,"message":"OK","data":${data}}` };
    }
    const list = `[${found.map(show).join(',')}]`;
    if (shape.envelope === 'array') return { status: 200, json: list };
    if (shape.envelope === 'orders') return { status: 200, json: `{"orders":${list}}` };
    return { status: 200, json: `{"success":true,"data":${list}}` };
  }

  #textOf(order: StoredOrder, catalog: Catalog): string {
    const { snapshot, subsidiaryId } = order;
    const { record: style } = this.#settings.shape;
    const known = this.#texts.get(snapshot);
    if (known?.style === style) return known.text;
    const text = JSON.stringify(orderRecord(order, style, catalog.branchName(subsidiaryId)));
    this.#texts.set(snapshot, { style, text });
    return text;
  }
}

function positive(text: string | null): number | undefined {
  const value = Number(text);
  return Number.isInteger(value) && value > 0 ? value : undefined;
}
