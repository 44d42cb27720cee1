import { expect, test } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import type { TokenStore } from '../../src/platform/tokens.ts';
import { type Rig, rig, sandboxTransport } from './rig.ts';
import { documentLimits } from './temp-state.ts';

const HOUR_MS = 3_600_000;
const sku = { sku: '1' };

const refreshes = ({ sandbox }: Rig) => sandbox.control.calls('token.refresh').length;

/** Makes a client whose token store has the methods that `change` returns in place of its own. */
function withStore(r: Rig, change: (store: TokenStore) => Partial<TokenStore>) {
  const store = r.state.tokens;
  const bound: TokenStore = {
    read: () => store.read(),
    writeIntent: (generation) => store.writeIntent(generation),
    readIntent: () => store.readIntent(),
    clearIntent: (generation) => store.clearIntent(generation),
    wasHandedIn: (token) => store.wasHandedIn(token),
    save: (pair, expected, offered) => store.save(pair, expected, offered),
    company: () => store.company(),
    setCompany: (companyId) => store.setCompany(companyId),
    markLockedOut: (generation, lockOut) => store.markLockedOut(generation, lockOut),
    acquireLease: (holdMs) => store.acquireLease(holdMs),
    releaseLease: (fence) => store.releaseLease(fence),
  };
  return r.client({ tokens: { ...bound, ...change(bound) } });
}

test('while a refresh does not get through, the token that still works is used', async () => {
  const r = await rig();
  const platform = r.client();
  await r.run(platform.productGet(sku));
  r.sandbox.control.setFault({ kind: 'status', status: 503, endpoint: 'token.refresh' });
  await r.clock.advance(0.6 * HOUR_MS);
  for (let i = 0; i < 10; i++) {
    await r.run(platform.productGet(sku));
    await r.clock.advance(60_000);
  }
  const tried = refreshes(r);
  expect(tried).toBeGreaterThanOrEqual(2);
  expect(tried).toBeLessThanOrEqual(8);
  await r.clock.advance(0.4 * HOUR_MS);
  expect((await r.fault(platform.productGet(sku))).code).toBe('platform-failed');
  r.sandbox.control.clearFaults();
  await r.clock.advance(400_000);
  await r.run(platform.productGet(sku));
});

test('a refused refresh token stops everything, told once, healed by new tokens', async () => {
  const r = await rig();
  const [a, b] = [r.client(), r.client()];
  await r.run(a.productGet(sku));
  r.sandbox.control.revokeRefreshTokens();
  r.sandbox.control.expireAccessTokens();
  expect((await r.fault(a.productGet(sku))).code).toBe('auth-required');
  const calls = r.sandbox.control.calls().length;
  for (const platform of [a, b, a, b]) {
    expect(platform.tokens.mayCall()).toBe(false);
    expect((await r.fault(platform.productGet(sku))).code).toBe('auth-required');
    await r.clock.advance(10_000);
  }
  expect(r.sandbox.control.calls()).toHaveLength(calls);
  expect(r.sandbox.control.deadRefreshUses()).toHaveLength(1);
  // Each of the two processes reports the lock-out once.
  expect(r.told.lockOuts.map((lockOut) => lockOut.cause)).toEqual(['refused', 'refused']);
  expect(a.tokens.describe()).toMatchObject({ state: 'locked-out', lockedOut: { cause: 'refused' } });

  const { token, refreshToken } = r.sandbox.issueTokens();
  await r.client().tokens.set({ refreshToken, accessToken: token });
  await r.run(a.productGet(sku));
  await r.run(b.productGet(sku));
  expect(r.told.healed).toBe(2);
});

