import { type ApiFamily, type RouteDoc, readAs } from './api-route.ts';
import { ackAnswer, ackRequest } from './schemas/orders.ts';

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
    answers: { 200: ackAnswer },
  },
];

/** `POST /orders/ack`. */
export function ackRoutes({ acknowledge }: AckRoutesOptions): ApiFamily {
  return {
    docs,
    plugin: async (app) => {
      app.post('/orders/ack', async (request) => {
        const named = readAs(ackRequest, request.body, 'body');
        const orderIds = named.map((each) => (typeof each === 'string' ? each : each.orderId));
        return { results: await acknowledge(orderIds) };
      });
    },
  };
}
