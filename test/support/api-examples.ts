import { contentOf } from '../../src/hooks/preparation.ts';
import { timesOf } from '../../src/hooks/prepared-orders.ts';
import { until, type Workplace } from './workplace.ts';

/** The request of a caller, and its answer. */
export interface Exchange {
  request?: unknown;
  answer: unknown;
}

/** Calls each operation of a real daemon that has an order and a catalogue; returns the exchanges by operation. */
export async function liveExamples(place: Workplace, localUrl: string): Promise<Record<string, Exchange>> {
  const ask = async (path: string, body?: unknown): Promise<Exchange> => {
    const answer = await fetch(`${localUrl}/v1${path}`, {
      ...(body !== undefined && {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    });
    return { ...(body !== undefined && { request: body }), answer: await answer.json() };
  };
  // biome-ignore lint/suspicious/noExplicitAny: looks into answers freely
  const of = (answer: Exchange) => answer.answer as any;
  const sold = place.sandbox.control.createOrder({ status: 'payment-approved' });
  const orderId = sold.internalOrderId;
  await until('the order is in the mirror', () => place.mirrorRows().length > 0);
  await until('the catalogue is read', async () => of(await ask('/products?limit=1')).products.length > 0);
  const counts = [{ externalId: 'A-1001-1', qty: 12, reference: 'till-7/88' }, { qty: 3 }];
  const shown = {
    'setStock?dryRun=true': await ask('/stock?dryRun=true', counts),
    'setStock?full=true&missing=zero&branch=sub-1&dryRun=true': await ask(
      '/stock?full=true&missing=zero&branch=sub-1&dryRun=true',
      [{ externalId: 'A-1001-1', qty: 12 }],
    ),
  };
  const setStock = await ask('/stock', counts);
  const setProducts = await ask('/products', [{ sku: 1001, price: 2490 }]);
  const changeId = of(setStock).results[0].changeId as number;
  const bad = await ask('/stock', [{ externalId: 'NOWHERE', subsidiaryId: 'sub-1', qty: 1 }]);
  const badId = of(bad).results[0].changeId as number;
  const settled = async (id: number) => of(await ask(`/outbox/${id}`)).change.settledAt !== null;
  await until('the changes are settled', async () => (await settled(changeId)) && (await settled(badId)));
  const { changes: rejected } = of(await ask('/outbox?after=0&state=rejected'));
  const [event] = of(await ask('/orders?after=0&limit=1')).events;
  return {
    getStatus: await ask('/status'),
    getBoard: await ask('/board'),
    searchOrders: await ask(`/orders/search?q=${sold.code}`),
    getTrends: await ask('/trends'),
    followOrders: await ask('/orders?after=0&limit=1'),
    listOrdersToBook: await ask('/orders/to-book'),
    getOrder: await ask(`/orders/${orderId}`),
    explainOrder: await ask(`/orders/${orderId}/explain`),
    explainStock: await ask('/stock/1001/explain'),
    findProducts: await ask('/products?sku=1001'),
    setStock,
    ...shown,
    setProducts,
    listChanges: await ask('/outbox?reference=till-7/88'),
    getChange: await ask(`/outbox/${changeId}`),
    retryChange: await ask(`/outbox/${badId}/retry`, {}),
    releaseChanges: await ask('/outbox/release', { guard: null }),
    discardChanges: await ask('/outbox/discard', { state: 'rejected', origin: 'file counts.csv' }),
    testAlarms: { answer: of(await ask('/alarms/test', {})) },
    testHook: await ask('/hooks/printer/test', { event: 'order' }),
    acknowledgeOrders: await ask('/orders/ack', [{ orderId, seq: event.seq }, 'ORDER-OF-TOMORROW']),
    orderEvent: { request: event, answer: null },
    preparationEvent: { request: preparationOf(event), answer: null },
    rejectedChange: {
      request: { event: 'change.rejected', seq: rejected[0].settledSeq, change: rejected[0] },
      answer: null,
    },
  };
}

/** Returns an event of a preparation of the event's order, as a hook gets it. */
// biome-ignore lint/suspicious/noExplicitAny: this is an answer of the API.
function preparationOf({ order }: any) {
  const observedAt = order.updatedAt as string;
  const [first] = contentOf(order, String).lines;
  if (first === undefined) throw new Error('the order has no line');
  const { line, name, quantity, options } = first;
  const after = { name, quantity, options };
  const changed = { what: 'line', change: 'changed', line, before: { ...after, quantity: 2 }, after };
  return {
    ...{
      event: 'order.changed',
      seq: 2,
      id: 'changed_2f0c5b1a9d3e4c67_2_8b1f20d4c9a7',
      orderId: order.orderId,
    },
    ...{ status: order.status, reason: null, changes: [changed, { what: 'address' }], observedAt },
    ...timesOf(order, observedAt, 'America/Santiago'),
    order,
  };
}