test('a refused refresh token is tried again after 1, 10 and 60 minutes, then each hour, by one process', async () => {
  const r = await rig();
  const processes = [r.client(), r.client()];
  r.sandbox.control.revokeRefreshTokens();
  r.sandbox.control.expireAccessTokens();
  // The loops of a daemon look each five seconds whether they may call.
  for (let look = 0; look < (3.5 * HOUR_MS) / 5_000; look++) {
    const due = processes.filter(({ tokens }) => tokens.mayCall());
    if (due.length > 0) await Promise.all(due.map((each) => r.fault(each.productGet(sku))));
    await r.clock.advance(5_000);
  }
  const at = r.sandbox.control.deadRefreshUses().map((use) => Date.parse(use.at));
  expect(at.slice(1).map((ms, i) => Math.round((ms - (at[i] as number)) / 60_000))).toEqual([
    1, 10, 60, 60, 60,
  ]);
  expect(refreshes(r)).toBe(6);
  expect(r.told.lockOuts).toHaveLength(2);
  expect(processes[0]?.tokens.describe()).toMatchObject({ state: 'locked-out', lockedOut: { refusals: 6 } });
});

test.each([1, 2, 3, 4])(
  '%i refusals by mistake lock nobody out: the token that is still good is tried again',
  async (times) => {
    const r = await rig();
    let platform = r.client();
    r.sandbox.control.expireAccessTokens();
    r.sandbox.control.setFault({ kind: 'unauthorized', endpoint: 'token.refresh', times });
    expect((await r.fault(platform.productGet(sku))).code).toBe('auth-required');
    for (let refusal = 1; refusal <= times; refusal++) {
      // A restart makes no difference.
      if (refusal === 2) platform = r.client();
      const inMs = (platform.tokens.describe().triesAgainAtMs ?? 0) - r.clock.nowMs();
      expect(Math.round(inMs / 60_000)).toBe([1, 10, 60, 60][refusal - 1]);
      await r.clock.advance(inMs - 1_000);
      expect((await r.fault(platform.productGet(sku))).code).toBe('auth-required');
      expect(refreshes(r)).toBe(refusal);
      await r.clock.advance(1_000);
      if (refusal < times) expect((await r.fault(platform.productGet(sku))).code).toBe('auth-required');
    }
    await r.run(platform.productGet(sku));
    expect(r.told.healed).toBe(1);
    const { generation, refreshToken } = r.state.tokens.read()!;
    expect(platform.tokens.describe()).toMatchObject({ state: 'ok', generation: 2, openIntentAtMs: null });
    expect([generation, r.state.tokens.wasHandedIn(refreshToken)]).toEqual([2, false]);
    expect(r.sandbox.control.deadRefreshUses()).toEqual([]);
  },
);

test('a person who wants a refresh gets a try at once, and a refused token is not tried beyond its end', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.expireAccessTokens();
  r.sandbox.control.setFault({ kind: 'unauthorized', endpoint: 'token.refresh', times: 2 });
  expect((await r.fault(platform.productGet(sku))).code).toBe('auth-required');
  expect((await r.fault(platform.tokens.refresh())).code).toBe('auth-required');
  expect(refreshes(r)).toBe(2);
  await r.run(platform.tokens.refresh());
  await r.run(platform.productGet(sku));

  r.sandbox.control.setFault({ kind: 'unauthorized', endpoint: 'token.refresh' });
  await r.fault(platform.tokens.refresh());
  expect(platform.tokens.describe().triesAgainAtMs).not.toBe(null);
  await r.clock.advance(31 * 24 * HOUR_MS);
  expect(platform.tokens.describe().triesAgainAtMs).toBe(null);
  expect(platform.tokens.mayCall()).toBe(false);
});

test('a wall clock that is set back does not put off the next try', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.expireAccessTokens();
  r.sandbox.control.setFault({ kind: 'unauthorized', endpoint: 'token.refresh', times: 1 });
  await r.fault(platform.productGet(sku));
  r.clock.jumpWall(-365 * 24 * HOUR_MS);
  expect(platform.tokens.mayCall()).toBe(true);
  await r.run(platform.productGet(sku));
});

