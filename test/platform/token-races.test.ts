import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import type { PlatformClient } from '../../src/platform/client.ts';
import type { TokenStore } from '../../src/platform/tokens.ts';
import { createHttpTransport, type Transport, type TransportAnswer } from '../../src/platform/transport.ts';
import { type Rig, rig, sandboxTransport } from './rig.ts';
import { tempState } from './temp-state.ts';

type TransportRequest = Parameters<Transport['send']>[0];

const HOUR_MS = 3_600_000;
const sku = { sku: '1' };
const isRefresh = (request: TransportRequest) => request.path === '/token/refresh';

const refreshes = ({ sandbox }: Rig) => sandbox.control.calls('token.refresh').length;

/** Makes a transport to the sandbox on which `tamper` answers each call. `pass` sends the call to the sandbox. */
function lineTo(
  r: Rig,
  tamper: (request: TransportRequest, pass: () => Promise<TransportAnswer>) => Promise<TransportAnswer>,
): Transport {
  const transport = sandboxTransport(r.sandbox, r.clock);
  return { ...transport, send: (request) => tamper(request, () => transport.send(request)) };
}

function neverLeft(): TillsyncError {
  const cause = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' });
  return new TillsyncError('platform-unreachable', 'down', { cause });
}

function withStore(r: Rig, change: (store: TokenStore) => Partial<TokenStore>): PlatformClient {
  const store = r.state.tokens;
  const changes = change(store);
  const tokens = new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(changes, name) ?? Reflect.get(target, name);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  return r.client({ tokens });
}

test('a call whose 401 comes after the renewal is repeated, not given up', async () => {
  const r = await rig();
  const platform = r.client({
    transport: lineTo(r, async (request, pass) => {
      const answer = await pass();
      if (answer.status === 401 && request.path.startsWith('/webhook')) await r.clock.sleep(5000);
      return answer;
    }),
  });
  r.sandbox.control.expireAccessTokens();
  const late = platform.webhookGet();
  await r.run(platform.productGet(sku));
  expect(await r.run(late)).toBe(null);
  expect(refreshes(r)).toBe(1);
});

test('a lock-out that could not be written still ends all calls until the next try', async () => {
  const r = await rig();
  const platform = withStore(r, () => ({
    markLockedOut() {
      throw new TillsyncError('storage-full', 'full');
    },
  }));
  r.sandbox.control.revokeRefreshTokens();
  r.sandbox.control.expireAccessTokens();
  for (let i = 0; i < 4; i++) {
    expect((await r.fault(platform.productGet(sku))).code).toBe('auth-required');
    await r.clock.advance(10_000);
  }
  expect(r.sandbox.control.deadRefreshUses()).toHaveLength(1);
  expect(r.told.lockOuts).toHaveLength(1);
});

test('calls with a good token wait only shortly for a renewal that hangs', async () => {
  const r = await rig();
  const platform = r.client();
  await r.run(platform.productGet(sku));
  await r.clock.advance(0.6 * HOUR_MS);
  r.sandbox.control.setFault({ kind: 'hang', endpoint: 'token.refresh' });
  await r.run(platform.productGet(sku), 8000);
});

test('stopping waits for a renewal that was sent, whoever else waits for it', async () => {
  const r = await rig({ latencyMs: [4000, 4000] });
  const platform = r.client();
  const first = r.run(platform.tokens.refresh(), 20_000);
  await r.clock.advance(500);
  const second = platform.tokens.refresh().catch(() => undefined);
  let isClosed = false;
  const closing = platform.close().then(() => {
    isClosed = true;
  });
  await r.clock.advance(1000);
  expect(isClosed).toBe(false);
  await r.run(Promise.all([first, second, closing]), 20_000);
  expect(r.state.tokens.read()?.generation).toBe(2);
});

test('stopping with a disk that stays full ends all the same', async () => {
  const r = await rig({ latencyMs: [1000, 1000] });
  const platform = withStore(r, () => ({
    save() {
      throw new TillsyncError('storage-full', 'full');
    },
  }));
  const refresh = r.fault(platform.tokens.refresh(), 60_000);
  await r.clock.advance(500);
  await r.run(platform.close(), 30_000);
  expect((await refresh).code).toBe('storage-full');
});

test('a reply that was lost is remembered through a try that never left', async () => {
  const r = await rig();
  let isDown = false;
  const platform = r.client({
    transport: lineTo(r, (_request, pass) => (isDown ? Promise.reject(neverLeft()) : pass())),
  });
  r.sandbox.control.setFault({ kind: 'drop', when: 'after', endpoint: 'token.refresh', times: 1 });
  await r.fault(platform.tokens.refresh());
  isDown = true;
  await r.fault(platform.tokens.refresh());
  isDown = false;
  expect((await r.fault(platform.tokens.refresh())).code).toBe('auth-required');
  expect(r.told.lockOuts).toMatchObject([{ cause: 'reply-lost' }]);
});

test('a refusal that comes after a person handed in new tokens is no lock-out', async () => {
  const r = await rig();
  let thaw: (() => void) | undefined;
  const frozen = r.client({
    transport: lineTo(r, async (request, pass) => {
      const answer = await pass();
      if (isRefresh(request) && answer.status === 401) {
        await new Promise<void>((resolve) => {
          thaw = resolve;
        });
      }
      return answer;
    }),
  });
  r.sandbox.control.revokeRefreshTokens();
  r.sandbox.control.expireAccessTokens();
  const call = frozen.productGet(sku);
  await r.clock.advance(2000);
  const { token, refreshToken } = r.sandbox.issueTokens();
  await r.client().tokens.set({ refreshToken, accessToken: token });
  thaw?.();
  await r.run(call);
  expect(r.told.lockOuts).toEqual([]);
  expect(r.state.tokens.read()?.lockedOut).toBe(null);
});

