import createClient from 'openapi-fetch';
import type { components, paths } from './api.d.ts';

declare const process: { argv: string[] };

/** A till that uses only the client generated from the local API's OpenAPI document, and no code of tillsync. */
const [, , url = '', key = ''] = process.argv;
const client = createClient<paths>({ baseUrl: `${url}/v1`, headers: { 'x-api-key': key } });

function given<T>({ data, error }: { data?: T; error?: components['schemas']['Error'] | unknown }): T {
  if (data === undefined) throw new Error(JSON.stringify(error));
  return data;
}

const [order] = given(await client.GET('/orders/to-book')).orders;
if (!order) throw new Error('There is no order to book.');
const counted: components['schemas']['StockItem'][] = [
  { externalId: 'A-1001-1', subsidiaryId: 'sub-1', qty: 7 },
  { externalId: 'NOWHERE', subsidiaryId: 'sub-1', qty: 1 },
];
const handed = given(await client.POST('/stock', { params: { query: { wait: 20 } }, body: counted }));
const acked = given(
  await client.POST('/orders/ack', { body: [{ orderId: order.orderId, seq: order.seq }, 'LATER'] }),
);
const left = given(await client.GET('/orders/to-book'));
const settled = given(await client.GET('/outbox', { params: { query: { after: 0 } } }));
// @ts-expect-error: requests are closed, so a misspelt field is found before it is sent.
const misspelt: components['schemas']['StockItem'] = { externalId: 'A', quantity: 1 };
const refused = await client.POST('/stock', { body: [misspelt] });
const forbidden = await client.POST('/products', { body: [{ sku: 1001, price: 1 }] });
console.log(
  JSON.stringify({
    order: order.orderId,
    outcomes: handed.results.map(({ outcome }) => outcome?.state),
    acked: acked.results.map(({ state }) => state),
    left: left.orders.length,
    settled: settled.changes.map(({ state }) => state).sort(),
    misspelt: refused.data?.results[0]?.code,
    forbidden: [forbidden.response.status, forbidden.error],
  }),
);
