import { createServer } from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { OrderSnapshot } from '../../src/sandbox/orders.ts';
import type { WebhookTransport } from '../../src/sandbox/webhook.ts';
import { rig } from './fixture.ts';

type WebhookRequest = Parameters<WebhookTransport>[0];

const URL = 'http://127.0.0.1:9/hook';

/** Makes a receiver in this process that answers as given. */
function receiver(answer: () => number = () => 200) {
  const got: WebhookRequest[] = [];
  const webhookTransport = async (request: WebhookRequest) => {
    got.push(request);
    return answer();
  };
  const statuses = () => got.map((request) => (JSON.parse(request.body) as OrderSnapshot).status);
  return { got, webhookTransport, statuses };
}

describe('webhook configuration', () => {
  it('is null before the first write, then never shows the secret', async () => {
    const { call, later, sandbox } = await rig();
    expect((await call('GET', '/webhook')).json).toEqual({ success: true, message: 'OK', data: null });
    const put = await call('PUT', '/webhook', { callbackUrl: URL, secret: 's3cret' });
    expect(put.json.data).toEqual({ callbackUrl: URL, active: true, hasSecret: true });
    const read = await later('GET', '/webhook');
    expect(read.json.data).toEqual(put.json.data);
    expect(put.text + read.text).not.toContain('s3cret');
    expect(sandbox.control.webhook()?.secret).toBe('s3cret');
  });

  it('keeps an omitted secret, clears an empty one, and keeps the flag', async () => {
    const { later, sandbox } = await rig();
    await later('PUT', '/webhook', { callbackUrl: URL, secret: 'a', active: false });
    expect((await later('PUT', '/webhook', { callbackUrl: `${URL}2` })).json.data).toEqual({
      callbackUrl: `${URL}2`,
      active: false,
      hasSecret: true,
    });
    expect(sandbox.control.webhook()?.secret).toBe('a');
    expect((await later('PUT', '/webhook', { callbackUrl: URL, secret: '' })).json.data.hasSecret).toBe(
      false,
    );
  });

  it('refuses what is no http address', async () => {
    const { later } = await rig();
    expect((await later('PUT', '/webhook', { callbackUrl: 'ftp://x.example/' })).status).toBe(400);
    expect((await later('PUT', '/webhook', { secret: 'x' })).status).toBe(400);
  });

  it('knows the enable flag by the name it was given and ignores others', async () => {
    const { later } = await rig({ webhookFlagName: 'enabled' });
    const wrong = await later('PUT', '/webhook', { callbackUrl: URL, active: false });
    expect(wrong.json.data.active).toBe(true);
    const right = await later('PUT', '/webhook', { callbackUrl: URL, enabled: false });
    expect(right.json.data.active).toBe(false);
  });

  it('can be read elsewhere, or not at all', async () => {
    const { call, later, sandbox } = await rig({
      webhookReadMethod: 'POST',
      webhookReadPath: '/webhook/get',
    });
    expect((await call('POST', '/webhook/get')).json.data).toBeNull();
    expect((await later('GET', '/webhook')).status).toBe(404);
    sandbox.control.configure({ webhookReadPath: null });
    expect((await later('POST', '/webhook/get')).status).toBe(404);
  });
});

