import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { Endpoint } from '../../src/platform/platform.ts';
import type { RateStore, SlotTicket } from '../../src/platform/rate-budget.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { documentLimits, tempState } from './temp-state.ts';

const limits = documentLimits;
const HOLD_MS = 30_000;

function take(ledger: RateStore, endpoint: Endpoint): SlotTicket {
  const grant = ledger.acquire(endpoint, limits, HOLD_MS);
  if (!grant.granted) throw new Error(`not granted: ${JSON.stringify(grant.wait)}`);
  return grant.ticket;
}

function waitOf(ledger: RateStore, endpoint: Endpoint) {
  const grant = ledger.acquire(endpoint, limits, HOLD_MS);
  return grant.granted ? 'granted' : { reason: grant.wait.reason, waitMs: Math.round(grant.wait.waitMs) };
}

function setUp() {
  const clock = new FakeClock();
  const state = tempState(clock);
  return { clock, ledger: state.ledger, other: tempState(clock, state.path).ledger };
}

test('the interval counts from the answer, for every process', async () => {
  const { clock, ledger, other } = setUp();
  const ticket = take(ledger, 'product.list');
  await clock.advance(5000);
  expect(waitOf(other, 'product.list')).toEqual({ reason: 'in-flight', waitMs: 1001 });
  expect(waitOf(other, 'product.get')).toBe('granted');
  ledger.settle(ticket);
  expect(waitOf(other, 'product.list')).toEqual({ reason: 'interval', waitMs: 1001 });
  clock.jumpWall(-3_600_000);
  await clock.advance(1000);
  expect(waitOf(other, 'product.list')).toEqual({ reason: 'interval', waitMs: 1 });
  await clock.advance(1);
  expect(waitOf(other, 'product.list')).toBe('granted');
});

test('a slot whose process died frees itself after its hold and the interval', async () => {
  const { clock, ledger, other } = setUp();
  const dead = take(ledger, 'order.all');
  await clock.advance(HOLD_MS + 120_000);
  expect(waitOf(other, 'order.all')).toEqual({ reason: 'in-flight', waitMs: 1 });
  await clock.advance(1);
  const fresh = take(other, 'order.all');
  ledger.settle(dead);
  expect(waitOf(ledger, 'order.all')).toMatchObject({ reason: 'in-flight' });
  other.settle(fresh);
  expect(waitOf(ledger, 'order.all')).toEqual({ reason: 'interval', waitMs: 120_001 });
});

test('a slot that is kept stays taken, one that was overtaken cannot be kept', async () => {
  const { clock, ledger, other } = setUp();
  const ticket = take(ledger, 'product.list');
  await clock.advance(HOLD_MS);
  ledger.extend(ticket, HOLD_MS);
  await clock.advance(HOLD_MS);
  expect(waitOf(other, 'product.list')).toEqual({ reason: 'in-flight', waitMs: 1001 });
  await clock.advance(1001);
  const fresh = take(other, 'product.list');
  ledger.extend(ticket, 10 * HOLD_MS);
  other.settle(fresh);
  ledger.extend(fresh, 10 * HOLD_MS);
  expect(waitOf(other, 'product.list')).toEqual({ reason: 'interval', waitMs: 1001 });
});

test('whoever was overtaken neither keeps nor gives back the slot of another', async () => {
  const { clock, ledger, other } = setUp();
  const overtaken = take(ledger, 'product.list');
  await clock.advance(HOLD_MS + 1001);
  take(other, 'product.list');
  ledger.cancel(overtaken);
  expect(waitOf(ledger, 'product.list')).toMatchObject({ reason: 'in-flight' });
  ledger.extend(overtaken, 10 * HOLD_MS);
  await clock.advance(HOLD_MS + 1001);
  expect(waitOf(ledger, 'product.list')).toBe('granted');
});

test('a call of which nobody knows when it arrived counts until the end of its hold', async () => {
  const { clock, ledger } = setUp();
  const small = { ...limits, ordersPerWindow: 1 };
  take(ledger, 'order.all');
  await clock.advance(limits.windowMs + 1000);
  expect(ledger.acquire('order.all', small, HOLD_MS)).toMatchObject({ wait: { reason: 'window' } });
  await clock.advance(HOLD_MS);
  expect(ledger.acquire('order.all', small, HOLD_MS)).toMatchObject({ granted: true });
});

test('no call leaves the window before its time, whatever else is called', async () => {
  const { clock, ledger } = setUp();
  const small = { ...limits, ordersPerWindow: 2 };
  for (let i = 0; i < 2; i++) {
    ledger.settle(take(ledger, 'order.all'));
    await clock.advance(125_000);
    ledger.settle(take(ledger, 'product.list'));
  }
  expect(ledger.acquire('order.all', small, HOLD_MS)).toMatchObject({ wait: { reason: 'window' } });
});

test('a call that was never sent leaves no trace', async () => {
  const { clock, ledger } = setUp();
  const first = take(ledger, 'product.list');
  ledger.settle(first);
  await clock.advance(1001);
  ledger.cancel(take(ledger, 'product.list'));
  ledger.settle(take(ledger, 'product.list'));
  expect(ledger.blockHistory('product.list', limits).requests).toBe(2);
});

test('the last places of the window are kept for orders and the tokens', async () => {
  const { clock, ledger } = setUp();
  const small = { ...limits, requestsPerWindow: 10, endpointIntervalMs: 0 };
  for (let i = 0; i < 8; i++) {
    const grant = ledger.acquire('product.list', small, HOLD_MS);
    if (!grant.granted) throw new Error('early');
    ledger.settle(grant.ticket);
    await clock.advance(2);
  }
  expect(ledger.acquire('product.list', small, HOLD_MS)).toMatchObject({ wait: { reason: 'window' } });
  for (const endpoint of ['order.all', 'token.refresh'] as const) {
    const grant = ledger.acquire(endpoint, small, HOLD_MS);
    if (!grant.granted) throw new Error('the reserve is gone');
    ledger.settle(grant.ticket);
  }
  await clock.advance(2);
  expect(ledger.acquire('token.refresh', small, HOLD_MS)).toMatchObject({ wait: { reason: 'window' } });
});

