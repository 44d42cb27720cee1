/** Tests src/sandbox/exchange.ts and src/sandbox/engine.ts. */

import { describe, expect, it } from 'vitest';
import { settle } from '../support/fake-clock.ts';
import { LIMITS, rig } from './fixture.ts';

const GET = '/product?sku=1001';
const ORDERS = '/order/all?startDate=2026-01-15&endDate=2026-01-15';

describe('limits', () => {
  it('lets each endpoint be called once a second, measured at arrival', async () => {
    const { call, clock, sandbox } = await rig();
    expect((await call('GET', GET)).status).toBe(200);
    expect((await call('PUT', '/product', { sku: 1001, price: 5 })).status).toBe(200);
    await clock.advance(999);
    const early = await call('GET', GET);
    expect(early.status).toBe(429);
    expect(early.headers['retry-after']).toBe('1');
    await clock.advance(1);
    expect((await call('GET', GET)).status).toBe(200);
    expect(sandbox.control.violations()).toMatchObject([
      { endpoint: 'product.get', broken: 'interval', status: 429 },
    ]);
    expect(sandbox.control.counts()['product.get']).toEqual({ calls: 3, rateLimited: 1, blocked: 0 });
    const arrivals = sandbox.control.calls('product.get').map((record) => record.arrivedMs);
    expect(arrivals.map((at) => at - (arrivals[0] as number))).toEqual([0, 999, 1000]);
  });

  it('lets orders be listed once in two minutes', async () => {
    const { call, clock } = await rig();
    expect((await call('GET', ORDERS)).status).toBe(200);
    await clock.advance(LIMITS.ordersIntervalMs - 1);
    expect((await call('GET', ORDERS)).status).toBe(429);
    await clock.advance(1);
    expect((await call('GET', ORDERS)).status).toBe(200);
  });

  it('allows slack only when given', async () => {
    const { call, clock } = await rig({ slackMs: 50 });
    await call('GET', GET);
    await clock.advance(950);
    expect((await call('GET', GET)).status).toBe(200);
  });

  it('holds the interval per company, over all its tokens, and apart from other companies', async () => {
    const { call, sandbox } = await rig();
    await call('GET', GET);
    expect((await call('GET', GET, undefined, sandbox.issueTokens().token)).status).toBe(429);
    const other = sandbox.controlOf('other').issueTokens();
    expect((await call('GET', GET, undefined, other.token)).status).toBe(200);
  });

  it.each([
    ['seconds', '1'],
    ['date', 'Thu, 15 Jan 2026 12:00:01 GMT'],
    ['absent', undefined],
  ] as const)('names the wait of a 429 as %s', async (retryAfter, expected) => {
    const { call } = await rig({ retryAfter });
    await call('GET', GET);
    expect((await call('GET', GET)).headers['retry-after']).toBe(expected);
  });

  it('answers 403 and blocks the token for a while after too many calls in the window', async () => {
    const limits = { ...LIMITS, requestsPerWindow: 5 };
    const { call, clock, sandbox, tokens } = await rig({ limits, blockMs: 60_000 });
    for (let n = 0; n < 5; n++) {
      expect((await call('GET', GET)).status).toBe(200);
      await clock.advance(1000);
    }
    expect((await call('GET', GET)).status).toBe(403);
    await clock.advance(59_999);
    expect((await call('PUT', '/product', { sku: 1001, price: 5 })).status).toBe(403);
    const { refreshToken } = tokens;
    expect((await call('POST', '/token/refresh', { refreshToken }, null)).status).toBe(403);
    expect(sandbox.control.deadRefreshUses()).toEqual([]);
    await clock.advance(LIMITS.windowMs);
    expect((await call('GET', GET)).status).toBe(200);
    expect(sandbox.control.violations().map((call) => call.broken)).toEqual(['window', 'blocked', 'blocked']);
  });

  it('slides the window, and counts refused calls into it', async () => {
    const { call, clock } = await rig({ limits: { ...LIMITS, requestsPerWindow: 3 } });
    await call('GET', GET);
    await clock.advance(LIMITS.windowMs - 1000);
    await call('GET', GET);
    expect((await call('GET', GET)).status).toBe(429);
    await clock.advance(1000);
    expect((await call('GET', GET)).status).toBe(200);
    expect((await call('PUT', '/webhook', {})).status).toBe(403);
  });

  it('caps order lists by a window of their own', async () => {
    const limits = { ...LIMITS, ordersIntervalMs: 1000, ordersPerWindow: 3 };
    const { call, clock, sandbox } = await rig({ limits });
    for (let n = 0; n < 3; n++) {
      expect((await call('GET', ORDERS)).status).toBe(200);
      await clock.advance(1000);
    }
    expect((await call('GET', ORDERS)).status).toBe(403);
    expect(sandbox.control.violations()).toMatchObject([{ broken: 'orders-window' }]);
  });

  it('measures by the monotonic clock, not by the wall', async () => {
    const { call, clock } = await rig();
    await call('GET', GET);
    clock.jumpWall(600_000);
    expect((await call('GET', GET)).status).toBe(429);
  });

  it('takes latency on both ways and measures in between', async () => {
    const { call, clock, sandbox } = await rig({ latencyMs: [40, 40] });
    const startMs = clock.monotonicMs();
    const answer = call('GET', GET);
    while (clock.sleeping === 0) await settle();
    while (sandbox.control.calls().length === 0) await clock.advance(1);
    const arrivedMs = sandbox.control.calls()[0]?.arrivedMs as number;
    expect(arrivedMs).toBeGreaterThan(startMs);
    expect(arrivedMs).toBeLessThan(startMs + 40);
    await clock.advance(startMs + 40 - clock.monotonicMs());
    expect((await answer).status).toBe(200);
  });
});
