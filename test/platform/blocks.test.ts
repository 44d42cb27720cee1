import { expect, test } from 'vitest';
import { rig } from './rig.ts';
import { documentLimits } from './temp-state.ts';

const sku = { sku: '1' };
const list = { subsidiaryId: 'sub-1', page: 1, limit: 1, order: 'asc', orderBy: 'CreatedDate' } as const;
const HOUR_MS = 3_600_000;

test('a 403 stops every call of every process, also after a restart, and ends by itself', async () => {
  const r = await rig();
  const [a, b] = [r.client(), r.client()];
  r.sandbox.control.setFault({ kind: 'block', delayMs: 50_000, endpoint: 'product.get', times: 1 });
  const error = await r.fault(a.productGet(sku));
  expect(error).toMatchObject({ code: 'blocked', retryable: true, retryAfterMs: 60_000, httpStatus: 403 });
  const calls = r.sandbox.control.calls().length;
  const waits: string[] = [];
  const startMs = r.clock.monotonicMs();
  const later = [b.webhookGet({ onWait: (wait) => waits.push(wait.reason) }), r.client().productList(list)];
  await r.clock.advance(59_000);
  expect(r.sandbox.control.calls()).toHaveLength(calls);
  await r.run(Promise.all(later));
  expect(r.clock.monotonicMs() - startMs).toBeLessThan(65_000);
  expect(waits[0]).toBe('blocked');
  expect(r.sandbox.control.counts()['webhook.get']?.blocked ?? 0).toBe(0);
});

test('a block that comes again is doubled, up to an hour', async () => {
  const r = await rig({ accessTokenLifetimeMs: 48 * HOUR_MS });
  const platform = r.client();
  r.sandbox.control.setFault({ kind: 'block', delayMs: 24 * HOUR_MS });
  const lengths: (number | undefined)[] = [];
  for (let i = 0; i < 9; i++) {
    const error = await r.fault(i % 2 === 0 ? platform.productGet(sku) : platform.productList(list));
    expect(error.code).toBe('blocked');
    lengths.push(error.retryAfterMs && error.retryAfterMs / 60_000);
    await r.clock.advance(error.retryAfterMs ?? 0);
  }
  expect(lengths).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60]);
});

test('a block that our own count explains lasts a whole window', async () => {
  const r = await rig();
  const platform = r.client({ limits: { ...documentLimits, requestsPerWindow: 6 } });
  for (let i = 0; i < 2; i++) await r.run(platform.productGet(sku));
  r.sandbox.control.setFault({ kind: 'block', times: 1 });
  const error = await r.fault(platform.productGet(sku));
  expect(error.retryAfterMs).toBe(documentLimits.windowMs);
});

test('a block that our own count of order lists explains lasts a whole window too', async () => {
  const r = await rig();
  const platform = r.client({ limits: { ...documentLimits, ordersPerWindow: 2 } });
  await r.run(platform.orderAll({ startDate: '2026-01-14', endDate: '2026-01-16' }));
  r.sandbox.control.setFault({ kind: 'block', times: 1 });
  expect((await r.fault(platform.productGet(sku))).retryAfterMs).toBe(documentLimits.windowMs);
});

test('403s to calls that were under way together are one block', async () => {
  const r = await rig({ latencyMs: [500, 500] });
  const [a, b] = [r.client(), r.client()];
  r.sandbox.control.setFault({ kind: 'block', delayMs: 1000, times: 1, endpoint: 'product.get' });
  const first = r.fault(a.productGet(sku));
  const second = r.fault(b.productList(list));
  expect((await first).code).toBe('blocked');
  expect((await second).code).toBe('blocked');
  expect(r.state.ledger.blockHistory('product.list', documentLimits).all?.durationMs).toBe(60_000);
  // The second 403 answers a call that was sent before the block, so it does not show that only `product.list` is
  // refused: a later 403 blocks all endpoints again.
  await r.clock.advance(60_000);
  r.sandbox.control.setFault({ kind: 'block', delayMs: 1000, times: 1, endpoint: 'product.list' });
  expect((await r.fault(b.productList(list))).code).toBe('blocked');
});

test('a 403 to a call that has been answered since the last block is a block again', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.setFault({ kind: 'block', delayMs: 1000, times: 1, endpoint: 'product.get' });
  await r.fault(platform.productGet(sku));
  await r.clock.advance(60_000);
  await r.run(platform.webhookGet());
  await r.run(platform.productGet(sku));
  r.sandbox.control.setFault({ kind: 'block', delayMs: 1000, times: 1, endpoint: 'product.get' });
  expect((await r.fault(platform.productGet(sku))).code).toBe('blocked');
});