test('429 holds back one endpoint; a shorter one does not shorten it', async () => {
  const { clock, ledger, other } = setUp();
  ledger.holdBack('product.batch', 60_000);
  ledger.holdBack('product.batch', 5000);
  expect(waitOf(other, 'product.batch')).toEqual({ reason: 'retry-after', waitMs: 60_000 });
  expect(waitOf(other, 'product.list')).toBe('granted');
  await clock.advance(60_000);
  expect(waitOf(other, 'product.batch')).toBe('granted');
});

test('after a block one call at a time probes, and whoever brought it on comes later', async () => {
  const { clock, ledger, other } = setUp();
  ledger.settle(take(ledger, 'product.list'), 'failed');
  ledger.block('all', 60_000, 'blocked', 'product.list');
  expect(waitOf(other, 'webhook.get')).toEqual({ reason: 'blocked', waitMs: 60_000 });
  expect(waitOf(other, 'token.refresh')).toMatchObject({ reason: 'blocked' });
  expect(other.waits(limits)).toHaveLength(10);
  await clock.advance(60_000);
  expect(waitOf(other, 'product.list')).toEqual({ reason: 'blocked', waitMs: 15_000 });
  const probe = take(ledger, 'product.get');
  expect(waitOf(other, 'webhook.get')).toMatchObject({ reason: 'blocked' });
  ledger.settle(probe, 'failed');
  const second = take(other, 'webhook.get');
  other.settle(second, 'answered');
  take(ledger, 'product.stock.put');
  take(ledger, 'product.put');
  expect(ledger.blockHistory('product.list', limits).all).toEqual({
    endpoint: 'product.list',
    durationMs: 60_000,
    endedMsAgo: 0,
    message: 'blocked',
    othersAnswered: true,
    endpointAnswered: false,
  });
});

test('an answer to a call sent before a block ended says nothing of it', async () => {
  const { clock, ledger } = setUp();
  const early = take(ledger, 'order.all');
  ledger.block('all', 10_000, 'blocked', 'product.list');
  await clock.advance(11_000);
  ledger.settle(early, 'answered');
  expect(ledger.blockHistory('product.list', limits).all).toMatchObject({ othersAnswered: false });
});

test('after a reboot everything counts from the beginning of the boot', async () => {
  const { clock, ledger } = setUp();
  const small = { ...limits, ordersPerWindow: 1 };
  take(ledger, 'product.list');
  ledger.settle(take(ledger, 'order.all'));
  ledger.block('product.get', 600_000, 'no permission', 'product.get');
  ledger.holdBack('webhook.get', 50_000);
  clock.reboot(3_600_000, 600);
  expect(waitOf(ledger, 'product.list')).toEqual({ reason: 'interval', waitMs: 401 });
  expect(waitOf(ledger, 'order.all')).toEqual({ reason: 'interval', waitMs: 119_401 });
  expect(waitOf(ledger, 'product.get')).toEqual({ reason: 'blocked', waitMs: 599_400 });
  expect(waitOf(ledger, 'webhook.get')).toEqual({ reason: 'retry-after', waitMs: 49_400 });
  expect(ledger.acquire('order.all', small, HOLD_MS)).toMatchObject({ wait: { reason: 'window' } });
  await clock.advance(299_402);
  expect(ledger.acquire('order.all', small, HOLD_MS)).toMatchObject({ granted: true });
});

test('a block and a pause that have ended do not begin again with the next boot', async () => {
  const { clock, ledger } = setUp();
  ledger.block('all', 3_600_000, 'blocked', 'product.list');
  ledger.block('order.all', 600_000, 'no permission', 'order.all');
  ledger.holdBack('webhook.get', 50_000);
  await clock.advance(3_700_000);
  for (const endpoint of ['order.all', 'product.list', 'webhook.get'] as const)
    ledger.settle(take(ledger, endpoint), 'answered');
  await clock.advance(30 * 24 * 3_600_000);
  clock.reboot(8 * 3_600_000, 150_000);
  for (const endpoint of ['order.all', 'product.list', 'webhook.get'] as const)
    expect(waitOf(ledger, endpoint), endpoint).toBe('granted');
});

test('a machine set back within its boot does not stall', async () => {
  const { clock, ledger } = setUp();
  ledger.settle(take(ledger, 'order.all'));
  await clock.advance(-900_000);
  expect(waitOf(ledger, 'order.all')).toEqual({ reason: 'interval', waitMs: 120_001 });
  await clock.advance(120_001);
  expect(waitOf(ledger, 'order.all')).toBe('granted');
});

test('a refused call and a status question write nothing', () => {
  const state = tempState(new FakeClock());
  take(state.ledger, 'order.all');
  const bytes = () => [state.path, `${state.path}-wal`].map((path) => readFileSync(path).toString('latin1'));
  const before = bytes();
  expect(waitOf(state.ledger, 'order.all')).toMatchObject({ reason: 'in-flight' });
  expect(state.ledger.waits(limits)).toMatchObject([{ endpoint: 'order.all' }]);
  expect(state.ledger.waitOf('order.all', limits)).toEqual(state.ledger.waits(limits)[0]);
  expect(state.ledger.waitOf('product.list', limits)).toBeUndefined();
  expect(bytes()).toEqual(before);
  take(state.ledger, 'product.list');
  expect(bytes()).not.toEqual(before);
});
