import { once } from 'node:events';
import { existsSync, linkSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Agent, request } from 'undici';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { type ApiRig, openApi } from './api-rig.ts';

const KEY = 'key-of-this-test';
const gid = process.getgid?.() ?? 0;

let directory: string;
let socket: string;
let rig: ApiRig | undefined;
const agents: Agent[] = [];

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-socket-'));
  socket = path.join(directory, 'api.sock');
});
afterEach(async () => {
  await Promise.all(agents.splice(0).map((agent) => agent.destroy()));
  await rig?.close();
  rig = undefined;
  rmSync(directory, { recursive: true });
});

const open = async (apiKey?: string) => {
  rig = await openApi({ groupSocket: { path: socket, gid }, ...(apiKey === undefined ? {} : { apiKey }) });
  return rig;
};

async function statusOver(headers: Record<string, string> = {}, method: 'GET' | 'POST' = 'GET') {
  const dispatcher = new Agent({ connect: { socketPath: socket } });
  agents.push(dispatcher);
  const url = `http://api/v1/${method === 'GET' ? 'orders' : 'stock'}`;
  const body = method === 'GET' ? null : JSON.stringify([{ externalId: 'A', qty: 1 }]);
  const type = { 'content-type': 'application/json' };
  const answer = await request(url, { dispatcher, method, body, headers: { ...type, ...headers } });
  await answer.body.dump();
  return answer.statusCode;
}

describe('the Unix socket', () => {
  it('needs no key where there is one, for its group alone can open it', async () => {
    const { state } = await open(KEY);
    expect((statSync(socket).mode & 0o777).toString(8)).toBe('660');
    expect(await statusOver()).toBe(200);
    expect(await statusOver({}, 'POST')).toBe(200);
    expect(state.taken).toHaveLength(1);
  });

  it('lets a wrong key be noticed, and nobody in on whose behalf a proxy asks', async () => {
    await open(KEY);
    expect(await statusOver({ 'x-api-key': 'x' })).toBe(401);
    expect(await statusOver({ 'x-forwarded-for': '10.0.0.9' })).toBe(401);
    expect(await statusOver({ 'x-forwarded-for': '10.0.0.9', 'x-api-key': KEY })).toBe(200);
  });

  it('is served again after a process that was killed left it behind', async () => {
    const left = createServer();
    left.listen(socket);
    await once(left, 'listening');
    // Leaves the socket's file without a listener, as a killed process does.
    const link = path.join(directory, 'kept');
    linkSync(socket, link);
    left.close();
    await once(left, 'close');
    renameSync(link, socket);
    await open();
    expect(await statusOver()).toBe(200);
  });

  it('takes the place of no other program and of no file', async () => {
    const other = createServer();
    other.listen(socket);
    await once(other, 'listening');
    await expect(open()).rejects.toMatchObject({
      code: 'config-invalid',
      message: expect.stringContaining(socket),
    });
    other.close();
    await once(other, 'close');
    writeFileSync(socket, 'mine');
    await expect(open()).rejects.toMatchObject({ code: 'config-invalid' });
    expect(statSync(socket).size).toBe(4);
  });

  it('says what is wrong with its place', async () => {
    socket = path.join(directory, 'nowhere', 'api.sock');
    await expect(open()).rejects.toMatchObject({
      code: 'config-invalid',
      message: expect.stringContaining(`Cannot serve the local API on ${socket} (E`),
    });
  });

  it('is gone when the server is closed, open connections or not', async () => {
    const { server, clock } = await open();
    expect(await statusOver()).toBe(200);
    const idle = connect(socket);
    await once(idle, 'connect');
    idle.on('error', () => {});
    const closed = Promise.all([server.close(), once(idle, 'close')]);
    await clock.advance(3_000);
    await closed;
    expect(existsSync(socket)).toBe(false);
  });
});

describe("the service's own socket", () => {
  const openOwn = async () => {
    rig = await openApi({ ownSocket: socket, apiKey: KEY });
    return rig;
  };

  it('is for its user alone, needs no key, and is gone when the server is closed', async () => {
    const { state } = await openOwn();
    expect((statSync(socket).mode & 0o777).toString(8)).toBe('600');
    expect(await statusOver()).toBe(200);
    expect(await statusOver({}, 'POST')).toBe(200);
    expect(state.taken).toHaveLength(1);
    await rig?.close();
    rig = undefined;
    expect(existsSync(socket)).toBe(false);
  });

  it('brings commands, which are no sign of a POS; the port does', async () => {
    const { state, post } = await openOwn();
    expect(await statusOver({}, 'POST')).toBe(200);
    expect(state.posSigns).toEqual([]);
    await post('/v1/stock', [{ externalId: 'A', qty: 1 }], { 'x-api-key': KEY });
    expect(state.posSigns).toEqual(['']);
  });

  it('is left out where it cannot be opened, and the port is served all the same', async () => {
    socket = path.join(directory, 'nowhere', 'local.sock');
    const { call } = await openOwn();
    expect((await call('/v1/orders', { headers: { 'x-api-key': KEY } })).status).toBe(200);
  });
});

it('serves every address of the list, with one line for what is handed over', async () => {
  const port = await freePort();
  rig = await openApi({ others: [{ host: '127.0.0.2', port }] });
  for (const base of [rig.url, `http://127.0.0.2:${port}`]) {
    const answer = await request(`${base}/v1/orders`, { dispatcher: rig.dispatcher });
    await answer.body.dump();
    expect(answer.statusCode).toBe(200);
  }
  await expect(openApi({ others: [{ host: '127.0.0.2', port }] })).rejects.toMatchObject({
    code: 'config-invalid',
    message: `Cannot serve the local API on 127.0.0.2:${port} (EADDRINUSE).`,
  });
});
