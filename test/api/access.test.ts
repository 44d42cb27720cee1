import { networkInterfaces } from 'node:os';
import { request } from 'undici';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { setInstallation } from '../../src/core/errors.ts';
import { keyDigest, RIGHTS, type Right } from '../../src/db/api-keys.ts';
import { tempState } from '../platform/temp-state.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { type ApiRig, type ApiRigOptions, openApi } from './api-rig.ts';

const KEY = 'k\u00e9y-of-this-test';
/** The key as an HTTP client sends it: its UTF-8 bytes. */
const SENT_KEY = Buffer.from(KEY, 'utf8').toString('latin1');

let rig: ApiRig;
afterEach(() => rig?.close());
const open = async (options?: ApiRigOptions) => {
  rig = await openApi(options);
  return rig;
};
const codeOf = async (answer: Promise<{ status: number; body: { error?: { code: string } } }>) => {
  const { status, body } = await answer;
  return [status, body.error?.code];
};

describe('with a key', () => {
  const elsewhere = { 'x-forwarded-for': '10.0.0.9' };

  it.each([
    ['bearer', { authorization: `Bearer ${SENT_KEY}` }],
    ['BEARER', { authorization: `BEARER  ${SENT_KEY}` }],
    ['x-api-key', { 'x-api-key': SENT_KEY }],
    ['beside a proxy\u2019s own authorization', { authorization: 'Basic eDp5', 'x-api-key': SENT_KEY }],
  ])('lets in from elsewhere: %s', async (_how, headers) => {
    const { call } = await open({ host: '0.0.0.0', apiKey: KEY });
    expect((await call('/v1/status', { headers: { ...elsewhere, ...headers } })).status).toBe(200);
  });

  it.each([
    ['none', {}],
    ['an empty one', { 'x-api-key': '' }],
    ['a wrong one', { 'x-api-key': `${SENT_KEY}x` }],
    ['the key without its scheme', { authorization: SENT_KEY }],
    ['the key twice', { 'x-api-key': `${SENT_KEY}, ${SENT_KEY}` }],
    ['a wrong bearer beside the right key', { authorization: 'Bearer x', 'x-api-key': SENT_KEY }],
  ])('refuses from elsewhere: %s', async (_how, headers) => {
    const { call } = await open({ host: '0.0.0.0', apiKey: KEY });
    for (const path of ['/v1/status', '/v1/orders', '/v1/openapi.json', '/v1/outbox']) {
      const answer = await call(path, { headers: { ...elsewhere, ...headers } });
      expect([answer.status, answer.body.error.code]).toEqual([401, 'unauthorized']);
      expect(answer.headers['www-authenticate']).toMatch(/^Bearer/);
      expect(answer.text).not.toContain(KEY);
    }
    const acts = ['/v1/stock', '/v1/orders/ack', '/v1/outbox/1/discard', '/v1/outbox/release'];
    for (const path of acts) {
      expect(await codeOf(rig.post(path, {}, { ...elsewhere, ...headers }))).toEqual([401, 'unauthorized']);
    }
    expect([rig.state.taken, rig.state.acked, rig.state.decisions]).toEqual([[], [], []]);
  });

  it('asks for it on this machine too, whose users all reach the port, and behind a proxy that tells nothing', async () => {
    const { call, post, state } = await open({ apiKey: KEY });
    for (const headers of [{}, { 'x-api-key': 'x' }, { host: 'shop.example' }]) {
      expect(await codeOf(call('/v1/orders', { headers }))).toEqual([401, 'unauthorized']);
      expect(await codeOf(post('/v1/stock', [{ externalId: 'A', qty: 1 }], headers))).toEqual([
        401,
        'unauthorized',
      ]);
    }
    expect(state.taken).toEqual([]);
    expect((await call('/v1/status', { headers: { 'x-api-key': SENT_KEY } })).status).toBe(200);
  });

  it('tells of each wrong key where it came from, and of none that is missing or right', async () => {
    const from: string[] = [];
    const { call } = await open({ apiKey: KEY, onWrongKey: (address) => from.push(address) });
    for (const key of ['x', SENT_KEY, 'y']) await call('/v1/status', { headers: { 'x-api-key': key } });
    await call('/v1/status');
    expect(from).toEqual(['127.0.0.1', '127.0.0.1']);
  });

  it('says in which file the key is, and the same of a key that was never one and one that was', async () => {
    const rows = tempState(new FakeClock()).apiKeys;
    rows.add({ name: 'till-1', may: ['orders'], digest: keyDigest('old', 'utf8'), at: 't' });
    rows.withdraw('till-1', 't');
    const { call } = await open({ apiKey: KEY, keyFile: '/var/lib/shop/api-key', namedKeys: rows });
    const missing = await call('/v1/status');
    expect(missing.body.error).toMatchObject({
      message: 'The key is needed.',
      hint: expect.stringContaining('It is in /var/lib/shop/api-key.'),
    });
    const [withdrawn, never] = await Promise.all(
      ['old', 'never'].map((key) => call('/v1/status', { headers: { 'x-api-key': key } })),
    );
    expect([withdrawn?.status, withdrawn?.text]).toEqual([401, never?.text]);
    expect(never?.body.error).toMatchObject({ message: 'The key is wrong.', hint: missing.body.error.hint });
  });

  it('names the command that shows the key of this company, and of no other', async () => {
    const configFile = '/etc/tillsync/second.toml';
    const storage = '/var/lib/tillsync-second';
    setInstallation(() => ({ program: 'tillsync', needsSudo: true, storage, configFile, unit: null }));
    onTestFinished(() => setInstallation());
    const { call } = await open({ apiKey: KEY });
    const command = `\`sudo tillsync --config ${configFile} key show\``;
    expect((await call('/v1/status')).body.error.hint).toContain(command);
    expect((await call('/v1/status', { headers: { 'x-api-key': 'x' } })).body.error.hint).toContain(command);
  });

  it('serves whoever has it under any name, as a proxy may pass it on', async () => {
    const { call } = await open({ apiKey: KEY });
    const headers = { host: 'shop.example', 'x-api-key': SENT_KEY, ...elsewhere };
    expect((await call('/v1/status', { headers })).status).toBe(200);
  });

  const own = Object.values(networkInterfaces())
    .flat()
    .find((each) => each?.family === 'IPv4' && !each.internal)?.address;

  it.runIf(own !== undefined)('needs it over the network', async () => {
    const { port, dispatcher } = await open({ host: '0.0.0.0', apiKey: KEY });
    const status = async (headers: Record<string, string>) => {
      const answer = await request(`http://${own}:${port}/v1/status`, { dispatcher, headers });
      await answer.body.dump();
      return answer.statusCode;
    };
    expect([await status({}), await status({ 'x-api-key': SENT_KEY })]).toEqual([401, 200]);
  });
});

