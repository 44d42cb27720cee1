/** Tests src/conform/mirror-readers.ts. */

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { Gate } from '../../src/conform/gate.ts';
import { Readers } from '../../src/conform/mirror-readers.ts';
import { systemClock } from '../../src/core/system-clock.ts';

/** Starts a gate before a server that echoes each request. */
async function gateBefore() {
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    response.setHeader('content-type', 'application/json');
    response.statusCode = request.method === 'POST' ? 207 : 200;
    response.end(JSON.stringify({ url: request.url, key: request.headers.authorization, body }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const state = { isOff: false };
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const gate = new Gate(systemClock, () => (state.isOff ? undefined : address));
  const url = await gate.listen();
  onTestFinished(async () => {
    await gate.close();
    server.closeAllConnections();
    server.close();
  });
  return { gate, url, state };
}

const post = (url: string, body: unknown) =>
  fetch(url, { method: 'POST', body: JSON.stringify(body), headers: { authorization: 'Bearer k' } });

it('carries a request with its key, body and answer, and notes it', async () => {
  const { gate, url } = await gateBefore();
  const answer = await post(`${url}/v1/stock?wait=1`, [{ sku: 1 }]);
  expect(answer.status).toBe(207);
  expect(await answer.json()).toEqual({ url: '/v1/stock?wait=1', key: 'Bearer k', body: '[{"sku":1}]' });
  expect(gate.asked).toMatchObject([
    { number: 1, answered: 1, method: 'POST', path: '/v1/stock', status: 207, body: [{ sku: 1 }] },
  ]);
});

it('refuses as a busy tillsync does, and is cut off as a stopped one', async () => {
  const { gate, url, state } = await gateBefore();
  gate.refuse = (method) => (method === 'POST' ? { status: 429, retryAfterS: 1 } : undefined);
  const refused = await post(`${url}/v1/stock`, []);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1']);
  expect((await fetch(`${url}/v1/orders`)).status).toBe(200);
  gate.refuse = undefined;
  state.isOff = true;
  await expect(fetch(`${url}/v1/orders`)).rejects.toThrow();
  state.isOff = false;
  expect((await fetch(`${url}/v1/orders`)).status).toBe(200);
  expect(gate.asked.map(({ status }) => status)).toEqual([429, 200, 0, 200]);
});

it('tells a read that is kept open from many short ones', () => {
  const readers = new Readers();
  const php = { pid: 7, program: 'php' };
  for (const found of [[php], [], [php], [php], []]) readers.look(found, 500);
  expect(readers).toMatchObject({ longestMs: 500, longest: 'php (process 7)' });
  for (let looks = 0; looks < 21; looks++) readers.look([php], 500);
  expect(readers.longestMs).toBe(10_000);
});
