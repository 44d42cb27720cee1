/** Tests src/conform/mirror-readers.ts. */

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { ARGUMENTS, CommandGate, Gate } from '../../src/conform/gate.ts';
import { Readers } from '../../src/conform/mirror-readers.ts';
import { systemClock } from '../../src/core/system-clock.ts';

/** Starts a gate in front of a server that echoes each request. */
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

it('holds what is handed over, and passes it on afterwards', async () => {
  const { gate, url } = await gateBefore();
  const release = gate.hold();
  const held = post(`${url}/v1/orders/ack`, ['a']);
  expect((await fetch(`${url}/v1/orders`)).status).toBe(200);
  await expect.poll(() => gate.held).toBe(1);
  expect(gate.asked.map(({ path }) => path)).toEqual(['/v1/orders']);
  release();
  expect((await held).status).toBe(207);
  expect(gate.asked.map(({ path }) => path)).toEqual(['/v1/orders', '/v1/orders/ack']);
});

it('tells a read that is kept open from many short ones', () => {
  const readers = new Readers();
  const php = { pid: 7, program: 'php' };
  for (const found of [[php], [], [php], [php], []]) readers.look(found, 500);
  expect(readers).toMatchObject({ longestMs: 500, longest: 'php (process 7)' });
  for (let looks = 0; looks < 21; looks++) readers.look([php], 500);
  expect(readers.longestMs).toBe(10_000);
});

it('runs the commands of a till on the kit, notes them and their files, and refuses as a locked store does', () => {
  const directory = mkdtempSync(join(tmpdir(), "tillsync gate's "));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const program = ['sh', '-c', 'echo "$TILLSYNC_CONFIG: $*"; cat', 'sh'];
  const commands = new CommandGate(join(directory, 'commands'), program, { TILLSYNC_CONFIG: "it's.toml" });
  const type = (words: string[], input = '') => {
    const run = spawnSync(join(commands.directory, 'tillsync'), words, { input, encoding: 'utf8' });
    return [run.status, run.stdout];
  };
  const counts = join(directory, 'counts 1.csv');
  writeFileSync(counts, 'sku,qty\nodd,1\n');
  expect(type(['push', 'stock', counts])).toEqual([0, `it's.toml: push stock ${counts}\n`]);
  expect(type(['push', 'stock', '-'], 'odd,2\n')).toEqual([0, "it's.toml: push stock -\nodd,2\n"]);
  expect(type(['order', 'list', "a 'b'  c"])).toEqual([0, "it's.toml: order list a 'b'  c\n"]);
  expect([commands.arrived, commands.textsWith('odd').length, commands.textsWith('odd,2').length]).toEqual([
    3, 2, 1,
  ]);

  commands.refuse(true);
  expect(type(['order', 'ack'], '["a"]')).toEqual([1, '']);
  expect(type(['order', 'list'])[0]).toBe(0);
  commands.refuse(false);
  expect(type(['order', 'ack'], '["a"]')).toEqual([0, 'it\'s.toml: order ack\n["a"]']);
  expect([commands.arrived, commands.refused]).toEqual([6, 1]);
  expect(commands.textsWith('["a"]')).toEqual(['["a"]']);
  expect(type(['order', 'ack', 'a', '--seq', '7'])[0]).toBe(0);
  expect(commands.textsWith('--seq')).toEqual([`${ARGUMENTS}\norder\nack\na\n--seq\n7\n`]);
});
