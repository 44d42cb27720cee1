import { networkInterfaces } from 'node:os';
import { request } from 'undici';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { setInstallation } from '../../src/core/errors.ts';
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

describe('without a key configured', () => {
  it('this machine is let in', async () => {
    const { call, post } = await open();
    expect((await call('/v1/status')).status).toBe(200);
    expect((await post('/v1/stock', [{ externalId: 'A', qty: 1 }])).status).toBe(200);
    expect((await call('/v1/status', { headers: { 'x-api-key': 'whatever' } })).status).toBe(200);
  });

  it.each(['x-forwarded-for', 'forwarded', 'via', 'x-real-ip'])(
    'nobody through a proxy (%s)',
    async (name) => {
      const { call, post, state } = await open();
      expect(await codeOf(call('/v1/status', { headers: { [name]: '10.0.0.9' } }))).toEqual([
        401,
        'unauthorized',
      ]);
      expect(await codeOf(post('/v1/stock', [{ externalId: 'A', qty: 1 }], { [name]: '10.0.0.9' }))).toEqual([
        401,
        'unauthorized',
      ]);
      expect(state.taken).toEqual([]);
    },
  );
});

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
    const acts = ['/v1/stock', '/v1/orders/ack', '/v1/outbox/1/drop', '/v1/outbox/release'];
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

  it('names the command that shows the key of this company, and of no other', async () => {
    const configFile = '/etc/tillsync/second.toml';
    const storage = '/var/lib/tillsync-second';
    setInstallation(() => ({ program: 'tillsync', needsSudo: true, storage, configFile, unit: null }));
    onTestFinished(() => setInstallation());
    const { call } = await open({ apiKey: KEY });
    const command = `\`sudo tillsync --config ${configFile} key --show\``;
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
    expect(await codeOf(post('/v1/outbox/1/drop', {}, headers))).toEqual([403, 'forbidden']);
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

  it('see and decide nothing without the key where there is one', async () => {
    const { call, post, state } = await open({ apiKey: KEY });
    const own = { origin: `http://${host()}`, 'sec-fetch-site': 'same-origin' };
    for (const browser of [own, { origin: own.origin }, { 'sec-fetch-site': 'none' }]) {
      expect(await codeOf(call('/v1/orders', { headers: browser }))).toEqual([401, 'unauthorized']);
      expect(await codeOf(post('/v1/outbox/1/drop', undefined, browser))).toEqual([401, 'unauthorized']);
      expect(await codeOf(post('/v1/stock', [{ externalId: 'A', qty: 1 }], browser))).toEqual([
        401,
        'unauthorized',
      ]);
    }
    expect([state.decisions, state.taken]).toEqual([[], []]);
    await post('/v1/outbox/1/drop', undefined, { ...own, 'x-api-key': SENT_KEY });
    expect(state.decisions).toEqual(['drop 1']);
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
