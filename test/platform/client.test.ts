import { expect, test } from 'vitest';
import type { Wait } from '../../src/platform/platform.ts';
import { rig, sandboxTransport } from './rig.ts';
import { documentLimits } from './temp-state.ts';

const range = { startDate: '2026-01-14', endDate: '2026-01-16' };

test('every endpoint of the document works against the platform', async () => {
  const { sandbox, client, run } = await rig();
  const platform = client();
  sandbox.control.createOrder();
  const { body } = await run(platform.orderAll({ ...range, extra: { page: '1' } }));
  expect(JSON.parse(Buffer.from(body).toString()).data.docs).toHaveLength(1);

  const list = { subsidiaryId: 'sub-1', page: 1, limit: 5, order: 'asc', orderBy: 'CreatedDate' } as const;
  const page = await run(platform.productList(list));
  expect(page).toMatchObject({ page: 1, limit: 5, unreadable: [] });
  expect(page.docs).toHaveLength(5);
  const product = page.docs[0]!;
  const sku = product.children[0]!;
  expect(sku.stocks.length).toBeGreaterThan(0);
  expect(JSON.parse(product.raw).id).toBe(product.id);

  expect(await run(platform.productGet({ sku: sku.sku }))).toEqual(product);
  expect(await run(platform.productGet({ sku: '999999999' }))).toBe(null);

  await run(platform.productPut({ sku: Number(sku.sku), name: 'Renamed', price: 12.5 }));
  expect((await run(platform.productGet({ sku: sku.sku })))?.name).toBe('Renamed');

  const target = sku.integrations[0]!;
  const externalId = (target.extId ?? target.productCodePosB ?? target.productIdPosA)!;
  const stock = { externalId, subsidiaryId: target.subsidiaryId };
  await run(platform.productStockPut({ ...stock, qty: 77 }));
  expect(sandbox.control.stockOf(Number(sku.sku), target.subsidiaryId)).toBe(77);

  const products = await run(
    platform.productBatch([
      { sku: Number(sku.sku), show: false },
      { sku: 999_999_999, show: false },
    ]),
  );
  expect(products).toMatchObject({ updated: 1, total: 2, errors: [{ index: 1, sku: 999_999_999 }] });
  const stocks = await run(
    platform.productStockBatch([
      { ...stock, qty: 78 },
      { externalId: 'nobody', qty: 1 },
    ]),
  );
  expect(stocks).toMatchObject({ updated: 1, total: 2, errors: [{ index: 1, externalId: 'nobody' }] });

  expect(await run(platform.webhookGet())).toBe(null);
  const webhook = { callbackUrl: 'http://127.0.0.1:9/hook', active: true, hasSecret: true };
  expect(await run(platform.webhookPut({ callbackUrl: webhook.callbackUrl, secret: 'shh' }))).toEqual(
    webhook,
  );
  expect(await run(platform.webhookGet())).toEqual(webhook);
  expect(sandbox.control.violations()).toEqual([]);
});

test('what the document leaves open of the webhook is configurable', async () => {
  const { sandbox, client, run } = await rig({
    webhookReadMethod: 'POST',
    webhookReadPath: '/webhook/config',
    webhookFlagName: 'enabled',
  });
  expect(await run(client().webhookGet())).toBe('unsupported');
  const platform = client({
    webhookRead: { method: 'POST', path: '/webhook/config' },
    webhookEnableFlag: 'enabled',
  });
  await run(platform.webhookPut({ callbackUrl: 'http://127.0.0.1:9/hook', active: false }));
  expect(await run(platform.webhookGet())).toMatchObject({ active: false });
  expect(sandbox.control.webhook()).toMatchObject({ active: false });
});