describe('named keys', () => {
  const header = (key: string) => ({ 'x-api-key': key });

  async function openWith(keys: Record<string, Right[]>) {
    const rows = tempState(new FakeClock()).apiKeys;
    for (const [name, may] of Object.entries(keys)) {
      rows.add({ name, may, digest: keyDigest(`key-of-${name}`, 'utf8'), at: '2026-01-15T12:00:00.000Z' });
    }
    const from: string[] = [];
    const opened = await open({
      apiKey: KEY,
      namedKeys: rows,
      onWrongKey: (address) => from.push(address),
    });
    return { ...opened, rows, from };
  }

  /** Checks which rights each route requires, and how it answers a key that has only one right, for each right. */
  it('may do what they were made for, and are told by name of the right that they lack', async () => {
    const all = Object.fromEntries(RIGHTS.map((right) => [right, [right]]));
    const { call, from } = await openWith(all);
    const { paths } = (await call('/v1/openapi.json', { headers: header(SENT_KEY) })).body;
    const expected: Record<string, readonly Right[]> = {
      'GET /status': RIGHTS,
      'GET /products': RIGHTS,
      'GET /board': ['screen'],
      'GET /trends': ['screen'],
      'GET /orders': ['orders', 'screen'],
      'GET /stream': ['orders', 'screen'],
      'GET /orders/search': ['orders', 'screen'],
      'GET /orders/to-book': ['orders', 'screen'],
      'GET /orders/{orderId}': ['orders', 'screen'],
      'GET /orders/{orderId}/explain': ['orders', 'screen'],
      'GET /stock/{sku}/explain': ['stock', 'screen'],
      'POST /orders/ack': ['ack'],
      'POST /stock': ['stock'],
      'POST /products': ['prices'],
      'GET /outbox': ['stock', 'prices', 'screen'],
      'GET /outbox/{changeId}': ['stock', 'prices', 'screen'],
      'POST /outbox/{changeId}/retry': ['decide'],
      'POST /outbox/{changeId}/discard': ['decide'],
      'POST /outbox/{changeId}/release': ['decide'],
      'POST /outbox/discard': ['decide'],
      'POST /outbox/release': ['decide'],
      'POST /alarms/test': ['decide'],
      'POST /hooks/{hook}/test': ['decide'],
    };
    const found: Record<string, readonly Right[]> = {};
    for (const [path, methods] of Object.entries<Record<string, object>>(paths)) {
      for (const method of Object.keys(methods).map((name) => name.toUpperCase())) {
        const answers = await Promise.all(
          RIGHTS.map(async (right) => {
            const url = `/v1${path.replace(/\{\w+\}/, '1')}`;
            // The request asks for events after a seq that does not exist yet, so that no stream begins.
            const ahead = { ...header(`key-of-${right}`), 'last-event-id': '99' };
            const { status, body } = await call(url, { method, headers: ahead });
            if (status !== 403) return [right];
            expect(body.error).toMatchObject({ code: 'forbidden' });
            expect(body.error.message).toMatch(new RegExp(`^The key ${right} has not the right `));
            return [];
          }),
        );
        found[`${method} ${path}`] = answers.flat();
      }
    }
    expect(found).toEqual(expected);
    expect(from).toEqual([]);
    const { body } = await call('/v1/outbox/release', { method: 'POST', headers: header('key-of-stock') });
    expect(body.error.message).toBe('The key stock has not the right decide. Nothing was done.');
    expect(body.error.hint).toContain('key add NAME --may decide');
  });

  it('are noted by name with what they hand over and decide', async () => {
    const { post, state, rows } = await openWith({ 'till-1': ['stock'] });
    expect((await post('/v1/stock', [{ externalId: 'A', qty: 1 }], header('key-of-till-1'))).status).toBe(
      200,
    );
    expect(state.origins).toEqual(['http 127.0.0.1, with the key till-1']);
    await post('/v1/stock', [{ externalId: 'A', qty: 1 }], header(SENT_KEY));
    expect(state.origins.at(-1)).toBe('http 127.0.0.1, with the key');
    expect(JSON.stringify(rows.list())).not.toContain('key-of');
  });

  it('that were withdrawn are refused at once, and counted by their name and never by the key', async () => {
    const { call, rows, from } = await openWith({ 'till-1': ['orders'], kitchen: ['screen'] });
    const status = (key: string) => call('/v1/status', { headers: header(key) });
    expect((await status('key-of-till-1')).status).toBe(200);
    rows.withdraw('till-1', '2026-01-16T12:00:00.000Z');
    const refused = await status('key-of-till-1');
    expect([refused.status, refused.body.error.message]).toEqual([401, 'The key is wrong.']);
    expect((await status('key-of-kitchen')).status).toBe(200);
    expect((await status('key-of-nobody')).status).toBe(401);
    expect(from).toEqual(['127.0.0.1 with till-1, which was withdrawn', '127.0.0.1']);
    expect(refused.text + from.join()).not.toContain('key-of');
    // The name of the removed key can be used for another key.
    const again = { name: 'till-1', may: ['orders'] as const, digest: keyDigest('second', 'utf8'), at: 't' };
    expect([rows.add(again), rows.add({ ...again, digest: keyDigest('third', 'utf8') })]).toEqual([
      true,
      false,
    ]);
    expect((await status('second')).status).toBe(200);
  });

  it('that are withdrawn end the stream that they opened before its next event, and refuse a held request', async () => {
    const { call, rows, from, url, dispatcher, addEvent, signal, clock, state } = await openWith({
      tablet: ['screen'],
      kitchen: ['screen'],
    });
    const follow = async (key: string) => {
      const { body } = await request(`${url}/v1/stream`, { dispatcher, headers: header(key) });
      return body.setEncoding('utf8')[Symbol.asyncIterator]();
    };
    const [tablet, kitchen] = [await follow('key-of-tablet'), await follow('key-of-kitchen')];
    const held = call('/v1/orders?wait=30', { headers: header('key-of-tablet') });
    for (const reader of [tablet, kitchen]) expect((await reader.next()).value).toContain('retry: ');
    await vi.waitFor(() => expect([state.listeners, clock.sleeping]).toEqual([3, 3]));
    rows.withdraw('tablet', '2026-01-16T12:00:00.000Z');
    addEvent('a', 'pending');
    signal.notify();
    expect((await held).body.error).toMatchObject({
      code: 'unauthorized',
      message: 'The key is wrong.',
    });
    expect((await kitchen.next()).value).toContain('id: 1');
    expect((await tablet.next()).done).toBe(true);
    const again = await call('/v1/stream', { headers: header('key-of-tablet') });
    expect([again.status, from]).toEqual([401, ['127.0.0.1 with tablet, which was withdrawn']]);
    await kitchen.return?.();
  });

  it('that are withdrawn end a stream of which nothing comes, within a second', async () => {
    const { rows, url, dispatcher, clock, state } = await openWith({ tablet: ['screen'] });
    const { body } = await request(`${url}/v1/stream`, { dispatcher, headers: header('key-of-tablet') });
    await vi.waitFor(() => expect(clock.sleeping).toBe(1));
    rows.withdraw('tablet', '2026-01-16T12:00:00.000Z');
    await clock.advance(1_000);
    expect(state.listeners).toBe(0);
    expect(await body.text()).toBe('retry: 2000\n\n');
  });
});

