/** Tests src/sandbox/control.ts and src/sandbox/server.ts. */

import { describe, expect, it } from 'vitest';
import { startSandbox } from '../../src/sandbox/server.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { LIMITS, rig } from './fixture.ts';

describe('/_sandbox', () => {
  it('lists its routes, needs no token and is never limited', async () => {
    const { call, sandbox } = await rig();
    const { json } = await call('GET', '/_sandbox', undefined, null);
    const list = json as { method: string; path: string; body?: { properties?: Record<string, unknown> } }[];
    const bodyOf = (method: string, path: string) =>
      list.find((each) => each.method === method && each.path === `/_sandbox${path}`)?.body;
    expect(bodyOf('POST', '/orders')).toMatchObject({
      additionalProperties: false,
      properties: {
        subsidiaryId: { type: 'string' },
        status: { type: 'string' },
        deliveryType: { enum: ['delivery', 'pickup'] },
        isScheduled: { type: 'boolean' },
        items: { items: { required: ['sku', 'qty'] } },
        hidden: { type: 'boolean' },
      },
    });
    for (const path of ['/orders/:id/advance', '/faults']) expect(bodyOf('POST', path)).toBeDefined();
    for (const path of ['/webhook', '/webhook/behaviour', '/settings', '/orders/:id'])
      expect(bodyOf('PUT', path)).toBeDefined();
    expect(bodyOf('POST', '/orders/:id/hide')).toBeUndefined();
    for (const { method, path } of json as { method: string; path: string }[]) {
      if (method !== 'GET') continue;
      expect((await call('GET', path)).status, path).toBe(path.includes(':id') ? 404 : 200);
    }
    expect(sandbox.control.calls()).toEqual([]);
  });

  it('issues tokens that work, and ends them', async () => {
    const { call } = await rig();
    const { token } = (await call('POST', '/_sandbox/tokens', undefined, null)).json;
    expect((await call('GET', '/product?sku=1001', undefined, token)).status).toBe(200);
    await call('POST', '/_sandbox/tokens/expire', undefined, null);
    expect((await call('GET', '/product?sku=1001', undefined, token)).status).toBe(401);
  });

  it('creates, advances and changes orders', async () => {
    const { call, sandbox } = await rig();
    const order = (
      await call('POST', '/_sandbox/orders', { deliveryType: 'pickup', items: [{ sku: 1001, qty: 1 }] })
    ).json;
    expect(order).toMatchObject({ code: 1, deliveryType: 'pickup', items: [{ amount: 1 }] });
    const path = `/_sandbox/orders/${order.internalOrderId}`;
    expect((await call('POST', `${path}/advance`, { status: 'ready' })).json.status).toBe('ready');
    expect((await call('POST', `${path}/advance`)).json.status).toBe('dispatched');
    expect((await call('POST', `${path}/advance`)).json).toEqual({ done: false });
    expect((await call('PUT', path, { amount: 12 })).json.amount).toBe(12);
    expect((await call('GET', path)).json).toEqual(sandbox.control.order(order.internalOrderId));
    await call('POST', '/_sandbox/orders', { hidden: true });
    expect((await call('GET', '/_sandbox/orders')).json).toHaveLength(2);
  });

  it('switches faults and settings, and shows what came of them', async () => {
    const { call, sandbox } = await rig();
    const { id } = (
      await call('POST', '/_sandbox/faults', { kind: 'status', endpoint: 'product.get', status: 503 })
    ).json;
    expect((await call('GET', '/product?sku=1001')).status).toBe(503);
    expect((await call('GET', '/_sandbox/faults')).json).toMatchObject([{ id, kind: 'status' }]);
    await call('DELETE', `/_sandbox/faults/${id}`);
    await call('PUT', '/_sandbox/settings', { slackMs: 1000 });
    expect((await call('GET', '/product?sku=1001')).status).toBe(200);
    expect((await call('GET', '/_sandbox/calls?endpoint=product.get')).json).toMatchObject([
      { status: 503, fault: 'status' },
      { status: 200, fault: null },
    ]);
    await call('PUT', '/_sandbox/settings', {
      slackMs: 0,
      shape: { envelope: 'array', record: 'snake', pageSize: null },
    });
    expect((await call('GET', '/product?sku=1001')).status).toBe(429);
    expect((await call('GET', '/_sandbox/violations')).json).toHaveLength(1);
    expect(sandbox.control.settings().shape.envelope).toBe('array');
  });

  it('sets the webhook and how unreliable it is', async () => {
    const { call, sandbox } = await rig();
    await call('PUT', '/_sandbox/webhook', { callbackUrl: 'http://127.0.0.1:9/', secret: 'x' });
    expect(sandbox.control.webhook()).toEqual({
      callbackUrl: 'http://127.0.0.1:9/',
      secret: 'x',
      active: true,
    });
    await call('PUT', '/_sandbox/webhook/behaviour', { drop: 1 });
    await call('POST', '/_sandbox/orders');
    expect((await call('GET', '/_sandbox/deliveries')).json).toMatchObject([{ outcome: 'dropped' }]);
  });

  it('answers 400 to what it does not understand and 404 to an order that is not there', async () => {
    const { call } = await rig();
    expect((await call('POST', '/_sandbox/faults', { kind: 'gremlin' })).status).toBe(400);
    expect((await call('POST', '/_sandbox/orders', '{')).status).toBe(400);
    expect((await call('POST', '/_sandbox/orders/nope/advance')).status).toBe(404);
    expect((await call('GET', '/_sandbox/nope')).status).toBe(404);
  });

  it('says so when its port is taken', async () => {
    const { sandbox, clock } = await rig();
    const port = Number(new URL(sandbox.url).port);
    const second = startSandbox({ clock, random: seededRandom(1), limits: LIMITS, port });
    await expect(second).rejects.toMatchObject({ code: 'config-invalid' });
  });
});