test('what the platform would refuse is not sent', async () => {
  const { sandbox, client, fault } = await rig();
  const platform = client();
  for (const call of [
    () => platform.productBatch([]),
    () => platform.productBatch([{ sku: 1 }]),
    () => platform.productStockBatch(Array.from({ length: 101 }, () => ({ externalId: 'a', qty: 1 }))),
    () => platform.productStockPut({ externalId: 'a', qty: Number.NaN }),
    () => platform.orderAll({ startDate: '2026-01-32', endDate: '2026-02-01' }),
    () => platform.webhookPut({ callbackUrl: 'nowhere' }),
  ]) {
    expect(await fault(call())).toMatchObject({ code: 'platform-refused', retryable: false });
  }
  expect(sandbox.control.calls()).toEqual([]);
});

test('success: false is a refusal with the platform’s own words', async () => {
  const { client, fault } = await rig();
  const error = await fault(client().productStockPut({ externalId: 'nobody', qty: 1 }));
  expect(error.code).toBe('platform-refused');
  expect(error.message.length).toBeGreaterThan(5);
});

test('success: false to GET /order/all is a refusal with the platform’s own words', async () => {
  const { sandbox, client, fault } = await rig();
  sandbox.control.setFault({ kind: 'not-success', endpoint: 'order.all', times: 1 });
  const error = await fault(client().orderAll({ startDate: '2026-01-01', endDate: '2026-01-02' }));
  expect(error.code).toBe('platform-refused');
  expect(error.message).toBe('The operation failed');
});

test.each([
  ['status', 'platform-failed'],
  ['drop', 'platform-unreachable'],
  ['hang', 'platform-unreachable'],
  ['cut-body', 'platform-unreachable'],
  ['html', 'platform-garbled'],
  ['truncated-json', 'platform-garbled'],
  ['not-success', 'platform-refused'],
] as const)('%s ends a call with %s, once, and frees its slot', async (kind, code) => {
  const { sandbox, client, run, fault } = await rig();
  const platform = client();
  sandbox.control.setFault({ kind, endpoint: 'product.get', times: 1 });
  expect((await fault(platform.productGet({ sku: '1' }))).code).toBe(code);
  expect(sandbox.control.calls('product.get')).toHaveLength(1);
  await run(platform.productGet({ sku: '1' }), 5000);
  expect(sandbox.control.violations()).toEqual([]);
});

test.each([
  [408, true],
  [425, true],
  [409, false],
])('HTTP %d is worth another try: %s', async (status, retryable) => {
  const { sandbox, client, fault } = await rig();
  sandbox.control.setFault({ kind: 'status', status, endpoint: 'product.put', times: 1 });
  const error = await fault(client().productPut({ sku: 1, name: 'x' }));
  expect(error).toMatchObject({ code: 'platform-refused', retryable });
});

test.each([
  [404, 'default backend - 404', 'platform-garbled'],
  [405, '<html>405 Not Allowed</html>', 'platform-garbled'],
  [400, '', 'platform-garbled'],
  [404, '{"success":false,"message":"Unknown"}', 'platform-refused'],
  [413, '<html>413 Request Entity Too Large</html>', 'platform-refused'],
])('HTTP %d with %j is %s', async (status, text, code) => {
  const { clock, sandbox, client, fault } = await rig();
  const transport = sandboxTransport(sandbox, clock);
  const answer = { status, headers: {}, bytes: Buffer.from(text) };
  const platform = client({ transport: { ...transport, send: async () => answer } });
  expect(await fault(platform.productPut({ sku: 1, name: 'x' }))).toMatchObject({ code, httpStatus: status });
});

test('a call whose token ends while it waits for its turn goes out at that turn with another', async () => {
  const { sandbox, client, run } = await rig({ accessTokenLifetimeMs: 110_000 });
  const platform = client();
  await run(platform.orderAll(range));
  await run(platform.orderAll(range), 125_000);
  expect(sandbox.control.calls('order.all').map((call) => call.status)).toEqual([200, 200]);
  expect(sandbox.control.calls('token.refresh')).toHaveLength(1);
});