describe('notifications', () => {
  it('go out over HTTP on creation and on each change of status, with the secret only when there is one', async () => {
    const got: { headers: Record<string, unknown>; body: OrderSnapshot; method: string | undefined }[] = [];
    const server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        got.push({
          headers: request.headers,
          body: JSON.parse(String(Buffer.concat(chunks))),
          method: request.method,
        });
        response.end();
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const port = (server.address() as { port: number }).port;
    const { sandbox } = await rig();
    const callbackUrl = `http://127.0.0.1:${port}/hook`;
    sandbox.control.setWebhook({ callbackUrl, secret: 's3cret', active: true });
    const { internalOrderId } = sandbox.control.createOrder();
    await sandbox.control.settled();
    sandbox.control.changeOrder(internalOrderId, { amount: 1 });
    sandbox.control.setWebhook({ callbackUrl, secret: '', active: true });
    sandbox.control.advanceOrder(internalOrderId, 'ready');
    await sandbox.control.settled();
    expect(got.map((request) => [request.method, request.body.status])).toEqual([
      ['POST', 'pending'],
      ['POST', 'ready'],
    ]);
    expect(got[1]?.body).toEqual(sandbox.control.order(internalOrderId));
    expect(got[0]?.headers).toMatchObject({
      'content-type': 'application/json',
      'x-webhook-secret': 's3cret',
    });
    expect(got[1]?.headers).not.toHaveProperty('x-webhook-secret');
    expect(sandbox.control.deliveries()).toMatchObject([
      { status: 'pending', tries: [200], outcome: 'confirmed' },
      { status: 'ready', tries: [200], outcome: 'confirmed' },
    ]);
  });

  it('stay away while the webhook is off or the company has no external POS', async () => {
    const { webhookTransport, got } = receiver();
    const { sandbox } = await rig({ webhookTransport });
    sandbox.control.setWebhook({ callbackUrl: URL, secret: '', active: false });
    sandbox.control.createOrder();
    sandbox.control.setWebhook({ callbackUrl: URL, secret: '', active: true });
    sandbox.control.configure({ externalPos: false });
    sandbox.control.createOrder();
    await sandbox.control.settled();
    expect(got).toEqual([]);
    expect(sandbox.control.deliveries().map((delivery) => delivery.outcome)).toEqual(['off', 'off']);
  });

  it('are tried once, or again after the delays that are set, until a 2xx', async () => {
    const answers = [500, 404, 204];
    const { webhookTransport, got } = receiver(() => answers.shift() ?? 200);
    const { sandbox, clock } = await rig({ webhookTransport });
    sandbox.control.setWebhook({ callbackUrl: URL, secret: '', active: true });
    sandbox.control.createOrder();
    await sandbox.control.settled();
    expect(sandbox.control.deliveries()).toMatchObject([{ tries: [500], outcome: 'given-up' }]);
    sandbox.control.configure({ webhookRetry: { delaysMs: [1000, 5000] } });
    sandbox.control.createOrder();
    await clock.advance(999);
    expect(got).toHaveLength(2);
    await clock.advance(1);
    await sandbox.control.settled();
    expect(sandbox.control.deliveries()[1]).toMatchObject({ tries: [404, 204], outcome: 'confirmed' });
  });

  it('give up on a receiver that does not answer in time', async () => {
    const webhookTransport = ({ signal }: WebhookRequest) =>
      new Promise<number>((_resolve, reject) =>
        signal.addEventListener('abort', () => reject(signal.reason)),
      );
    const { sandbox, clock } = await rig({ webhookTransport, webhookTimeoutMs: 3000 });
    sandbox.control.setWebhook({ callbackUrl: URL, secret: '', active: true });
    sandbox.control.createOrder();
    await clock.advance(2999);
    expect(sandbox.control.deliveries()).toMatchObject([{ tries: [], outcome: 'waiting' }]);
    await clock.advance(1);
    expect(sandbox.control.deliveries()).toMatchObject([{ tries: ['failed'], outcome: 'given-up' }]);
  });

  it('can be dropped, doubled, hidden and sent again', async () => {
    const { webhookTransport, statuses } = receiver();
    const { sandbox } = await rig({ webhookTransport });
    const { control } = sandbox;
    control.setWebhook({ callbackUrl: URL, secret: '', active: true });
    control.setWebhookBehaviour({ drop: 1 });
    const { internalOrderId } = control.createOrder({ status: 'dropped-one' });
    control.setWebhookBehaviour({ drop: 0, duplicate: 1 });
    control.createOrder({ status: 'twice' });
    await control.settled();
    control.setWebhookBehaviour({ duplicate: 0 });
    control.createOrder({ status: 'hidden-one' }, { hidden: true });
    control.announceOrder(internalOrderId);
    await control.settled();
    expect(statuses()).toEqual(['twice', 'twice', 'dropped-one']);
    expect(control.deliveries().map((delivery) => delivery.outcome)).toEqual([
      'dropped',
      'confirmed',
      'hidden',
      'confirmed',
    ]);
  });

  it('can come late and in the wrong order', async () => {
    const { webhookTransport, statuses } = receiver();
    const { sandbox, clock } = await rig({ webhookTransport });
    const { control } = sandbox;
    control.setWebhook({ callbackUrl: URL, secret: '', active: true });
    control.setWebhookBehaviour({ reorder: 1 });
    const { internalOrderId } = control.createOrder();
    control.setWebhookBehaviour({ reorder: 0 });
    control.advanceOrder(internalOrderId, 'ready');
    await control.settled();
    expect(statuses()).toEqual(['ready', 'pending']);
    control.setWebhookBehaviour({ delay: 1, delayMs: [2000, 2000] });
    control.advanceOrder(internalOrderId, 'routed');
    control.setWebhookBehaviour({ delay: 0 });
    control.advanceOrder(internalOrderId, 'dispatched');
    await clock.advance(1999);
    expect(statuses().slice(2)).toEqual(['dispatched']);
    await clock.advance(1);
    expect(statuses().slice(2)).toEqual(['dispatched', 'routed']);
  });
});
