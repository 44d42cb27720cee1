/** Tests src/platform/transport.ts and src/core/content-coding.ts. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import {
  brotliCompressSync,
  constants,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from 'node:zlib';
import nock from 'nock';
import { afterEach, expect, onTestFinished, test } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { createHttpTransport, neverSent, type Transport } from '../../src/platform/transport.ts';

type TransportRequest = Parameters<Transport['send']>[0];

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
  const transport = createHttpTransport({
    userAgent: 'tillsync/test',
    baseUrl,
    clock: systemClock,
    connectTimeoutMs: 1000,
  });
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

test.each([
  ['says its length', 300_000, true],
  ['does not', 300_000, false],
  ['is empty', 0, true],
])('an answer comes whole that %s', async (_how, bytes, isSaid) => {
  const body = Buffer.from(Array.from({ length: bytes }, (_, i) => i % 251));
  const { url } = await serve((_request, response) => {
    if (isSaid) response.setHeader('content-length', bytes);
    for (let at = 0; at < bytes; at += 70_001) response.write(body.subarray(at, at + 70_001));
    response.end();
  });
  const answer = await transportTo(url).send({ ...wanted, bodyMaxBytes: bytes });
  expect(Buffer.compare(answer.bytes, body)).toBe(0);
  // The buffer has exactly the size of the answer, so that it can be passed to another thread without a copy.
  if (isSaid && bytes > 0) expect(answer.bytes.byteLength).toBe(answer.bytes.buffer.byteLength);
});

const quickBrotli = (data: string | Buffer) =>
  brotliCompressSync(data, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } });

const CODED: [coding: string, encode: (text: string) => Buffer][] = [
  ['gzip', gzipSync],
  ['x-gzip', gzipSync],
  ['GZip', gzipSync],
  ['deflate', deflateSync],
  ['deflate', deflateRawSync],
  ['br', quickBrotli],
  ['identity', Buffer.from],
  ['', Buffer.from],
];

test('each request names tillsync and the codings that it reads', async () => {
  const seen: unknown[] = [];
  const { url } = await serve((request, response) => {
    seen.push(request.headers['user-agent'], request.headers['accept-encoding']);
    response.end();
  });
  const transport = transportTo(url);
  await transport.send(wanted);
  await transport.send({ ...wanted, method: 'PUT', body: '{}', freshConnection: true });
  expect(seen).toEqual(['tillsync/test', 'gzip, deflate, br', 'tillsync/test', 'gzip, deflate, br']);
});

test.each(CODED)('an answer with the coding "%s" comes decoded', async (coding, encode) => {
  const text = JSON.stringify(Array.from({ length: 30_000 }, (_, i) => ({ ñandú: i })));
  const { url } = await serve((request, response) => {
    const body = request.url === '/empty' ? Buffer.alloc(0) : encode(text);
    response.setHeader('content-encoding', coding);
    if (request.url === '/said') response.setHeader('content-length', body.length);
    for (let at = 0; at < body.length; at += 1_001) response.write(body.subarray(at, at + 1_001));
    response.end();
  });
  const transport = transportTo(url);
  const bodyMaxBytes = Buffer.byteLength(text);
  for (const path of ['/said', '/not-said']) {
    const answer = await transport.send({ ...wanted, path, bodyMaxBytes });
    expect(Buffer.from(answer.bytes).toString()).toBe(text);
  }
  expect((await transport.send({ ...wanted, path: '/empty' })).bytes).toHaveLength(0);
  const fault = await faultOf(transport.send({ ...wanted, path: '/said', bodyMaxBytes: bodyMaxBytes - 1 }));
  expect(fault).toMatchObject({ code: 'platform-garbled', message: expect.stringContaining('larger than') });
});

test.each(['gzip', 'deflate', 'br'])(
  'a %s bomb is refused by its decoded size, in little memory',
  async (coding) => {
    const zeros = Buffer.alloc(64 * 1024 * 1024);
    const encode = { gzip: gzipSync, deflate: deflateSync, br: quickBrotli }[coding] ?? gzipSync;
    const bomb = encode(zeros);
    const { url } = await serve((_request, response) => {
      response.writeHead(200, { 'content-encoding': coding }).end(bomb);
    });
    const before = process.memoryUsage().arrayBuffers;
    const fault = await faultOf(transportTo(url).send({ ...wanted, bodyMaxBytes: 1_000_000 }));
    expect(fault).toMatchObject({
      code: 'platform-garbled',
      message: expect.stringContaining('larger than'),
    });
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(16 * 1024 * 1024);
  },
);

test('a body that stays small only because it decodes to nothing is refused by its own size', async () => {
  const nothing = gzipSync('');
  const { url } = await serve((_request, response) => {
    response.writeHead(200, { 'content-encoding': 'gzip' });
    for (let i = 0; i < 100; i++) response.write(nothing);
    response.end();
  });
  const fault = await faultOf(transportTo(url).send(wanted));
  expect(fault).toMatchObject({ code: 'platform-garbled', message: expect.stringContaining('larger than') });
});

test.each<[string, string, (response: ServerResponse) => void, string]>([
  ['is not what it says', 'gzip', (response) => void response.end('{"success":true}'), 'platform-garbled'],
  ['is not what it says', 'br', (response) => void response.end('{"success":true}'), 'platform-garbled'],
  ['is not what it says', 'deflate', (response) => void response.end('{"success":true}'), 'platform-garbled'],
  [
    'lacks its end',
    'gzip',
    (response) => void response.end(gzipSync('{}').subarray(0, 12)),
    'platform-garbled',
  ],
  [
    'has an unknown coding',
    'zstd',
    (response) => void response.end(zstdCompressSync('{}')),
    'platform-garbled',
  ],
  [
    'has two codings',
    'gzip, br',
    (response) => void response.end(brotliCompressSync(gzipSync('{}'))),
    'platform-garbled',
  ],
  [
    'is cut off by the connection',
    'gzip',
    (response) => {
      response.write(gzipSync('{}').subarray(0, 12));
      setImmediate(() => response.socket?.destroy());
    },
    'platform-unreachable',
  ],
])(
  'an answer that %s (%s) is no answer, and its status from 400 on is one',
  async (_what, coding, send, code) => {
    const { url } = await serve((request, response) => {
      response.writeHead(Number(request.url?.slice(1)), { 'content-encoding': coding });
      send(response);
    });
    const transport = transportTo(url);
    expect((await faultOf(transport.send({ ...wanted, path: '/200' }))).code).toBe(code);
    for (const status of [401, 403, 429, 502]) {
      expect(await transport.send({ ...wanted, path: `/${status}` })).toMatchObject({
        status,
        bytes: new Uint8Array(),
      });
    }
  },
);

test('connections are kept alive, except for a request that asks for its own', async () => {
  const { url, sockets } = await serve((_request, response) => response.end('[]'));
  const transport = transportTo(url);
  for (let i = 0; i < 5; i++) await transport.send(wanted);
  // A request may begin before the connection of the previous one can be reused, and then opens a second one.
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
  const error = await faultOf(transportTo(url).send({ ...wanted, timeoutMs: 150 }));
  expect(error).toMatchObject({ code: 'platform-unreachable', retryable: true });
  expect(neverSent(error)).toBe(false);
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

test('a body just above the bound is refused, one at the bound is not', async () => {
  const { url } = await serve((request, response) =>
    response.end(Buffer.alloc(Number(request.url?.slice(1)))),
  );
  const transport = transportTo(url);
  expect((await transport.send({ ...wanted, path: '/1000' })).bytes).toHaveLength(1000);
  expect((await faultOf(transport.send({ ...wanted, path: '/1001' }))).code).toBe('platform-garbled');
});

test('a connection tried at several addresses was never sent only if none of them stood', () => {
  const fault = (...codes: string[]) =>
    new AggregateError(codes.map((code) => Object.assign(new Error(code), { code })));
  expect(neverSent(fault('ECONNREFUSED', 'ENETUNREACH'))).toBe(true);
  expect(neverSent(fault('ECONNREFUSED', 'ECONNRESET'))).toBe(false);
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
    expect(error.message).toMatch(/127\.0\.0\.1 (broke before the answer was whole|.* does not speak http)/);
    expect(neverSent(error)).toBe(false);
  }
});

test('nobody listening, no such name and a wrong protocol mean that nothing was sent', async () => {
  const { url, server } = await serve((_request, response) => response.end());
  const { port } = new URL(url);
  const plain = await faultOf(transportTo(url.replace('http:', 'https:')).send(wanted));
  expect(plain).toMatchObject({
    code: 'platform-unreachable',
    message: expect.stringContaining(`what answers at 127.0.0.1 on port ${port} does not speak https`),
  });
  await new Promise((resolve) => server.close(resolve));
  const refused = await faultOf(transportTo(url).send(wanted));
  expect(refused).toMatchObject({
    code: 'platform-unreachable',
    message: `Cannot reach the platform: 127.0.0.1 refuses connections on port ${port} (ECONNREFUSED).`,
  });
  expect(neverSent(refused)).toBe(true);
  const noName = await faultOf(transportTo('http://name.invalid').send(wanted));
  expect(noName.code).toBe('platform-unreachable');
  expect(noName.message).toMatch(
    /^Cannot reach the platform: the name name\.invalid was not found \((EAI_AGAIN|ENOTFOUND)\)\.$/,
  );
  expect(noName.hint).toContain('DNS');
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
