import { afterEach, expect, it } from 'vitest';
import { keyDigest, type Right } from '../../src/db/api-keys.ts';
import { type ApiRig, openApi } from './api-rig.ts';

let rig: ApiRig | undefined;
afterEach(async () => {
  await rig?.close();
  rig = undefined;
});

it('says who took a test alarm, and that nobody is told where nobody is', async () => {
  rig = await openApi();
  const { call, state } = rig;
  expect((await call('/v1/alarms/test', { method: 'POST' })).body).toEqual({ ok: true, results: [] });
  const taken = { receiver: 'command' as const, description: 'the command tell', ok: true, message: '' };
  state.tested = [taken, { ...taken, receiver: 'heartbeat', ok: false, message: 'It was not taken.' }];
  const { status, body } = await call('/v1/alarms/test', { method: 'POST' });
  expect(status).toBe(200);
  expect(body).toEqual({ ok: false, results: state.tested });
});

it('tests a hook with one of its events, and refuses what it does not get', async () => {
  rig = await openApi();
  const { post } = rig;
  const tested = (name: string, body: object) => post(`/v1/hooks/${name}/test`, body);
  const { status, body } = await tested('printer', { order: 'o-1' });
  expect(status).toBe(200);
  const asked = { hook: 'printer', event: 'order', order: 'o-1' };
  const what = 'printer.local answered 200';
  expect(body).toEqual({ ok: true, hook: 'printer', event: 'order', what, answer: JSON.stringify(asked) });
  expect((await tested('till', {})).body).toMatchObject({ event: 'change.rejected' });
  expect(await tested('nobody', {})).toMatchObject({
    status: 404,
    body: { error: { message: 'No hook nobody is configured; there are: printer, till.' } },
  });
  for (const [name, wrong] of [
    ['printer', { event: 'change.rejected' }],
    ['till', { order: 'o-1' }],
    ['printer', { event: 'sold' }],
    ['printer', { orders: 'o-1' }],
  ] as const) {
    expect((await tested(name, wrong)).status, JSON.stringify(wrong)).toBe(400);
  }
});

it('sends a real order only for a key that may read orders', async () => {
  const rights: Record<string, readonly Right[]> = { decider: ['decide'], clerk: ['decide', 'orders'] };
  const namedKeys = {
    find: (digest: Buffer) => {
      const name = Object.keys(rights).find((each) => keyDigest(each, 'utf8').equals(digest));
      return name === undefined
        ? undefined
        : { name, may: rights[name] ?? [], madeAt: '', withdrawnAt: null };
    },
  };
  rig = await openApi({ apiKey: 'the-main-key', namedKeys });
  const { post } = rig;
  const statusOf = async (key: string, body: object) =>
    (await post('/v1/hooks/printer/test', body, { 'x-api-key': key })).status;
  expect([await statusOf('decider', {}), await statusOf('decider', { order: 'o-1' })]).toEqual([200, 403]);
  expect([await statusOf('clerk', {}), await statusOf('clerk', { order: 'o-1' })]).toEqual([200, 200]);
});
