import { UnsecuredJWT } from 'jose';
import { expect, test } from 'vitest';
import { companyOf } from '../../src/platform/tokens.ts';
import { rig } from './rig.ts';

const jwt = (claims: Record<string, unknown>) => new UnsecuredJWT(claims).encode();

test('the company is read from whichever claim names it, and is unknown where none does', () => {
  expect(companyOf(jwt({ websiteId: 'w-1' }))).toBe('w-1');
  expect(companyOf(jwt({ companyId: 12 }))).toBe('12');
  expect(companyOf(jwt({ company: { _id: 'c-1', name: 'Corner shop' } }))).toBe('c-1');
  expect(companyOf(jwt({ sub: 'somebody', company: '' }))).toBe(undefined);
  expect(companyOf(jwt({ company: { name: 'x' }, tenant: [] }))).toBe(undefined);
  expect(companyOf('opaque')).toBe(undefined);
  expect(companyOf(null)).toBe(undefined);
});

test('tokens of the environment that are of another company do not end a lock-out', async () => {
  const r = await rig();
  const platform = r.client();
  await r.run(platform.tokens.refresh());
  expect(r.state.tokens.company()).toBe('company-1');
  r.sandbox.control.revokeRefreshTokens();
  await r.fault(platform.tokens.refresh());
  const other = r.sandbox.control.issueTokens('company-2');
  expect(await platform.tokens.seed({ refreshToken: other.refreshToken })).toBe('kept');
  expect(await platform.tokens.seed({ refreshToken: r.sandbox.issueTokens().refreshToken })).toBe('adopted');
});