describe('web pages', () => {
  const host = () => new URL(rig.url).host;

  it.each([
    ['of another site', { 'sec-fetch-site': 'cross-site' }],
    ['of another server on this machine', { 'sec-fetch-site': 'same-site' }],
    ['by their origin alone', { origin: 'http://evil.example' }],
    ['of another port', { origin: 'http://127.0.0.1:1' }],
    ['without a name', { origin: 'null' }],
    ['that post a form', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' }],
  ])('%s may not write', async (_who, headers) => {
    const { post, state } = await open();
    expect(await codeOf(post('/v1/stock', [{ externalId: 'A', qty: 1 }], headers))).toEqual([
      403,
      'forbidden',
    ]);
    expect(await codeOf(post('/v1/outbox/1/discard', {}, headers))).toEqual([403, 'forbidden']);
    expect([state.taken, state.decisions]).toEqual([[], []]);
  });

  it.each([
    [{ 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'cors' }],
    [{ origin: 'https://evil.example' }],
  ])('of other sites may not read either (%j), even with the key', async (headers) => {
    const { call } = await open({ apiKey: KEY });
    const answer = await call('/v1/orders', { headers: { ...headers, 'x-api-key': SENT_KEY } });
    expect([answer.status, answer.body.error.code]).toEqual([403, 'forbidden']);
    expect(answer.headers['access-control-allow-origin']).toBeUndefined();
  });

  it('of its own may do both, and a link may be followed', async () => {
    const { call, post } = await open();
    const own = { origin: `http://${host()}`, 'sec-fetch-site': 'same-origin' };
    expect((await post('/v1/stock', [{ externalId: 'A', qty: 1 }], own)).status).toBe(200);
    const link = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' };
    expect((await call('/v1/status', { headers: link })).status).toBe(200);
    expect((await call('/v1/status', { headers: { 'sec-fetch-site': 'none' } })).status).toBe(200);
  });

  it('see and decide nothing without the key', async () => {
    const { call, post, state } = await open({ apiKey: KEY });
    const own = { origin: `http://${host()}`, 'sec-fetch-site': 'same-origin' };
    for (const browser of [own, { origin: own.origin }, { 'sec-fetch-site': 'none' }]) {
      expect(await codeOf(call('/v1/orders', { headers: browser }))).toEqual([401, 'unauthorized']);
      expect(await codeOf(post('/v1/outbox/1/discard', undefined, browser))).toEqual([401, 'unauthorized']);
      expect(await codeOf(post('/v1/stock', [{ externalId: 'A', qty: 1 }], browser))).toEqual([
        401,
        'unauthorized',
      ]);
    }
    expect([state.decisions, state.taken]).toEqual([[], []]);
    await post('/v1/outbox/1/discard', undefined, { ...own, 'x-api-key': SENT_KEY });
    expect(state.decisions).toEqual(['discard 1']);
  });

  it('find answers that no browser guesses at or keeps', async () => {
    const { call } = await open();
    expect((await call('/v1/status')).headers).toMatchObject({
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'cross-origin-resource-policy': 'same-origin',
    });
  });
});
