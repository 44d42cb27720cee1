/** Tests src/platform/transport.ts and src/support/webhook-probe.ts. */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { type AddressInfo, connect, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { createHttpTransport, type Transport } from '../../src/platform/transport.ts';
import { networkOutcome } from '../../src/support/doctor/machine.ts';
import { reachPlatform } from '../../src/support/webhook-probe.ts';

type TransportRequest = Parameters<Transport['send']>[0];

const WANTED: TransportRequest = {
  method: 'GET',
  path: '/a',
  headers: {},
  timeoutMs: 20_000,
  bodyMaxBytes: 1000,
};
const SET_BEFORE = { ...process.env };
afterEach(() => {
  for (const name of ['HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY', 'http_proxy', 'no_proxy']) {
    if (SET_BEFORE[name] === undefined) delete process.env[name];
    else process.env[name] = SET_BEFORE[name];
  }
});

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** Starts a proxy that records its requests and answers CONNECT with `status`. */
async function startProxy(status = 200) {
  const asked: { to: string; credentials: string | undefined }[] = [];
  const server = http.createServer();
  server.on('connect', (request: IncomingMessage, socket: Socket) => {
    asked.push({ to: request.url ?? '', credentials: request.headers['proxy-authorization'] });
    if (status !== 200) return void socket.end(`HTTP/1.1 ${status} No\r\n\r\n`);
    const [host = '', port] = (request.url ?? '').split(':');
    const there = connect(Number(port), host, () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      there.pipe(socket).pipe(there);
    });
    for (const each of [there, socket]) each.on('error', () => {});
  });
  return { url: `http://127.0.0.1:${await listening(server)}`, asked };
}

/** Starts a platform that answers every request, over TLS if `pem` is given. */
async function startPlatform(pem?: Buffer) {
  const answer: http.RequestListener = (_request, response) => void response.end('{}');
  const server = pem ? https.createServer({ key: pem, cert: pem }, answer) : http.createServer(answer);
  server.on('connection', (socket: Socket) => onTestFinished(() => void socket.destroy()));
  const port = await listening(server);
  return { port, baseUrl: pem ? `https://localhost:${port}` : `http://127.0.0.1:${port}` };
}

function selfSigned(): { file: string; pem: Buffer } {
  const file = path.join(mkdtempSync(path.join(tmpdir(), 'tillsync-ca-')), 'ca.pem');
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'];
  const words = ['req', '-x509', ...key, '-nodes', '-days', '2', '-subj', '/CN=localhost'];
  const name = ['-addext', 'subjectAltName=DNS:localhost'];
  execFileSync('openssl', [...words, ...name, '-keyout', file, '-out', `${file}.crt`], { stdio: 'ignore' });
  const pem = Buffer.concat([readFileSync(file), readFileSync(`${file}.crt`)]);
  return { file: `${file}.crt`, pem };
}

function transportBy(way: Omit<Parameters<typeof createHttpTransport>[0], 'userAgent'>) {
  const transport = createHttpTransport({ userAgent: 'tillsync/test', ...way });
  onTestFinished(() => transport.close());
  return transport;
}

const clock = systemClock;
const signal = () => AbortSignal.timeout(60_000);

it.each(['platform.proxy', 'HTTPS_PROXY'])('each call goes through the proxy of %s', async (where) => {
  const { file, pem } = selfSigned();
  const { port, baseUrl } = await startPlatform(pem);
  const proxy = await startProxy();
  if (where === 'HTTPS_PROXY') process.env.HTTPS_PROXY = proxy.url;
  const way = { baseUrl, caFile: file, ...(where === 'platform.proxy' && { proxy: proxy.url }) };
  const transport = transportBy({ ...way, clock });
  for (let i = 0; i < 6; i++) expect((await transport.send(WANTED)).status).toBe(200);
  const kept = proxy.asked.length;
  expect(kept).toBeLessThan(3);
  expect((await transport.send({ ...WANTED, freshConnection: true })).status).toBe(200);
  expect(proxy.asked.length).toBe(kept + 1);
  expect(new Set(proxy.asked.map(({ to }) => to))).toEqual(new Set([`localhost:${port}`]));
  const outcome = await networkOutcome(way, signal());
  expect([outcome.level, outcome.message]).toEqual([
    'ok',
    expect.stringContaining(`through the proxy 127.0.0.1:${new URL(proxy.url).port}`),
  ]);
});

