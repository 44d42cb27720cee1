import { expect, test } from 'vitest';
import { type Rig, rig, sandboxTransport } from './rig.ts';

const HOUR_MS = 3_600_000;
const sku = { sku: '1' };

const refreshes = ({ sandbox }: Rig) => sandbox.control.calls('token.refresh').length;

test('the pair is renewed near half of its life and not before', async () => {
  const r = await rig();
  const platform = r.client();
  await r.run(platform.productGet(sku));
  await r.clock.advance(0.44 * HOUR_MS);
  await r.run(platform.productGet(sku));
  expect(refreshes(r)).toBe(0);
  await r.clock.advance(0.12 * HOUR_MS);
  await r.run(platform.productGet(sku));
  expect(refreshes(r)).toBe(1);
  expect(platform.tokens.describe()).toMatchObject({ state: 'ok', generation: 2, openIntentAtMs: null });
  expect(platform.tokens.describe().accessExpiresInMs).toBeGreaterThan(0.99 * HOUR_MS);
  expect(platform.tokens.describe().refreshExpiresInMs).toBeGreaterThan(29 * 24 * HOUR_MS);
});

test('starting again and again costs no refresh', async () => {
  const r = await rig();
  for (let i = 0; i < 20; i++) {
    const platform = r.client();
    await r.run(platform.productGet(sku));
    await r.run(platform.close());
  }
  expect(refreshes(r)).toBe(0);
});

test('a refresh token alone is enough to begin with', async () => {
  const r = await rig({ seeded: false });
  const platform = r.client();
  expect(await r.fault(platform.productGet(sku))).toMatchObject({ code: 'auth-required' });
  expect(platform.tokens.describe()).toMatchObject({ state: 'none', generation: 0 });
  await platform.tokens.seed({ refreshToken: r.sandbox.issueTokens().refreshToken });
  await r.run(platform.productGet(sku));
  expect(refreshes(r)).toBe(1);
});

test.each([-5 * HOUR_MS, 5 * HOUR_MS])(
  'a platform clock %d ms beside ours changes nothing',
  async (clockSkewMs) => {
    const r = await rig({ clockSkewMs });
    const platform = r.client();
    await r.run(platform.productGet(sku)).catch(() => undefined);
    for (let i = 0; i < 20; i++) {
      await r.clock.advance(HOUR_MS / 10);
      await r.run(platform.productGet(sku));
    }
    // Two hours need a refresh about every half hour, and at most one more to measure the difference of the clocks.
    expect(refreshes(r)).toBeGreaterThanOrEqual(3);
    expect(refreshes(r)).toBeLessThanOrEqual(5);
    expect(r.sandbox.control.deadRefreshUses()).toEqual([]);
  },
);

test('our own clock jumping by hours costs one refresh at most', async () => {
  const r = await rig();
  const platform = r.client();
  for (const jumpMs of [3 * HOUR_MS, -6 * HOUR_MS, -40 * 365 * 24 * HOUR_MS]) {
    await r.run(platform.productGet(sku));
    const before = refreshes(r);
    r.clock.jumpWall(jumpMs);
    // The sandbox uses the same clock, so its skew is set to keep its own time unchanged.
    r.sandbox.control.configure({ clockSkewMs: r.sandbox.control.settings().clockSkewMs - jumpMs });
    for (let i = 0; i < 5; i++) await r.run(platform.productGet(sku));
    expect(refreshes(r) - before).toBeLessThanOrEqual(1);
  }
});

test('a 401 is cured by one refresh, and the call repeated once', async () => {
  const r = await rig();
  const platform = r.client();
  await r.run(platform.productGet(sku));
  r.sandbox.control.expireAccessTokens();
  await r.run(platform.productGet(sku));
  expect(refreshes(r)).toBe(1);
  expect(r.sandbox.control.calls('product.get').map((call) => call.status)).toEqual([200, 401, 200]);
  expect(r.sandbox.control.violations()).toEqual([]);
});

test('after another process rotated, a 401 costs no refresh', async () => {
  const r = await rig();
  const [a, b] = [r.client(), r.client()];
  await r.run(a.productGet(sku));
  await r.run(b.tokens.refresh());
  r.sandbox.control.setFault({ kind: 'unauthorized', endpoint: 'product.get', times: 1 });
  const pair = r.state.tokens.read();
  const stale = { token: 'stale', generation: pair!.generation - 1 };
  a.tokens.reject(stale);
  expect(a.tokens.current()?.generation).toBe(pair!.generation);
  expect(refreshes(r)).toBe(1);
});

test('a platform that says 401 to everything causes no storm of refreshes', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.setFault({ kind: 'unauthorized', endpoint: 'product.get' });
  for (let i = 0; i < 5; i++) {
    expect((await r.fault(platform.productGet(sku))).code).toBe('unauthorized');
  }
  expect(refreshes(r)).toBe(1);
});

test('many calls and many processes at once cause one refresh', async () => {
  const r = await rig();
  const clients = [r.client(), r.client(), r.client(), r.client()];
  r.sandbox.control.expireAccessTokens();
  await r.run(
    Promise.all(
      clients.flatMap((platform) => [
        platform.productGet(sku),
        platform.webhookGet(),
        platform.productList({
          subsidiaryId: 'sub-1',
          page: 1,
          limit: 1,
          order: 'asc',
          orderBy: 'CreatedDate',
        }),
      ]),
    ),
  );
  expect(refreshes(r)).toBe(1);
  expect(r.sandbox.control.deadRefreshUses()).toEqual([]);
  expect(r.sandbox.control.violations()).toEqual([]);
});

test('two servers of the platform whose clocks differ by hours cost no more refreshes than one', async () => {
  const r = await rig();
  const transport = sandboxTransport(r.sandbox, r.clock);
  let calls = 0;
  const platform = r.client({
    transport: {
      ...transport,
      async send(request) {
        const answer = await transport.send(request);
        calls += 1;
        const date = new Date(r.clock.nowMs() + (calls % 2) * 2 * HOUR_MS).toUTCString();
        return { ...answer, headers: { ...answer.headers, date } };
      },
    },
  });
  for (let minute = 0; minute < 240; minute++) {
    await r.run(platform.productGet(sku));
    await r.clock.advance(60_000);
  }
  // Four hours need about eight refreshes, and at most one more because the age of the handed-in pair is unknown.
  expect(refreshes(r)).toBeLessThanOrEqual(10);
  expect(refreshes(r)).toBeGreaterThanOrEqual(7);
});
