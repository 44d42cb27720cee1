import { jwtVerify } from 'jose';
import { describe, expect, it } from 'vitest';
import { rig } from './fixture.ts';

const HOUR_MS = 3_600_000;

describe('tokens', () => {
  it('are JWTs of one hour and thirty days that name the company', async () => {
    const { tokens, clock, sandbox } = await rig({ company: 'shop-9' });
    const key = new TextEncoder().encode(sandbox.signingSecret);
    const currentDate = new Date(clock.nowMs());
    const access = await jwtVerify(tokens.token, key, { algorithms: ['HS256'], currentDate });
    const refresh = await jwtVerify(tokens.refreshToken, key, { currentDate });
    expect(access.payload.company).toBe('shop-9');
    expect((access.payload.exp ?? 0) - (access.payload.iat ?? 0)).toBe(3600);
    expect((refresh.payload.exp ?? 0) - (refresh.payload.iat ?? 0)).toBe(30 * 24 * 3600);
  });

  it('answers 401 without a token, with a foreign one and with an expired one', async () => {
    const { call, clock } = await rig();
    expect((await call('GET', '/product?sku=1001', undefined, null)).status).toBe(401);
    expect((await call('GET', '/product?sku=1001', undefined, 'x.y.z')).status).toBe(401);
    await clock.advance(HOUR_MS - 1000);
    expect((await call('GET', '/product?sku=1001')).status).toBe(200);
    await clock.advance(1000);
    expect((await call('GET', '/product?sku=1001')).status).toBe(401);
  });

  it('does not take a refresh token for an access token', async () => {
    const { call, tokens } = await rig();
    expect((await call('GET', '/product?sku=1001', undefined, tokens.refreshToken)).status).toBe(401);
  });

  it('rotates on every use; the one before is dead at once and its use is counted', async () => {
    const { call, later, sandbox, tokens } = await rig();
    const first = await call('POST', '/token/refresh', { refreshToken: tokens.refreshToken }, null);
    expect(first.json).toEqual({
      success: true,
      message: 'OK',
      data: { token: expect.any(String), refreshToken: expect.any(String), expiresIn: '1h' },
    });
    expect(first.json.data.refreshToken).not.toBe(tokens.refreshToken);
    expect((await call('GET', '/product?sku=1001', undefined, first.json.data.token)).status).toBe(200);
    expect(sandbox.control.deadRefreshUses()).toEqual([]);

    expect((await later('POST', '/token/refresh', { refreshToken: tokens.refreshToken })).status).toBe(401);
    expect(sandbox.control.deadRefreshUses()).toEqual([
      { at: expect.stringMatching(/Z$/), cause: 'rotated' },
    ]);
    const second = await later('POST', '/token/refresh', { refreshToken: first.json.data.refreshToken });
    expect(second.status).toBe(200);
  });

  it('answers 401 to expired, revoked and unknown refresh tokens', async () => {
    const { later, clock, sandbox, tokens } = await rig();
    expect((await later('POST', '/token/refresh', { refreshToken: 'nonsense' })).status).toBe(401);
    await clock.advance(30 * 24 * HOUR_MS);
    expect((await later('POST', '/token/refresh', { refreshToken: tokens.refreshToken })).status).toBe(401);
    const fresh = sandbox.issueTokens();
    sandbox.control.revokeRefreshTokens();
    expect((await later('POST', '/token/refresh', { refreshToken: fresh.refreshToken })).status).toBe(401);
    const causes = sandbox.control.deadRefreshUses().map((use) => use.cause);
    expect(causes).toEqual(['unknown', 'expired', 'revoked']);
  });

  it('kills the successors of a reused refresh token when told to', async () => {
    const { call, later, tokens } = await rig({ reuseRevokes: true });
    const { data } = (await call('POST', '/token/refresh', { refreshToken: tokens.refreshToken }, null)).json;
    await later('POST', '/token/refresh', { refreshToken: tokens.refreshToken });
    expect((await later('POST', '/token/refresh', { refreshToken: data.refreshToken })).status).toBe(401);
  });

  it('keeps its own wall clock and says so in the Date header', async () => {
    const { call, clock } = await rig({ clockSkewMs: 90_000 });
    const { headers } = await call('GET', '/product?sku=1001');
    expect(Date.parse(String(headers.date))).toBe(clock.nowMs() + 90_000);
  });

  it('gives each company its own data', async () => {
    const { sandbox, call } = await rig();
    const other = sandbox.controlOf('other');
    const order = sandbox.control.createOrder();
    const day = order.createdAt.slice(0, 10);
    const theirs = await call(
      'GET',
      `/order/all?startDate=${day}&endDate=${day}`,
      undefined,
      other.issueTokens().token,
    );
    expect(theirs.json.data.totalDocs).toBe(0);
    const ours = await call('GET', `/order/all?startDate=${day}&endDate=${day}`);
    expect(ours.json.data.totalDocs).toBe(1);
  });
});
