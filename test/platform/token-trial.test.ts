import { expect, test } from 'vitest';
import { rig } from './rig.ts';

test('a refresh token on offer replaces the pair only once the platform has taken it', async () => {
  const r = await rig();
  const platform = r.client();
  const before = r.state.tokens.read();
  expect(await r.fault(platform.tokens.tryOut('eyJ-of-nobody'))).toMatchObject({ code: 'auth-required' });
  expect(r.state.tokens.read()).toEqual(before);
  expect(r.told.lockOuts).toEqual([]);

  const offered = r.sandbox.issueTokens().refreshToken;
  expect(await r.run(platform.tokens.tryOut(offered))).toBe('adopted');
  const after = r.state.tokens.read();
  expect(after).toMatchObject({ generation: 2, lockedOut: null, accessToken: expect.any(String) });
  expect(after?.refreshToken).not.toBe(offered);
  await r.run(platform.productGet({ sku: '1' }));
});

test('the same token on offer again, as scripts do, uses up nothing', async () => {
  const r = await rig({ seeded: false });
  const platform = r.client();
  const offered = r.sandbox.issueTokens().refreshToken;
  expect(await r.run(platform.tokens.tryOut(offered))).toBe('adopted');
  expect(await r.run(platform.tokens.tryOut(offered))).toBe('known');
  expect(r.sandbox.control.calls('token.refresh')).toHaveLength(1);
  expect(r.sandbox.control.deadRefreshUses()).toEqual([]);
});

test('a token on offer ends a lock-out', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.revokeRefreshTokens();
  expect(await r.fault(platform.tokens.refresh())).toMatchObject({ code: 'auth-required' });
  await r.run(platform.tokens.tryOut(r.sandbox.issueTokens().refreshToken));
  expect(platform.tokens.describe()).toMatchObject({ state: 'ok' });
  await r.run(platform.productGet({ sku: '1' }));
  expect(r.told.healed).toBe(1);
});
