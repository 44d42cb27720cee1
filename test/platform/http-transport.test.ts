import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import nock from 'nock';
import { afterEach, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/daemon/system-clock.ts';
import { TillsyncError } from '../../src/domain/errors.ts';
import { createHttpTransport } from '../../src/platform/http-transport.ts';
import { neverSent } from '../../src/platform/network-fault.ts';
import type { TransportRequest } from '../../src/platform/transport.ts';

const wanted: TransportRequest = {
  method: 'GET',
  path: '/a?b=c',
  headers: { accept: 'application/json' },
  timeoutMs: 5000,
  bodyMaxBytes: 1000,
};

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

async function serve(handler: Handler): Promise<{ url: string; server: Server; sockets: () => number }> {
  let count = 0;
  const server = createServer(handler);
  server.on('connection', () => {
    count += 1;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server, sockets: () => count };
}

function transportTo(baseUrl: string) {
  const transport = createHttpTransport({ baseUrl, clock: systemClock, connectTimeoutMs: 1000 });
  onTestFinished(() => transport.close());
  return transport;
}

async function faultOf(promise: Promise<unknown>): Promise<TillsyncError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof TillsyncError) return error;
    throw error;
  }
  throw new Error('it did not fail');
}

afterEach(() => {
  nock.cleanAll();
  nock.restore();
});

test('method, path, headers and body go out, status, headers and bytes come back', async () => {
  const seen: unknown[] = [];
  const { url } = await serve((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      seen.push(request.method, request.url, request.headers['x-a'], Buffer.concat(chunks).toString());
      response.writeHead(418, { 'X-B': '2', 'set-cookie': ['a', 'b'] }).end('tea');
    });
  });
  const answer = await transportTo(`${url}/api/`).send({
    ...wanted,
    method: 'PUT',
    headers: { 'x-a': '1' },
    body: '{"ä":1}',
  });
  expect(seen).toEqual(['PUT', '/api/a?b=c', '1', '{"ä":1}']);
  expect(answer).toMatchObject({ status: 418, headers: { 'x-b': '2', 'set-cookie': 'a, b' } });
  expect(Buffer.from(answer.bytes).toString()).toBe('tea');
});

test('connections are kept alive, except for a request that asks for its own', async () => {
  const { url, sockets } = await serve((_request, response) => response.end('[]'));
  const transport = transportTo(url);
  for (let i = 0; i < 5; i++) await transport.send(wanted);
  // The next request may find the connection of the one before still being tidied up.
  const kept = sockets();
  expect(kept).toBeLessThanOrEqual(2);
  for (let i = 0; i < 3; i++) await transport.send({ ...wanted, freshConnection: true });
  expect(sockets()).toBe(kept + 3);
});

test.each([
  ['before the headers', (): void => undefined],
  ['in the middle of the body', (response: ServerResponse) => void response.writeHead(200).write('[')],
])('the whole time is limited when the server hangs %s', async (_name, begin) => {
  const { url } = await serve((_request, response) => begin(response));
  const startMs = performance.now();
  const error = await faultOf(transportTo(url).send({ ...wanted, timeoutMs: 150 }));
  expect(error).toMatchObject({ code: 'platform-unreachable', retryable: true });
  expect(neverSent(error)).toBe(false);
  expect(performance.now() - startMs).toBeLessThan(1000);
});

test('a drip that never ends is limited too', async () => {
  const { url } = await serve((_request, response) => {
    response.writeHead(200);
    const drip = setInterval(() => response.write(' '), 10);
    response.on('close', () => clearInterval(drip));
  });
  const error = await faultOf(transportTo(url).send({ ...wanted, timeoutMs: 150 }));
  expect(error.code).toBe('platform-unreachable');
});

test('a body that is too large is given up early', async () => {
  const { url, server } = await serve((_request, response) => {
    response.writeHead(200);
    const flood = () => {
      while (response.writable && response.write(Buffer.alloc(65_536)));
    };
    response.on('drain', flood);
    flood();
  });
  const error = await faultOf(transportTo(url).send(wanted));
  expect(error.code).toBe('platform-garbled');
  const open = await new Promise<number>((resolve) =>
    server.getConnections((_error, count) => resolve(count)),
  );
  expect(open).toBeLessThanOrEqual(1);
});

test('a body that is cut off is no answer', async () => {
  const { url } = await serve((_request, response) => {
    response.writeHead(200, { 'content-length': '100' }).write('{"a":');
    setImmediate(() => response.socket?.destroy());
  });
  expect((await faultOf(transportTo(url).send(wanted))).code).toBe('platform-unreachable');
});

test('a server that hangs up or speaks no HTTP is unreachable', async () => {
  const hangUp = createTcpServer((socket) => socket.destroy());
  const chatter = createTcpServer((socket) => {
    socket.on('error', () => undefined);
    socket.end('220 mail ready\r\n');
  });
  for (const server of [hangUp, chatter]) {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const error = await faultOf(
      transportTo(`http://127.0.0.1:${(server.address() as AddressInfo).port}`).send(wanted),
    );
    expect(error.code).toBe('platform-unreachable');
    expect(neverSent(error)).toBe(false);
  }
});

test('nobody listening, no such name and a wrong protocol mean that nothing was sent', async () => {
  const { url, server } = await serve((_request, response) => response.end());
  const plain = url.replace('http:', 'https:');
  expect((await faultOf(transportTo(plain).send(wanted))).code).toBe('platform-unreachable');
  await new Promise((resolve) => server.close(resolve));
  const refused = await faultOf(transportTo(url).send(wanted));
  expect(refused.code).toBe('platform-unreachable');
  expect(neverSent(refused)).toBe(true);
  const noName = await faultOf(transportTo('http://name.invalid').send(wanted));
  expect(noName.code).toBe('platform-unreachable');
  expect(neverSent(noName)).toBe(true);
});

test('the caller can end a request, before and while it runs', async () => {
  const { url } = await serve(() => undefined);
  const transport = transportTo(url);
  const before = new AbortController();
  before.abort();
  expect((await faultOf(transport.send({ ...wanted, signal: before.signal }))).code).toBe('aborted');
  const during = new AbortController();
  const running = faultOf(transport.send({ ...wanted, signal: during.signal }));
  setImmediate(() => during.abort());
  expect((await running).code).toBe('aborted');
});

test('a reset and an odd encoding, as awkward servers send them', async () => {
  nock.activate();
  nock('http://platform.test')
    .get('/a?b=c')
    .replyWithError(Object.assign(new Error('reset'), { code: 'ECONNRESET' }))
    .get('/a?b=c')
    .reply(200, Buffer.from([0xff, 0xfe, 0x7b]), { 'Content-Type': ['application/json', 'text/html'] });
  const transport = transportTo('http://platform.test');
  expect((await faultOf(transport.send(wanted))).code).toBe('platform-unreachable');
  const answer = await transport.send(wanted);
  expect([...answer.bytes]).toEqual([0xff, 0xfe, 0x7b]);
  expect(answer.headers['content-type']).toContain('text/html');
});