test('a refusal that repeats the token is told without it', async () => {
  const { clock, sandbox, client, fault, state } = await rig();
  const transport = sandboxTransport(sandbox, clock);
  const platform = client({
    transport: {
      ...transport,
      send: async (request) => ({
        status: 400,
        headers: {},
        bytes: Buffer.from(JSON.stringify({ message: `No: ${request.headers.authorization}` })),
      }),
    },
  });
  const error = await fault(platform.productGet({ sku: '1' }));
  expect(error.message).toBe('No: Bearer [secret]');
  expect(state.tokens.read()?.accessToken).toEqual(expect.any(String));
});

test('an answer of orders is looked at cheaply only', async () => {
  const { sandbox, client, run, fault } = await rig();
  const platform = client();
  for (const kind of ['html', 'truncated-json'] as const) {
    sandbox.control.setFault({ kind, endpoint: 'order.all', times: 1 });
    expect((await fault(platform.orderAll(range))).code).toBe('platform-garbled');
  }
  sandbox.control.setFault({ kind: 'wrong-content-type', endpoint: 'order.all', times: 1 });
  expect((await run(platform.orderAll(range))).body.length).toBeGreaterThan(2);
});

test('a caller hears why it waits and when its request leaves', async () => {
  const { clock, client, run } = await rig();
  const platform = client();
  await run(platform.orderAll(range));
  const waits: Wait[] = [];
  const sentMs: number[] = [];
  const startMs = clock.monotonicMs();
  await run(
    platform.orderAll(range, {
      onWait: (wait) => waits.push(wait),
      onSend: () => sentMs.push(clock.monotonicMs() - startMs),
    }),
  );
  expect(waits[0]).toMatchObject({ endpoint: 'order.all', reason: 'interval' });
  expect(waits[0]!.waitMs).toBeGreaterThan(119_000);
  expect(sentMs).toHaveLength(1);
  expect(sentMs[0]).toBeGreaterThanOrEqual(119_900);
  expect(sentMs[0]).toBeLessThan(122_000);
});

test('a signal ends a wait and a call under way', async () => {
  const { clock, sandbox, client, fault, run } = await rig();
  const platform = client();
  await run(platform.orderAll(range));
  const waiting = new AbortController();
  const wait = platform.orderAll(range, { signal: waiting.signal });
  await clock.advance(1000);
  waiting.abort();
  expect((await fault(wait, 100)).code).toBe('aborted');
  const calling = new AbortController();
  sandbox.control.setFault({ kind: 'hang', endpoint: 'product.get' });
  const call = platform.productGet({ sku: '1' }, { signal: calling.signal });
  await clock.advance(100);
  expect(sandbox.control.calls('product.get')).toHaveLength(1);
  calling.abort();
  expect((await fault(call, 100)).code).toBe('aborted');
});

test('a call that takes long keeps its slot; one whose process died gives it back soon', async () => {
  const { clock, sandbox, client, run, fault, state } = await rig();
  sandbox.control.setFault({ kind: 'hang', endpoint: 'product.get' });
  const long = fault(client({ timeoutMs: 120_000 }).productGet({ sku: '1' }));
  await clock.advance(100_000);
  sandbox.control.clearFaults();
  const short = client().productGet({ sku: '1' });
  await clock.advance(10_000);
  expect(sandbox.control.calls('product.get')).toHaveLength(1);
  expect((await long).code).toBe('platform-unreachable');
  await run(short);
  expect(sandbox.control.calls('product.get')).toHaveLength(2);

  // Simulates a process that took the slot as the rate budget does, and then died.
  await clock.advance(1001);
  expect(state.ledger.acquire('product.get', documentLimits, 20_000).granted).toBe(true);
  const diedMs = clock.monotonicMs();
  await run(client().productGet({ sku: '1' }));
  expect(clock.monotonicMs() - diedMs).toBeLessThan(22_000);
});
