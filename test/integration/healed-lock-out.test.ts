import { expect, test } from 'vitest';
import { verdictOf } from '../../src/health/verdict.ts';
import { storeRig } from '../support/store-rig.ts';

const HOUR_MS = 3_600_000;

test('once new tokens are in place, the verdict says so at once, and orders come within seconds', async () => {
  const poll = '0 */2 * * * *';
  const store = storeRig({ config: (config) => ({ ...config, orders: { ...config.orders, poll } }) });
  const { services } = await store.daemon();
  await store.clock.advance(HOUR_MS / 4);
  const { control } = store.sandbox;
  control.revokeRefreshTokens();
  control.expireAccessTokens();
  await store.clock.advance(HOUR_MS / 2);
  const verdict = () =>
    verdictOf({
      nowMs: store.clock.nowMs(),
      freshness: services.mirror.health.freshness(),
      alarms: services.mirror.health.raised(),
      tokens: services.platform.tokens.describe(),
      outbox: null,
      quarantine: 0,
      ordersStaleAfterMs: 600_000,
    });
  const codes = () => verdict().findings.map(({ code }) => code);
  expect(codes()[0]).toBe('auth.locked-out');
  expect(codes()).not.toContain('orders.stale');

  const command = await store.services();
  const calls = control.calls('order.all').length;
  await store.run(command.platform.tokens.tryOut(store.sandbox.issueTokens().refreshToken));
  await command.mirror.health.flush();
  if (control.calls('order.all').length === calls) {
    expect(verdict()).toMatchObject({ level: 'amber', findings: [{ code: 'orders.resuming' }] });
  }
  await store.clock.advance(10_000);
  expect(control.calls('order.all').length).toBeGreaterThan(calls);
  expect(verdict()).toEqual({ level: 'green', findings: [] });
});