it('NO_PROXY leaves the platform out', async () => {
  const platform = await startPlatform();
  const proxy = await startProxy();
  process.env.HTTP_PROXY = proxy.url;
  process.env.NO_PROXY = '127.0.0.1';
  expect((await transportBy({ baseUrl: platform.baseUrl, clock }).send(WANTED)).status).toBe(200);
  expect(proxy.asked).toEqual([]);
});

it('a password in the environment goes to the proxy, and into no message', async () => {
  const { file, pem } = selfSigned();
  const proxy = await startProxy(407);
  process.env.HTTPS_PROXY = proxy.url.replace('//', '//till:s3cret-word@');
  const way = { baseUrl: (await startPlatform(pem)).baseUrl, caFile: file };
  const told = await transportBy({ ...way, clock })
    .send(WANTED)
    .catch((error: unknown) => error);
  const outcome = await networkOutcome(way, signal());
  const host = new URL(proxy.url).host;
  for (const message of [(told as Error).message, outcome.message]) {
    expect(message).toBe(
      `Cannot reach the platform: the proxy ${host} does not let it through to localhost.`,
    );
  }
  expect(JSON.stringify([told, outcome])).not.toContain('s3cret');
  const credentials = `Basic ${Buffer.from('till:s3cret-word').toString('base64')}`;
  expect(proxy.asked.map((each) => each.credentials)).toEqual([credentials, credentials]);
});

it('a proxy that is not there is told as the proxy, not as the platform', async () => {
  const platform = await startPlatform();
  const gone = http.createServer();
  const port = await listening(gone);
  await new Promise((resolve) => gone.close(resolve));
  const way = { baseUrl: platform.baseUrl, proxy: `http://127.0.0.1:${port}` };
  const told = transportBy({ ...way, clock }).send(WANTED);
  await expect(told).rejects.toThrow(`127.0.0.1 refuses connections on port ${port}`);
  await expect(reachPlatform(way, signal())).rejects.toMatchObject({
    hint: expect.stringContaining('platform.proxy'),
  });
});

it('without TLS a proxy gets the request itself', async () => {
  const { baseUrl } = await startPlatform();
  const asked: string[] = [];
  const server = http.createServer((request, response) => {
    asked.push(request.url ?? '');
    response.end('{}');
  });
  const way = { baseUrl, proxy: `http://127.0.0.1:${await listening(server)}` };
  expect((await transportBy({ ...way, clock }).send(WANTED)).status).toBe(200);
  expect(asked).toEqual([`${baseUrl}/a`]);
  await reachPlatform(way, signal());
});

it('platform.ca_file is trusted, with and without a proxy, and nothing else is by it', async () => {
  const { file, pem } = selfSigned();
  const platform = await startPlatform(pem);
  const proxy = await startProxy();
  const { baseUrl } = platform;
  await expect(transportBy({ baseUrl, clock }).send(WANTED)).rejects.toThrow(
    'signed by nobody this machine trusts',
  );
  for (const way of [
    { baseUrl, caFile: file },
    { baseUrl, caFile: file, proxy: proxy.url },
  ]) {
    expect((await transportBy({ ...way, clock }).send(WANTED)).status).toBe(200);
    await reachPlatform(way, signal());
  }
  expect(proxy.asked).toHaveLength(2);
  const missing = { baseUrl, caFile: `${file}.missing` };
  await expect(transportBy({ ...missing, clock }).send(WANTED)).rejects.toMatchObject({
    code: 'config-invalid',
  });
});