test.each([
  ['an HTML page', 'text/html', '<html><h1>401 Authorization Required</h1></html>'],
  ['no body', 'application/json', ''],
  ['a text', 'text/plain', 'Unauthorized'],
  ['a list', 'application/json', '["Unauthorized"]'],
])(
  'a 401 to a refresh with %s is the word of a gateway: the tokens stay and are tried again',
  async (_what, type, body) => {
    const r = await rig();
    const transport = sandboxTransport(r.sandbox, r.clock);
    let isInTheWay = true;
    let tries = 0;
    const platform = r.client({
      transport: {
        ...transport,
        async send(request) {
          if (!isInTheWay || request.endpoint !== 'token.refresh') return transport.send(request);
          tries += 1;
          return { status: 401, headers: { 'content-type': type }, bytes: Buffer.from(body) };
        },
      },
    });
    await r.run(platform.productGet(sku));
    // While the access token is good, nothing stops.
    await r.clock.advance(0.6 * HOUR_MS);
    await r.run(platform.productGet(sku));
    expect(tries).toBe(1);
    r.sandbox.control.expireAccessTokens();
    await r.clock.advance(10_000);
    expect(await r.fault(platform.productGet(sku))).toMatchObject({
      code: 'platform-failed',
      retryable: true,
      message: expect.stringContaining('The tokens are kept.'),
    });
    for (let minute = 0; minute < 60; minute++) {
      expect(platform.tokens.mayCall()).toBe(true);
      await r.fault(platform.productGet(sku));
      await r.clock.advance(60_000);
    }
    expect(tries).toBeGreaterThan(10);
    expect(tries).toBeLessThan(40);
    expect(platform.tokens.describe()).toMatchObject({ state: 'ok', lockedOut: null, openIntentAtMs: null });
    const offered = platform.tokens.tryOut(r.sandbox.issueTokens().refreshToken);
    expect((await r.fault(offered)).code).toBe('platform-failed');
    isInTheWay = false;
    await r.clock.advance(5 * 60_000);
    await r.run(platform.productGet(sku));
    expect(r.told.lockOuts).toEqual([]);
    expect(r.sandbox.control.deadRefreshUses()).toEqual([]);
  },
);

test('a lost reply is tried once more and then told as what it is', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.expireAccessTokens();
  r.sandbox.control.setFault({ kind: 'drop', when: 'after', endpoint: 'token.refresh', times: 1 });
  expect((await r.fault(platform.productGet(sku))).code).toBe('platform-unreachable');
  expect(platform.tokens.describe().openIntentAtMs).not.toBe(null);
  const early = await r.fault(platform.productGet(sku));
  expect(early).toMatchObject({ code: 'platform-unreachable', retryable: true });
  expect(early.retryAfterMs).toBeGreaterThan(0);
  await r.clock.advance(10_000);
  expect((await r.fault(platform.productGet(sku))).code).toBe('auth-required');
  expect(r.told.lockOuts).toMatchObject([{ cause: 'reply-lost' }]);
  expect(refreshes(r)).toBe(2);
});

test('a refresh that never left leaves no suspicion behind', async () => {
  const r = await rig();
  const transport = sandboxTransport(r.sandbox, r.clock);
  let down = true;
  const platform = r.client({
    transport: {
      ...transport,
      send: (request) => {
        if (!down) return transport.send(request);
        const cause = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' });
        return Promise.reject(new TillsyncError('platform-unreachable', 'down', { cause }));
      },
    },
  });
  r.sandbox.control.expireAccessTokens();
  r.state.tokens.save({ ...r.state.tokens.read()!, accessToken: null }, 1);
  expect((await r.fault(platform.productGet(sku))).code).toBe('platform-unreachable');
  expect(platform.tokens.describe().openIntentAtMs).toBe(null);
  down = false;
  r.sandbox.control.revokeRefreshTokens();
  await r.clock.advance(10_000);
  expect((await r.fault(platform.productGet(sku))).code).toBe('auth-required');
  expect(r.told.lockOuts).toMatchObject([{ cause: 'refused' }]);
});

test('nobody uses a pair before it is saved, and a full disk does not lose it', async () => {
  const r = await rig();
  let full = 3;
  const platform = withStore(r, (store) => ({
    save(pair, expected) {
      full -= 1;
      if (full >= 0) throw new TillsyncError('storage-full', 'full');
      return store.save(pair, expected);
    },
  }));
  r.sandbox.control.expireAccessTokens();
  const call = platform.productGet(sku);
  await r.clock.advance(60);
  expect(r.sandbox.control.calls('product.get').map((each) => each.status)).toEqual([401]);
  await r.run(call);
  expect(r.state.tokens.read()?.generation).toBe(2);
  expect(r.sandbox.control.deadRefreshUses()).toEqual([]);
});

