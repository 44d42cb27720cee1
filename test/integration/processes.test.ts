import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { systemClock, systemRandom } from '../../src/core/system-clock.ts';
import type { Clock } from '../../src/core/time.ts';
import { PlatformClient } from '../../src/platform/client.ts';
import type { PlatformLimits } from '../../src/platform/platform.ts';
import { createHttpTransport } from '../../src/platform/transport.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/server.ts';
import type { SandboxServerOptions } from '../../src/sandbox/shop.ts';
import { tempDirectory, tempState } from '../platform/temp-state.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import type { Job } from './process/worker.ts';

const WORKER = join(import.meta.dirname, 'process/worker.ts');
const limits: PlatformLimits = {
  endpointIntervalMs: 60,
  ordersIntervalMs: 120,
  windowMs: 2000,
  requestsPerWindow: 40,
  ordersPerWindow: 10,
};

async function setUp(options: Partial<SandboxServerOptions> = {}) {
  const sandbox = await startSandbox({ clock: systemClock, random: seededRandom(11), limits, ...options });
  onTestFinished(() => sandbox.close());
  const path = join(tempDirectory(), 'state.db');
  const state = tempState(systemClock, path);
  const pair = sandbox.issueTokens();
  const begin = (job: Partial<Job>) => start({ path, url: sandbox.url, limits, do: 'calls', ...job });
  const seed = () => clientOf(sandbox, path).tokens.seed({ ...pair, accessToken: pair.token });
  await seed();
  return { sandbox, state, path, begin };
}

function start(job: Job): { child: ChildProcess; ended: Promise<number | NodeJS.Signals | null> } {
  const child = fork(WORKER, [JSON.stringify(job)], { execArgv: [], silent: true });
  let said = '';
  child.stderr?.on('data', (chunk) => {
    said += String(chunk);
  });
  const ended = new Promise<number | NodeJS.Signals | null>((resolve) => {
    child.on('exit', (code, signal) => {
      if (code) process.stderr.write(said);
      resolve(signal ?? code);
    });
  });
  return { child, ended };
}

/** Makes a client in this process. Its clock is `laterMs` ahead of the clocks of the other processes. */
function clientOf(sandbox: Sandbox, path: string, laterMs = 0) {
  const clock: Clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + laterMs };
  const state = tempState(clock, path);
  return new PlatformClient({
    transport: createHttpTransport({ userAgent: 'tillsync/test', baseUrl: sandbox.url, clock: systemClock }),
    ledger: state.ledger,
    tokens: state.tokens,
    limits,
    clock,
    random: systemRandom,
    log: silentLog,
  });
}

test('several processes keep intervals and caps together', async () => {
  const { sandbox, begin } = await setUp();
  const workers = [1, 2, 3, 4].map(() => begin({ rounds: 4 }));
  // A client that dies during calls changes nothing for the others.
  const dying = begin({ rounds: 100 });
  await vi.waitFor(() => expect(sandbox.control.calls('order.all').length).toBeGreaterThan(5), {
    interval: 5,
    timeout: limitMs(10_000),
  });
  dying.child.kill('SIGKILL');
  expect(await Promise.all(workers.map(({ ended }) => ended))).toEqual([0, 0, 0, 0]);
  expect(await dying.ended).toBe('SIGKILL');
  expect(sandbox.control.calls('order.all').length).toBeGreaterThanOrEqual(16);
  expect(sandbox.control.violations()).toEqual([]);
});

test('four processes whose token was refused refresh it once', async () => {
  const { sandbox, state, begin } = await setUp({ latencyMs: [20, 60] });
  sandbox.control.expireAccessTokens();
  // The answer is slow enough for all four processes to start and to be refused.
  sandbox.control.setFault({ kind: 'slow-body', endpoint: 'token.refresh', delayMs: 1_500, times: 1 });
  const workers = [1, 2, 3, 4].map(() => begin({}));
  expect(await Promise.all(workers.map(({ ended }) => ended))).toEqual([0, 0, 0, 0]);
  expect(sandbox.control.calls('token.refresh')).toHaveLength(1);
  expect(sandbox.control.deadRefreshUses()).toEqual([]);
  expect(sandbox.control.violations()).toEqual([]);
  expect(state.tokens.read()?.generation).toBe(2);
});

test.each(['before-intent', 'intent-written', 'saved'] as const)(
  'a death at %s costs nothing',
  async (killAt) => {
    const { sandbox, state, path, begin } = await setUp();
    expect(await begin({ do: 'refresh', killAt }).ended).toBe('SIGKILL');
    expect(state.tokens.readIntent()?.generation).toBe(killAt === 'intent-written' ? 1 : undefined);
    const next = clientOf(sandbox, path, 60_000);
    await next.tokens.refresh();
    await next.productGet({ sku: '1' });
    await next.close();
    expect(sandbox.control.deadRefreshUses()).toEqual([]);
    expect(state.tokens.read()).toMatchObject({ generation: killAt === 'saved' ? 3 : 2, lockedOut: null });
  },
);

test('a death between the answer and the save is told as a lost reply after one more try', async () => {
  const { sandbox, state, path, begin } = await setUp();
  expect(await begin({ do: 'refresh', killAt: 'answered' }).ended).toBe('SIGKILL');
  const next = clientOf(sandbox, path, 60_000);
  await expect(next.tokens.refresh()).rejects.toMatchObject({ code: 'auth-required' });
  // A refresh that a person asks for tries again; calls do not.
  for (let i = 0; i < 3; i++) {
    await expect(next.productGet({ sku: '1' })).rejects.toMatchObject({ code: 'auth-required' });
  }
  await next.close();
  expect(sandbox.control.deadRefreshUses()).toHaveLength(1);
  expect(state.tokens.read()?.lockedOut?.cause).toBe('reply-lost');
  expect(sandbox.control.calls('product.get')).toEqual([]);
});

test('SIGTERM during a refresh waits for its save', async () => {
  const { sandbox, state, begin } = await setUp({ latencyMs: [400, 400] });
  const { child, ended } = begin({ do: 'refresh' });
  await vi.waitFor(() => expect(sandbox.control.calls('token.refresh')).toHaveLength(1), {
    interval: 5,
    timeout: limitMs(10_000),
  });
  expect(state.tokens.read()?.generation).toBe(1);
  child.kill('SIGTERM');
  expect(await ended).toBe(0);
  expect(state.tokens.read()?.generation).toBe(2);
  expect(state.tokens.readIntent()).toBe(null);
});