test('while a process that renews is frozen, no other one uses the same token up', async () => {
  const r = await rig();
  let thaw: (() => void) | undefined;
  const frozen = r.client({
    // A frozen process does not extend its slot.
    ledger: new Proxy(r.state.ledger, {
      get(target, name) {
        if (name === 'extend') return () => undefined;
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    }),
    transport: lineTo(r, async (_request, pass) => {
      const answer = await pass();
      await new Promise<void>((resolve) => {
        thaw = resolve;
      });
      return answer;
    }),
  });
  r.sandbox.control.expireAccessTokens();
  const renewing = frozen.tokens.refresh();
  await r.clock.advance(100);
  const waiting = r.client().productGet(sku);
  waiting.catch(() => undefined);
  await r.clock.advance(23_500);
  expect(refreshes(r)).toBe(1);
  thaw?.();
  await r.run(renewing);
  await r.run(waiting);
  expect(r.sandbox.control.deadRefreshUses()).toEqual([]);
  expect(r.told.lockOuts).toEqual([]);
});

test('whoever waits for another renewal goes on as soon as that one has ended', async () => {
  const r = await rig();
  const platform = r.client();
  const fence = r.state.tokens.acquireLease(600_000);
  const refresh = platform.tokens.refresh();
  await r.clock.advance(3000);
  if (fence !== undefined) r.state.tokens.releaseLease(fence);
  await r.run(refresh, 3000);
  expect(r.state.tokens.read()?.generation).toBe(2);
});

test('a pair that another process saved at the last moment is not used up', async () => {
  const r = await rig();
  const { token, refreshToken } = r.sandbox.issueTokens();
  const platform = withStore(r, (store) => ({
    acquireLease(holdMs) {
      const held = store.read();
      if (held?.generation === 1) store.save({ ...held, accessToken: token, refreshToken }, 1);
      return store.acquireLease(holdMs);
    },
  }));
  await r.run(platform.tokens.refresh());
  expect(refreshes(r)).toBe(0);
  expect(r.state.tokens.read()).toMatchObject({ generation: 2, refreshToken });
});

test('new tokens of a person help although the platform asked to wait with renewals', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.expireAccessTokens();
  r.sandbox.control.setFault({ kind: 'rate-limit', endpoint: 'token.refresh', times: 1, retryAfter: '600' });
  await r.fault(platform.productGet(sku));
  const waiting = r.client().productGet(sku);
  await r.clock.advance(5000);
  const { token, refreshToken } = r.sandbox.issueTokens();
  await r.client().tokens.set({ refreshToken, accessToken: token });
  await r.run(waiting, 65_000);
  expect(refreshes(r)).toBe(1);
});

test('an answer that refuses the form of a renewal is no lock-out', async () => {
  const r = await rig();
  const platform = r.client();
  r.sandbox.control.expireAccessTokens();
  r.sandbox.control.setFault({ kind: 'status', status: 400, endpoint: 'token.refresh', times: 1 });
  expect((await r.fault(platform.productGet(sku))).code).toBe('platform-refused');
  expect(r.told.lockOuts).toEqual([]);
  await r.clock.advance(600_000);
  await r.run(platform.productGet(sku));
});

test('a renewal that brings no refresh token does not take the place of the pair', async () => {
  const r = await rig();
  const before = r.state.tokens.read();
  const platform = r.client({
    transport: lineTo(r, async (request, pass) => {
      if (!isRefresh(request)) return pass();
      const data = { token: 'access', refreshToken: '', expiresIn: '1h' };
      return { status: 200, headers: {}, bytes: Buffer.from(JSON.stringify({ success: true, data })) };
    }),
  });
  expect((await r.fault(platform.tokens.refresh())).code).toBe('platform-garbled');
  expect(r.state.tokens.read()).toEqual(before);
});

test('the token that was refused is tried again when a person hands it in again', async () => {
  const r = await rig({ seeded: false });
  const platform = r.client();
  const { refreshToken } = r.sandbox.issueTokens();
  r.sandbox.control.revokeRefreshTokens();
  await platform.tokens.set({ refreshToken });
  await r.fault(platform.tokens.refresh());
  expect((await r.fault(platform.tokens.tryOut(refreshToken))).code).toBe('auth-required');
  expect(refreshes(r)).toBe(2);
});

test('a renewal never goes over a connection that may be stale', async () => {
  const before = new Set<unknown>();
  let wasKept: boolean | undefined;
  const server = createServer((request, response) => {
    request.resume();
    if (request.url === '/token/refresh') wasKept = before.has(request.socket);
    else before.add(request.socket);
    const data = request.url === '/token/refresh' ? { token: 'b', refreshToken: 'b', expiresIn: '1h' } : null;
    response.end(JSON.stringify({ success: true, data }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close().closeAllConnections());
  const r = await rig({ seeded: false });
  const state = tempState(systemClock);
  const transport = createHttpTransport({
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    userAgent: 'tillsync/test',
    clock: systemClock,
  });
  onTestFinished(() => transport.close());
  const platform = r.client({ transport, clock: systemClock, ledger: state.ledger, tokens: state.tokens });
  await platform.tokens.set({ refreshToken: 'a', accessToken: 'a' });
  await platform.webhookGet();
  // Waits until the connection can be reused.
  await systemClock.sleep(20);
  await platform.tokens.refresh();
  expect(wasKept).toBe(false);
  expect(state.tokens.read()?.refreshToken).toBe('b');
});