test('without a disk that takes writes no refresh is sent', async () => {
  const r = await rig();
  const platform = withStore(r, () => ({
    writeIntent() {
      throw new TillsyncError('storage-full', 'full');
    },
  }));
  r.sandbox.control.expireAccessTokens();
  expect((await r.fault(platform.productGet(sku))).code).toBe('storage-full');
  expect(refreshes(r)).toBe(0);
  expect(r.state.ledger.waits(documentLimits).filter((wait) => wait.endpoint === 'token.refresh')).toEqual(
    [],
  );
});

test('a caller that leaves does not end the refresh, and stopping waits for it', async () => {
  const r = await rig({ latencyMs: [4000, 4000] });
  const platform = r.client();
  const leaving = new AbortController();
  const call = r.fault(platform.tokens.refresh({ signal: leaving.signal }), 1000);
  await r.clock.advance(500);
  leaving.abort();
  expect((await call).code).toBe('aborted');
  let closed = false;
  const closing = platform.close().then(() => {
    closed = true;
  });
  await r.clock.advance(2000);
  expect(closed).toBe(false);
  await r.run(closing, 5000);
  expect(r.state.tokens.read()?.generation).toBe(2);
  expect((await r.fault(platform.tokens.refresh())).code).toBe('aborted');
});

test('stopping does not wait for a refresh that is not sent yet', async () => {
  const r = await rig();
  const platform = r.client();
  r.state.ledger.block('all', HOUR_MS, 'blocked', 'order.all');
  const refresh = r.fault(platform.tokens.refresh());
  await r.clock.advance(1000);
  await r.run(platform.close(), 200);
  expect((await refresh).code).toBe('aborted');
  expect(refreshes(r)).toBe(0);
});

test('a frozen holder that comes back cannot overwrite newer tokens', async () => {
  const r = await rig();
  let freeze: (() => void) | undefined;
  const transport = sandboxTransport(r.sandbox, r.clock);
  const frozen = r.client({
    transport: {
      ...transport,
      async send(request) {
        const answer = await transport.send(request);
        await new Promise<void>((resolve) => {
          freeze = resolve;
        });
        return answer;
      },
    },
  });
  const gaveUp = frozen.tokens.refresh().catch((error: unknown) => error);
  await r.clock.advance(100);
  expect(freeze).toBeDefined();
  await r.clock.advance(120_000);
  const { token, refreshToken } = r.sandbox.issueTokens();
  const other = r.client();
  await other.tokens.set({ refreshToken, accessToken: token });
  freeze?.();
  await r.clock.advance(100);
  expect(await gaveUp).toMatchObject({ code: 'platform-unreachable' });
  expect(r.state.tokens.read()?.refreshToken).toBe(refreshToken);
  await r.run(other.productGet(sku));
});

test('tokens of the environment yield to rotated ones, and help after a lock-out only when they are new', async () => {
  const r = await rig({ seeded: false });
  const platform = r.client();
  const first = r.sandbox.issueTokens();
  expect(await platform.tokens.seed({ refreshToken: first.refreshToken })).toBe('adopted');
  await r.run(platform.productGet(sku));
  expect(await r.client().tokens.seed({ refreshToken: first.refreshToken })).toBe('kept');
  const second = r.sandbox.issueTokens();
  expect(await platform.tokens.seed({ refreshToken: second.refreshToken })).toBe('kept');
  expect(r.state.tokens.read()?.refreshToken).not.toBe(second.refreshToken);
  r.state.tokens.markLockedOut(r.state.tokens.read()!.generation, {
    atMs: 1,
    cause: 'refused',
    refusals: 1,
    refusedAtMs: r.clock.nowMs(),
  });
  expect(await platform.tokens.seed({ refreshToken: first.refreshToken })).toBe('kept');
  expect(await platform.tokens.seed({ refreshToken: second.refreshToken })).toBe('adopted');
  await r.run(platform.productGet(sku));
  expect(r.sandbox.control.deadRefreshUses()).toEqual([]);
});