test('a 403 that stays on one endpoint while others answer is a matter of permission', async () => {
  const r = await rig();
  const platform = r.client();
  const read = () => platform.productList(list);
  const fault = r.sandbox.control.setFault({ kind: 'forbid', endpoint: 'product.list' });
  expect((await r.fault(read())).code).toBe('blocked');
  await r.run(platform.productGet(sku));
  expect(await r.fault(read())).toMatchObject({ code: 'forbidden', retryable: false });
  const calls = r.sandbox.control.calls('product.list').length;
  const at = r.clock.monotonicMs();
  const again = await r.fault(read(), 1000);
  expect(again.code).toBe('forbidden');
  expect(again.retryAfterMs).toBeGreaterThan(HOUR_MS - 60_000);
  await r.run(platform.productGet(sku));
  await r.run(platform.webhookGet());
  expect(r.clock.monotonicMs() - at).toBeLessThan(5000);
  expect(r.sandbox.control.calls('product.list')).toHaveLength(calls);

  await r.clock.advance(HOUR_MS);
  expect((await r.fault(read(), 5000)).code).toBe('forbidden');
  await r.run(platform.productGet(sku), 5000);
  r.sandbox.control.clearFaults(fault);
  await r.clock.advance(HOUR_MS);
  expect((await r.run(read())).page).toBe(1);
  expect((await r.state.ledger.blockHistory('product.list', documentLimits)).own?.endpointAnswered).toBe(
    true,
  );
});

test('a 403 to the read of the webhook, whose path is a guess, stops that read alone', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.setFault({ kind: 'forbid', endpoint: 'webhook.get' });
  const fault = await r.fault(platform.webhookGet());
  expect(fault).toMatchObject({
    code: 'forbidden',
    hint: expect.stringContaining('platform.quirks.webhook_read_path'),
  });
  const at = r.clock.monotonicMs();
  await r.run(platform.productGet(sku));
  await r.run(platform.productList(list));
  expect(r.clock.monotonicMs() - at).toBeLessThan(1000);
  expect((await r.fault(platform.webhookGet())).code).toBe('forbidden');
  expect(r.sandbox.control.calls('webhook.get')).toHaveLength(1);
  expect(r.state.ledger.forbidden()).toEqual([]);
  // If the token is blocked, the next call of any other endpoint shows it.
  r.sandbox.control.setFault({ kind: 'block', delayMs: 1000, times: 1, endpoint: 'product.get' });
  expect((await r.fault(platform.productGet(sku))).code).toBe('blocked');
});

test('429 holds back one endpoint for as long as it says, within reason', async () => {
  const r = await rig();
  const platform = r.client();
  const held = async (retryAfter: string | null) => {
    r.sandbox.control.setFault({ kind: 'rate-limit', endpoint: 'product.get', times: 1, retryAfter });
    const error = await r.fault(platform.productGet(sku));
    expect(error).toMatchObject({ code: 'rate-limited', httpStatus: 429 });
    const at = r.clock.monotonicMs();
    await r.run(platform.webhookGet(), 5000);
    await r.clock.advance(Math.max(0, error.retryAfterMs! - 5000));
    await r.run(platform.productGet(sku));
    return { toldMs: error.retryAfterMs!, tookMs: r.clock.monotonicMs() - at };
  };
  const seconds = await held('7');
  expect(seconds.toldMs).toBeGreaterThanOrEqual(7000);
  expect(seconds.toldMs).toBeLessThanOrEqual(7700);
  expect(seconds.tookMs).toBeGreaterThanOrEqual(7000);
  const dated = await held(new Date(r.clock.nowMs() + 30_000).toUTCString());
  expect(dated.toldMs).toBeGreaterThan(25_000);
  expect(dated.toldMs).toBeLessThan(34_000);
  expect((await held('86400000')).toldMs).toBeLessThanOrEqual(660_000);
  expect((await held('-5')).toldMs).toBeGreaterThanOrEqual(1000);
  const plain = await held(null);
  expect(plain.toldMs).toBeLessThanOrEqual(1100);
});

test('each 429 in a row without a time doubles the wait', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.setFault({ kind: 'rate-limit', endpoint: 'product.get', times: 4, retryAfter: null });
  for (const leastMs of [1000, 2000, 4000, 8000]) {
    const { retryAfterMs } = await r.fault(platform.productGet(sku));
    expect(retryAfterMs).toBeGreaterThanOrEqual(leastMs);
    expect(retryAfterMs).toBeLessThanOrEqual(1.1 * leastMs);
  }
  await r.run(platform.productGet(sku));
  r.sandbox.control.setFault({ kind: 'rate-limit', endpoint: 'product.get', times: 1, retryAfter: null });
  expect((await r.fault(platform.productGet(sku))).retryAfterMs).toBeLessThanOrEqual(1100);
});

test('a block met by a refresh is told with its true length', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.expireAccessTokens();
  r.sandbox.control.setFault({ kind: 'block', endpoint: 'token.refresh', delayMs: 1000, times: 1 });
  for (let i = 0; i < 2; i++) {
    const error = await r.fault(platform.productGet(sku), 5000);
    expect(error.code).toBe('blocked');
    expect(error.retryAfterMs).toBeGreaterThan(50_000);
  }
  expect(platform.tokens.describe().openIntentAtMs).toBe(null);
  await r.clock.advance(60_000);
  await r.run(platform.productGet(sku));
});
