import { type ApiFamily, type RouteDoc, readAs } from './api-route.ts';
import { ACK_ITEM, ackAnswer, ackItem, ackItems, ackRequest } from './schemas/orders.ts';

export interface AckResult {
  orderId: string;
  /** `new`: acknowledged now; `known`: it was before; `unheard`: noted, the mirror has no such order yet. */
  state: 'new' | 'known' | 'unheard';
}

export interface AckRoutesOptions {
  /** Records, durably when it resolves, that the POS has booked these orders; one answer for each, in order. */
  acknowledge: (orderIds: readonly string[]) => Promise<readonly AckResult[]>;
}

const docs = (): readonly RouteDoc[] => [
  {
    method: 'post',
    path: '/orders/ack',
    operationId: 'acknowledgeOrders',
    summary: 'Tell that the POS has booked orders, so that its stock counts include them',
    body: ackRequest,
    answers: { 200: ackAnswer, 207: ackAnswer },
  },
];

/** `POST /orders/ack`. */
export function ackRoutes({ acknowledge }: AckRoutesOptions): ApiFamily {
  return {
    docs,
    plugin: async (app) => {
      app.post('/orders/ack', async (request, reply) => {
        const items = readAs(ackItems, request.body, 'body').map((item) => ackItem.safeParse(item));
        const orderIds = items.flatMap(({ data }) => {
          if (data === undefined) return [];
          return typeof data === 'string' ? data : data.orderId;
        });
        const taken = orderIds.length === 0 ? [] : await acknowledge(orderIds);
        let next = 0;
        const results = items.map(({ error }, index) => {
          if (!error) return { index, ...taken[next++] };
          return { index, state: 'rejected', message: `Allowed: ${ACK_ITEM}.` };
        });
        const rejected = items.length - orderIds.length;
        return reply.code(rejected > 0 ? 207 : 200).send({ results, rejected });
      });
    },
  };
}