test('the platform taking a pair is told once for each pair', async () => {
  const r = await rig({ seeded: false });
  let told = 0;
  const onAccepted = () => {
    told += 1;
  };
  const platform = r.client({ onAccepted });
  await platform.tokens.seed({ refreshToken: r.sandbox.issueTokens().refreshToken });
  await r.run(platform.productGet(sku));
  await r.run(platform.productGet(sku));
  expect(told).toBe(1);
  r.sandbox.control.revokeRefreshTokens();
  r.sandbox.control.expireAccessTokens();
  await r.fault(platform.productGet(sku));
  expect(told).toBe(1);
  await platform.tokens.set({ refreshToken: r.sandbox.issueTokens().refreshToken });
  await r.run(platform.productGet(sku));
  expect(told).toBe(2);
});

test('no log line and no error carries a token or a secret', async () => {
  const r = await rig();
  const platform = r.client();
  const texts: string[] = [];
  const keep = async (call: Promise<unknown>) => {
    const error = await r.fault(call);
    texts.push(JSON.stringify(error), error.message, String(error.stack), String(error.cause));
  };
  r.sandbox.control.expireAccessTokens();
  await r.run(platform.webhookPut({ callbackUrl: 'http://127.0.0.1:9/x', secret: 'webhook-secret-value' }));
  for (const kind of ['status', 'html', 'unauthorized', 'drop', 'rate-limit'] as const) {
    r.sandbox.control.setFault({ kind, endpoint: 'webhook.put', times: 2 });
    await keep(platform.webhookPut({ callbackUrl: 'http://127.0.0.1:9/x', secret: 'webhook-secret-value' }));
    r.sandbox.control.clearFaults();
  }
  const held = r.state.tokens.read()!;
  r.sandbox.control.revokeRefreshTokens();
  r.sandbox.control.expireAccessTokens();
  await keep(platform.productGet(sku));
  const all = [...texts, ...r.told.logged, JSON.stringify(platform.tokens.describe())].join('\n');
  for (const secret of [held.refreshToken, held.accessToken!, 'webhook-secret-value']) {
    expect(all).not.toContain(secret);
    expect(all).not.toContain(secret.split('.')[2] ?? secret);
  }
  expect(r.told.logged.length).toBeGreaterThan(3);
});

/** Makes a client whose transport delays the answer to a refresh by `answerMs`. */
function slowRefresh(r: Rig, answerMs: number) {
  const transport = sandboxTransport(r.sandbox, r.clock);
  return r.client({
    transport: {
      ...transport,
      async send(request) {
        const answer = await transport.send(request);
        if (request.endpoint === 'token.refresh') await r.clock.sleep(answerMs);
        return answer;
      },
    },
  });
}

test('an answer that comes after everybody gave up is saved all the same', async () => {
  const r = await rig();
  const platform = slowRefresh(r, 61_000);
  r.sandbox.control.expireAccessTokens();
  const call = r.fault(platform.productGet(sku), 60_700);
  expect(await call).toMatchObject({ code: 'platform-unreachable' });
  expect(r.state.tokens.read()?.generation).toBe(1);
  await r.clock.advance(2_000);
  expect(r.state.tokens.read()).toMatchObject({ generation: 2, lockedOut: null });
  await r.run(platform.productGet(sku));
  expect(refreshes(r)).toBe(1);
  expect(r.sandbox.control.deadRefreshUses()).toEqual([]);
});

test('stopping waits for an answer that nobody waits for any more, and not for ever', async () => {
  const r = await rig();
  const platform = slowRefresh(r, 70_000);
  await r.fault(platform.tokens.refresh());
  await r.run(platform.close(), 12_000);
  expect(r.state.tokens.read()).toMatchObject({ generation: 2, lockedOut: null });

  const silent = slowRefresh(r, 3_600_000);
  const refresh = r.fault(silent.tokens.refresh());
  await r.clock.advance(2_000);
  await r.run(silent.close(), 20_500);
  expect(await refresh).toMatchObject({ code: 'platform-unreachable' });
});
